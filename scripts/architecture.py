"""The picture of the rooms in docs/explanation/architecture.md, drawn from today's imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"
# Everything imports these, so that their arrows would hide the others; `findings` and `redaction` are part of errors.
EVERYWHERE = frozenset({"errors", "redaction", "findings"})
ENTRY = "registry"  # It finds the connectors by their entry points, which are not imports.


class Data(NamedTuple):
    """What lies outside the code: the room that reads or writes it, and a text of that room's code that shows it."""

    name: str
    room: str
    arrow: str
    evidence: str


DATA = (
    Data("headrace.yml, SQL, .env", "loader", "read by", '"headrace.yml"'),
    Data("the user's Python", "declare", "calls", "class DeclaredQuery"),
    Data("Spark", "spark", "started and asked by", "SparkSession"),
    Data("Spark's checkpoint", "checkpoint", "read and rewritten by", '"offsets"'),
    Data("archive, manifest, lock", "generations", "written by", "layout.manifest"),
    Data("history.db", "history", "written and read by", "sqlite3.connect"),
    Data("systems: databases, brokers, files", "connectors", "read and written by", "readStream"),
)


@cache
def imports() -> dict[str, frozenset[str]]:
    """Each room, and the rooms that it imports; imports in functions and for type checkers count."""
    graph = grimp.build_graph("headrace", cache_dir=None)
    targets: dict[str, set[str]] = {}
    for module in graph.modules:
        room = _room(module)
        if room is None or room.startswith("_"):
            continue
        others = {_room(other) for other in graph.find_modules_directly_imported_by(module)}
        targets.setdefault(room, set()).update(other for other in others if other not in (None, room, "__init__"))
    return {room: frozenset(targets[room]) for room in sorted(targets)}


def _room(module: str) -> str | None:
    return module.split(".")[1] if "." in module else None


def picture() -> str:
    """A mermaid flowchart: an arrow leads from a room to those that it imports, unless another one leads there too."""
    rooms = [room for room in imports() if room not in EVERYWHERE]
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"  {room}[{room}]" for room in rooms]
    lines += [f"  {room} --> {other}" for room in rooms for other in sorted(_next(room))]
    lines += [f"  {ENTRY} -. entry points .-> connectors"]
    for number, data in enumerate(DATA):
        lines += [f'  data{number}[("{data.name}")] -. {data.arrow} .- {data.room}']
    return "\n".join([*lines, "```"])


def _next(room: str) -> Iterator[str]:
    """The rooms that `room` imports and that none of its other imports leads to."""
    direct = imports()[room] - EVERYWHERE
    for other in direct:
        between = (middle for middle in direct if middle != other and room not in _list_rooms_below(middle))
        if not any(other in _list_rooms_below(middle) for middle in between):
            yield other


@cache
def _list_rooms_below(room: str) -> frozenset[str]:
    """Every room that is imported from `room` on."""
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        new = imports()[waiting.pop()] - seen
        seen |= new
        waiting.extend(new)
    return frozenset(seen)


def table() -> str:
    """What each room holds, by its docstring, and every room that it imports."""
    lines = ["| room | what it holds | imports |", "|---|---|---|"]
    for room, others in imports().items():
        lines.append(f"| `{room}` | {_holds(room)} | {', '.join(sorted(others)) or 'nothing'} |")
    return "\n".join(lines)


def _holds(room: str) -> str:
    file = SOURCE / f"{room}.py"
    text = (SOURCE / room / "__init__.py" if (SOURCE / room).is_dir() else file).read_text(encoding="utf-8")
    first = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


def list_unproved() -> list[str]:
    """The data of the picture whose room no longer shows that it touches them."""
    return [data.name for data in DATA if not any(data.evidence in text for text in _texts(data.room))]


def _texts(room: str) -> Iterator[str]:
    for file in (SOURCE / room).rglob("*.py"):
        yield file.read_text(encoding="utf-8")
