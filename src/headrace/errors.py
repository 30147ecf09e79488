"""The errors and findings of Headrace (where, code, what, fix), and values as plain data.

HeadraceError                  anything foreseeable; printed as its findings, never as a stack trace
├── ProjectError               the project's files or declarations are wrong (exit code 1)
├── PlatformError              Java, an extra, a directory or a permission is missing (exit code 2)
├── CheckFailed                a check found an error before start (exit code 1)
│   └── LeaseLost              another process may work on the query by now: nothing of it is to be touched
├── QueryFailed                a query stopped with an error (exit code 1)
│   ├── Fenced                 a newer driver runs the same query (exit code 3)
│   ├── SinkError              the sink refused or could not take a batch
│   │   └── NothingChanged     the sink refused a change of its result, which is as it was
│   │       └── AttemptFailed  this attempt has changed nothing; one that was cut off before may have
│   └── SourceError            the source could not be read
└── CheckpointError            the checkpoint cannot be read or does not fit (exit code 1)
    └── CheckpointBehind       the sink holds batches that the checkpoint has lost, and can give them back
"""

from __future__ import annotations

import difflib
import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from headrace.findings import Severity, objection, passes, passes_soon, refuses, severity_of
from headrace.markup import page
from headrace.redaction import redacted

EXIT_BROKEN = 2
# A supervisor must not start such a driver again: it would fence off the one that has taken over.
EXIT_FENCED = 3
# What a start needs is away, as where a machine boots before its cluster: EX_TEMPFAIL of sysexits.h.
EXIT_AWAY = 75
# Nothing can be started before the project is changed: EX_CONFIG of sysexits.h.
EXIT_REFUSED = 78
# What starting again would not help.
FINAL_EXIT_CODES = (EXIT_BROKEN, EXIT_FENCED, EXIT_REFUSED)


@dataclass(frozen=True, kw_only=True, order=True)
class Where:
    """The file and line that something was declared at; either may be unknown."""

    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return "headrace"
        return self.file if self.line is None else f"{self.file}:{self.line}"


NOWHERE = Where()
# With this variable a finding that the catalogue does not have raises ValueError.
STRICT = "HEADRACE_STRICT_FINDINGS"
OF_THE_CATALOGUE = cast("Severity", "")
# A server may quote a whole row in its refusal, which every log and history would keep.
MOST_CHARACTERS = 20_000


class PlainData:
    """A dataclass that gives itself as plain data.

    derived: the properties that stand there behind its fields. optional: the fields that do not where they are None.
    """

    derived: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the value, and all that is in it, as plain data."""
        values = _by_name(self, self.derived)
        return {name: value for name, value in values.items() if value is not None or name not in self.optional}

    def _repr_html_(self) -> str:
        """Show it in a notebook."""
        return page(self.as_dict(), title=getattr(self, "sentence", "") or type(self).__name__)

    @classmethod
    def from_dict(cls: type[_Plain], plain: Mapping[str, Any]) -> _Plain:
        """Read what `as_dict` returned; what a later version has added is left out.

        Raises:
            KeyError: A field without a default is missing.
            ValueError: A value is not of the field's type; TypeError likewise.
        """
        return cast("_Plain", build(cls, plain))


_Plain = TypeVar("_Plain", bound=PlainData)
_hints = cache(get_type_hints)


def build(record: Any, facts: Mapping[str, Any]) -> Any:
    """Make the dataclass `record` of plain data, as `plain` or `asdict` gives it."""
    required = {field.name for field in fields(record) if field.default is field.default_factory is MISSING}
    names = [field.name for field in fields(record) if field.name in {*facts, *required}]
    return record(**{name: _value(_hints(record)[name], facts[name], name) for name in names})


def _value(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type of the field `name`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return None if value is None else _value(parts[0], value, name)
    if origin is Literal:
        if value not in parts:
            raise ValueError(f"it names another {name}, '{value}'")
        return value
    if origin is tuple:
        return tuple(_value(parts[0], item, name) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        return dict(value)
    if is_dataclass(hint):
        return build(hint, value)
    return value if hint is Any else datetime.fromisoformat(value) if hint is datetime else hint(value)


def plain(value: Any) -> Any:
    """Return a value as plain data: times in ISO 8601, bytes in hexadecimal, other numbers and paths as texts."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, Decimal | timedelta | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str | int) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        each_plain = map(plain, value)
        return tuple(each_plain) if isinstance(value, tuple) else list(each_plain)
    return _by_name(value) if is_dataclass(value) else value


