"""The records of a text file that do not fit, found again by their lines in the file that Spark names."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

# Spark reads on other machines, and files may be large: what is not found quickly is left out.
MOST_BYTES = 64_000_000
# Of more lines with the same fault only so many are named.
_NAMED = 5
_SEPARATORS = (",", ";", "\t", "|")
_VALUE = re.compile(
    r"(?:the value|input string:?|value of|For input string:?)\s+[`'\"]([^`'\"\n]{1,200})[`'\"]", re.IGNORECASE
)
_WHOLE, _NUMBER = re.compile(r"\s*[+-]?\d+\s*"), re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
# What a text has at least to be for a type; what passes may be refused all the same.
_FORMS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), _WHOLE),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), _NUMBER),
    "BOOLEAN": re.compile(r"\s*(true|false)\s*", re.IGNORECASE),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), re.compile(r"\s*[+-]?\d.*")),
}


def find(file: str, message: str) -> str | None:
    """`line 2: {"id": 2, "n` of `file`, by Spark's whole message; None where it cannot be determined."""
    lines = _lines(file)
    broken = _broken_json(lines)
    at = broken[0] if broken else None
    csv_record = re.search(r"Malformed CSV record:\s*(.+?)\s*(?:SQLSTATE|\n|$)", message)
    if at is None and csv_record is not None:
        wanted = _in_utf8(csv_record[1].strip().rstrip("."))
        at = next((number for number, line in enumerate(lines) if line.strip() == wanted), None)
    if at is None:
        values = [value for value in _VALUE.findall(message) if value.strip()]
        at = next((number for value in values for number, line in enumerate(lines) if value in line), None)
    if at is None:
        return None
    record = lines[at].strip()
    shown = record if len(record) <= 160 else record[:157] + "..."
    return f"line {at + 1}: {shown}{also([number + 1 for number in broken[1:]])}"


def also(more: list[int]) -> str:
    """How a message ends that has named one line, of a file in which these have the same fault."""
    if not more:
        return ""
    named = ", ".join(map(str, more[:_NAMED]))
    rest = f" and {len(more) - _NAMED} more" if len(more) > _NAMED else ""
    return f"; so {'does line' if len(more) == 1 else 'do the lines'} {named}{rest}"


def misfits(file: str, column: str, type_: str, value: str) -> list[int]:
    """The lines, from 1, at which `column` holds `value`, and then those at which it is no `type_` either."""
    form = _FORMS.get(re.split(r"[( ]", type_)[0].upper())
    lines = _lines(file)
    cells = list(_json_cells(lines, column) if lines and lines[0].lstrip()[:1] == "{" else _csv_cells(lines, value))
    first = [number for number, text in cells if text.strip() == value.strip()]
    rest = [number for number, text in cells if form is not None and text.strip() and not form.fullmatch(text)]
    return [*first[:1], *(number for number in rest if number not in first[:1])] if first else []


def missing(file: str, column: str) -> list[int]:
    """The lines, from 1, of a file of JSON's objects at which `column` has no value."""
    lines = _lines(file)
    if not lines or lines[0].lstrip()[:1] != "{":
        return []
    return [number for number, row in _json_rows(lines) if row.get(column) is None]


def holding(file: str, text: str) -> list[int]:
    """The line, from 1, that begins with `text`, as a message shows it; none where it is not to be found."""
    lines = enumerate(_lines(file), 1)
    return next(([number] for number, line in lines if text and line.replace("`", "'").startswith(text)), [])


def list_undecoded_lines(file: str) -> list[int]:
    """The lines, from 1, that are no UTF-8."""
    return [number for number, line in enumerate(_bytes(file).split(b"\n"), 1) if _fails(bytes.decode, line)]


def _in_utf8(text: str) -> str:
    """A text of csv, whose bytes Spark took for characters, as it was written."""
    try:
        return text.encode("iso-8859-1").decode("utf-8")
    except ValueError:
        return text


def _bytes(file: str) -> bytes:
    """What a file of this machine holds; nothing where it is too large, or is not here."""
    try:
        if os.path.getsize(file) > MOST_BYTES:
            return b""
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def _lines(file: str) -> list[str]:
    return _bytes(file).decode("utf-8", errors="replace").splitlines()


def _json_rows(lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield number, row


def _json_cells(lines: list[str], column: str) -> Iterator[tuple[int, str]]:
    for number, row in _json_rows(lines):
        if row.get(column) is not None:
            yield number, row[column] if isinstance(row[column], str) else json.dumps(row[column])


def _csv_cells(lines: list[str], value: str) -> Iterator[tuple[int, str]]:
    """The cells of the column that holds `value`; a first line, which may be a header, is not looked at."""
    for separator in _SEPARATORS:
        reader = csv.reader(lines, delimiter=separator)
        rows = [(reader.line_num, row) for row in reader]
        at = next((row.index(cell) for _, row in rows for cell in row if cell.strip() == value.strip()), None)
        if at is not None:
            body = rows if rows[0][1][at : at + 1] == [value] else rows[1:]
            yield from ((number, row[at]) for number, row in body if len(row) > at)
            return


def _broken_json(lines: list[str]) -> list[int]:
    """The lines, from 0, that are no JSON, of a file that is made of JSON's objects, one a line."""
    written = [(number, line) for number, line in enumerate(lines) if line.strip()]
    if not written or written[0][1].lstrip()[:1] not in ("{", "["):
        return []
    return [number for number, line in written if _fails(json.loads, line)]


def _fails(read: Callable[[Any], Any], line: str | bytes) -> bool:
    try:
        read(line)
    except ValueError:
        return True
    return False
