"""`${VAR}`, `${VAR:-default}` and `${file:/path}` in texts, and every place where their values are looked for."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from headrace.declare.faults import display_path
from headrace.errors import Finding, ProjectError, Where, nearest
from headrace.redaction import remember, secrets_in

_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET_NAME = re.compile(r"PASS|PWD|SECRET|TOKEN|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
MOST_BYTES = 5_000_000
NO_HOME = "write the absolute path, or ~/ for your own home"


@dataclass(kw_only=True)
class Variables:
    """The values that texts of one project may ask for; remembers which secrets it has given out.

    environ: the environment, looked at first.
    vars: the target's own, looked at next; `vars_of` is its name for messages.
    dotenv: what the project's `.env` file says, looked at last; `dotenv_passed_over` are the lines of it that
        say nothing.
    secrets: secret values given out, each with the text that stood for it.
    secret_files: the files that some of them came from, as the project names them.
    may_lack: whether the project may lack variables of what works on data: sources, sinks, settings of Spark, hooks.
    lacking: what is wrong with settings and hooks, if they may lack theirs.
    asked: the values of the variables that texts have named.
    """

    environ: Mapping[str, str]
    vars: Mapping[str, str] = field(default_factory=dict)
    vars_of: str = ""
    dotenv: Mapping[str, str] = field(default_factory=dict)
    dotenv_passed_over: tuple[int, ...] = ()
    root: Path
    secrets: dict[str, str] = field(default_factory=dict)
    secret_files: dict[str, None] = field(default_factory=dict)
    may_lack: bool = False
    lacking: list[Finding] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, environ: Mapping[str, str] | None = None, *, may_lack: bool = False) -> Variables:
        """Return the variables of the project at `root`, before any target is chosen.

        Raises:
            ProjectError: The file `.env` cannot be read.
        """
        file = root / ".env"
        try:
            values, passed_over = read_dotenv(read_text(file)) if os.path.lexists(file) else ({}, ())
        except NoText as error:
            raise ProjectError(
                code="HR115",
                what=f"the project's file of variables cannot be read: {error}",
                fix="make it a readable UTF-8 text file of lines KEY=VALUE, or remove it",
                where=Where(file=display_path(file), line=error.line),
            ) from error
        return cls(
            environ=os.environ if environ is None else environ,
            dotenv=values,
            dotenv_passed_over=passed_over,
            root=root,
            may_lack=may_lack,
        )

    def get(self, name: str) -> str | None:
        """Return the value of `name` from the first place that has it."""
        return next((place[name] for place in (self.environ, self.vars, self.dotenv) if name in place), None)

    def expand(self, value: Any, where: Where, findings: list[Finding]) -> Any:
        """Return `value` with every reference in its texts replaced, those in lists and mappings too."""
        if isinstance(value, str):
            return _REFERENCE.sub(lambda match: self._resolve(match, where, findings), value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.expand(item, where, findings) for item in value)
        if isinstance(value, Mapping):
            return {key: self.expand(item, where, findings) for key, item in value.items()}
        return value

    def _resolve(self, match: re.Match[str], where: Where, findings: list[Finding]) -> str:
        """Return what stands in place of a reference; itself, with a finding, where that is not known."""
        reference, inside = match.group(), match.group(1) or ""
        if reference == "$$":
            return "$"
        if inside.startswith("file:"):
            return self._from_file(inside.removeprefix("file:"), where, findings) or reference
        name, has_default, default = inside.partition(":-")
        if not _NAME.match(name) or "${" in default:
            message = f"'{reference}' is not a reference to a variable"
            fix = "write ${VAR}, ${VAR:-default} or ${file:/path}, and $$ for a dollar sign"
            findings.append(Finding(code="HR104", what=message, fix=fix, where=where))
            return reference
        value = self.get(name)
        if value is not None:
            self.asked[name] = value
        if not value and has_default:
            return default
        if value is None:
            findings.append(self._unset_finding(name, where))
            return reference
        if _SECRET_NAME.search(name) or any(secrets_in(value)):
            self._remember(value, name)
            if self.dotenv.get(name) == value:
                self.secret_files[".env"] = None
        return value

    def _from_file(self, text: str, where: Where, findings: list[Finding]) -> str | None:
        try:
            value = read_text(self.root / Path(text).expanduser()).strip()
            if not value:
                raise NoText("it is empty")
        except (NoText, RuntimeError) as error:
            message = f"the secret file '{text}' cannot be read: {error}"
            fix = "write the secret into that file, or correct its path"
            findings.append(Finding(code="HR115", what=message, fix=fix, where=where))
            return None
        self._remember(value, f"file:{text}")
        self.secret_files[text] = None
        return value

    def _remember(self, value: str, name: str) -> None:
        if value:
            self.secrets[value] = "${" + name + "}"
            remember(value, self.secrets[value])

    def _unset_finding(self, name: str, where: Where) -> Finding:
        searched = ["the environment"]
        if self.vars_of:
            searched.append(f"vars of target '{self.vars_of}'")
        file = self.root / ".env"
        searched.append(f"{display_path(file)}{'' if file.is_file() else ' (no such file)'}")
        near = nearest(name, [*self.vars, *self.dotenv, *self.environ])
        hint = f"; {near}" if near.startswith("did you mean") else ""
        if self.dotenv_passed_over:
            lines = ", ".join(map(str, self.dotenv_passed_over[:3]))
            hint += f"; what stands in line {lines} of {display_path(file)} is not KEY=VALUE"
        return Finding(
            code="HR105",
            what=f"the variable '{name}' is not set; searched: {', '.join(searched)}",
            fix=f"export {name}=..., or give a default: ${{{name}:-value}}{hint}",
            where=where,
        )


def read_dotenv(text: str) -> tuple[dict[str, str], tuple[int, ...]]:
    """Return what a `.env` file sets, and the numbers of its lines that set nothing and are not comments.

    A `${VAR}` in it stays as it is: a value is taken literally.
    """
    from dotenv.parser import parse_stream

    values: dict[str, str] = {}
    passed_over = []
    for binding in parse_stream(StringIO(text)):
        text_ = binding.original.string
        if binding.key is not None and binding.value is not None and _NAME.match(binding.key):
            values[binding.key] = binding.value
        elif binding.error or binding.key is not None:
            # The parser counts from the empty lines in front.
            passed_over.append(binding.original.line + text_[: len(text_) - len(text_.lstrip())].count("\n"))
    return values, tuple(passed_over)


def expand_home(path: Path | str) -> Path:
    """Return `path` with its `~` or `~user` filled in.

    Raises:
        ValueError: This machine does not know the user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"'{path}' begins with the home of a user whom this machine does not know") from None


class NoText(Exception):
    """A file cannot be read as text; the message says why, as `Permission denied` does; line: where, if known."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line


def read_text(path: Path) -> str:
    """Return the text of `path`, without a byte order mark.

    Raises:
        NoText: It cannot be read as text.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise NoText("it is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise NoText("it is not a regular file")
        if status.st_size > MOST_BYTES:
            raise NoText(f"it has {status.st_size:,} bytes, and {MOST_BYTES:,} are the most")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        why = f"it is not UTF-8 text: line {line} holds the byte 0x{error.object[error.start]:02x}"
        raise NoText(why, line) from error
    except ValueError as error:  # a path with a null character
        raise NoText("its name is not a valid name of a file") from error
    except OSError as error:
        raise NoText(error.strerror or "it cannot be opened") from error
    if "\0" in text:
        raise NoText("it is not text: it holds null characters")
    return text.replace("\r\n", "\n").replace("\r", "\n")
