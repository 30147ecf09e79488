"""What changed of a query: the versions that ran, each with what is not as in the one before."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from headrace.queries.layout import QueryLayout
from headrace.storage import json_lines

MOST = 50
LINES_MOST = 400


def versions(storage: Path, query: str, newest: int) -> list[dict[str, Any]]:
    """The versions of all generations up to the `newest`, the newest first."""
    noted = list(chain.from_iterable(_noted(QueryLayout(storage, query, each + 1)) for each in range(newest)))
    told = []
    for at, version in enumerate(noted):
        until = noted[at + 1]["at"] if at + 1 < len(noted) else None
        changes = dict(_changes(noted[at - 1], version)) if at else {}
        told.append({**version, "until": until, "changes": changes})
    return told[: -MOST - 1 : -1]


def _noted(layout: QueryLayout) -> Iterator[dict[str, Any]]:
    try:
        lines = json_lines.read(layout.versions, skip="any")
    except (OSError, json_lines.DamagedLine):
        return
    for line in lines:
        if isinstance(line, dict) and {"at", "from_batch", "code", "settings", "plan"} <= line.keys():
            yield {**line, "generation": layout.generation}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What differs, by the name of the part, as lines that begin with `-`, `+` or a space."""
    for name in dict.fromkeys((*before["code"], *now["code"])):
        yield from _difference(f"code of {name}", before["code"].get(name, ""), now["code"].get(name, ""))
    old, new = ("\n".join(f"{k}: {v}" for k, v in sorted(each["settings"].items())) for each in (before, now))
    yield from _difference("settings", old, new)
    yield from _difference("plan", before["plan"], now["plan"])


def _difference(part: str, before: str, now: str) -> Iterator[tuple[str, str]]:
    lines = list(difflib.unified_diff(before.splitlines(), now.splitlines(), n=2, lineterm=""))[2:]
    if lines:
        yield part, "\n".join(line for line in lines[:LINES_MOST] if not line.startswith("@@"))
