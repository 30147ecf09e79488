"""The record of a text file that does not fit its schema, found again in the file that Spark names."""

from __future__ import annotations

import json
import os
import re

# Spark reads on other machines, and files may be large: what is not found quickly is not told.
MOST_BYTES = 64_000_000
_VALUE = re.compile(
    r"(?:the value|input string:?|value of|For input string:?)\s+[`'\"]([^`'\"\n]{1,200})[`'\"]", re.IGNORECASE
)


def find(file: str, message: str) -> str | None:
    """`line 2: {"id": 2, "n` of `file`, by Spark's whole message; None where it cannot be determined."""
    try:
        if os.path.getsize(file) > MOST_BYTES:
            return None
        with open(file, encoding="utf-8", errors="replace", newline="") as opened:
            lines = opened.read().splitlines()
    except OSError:
        return None
    at = _broken_json(lines)
    csv = re.search(r"Malformed CSV record:\s*(.+?)\s*(?:SQLSTATE|\n|$)", message)
    if at is None and csv is not None:
        at = next((number for number, line in enumerate(lines) if line.strip() == csv[1].strip().rstrip(".")), None)
    if at is None:
        values = [value for value in _VALUE.findall(message) if value.strip()]
        found = (number for value in values for number, line in enumerate(lines) if value in line)
        at = next(found, None)
    if at is None:
        return None
    record = lines[at].strip()
    return f"line {at + 1}: {record if len(record) <= 160 else record[:157] + '...'}"


def _broken_json(lines: list[str]) -> int | None:
    """The first line that is no JSON, of a file that is made of JSON's objects, one a line."""
    written = [(number, line) for number, line in enumerate(lines) if line.strip()]
    if not written or not all(line.lstrip()[:1] in ("{", "[") for _, line in written[:1]):
        return None
    for number, line in written:
        try:
            json.loads(line)
        except ValueError:
            return number
    return None
