"""The absolute paths in Spark's logs of files, and their rewriting after a directory was moved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from headrace.checkpoint.directory import (
    Part,
    body,
    broken_file,
    numbered_files,
    replace_file,
    text_of,
)

# From which directory to which.
Move: TypeAlias = tuple[str, str]
_LOCAL = re.compile(r"file:/+(?=/)|file:(?=/)")
# What java.net.URI leaves as it is in a path; it also leaves letters beyond ASCII.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'();/:@&=+$,")


@dataclass(frozen=True, kw_only=True)
class LoggedFile:
    """One file that a log names: its local path, and its time of modification in milliseconds."""

    path: str
    modified_ms: int | None


@dataclass(frozen=True, kw_only=True)
class FileLog:
    """One of Spark's logs of files, and the directory below which its files have to lie."""

    whose: str
    folder: Path
    home: str


def logged_files(log: Path) -> Iterator[LoggedFile]:
    """The local files that a log of a file source or of a file sink names. Raises CheckpointError."""
    for _, lines in _logs(log):
        for facts in lines:
            path = _local(facts)
            if path is not None:
                time = facts.get("timestamp", facts.get("modificationTime"))
                yield LoggedFile(path=path, modified_ms=time if isinstance(time, int) else None)


def rewrite_paths(root: Path, logs: Sequence[FileLog], moves: Sequence[Move], *, copied: Sequence[Move] = ()) -> int:
    """Rewrite the paths in logs, and in what describes the state of the checkpoint `root`; return how many in logs.

    copied: where the checkpoint lay itself, and lies; its logs name nothing there. Done again after a crash, it finds
    what is left.
    """
    for move in (*copied, *moves):
        rename_schemas(root, *move)
    return sum(rewrite(log.folder, *move, log.home) for move in moves for log in logs)


def rewrite(log: Path, old: str, new: str, home: str = "") -> int:
    """Rewrite the paths below the directory `old` in a log to lie below `new`; return how many.

    home: the directory of the log's source; files below it are named as they should be, also if it has stayed in `old`.
    Each file of the log is replaced as a whole. Done again after a crash, it finds what is left.
    """
    changed = 0
    for file, lines in _logs(log):
        rewritten = 0
        for facts in lines:
            path = _local(facts)
            if path is None or (home and below(path, home)):
                continue
            if path.startswith(f"{old}/") and not (below(new, old) and path.startswith(f"{new}/")):
                facts["path"] = f"file://{encode(new + path.removeprefix(old))}"
                rewritten += 1
        if rewritten:
            text = ["v1", *(json.dumps(facts, separators=(",", ":"), ensure_ascii=False) for facts in lines)]
            replace_file(file, "\n".join(text))
            changed += rewritten
    return changed


def rewrite_text(file: Path, old: str, new: str) -> None:
    """Rewrite the paths below `old` in a description of state to lie below `new`; both are paths or URLs."""
    text = text_of(file)
    if text is None:
        return
    begin = "" if _is_url(old) else "file:/*"
    # Earlier renames left them as a URI has them, which Spark does not find.
    names = "|".join(re.escape(name) for name in dict.fromkeys((_in_json(old), encode(old))))
    # Of a directory that was moved into itself, what was rewritten before a crash stays.
    done = f"(?!{re.escape(_in_json(new.removeprefix(old)))}/)" if below(new, old) else ""
    pattern = re.compile(f'(?<=")({begin})(?:{names})(?=/){done}')
    changed = pattern.sub(lambda match: ("" if _is_url(new) else match[1] or "file:") + _in_json(new), text)
    if changed != text:
        replace_file(file, changed)


def operator_descriptions(root: Path) -> Iterator[Path]:
    """The files in which Spark describes the stateful operators of a checkpoint, with absolute paths."""
    files = (root / Part.STATE).glob("/".join(("*", *Part.DESCRIPTIONS, "*")))
    return (file for file in files if not file.name.startswith("."))


def rename_schemas(root: Path, old: str, new: str) -> None:
    """Rewrite the paths of the files of schemas, which Spark's description of an operator with several states names."""
    for file in operator_descriptions(root):
        rewrite_text(file, old, new)


def below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def encode(path: str) -> str:
    """`path` as Spark writes it into a URI."""
    return "".join(
        letter if letter in _PLAIN or (ord(letter) > 0x9F and not letter.isspace()) else quote(letter, safe="")
        for letter in path
    )


def state_url(folder: Path) -> str:
    """A directory of this machine or of a store as Spark's description of state names it, within JSON.

    Unlike the paths in logs of files it is not encoded.
    """
    return _in_json(str(folder) if _is_url(str(folder)) else f"file:{folder}")


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_url(path: str) -> bool:
    return "://" in path


def _logs(log: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Each file of the log, with the lines behind its version."""
    for file in numbered_files(log).values():
        text = text_of(file)
        if text is None:
            continue
        try:
            lines = [json.loads(line) for line in body(file, text)[1] if line]
        except ValueError as error:
            raise broken_file(file, "a line is not JSON") from error
        yield file, [line for line in lines if isinstance(line, dict)]


def _local(facts: dict[str, Any]) -> str | None:
    """The path of a line on this machine; None where it names no local file."""
    uri = facts.get("path")
    match = _LOCAL.match(uri) if isinstance(uri, str) else None
    return unquote(uri[match.end() :]) if match is not None and isinstance(uri, str) else None
