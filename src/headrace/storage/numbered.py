"""Records with numbers, each written once: of several writers of one number the first one counts.

A writer creates the number that follows the newest record that it has read, never the next free one. So a writer that
was stopped for a while finds its number taken, and reads again what stands now.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from headrace.errors import HeadraceError
from headrace.storage import json_record
from headrace.storage.durable import create_file, names_in
from headrace.storage.remote import at
from headrace.storage.store import Store, StoreEntry

_Record = TypeVar("_Record")
# A record does not change, so that each is read once; another one in its place, of another storage, has another time.
_read: WeakKeyDictionary[Store, dict[str, tuple[StoreEntry, Any]]] = WeakKeyDictionary()

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


def read_newest(
    folder: Path, make: Callable[[Any], _Record], damaged: Callable[[Path], Callable[[str], HeadraceError]]
) -> _Record | None:
    """What `make` gives of the newest record in `folder`; None without any. Raises OSError.

    A record that cannot be read raises what `damaged` gives for its file: an older one is never used in its place.
    """
    newest = newest_in(folder)
    if newest is None:
        return None
    file = folder / newest.name
    read = _read.setdefault(at(file)[0], {})
    kept = read.get(str(file))
    if kept is not None and kept[0] == newest:
        record: _Record = kept[1]
        return record
    made = json_record.read(file, make, damaged(file))
    if made is not None:
        read[str(file)] = newest, made
    return made


def _number(name: str) -> int | None:
    stem = name.removesuffix(_ENDING)
    return int(stem) if name.endswith(_ENDING) and stem.isdigit() else None


def create(folder: Path, number: int, facts: Mapping[str, Any]) -> bool:
    """Write record `number` unless it is there; whether this call wrote it. Raises OSError.

    If the answer of the storage is lost, the token says whose record it is; `facts` may bring one.
    """
    file, token = file_of(folder, number), str(facts.get("token") or uuid.uuid4().hex)
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    text = json.dumps({**facts, "number": number, "token": token, "at": facts.get("at") or now}, indent=2) + "\n"
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