def _by_name(value: Any, derived: tuple[str, ...] = ()) -> dict[str, Any]:
    names = (*(field.name for field in fields(value)), *derived)
    return {name: plain(getattr(value, name)) for name in names}


@dataclass(frozen=True, kw_only=True)
class Finding(PlainData):
    """One thing that a check found, in the four parts that every message has.

    Attributes:
        code: The code, as HR203.
        what: What is wrong, in one sentence.
        fix: What to do about it; empty if there is nothing to do.
        where: The file and the line.
        severity: `error`, `warning` or `note`; by default that of the code.
    """

    code: str
    what: str
    fix: str = ""
    where: Where = NOWHERE
    severity: Severity = OF_THE_CATALOGUE

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", severity_of(self.code))
        for name in ("what", "fix"):
            if len(text := getattr(self, name)) > MOST_CHARACTERS:
                object.__setattr__(self, name, _without_middle(redacted(text)))
        # A developer's mistake fails at once, in subprocesses too; a user gets the message all the same.
        if STRICT in os.environ and (wrong := objection(self.code, self.severity)):
            raise ValueError(f"{wrong}; correct src/headrace/findings.py, then: make docs")

    def with_severity(self, severity: Severity) -> Finding:
        """Return the same finding with any severity, as where an error of one part stops nothing of the whole."""
        other = copy(self)
        object.__setattr__(other, "severity", severity)
        return other

    def reword(self, *, what: str | None = None, fix: str | None = None, where: Where | None = None) -> Finding:
        """Return the same finding in other words, or at another place, with the severity that it has."""
        other = copy(self)
        for name, value in (("what", what), ("fix", fix), ("where", where)):
            if value is not None:
                object.__setattr__(other, name, value)
        return other

    @property
    def passes(self) -> bool:
        """Whether a later start can succeed although nothing was corrected."""
        return passes(self.code, self.what)

    @property
    def passes_soon(self) -> bool:
        """Whether the next attempt mostly succeeds."""
        return passes_soon(self.code)

    @property
    def refuses(self) -> bool:
        """Whether no start can succeed before the project is changed."""
        return refuses(self.code, self.what)

    def __str__(self) -> str:
        mark = "" if self.severity == "error" else f" ({self.severity})"
        head = f"{self.where} {self.code}{mark}: {self.what}"
        return redacted(f"{head}\n  fix: {self.fix}" if self.fix else head)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain data, for `--json`."""
        return {**super().as_dict(), "what": redacted(self.what), "fix": redacted(self.fix)}


def _without_middle(text: str) -> str:
    """Both ends of a long text that holds no secret any more, and how much was left out between them."""
    end = MOST_CHARACTERS // 2
    cut = len(text) - MOST_CHARACTERS
    return f"{text[:end]} [{cut:,} characters] {text[-end:]}" if cut > 0 else text


class HeadraceError(Exception):
    """A foreseeable fault, carrying one finding or more."""

    exit_code: int = 2

    def __init__(
        self,
        findings: Finding | Sequence[Finding] = (),
        *,
        code: str = "",
        what: str = "",
        fix: str = "",
        where: Where = NOWHERE,
        severity: Severity = OF_THE_CATALOGUE,
    ) -> None:
        """Carry `findings`, or the one whose parts are given.

        Args:
            findings: One finding or more.
            code: The code of a single finding, in place of `findings`.
            what: Its sentence.
            fix: What to do about it.
            where: The file and line.
            severity: The catalogue's for the code, unless another one is given.

        Raises:
            ValueError: The catalogue does not have the code (only with HEADRACE_STRICT_FINDINGS).
        """
        if code:
            findings = Finding(code=code, what=what, fix=fix, where=where, severity=severity)
        self.findings: tuple[Finding, ...] = (findings,) if isinstance(findings, Finding) else tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class ProjectError(HeadraceError):
    """The project's files or declarations are wrong; every fault found is reported at once."""

    exit_code = 1

    @classmethod
    def of_all(cls, findings: Iterable[Finding]) -> ProjectError:
        """Return the error with each of `findings` once, by file and line, without secrets."""
        clean = [
            finding.reword(what=redacted(finding.what), fix=redacted(finding.fix))
            for finding in dict.fromkeys(findings)
        ]
        return cls(sorted(clean, key=lambda finding: (finding.where.file or "", finding.where.line or 0)))


class PlatformError(HeadraceError):
    """The machine lacks something: Java, an extra, a writable directory."""


class CheckFailed(HeadraceError):
    """A check found an error before anything was started."""

    exit_code = 1


