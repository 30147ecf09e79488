"""Append-only files of JSON lines, of which a crash can cut off no more than the last line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from headrace.errors import reason
from headrace.storage.remote import at


class DamagedLine(ValueError):
    """A line that no crash leaves behind; `number` counts from 1."""

    def __init__(self, number: int, error: Exception) -> None:
        self.number = number
        super().__init__(reason(error))


def append(path: Path, values: Iterable[Any], *, sync: bool = True) -> None:
    """Add a line for each of `values`, after what a crash has cut off is taken away. Raises OSError.

    With `sync` the lines are on the disk when this returns, and the name of a file that is new as well.
    """
    store, inside = at(path)
    store.append_lines(inside, text_of(values).encode(), sync=sync)


def count(path: Path) -> int:
    """How many lines a file has; none where there is no file. Raises OSError."""
    try:
        with path.open("rb") as opened:
            return sum(block.count(b"\n") for block in iter(lambda: opened.read(1 << 20), b""))
    except FileNotFoundError:
        return 0


def text_of(values: Iterable[Any]) -> str:
    return "".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values)


def objects_of(printed: str) -> Iterator[dict[str, Any]]:
    """Yield the objects among the lines that a process has printed; other lines are passed over."""
    for line in printed.splitlines():
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def read(path: Path, *, skip: Literal["none", "last", "any"] = "last") -> list[Any]:
    """Every line, oldest first; none where there is no file. Raises OSError, and DamagedLine for a line of no JSON.

    skip: which such line is passed over instead: `last`, which a crash cuts off while it is appended, or `any`, of a
    record that a query can do without.
    """
    try:
        lines = path.read_bytes().rstrip(b"\n").split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
    values = []
    if lines == [b""]:
        return []
    for number, line in enumerate(lines, start=1):
        try:
            values.append(json.loads(line.decode()))
        except ValueError as error:
            # What is written is ASCII, so that no crash leaves half a character.
            passed_over = skip == "any" or (skip == "last" and number == len(lines))
            if not (passed_over and isinstance(error, json.JSONDecodeError)):
                raise DamagedLine(number, error) from error
    return values
