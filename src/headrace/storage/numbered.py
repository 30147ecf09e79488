"""Records with numbers, each written once: of several writers of one number the first one counts.

A writer creates the number that follows the newest record that it has read, never the next free one. So a writer that
was stopped for a while finds its number taken, and reads again what stands now.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from headrace.storage.durable import create_file, names_in
from headrace.storage.remote import at
from headrace.storage.store import StoreEntry

_DIGITS, _ENDING = 6, ".json"


def file_of(folder: Path, number: int, ending: str = _ENDING) -> Path:
    """The file of a record, or one next to it by another ending."""
    return folder / f"{number:0{_DIGITS}d}{ending}"


def numbers_in(folder: Path) -> list[int]:
    """The numbers of the records in `folder`, in order; none without it. Raises OSError."""
    try:
        names = names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(number for number in map(_number, names) if number is not None)


def newest_in(folder: Path) -> StoreEntry | None:
    """The file of the newest record in `folder`, by one question; None without any. Raises OSError."""
    store, inside = at(folder)
    try:
        entries = store.listing(inside)
    except (FileNotFoundError, NotADirectoryError):
        return None
    records = {number: entry for entry in entries if (number := _number(entry.name)) is not None}
    return records[max(records)] if records else None


def _number(name: str) -> int | None:
    stem = name.removesuffix(_ENDING)
    return int(stem) if name.endswith(_ENDING) and stem.isdigit() else None


def create(folder: Path, number: int, facts: Mapping[str, Any]) -> bool:
    """Write record `number` unless it is there; whether this call wrote it. Raises OSError.

    If the answer of the storage is lost, the token says whose record it is.
    """
    file, token = file_of(folder, number), uuid.uuid4().hex
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    text = json.dumps({"number": number, "token": token, "at": now, **facts}, indent=2) + "\n"
    try:
        return create_file(file, text)
    except OSError:
        if _token_in(file) == token:
            return True
        raise


def _token_in(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["token"])
    except FileNotFoundError:
        return None