class LeaseLost(CheckFailed):
    """This process was stopped for longer than its lease: another one may work on the query by now."""


class QueryFailed(HeadraceError):
    """A query stopped with an error."""

    exit_code = 1


class Fenced(QueryFailed):
    """A newer driver has taken over the same query; this one may write nothing more."""

    exit_code = EXIT_FENCED


class SinkError(QueryFailed):
    """The sink refused a batch or could not take it; the message says whether it is in, if that is known."""


class NothingChanged(SinkError):
    """The sink did not rename, archive, restore, swap or rewind its result, which is as it was."""


class AttemptFailed(NothingChanged):
    """The sink could not be reached or did not carry the change out; an attempt that was cut off before may have."""


class SourceError(QueryFailed):
    """A source could not be read; the batch was not committed and is read again at the next start."""


class CheckpointError(HeadraceError):
    """A checkpoint cannot be read, or does not fit what is to run."""

    exit_code = 1


class CheckpointBehind(CheckpointError):
    """The sink holds batches that the checkpoint has lost; what was planned for them can be written again."""


def import_optional(module: str, message: str, extra: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: The module's name.
        message: What is missing without it, as a sentence.
        extra: The extra of Headrace that installs it.

    Raises:
        PlatformError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        fix = f"install the extra: pip install 'headrace[{extra}]'"
        raise PlatformError(code="HR011", what=message, fix=fix) from error


def first_line(text: object) -> str:
    """Return the first line of a text, or of a fault's message; empty if it has none."""
    return next((line.strip() for line in str(text).splitlines() if line.strip()), "")


def in_one_line(text: object) -> str:
    """Join a text of several lines, as a server's message, with a semicolon for each break that ends no sentence."""
    lines = [" ".join(line.split()) for line in str(text).splitlines()]
    return re.sub(r"([.:;?]);", r"\1", "; ".join(line for line in lines if line))


def reason(error: BaseException) -> str:
    """Return why something could not be read or written, as the end of a sentence; else Python's own words."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON from line {error.lineno}, column {error.colno} on"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text: byte {error.start + 1} belongs to no character"
    if isinstance(error, KeyError):
        return f"it has no '{error.args[0]}'" if error.args else "something is missing in it"
    if isinstance(error, (TypeError, AttributeError, IndexError, zlib.error, struct.error)):
        return "it does not hold what Headrace or Spark writes there"
    text = str(error)
    if re.match(r"invalid literal|could not convert|(?:not enough|too many) values|Invalid isoformat", text):
        return "it does not hold what Headrace or Spark writes there"
    return text or type(error).__name__


# Words of Spark, and of other tools, for what has another name here.
_WORDS = {
    "every": "processing_time",
    "mode": "output_mode",
    "subscribe": "topic topics",
    "key": "primary_key merge_keys unique_key",
    "files": "file csv json parquet",
    "path": "directory dir",
    "table": "table_name",
    "postgres": "jdbc postgresql",
    "mysql": "mariadb",
    "console": "stdout print",
    "run": "start execute",
    "check": "validate lint",
    "verify": "test",
    "init": "new create",
    "demo": "example",
    "status": "ps",
}
_SYNONYMS = {word: name for name, words in _WORDS.items() for word in words.split()}


def nearest(name: str, candidates: Iterable[str], *, elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
    """Say which candidates are nearest to a misspelt name, or all of them when there are few and none is near.

    Args:
        name: The name as the user wrote it.
        candidates: The names that exist.
        elsewhere: Names that exist at another place, each with what to do there.
    """
    names = sorted(set(candidates))
    if name in elsewhere:
        return elsewhere[name]
    if elsewhere:
        proposal = nearest(name, names)
        if proposal.startswith("did you mean"):
            return proposal
        there = difflib.get_close_matches(name.lower(), elsewhere, n=1, cutoff=0.7)
        return elsewhere[there[0]] if there else proposal
    if not names:
        return "there is none"
    folded = {re.sub(r"[-_\s]", "", candidate).lower(): candidate for candidate in names}
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    other = _SYNONYMS.get(snake)
    near = difflib.get_close_matches(re.sub(r"[-_\s]", "", name).lower(), folded, n=3, cutoff=0.6)
    close = [other] if other in names else [folded[match] for match in near]
    if close and close[0].lower() == name.lower():
        close = close[:1]
    if close:
        return "did you mean " + " or ".join(f"'{candidate}'" for candidate in close) + "?"
    return "known: " + ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
