"""The queries, views and tables of `headrace.yml`, each a SELECT with its settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.contract import OUTPUT_MODES, OutputMode
from headrace.declare import TIMED, DeclaredSink, parse_trigger
from headrace.declare.location import shown
from headrace.declare.texts import NoText, read_text
from headrace.errors import NOWHERE, Where, nearest
from headrace.load.document import Entry, Reading
from headrace.load.yaml_connectors import former_names, sink
from headrace.model import Default, Duration, Trigger
from headrace.model.project import ON_CHANGE, OnChange
from headrace.model.restart import EXAMPLE, NEVER, RESTART_KEYS, Restart, restart_of
from headrace.units import size_bytes

SQL_KEYS = ("sql", "select", "description")
TABLE_KEYS = (*SQL_KEYS, "refresh")
QUERY_KEYS = (*SQL_KEYS, "sink", "mode", "trigger", "on_change", "renamed_from", "restart", "state_budget")
# Keys that other tools have for a query, and where that stands here.
_ELSEWHERE = {
    "source": "name the source in the SELECT: FROM its_name",
    "sources": "name the source in the SELECT: FROM its_name",
    "input": "name the input in the SELECT: FROM its_name",
    "inputs": "name the inputs in the SELECT: FROM its_name",
    "from": "name the input in the SELECT: FROM its_name",
    "query": "write it as select: the text, or sql: a file",
    "schedule": "write trigger: {every: 5 minutes}",
    "interval": "write trigger: {every: 5 minutes}",
    "checkpoint": "leave it out: checkpoints are below storage",
    "checkpointLocation": "leave it out: checkpoints are below storage",
    "output": "write it as sink",
    "watermark": "write it below the source: watermark: {column: time, delay: 2 hours}",
}


@dataclass(frozen=True, kw_only=True)
class Select:
    """A SELECT as written: the text and the file and line at which it begins; `kind` is table, view or query.

    refresh: how often a table is recomputed.
    """

    kind: str
    name: str
    text: str
    text_where: Where
    where: Where
    refresh: Duration | None = None


@dataclass(frozen=True, kw_only=True)
class WrittenQuery:
    """A query as written: its SELECT, if that could be read, and the rest."""

    name: str
    select: Select | None
    sink: DeclaredSink | None
    mode: OutputMode = "append"
    trigger: Trigger = field(default_factory=Default)
    description: str = ""
    on_change: OnChange = "refuse"
    renamed_from: tuple[str, ...] = ()
    restart: Restart | None = None
    state_budget_bytes: int | None = None
    where: Where = NOWHERE


def selects(top: dict[str, Entry], reading: Reading, root: Path) -> list[Select]:
    """The sections `tables` and `views`; what is wrong goes to `reading`."""
    found = []
    for section, kind, keys in (("tables", "table", TABLE_KEYS), ("views", "view", SQL_KEYS)):
        for name, entry in reading.mapping(top.get(section), section, example="name: SELECT ...").items():
            select = _select(kind, name, entry, reading, root, keys)
            if select is not None:
                refresh = _refresh(f"table '{name}'", entry, reading) if kind == "table" else None
                found.append(replace(select, refresh=refresh))
    return found


def queries(entry: Entry | None, reading: Reading, root: Path) -> list[WrittenQuery]:
    """The section `queries`; what is wrong goes to `reading`."""
    entries = reading.mapping(entry, "queries", example="name: {select: SELECT ..., sink: ...}")
    return [_query(name, each, reading, root) for name, each in entries.items()]


def _query(name: str, entry: Entry, reading: Reading, root: Path) -> WrittenQuery:
    whose = f"query '{name}'"
    if isinstance(entry.value, dict):
        for key in [key for key in entry.value if key in _ELSEWHERE]:
            reading.fault("HR103", f"{whose} has no key '{key}'", _ELSEWHERE[key], entry.value[key].where)
        left = {key: value for key, value in entry.value.items() if key not in _ELSEWHERE}
        entry = replace(entry, value=left)
    select = _select("query", name, entry, reading, root, QUERY_KEYS)
    keys = entry.value if isinstance(entry.value, dict) else {}
    mode = reading.text(keys.get("mode"), f"{whose}, mode,") or "append"
    if mode not in OUTPUT_MODES:
        reading.fault("HR119", f"{whose} has no output mode '{mode}'", nearest(mode, OUTPUT_MODES), keys["mode"].where)
    on_change = reading.text(keys.get("on_change"), f"{whose}, on_change,") or "refuse"
    if on_change not in ON_CHANGE:
        what = f"{whose} has no on_change '{on_change}'"
        reading.fault("HR133", what, nearest(on_change, ON_CHANGE), keys["on_change"].where)
    return WrittenQuery(
        name=name,
        select=select,
        sink=sink(whose, entry, keys.get("sink"), reading),
        mode=next((known for known in OUTPUT_MODES if known == mode), "append"),
        trigger=_trigger(whose, keys.get("trigger"), reading),
        description=" ".join((reading.text(keys.get("description"), f"{whose}, description,") or "").split()),
        on_change="forward" if on_change == "forward" else "refuse",
        renamed_from=former_names(whose, keys.get("renamed_from"), reading),
        restart=_restart(whose, keys.get("restart"), reading),
        state_budget_bytes=_budget(whose, keys.get("state_budget"), reading),
        where=entry.where,
    )


def _select(kind: str, name: str, entry: Entry, reading: Reading, root: Path, keys: Collection[str]) -> Select | None:
    whose = f"{kind} '{name}'"
    if isinstance(entry.value, str):
        key = "sql" if entry.value.strip().endswith(".sql") else "select"
        found = {key: entry}
    else:
        found = reading.mapping(entry, whose, keys)
    if not isinstance(entry.value, (str, dict, type(None))):
        return None
    if ("sql" in found) == ("select" in found):
        what = "has both sql and select" if "sql" in found else "has no SELECT"
        reading.fault("HR120", f"{whose} {what}", "give sql: a file, or select: the text", entry.where)
        return None
    if "select" in found:
        text = reading.text(found["select"], f"{whose}, select,")
        where = found["select"].where
        if text is not None and text.strip().endswith(".sql") and " " not in text.strip():
            fix = f"write sql: {text.strip()}"
            reading.fault("HR116", f"{whose}: select is the name of a file, and takes the text", fix, where)
            return None
        return None if text is None else Select(kind=kind, name=name, text=text, text_where=where, where=entry.where)
    path = reading.text(found["sql"], f"{whose}, sql,")
    if path is None:
        return None
    try:
        text = read_text(root / path)
    except NoText as error:
        fix = "write the SELECT under select:" if " " in path else f"paths are relative to {shown(root)}"
        if (root / path).is_file():
            fix = "make it a readable UTF-8 text file"
        reading.fault("HR115", f"{whose}: the file '{path}' cannot be read: {error}", fix, found["sql"].where)
        return None
    return Select(
        kind=kind,
        name=name,
        text=text,
        text_where=Where(file=shown(root / path), line=1),
        where=entry.where,
    )


def _refresh(whose: str, entry: Entry, reading: Reading) -> Duration | None:
    found = entry.value.get("refresh") if isinstance(entry.value, dict) else None
    if found is None:
        return None
    if isinstance(found.value, dict):
        found = reading.mapping(found, f"{whose}, refresh,", ("every",)).get("every")
    text = reading.text(found, f"{whose}, refresh,")
    if found is None or text is None:
        return None
    try:
        return Duration.parse(text)
    except ValueError as error:
        reading.fault("HR118", f"{whose}, refresh: {error}", "write for example refresh: 10 minutes", found.where)
        return None


def _restart(whose: str, entry: Entry | None, reading: Reading) -> Restart | None:
    if entry is None or entry.value is None:
        return None
    if isinstance(entry.value, dict):
        keys = reading.mapping(entry, f"{whose}, restart,", RESTART_KEYS)
        found = {key: reading.text(value, f"{whose}, restart, {key},") for key, value in keys.items()}
        policy, faults = restart_of({key: text for key, text in found.items() if text is not None})
    else:
        policy, faults = restart_of(reading.text(entry, f"{whose}, restart,") or NEVER)
    for fault in faults:
        reading.fault("HR860", f"{whose}: {fault}", f"write for example {EXAMPLE}", entry.where)
    return policy


def _budget(whose: str, entry: Entry | None, reading: Reading) -> int | None:
    text = reading.text(entry, f"{whose}, state_budget,")
    if entry is None or text is None:
        return None
    found = size_bytes(text)
    if found is None:
        what = f"{whose}, state_budget: '{text}' is no size"
        reading.fault("HR860", what, "write for example state_budget: 2g", entry.where)
    return found


def _trigger(whose: str, entry: Entry | None, reading: Reading) -> Trigger:
    if entry is None:
        return Default()
    word, where = "", entry.where
    fix = "write {every: 5 seconds}, {continuous: 1 second}, {real_time: 5 minutes}, default, available-now or once"
    if isinstance(entry.value, dict):
        found = reading.mapping(entry, f"{whose}, trigger,", tuple(TIMED))
        given = [key for key in TIMED if key in found]
        if len(given) != 1 or found[given[0]].value is None:
            named = " and ".join(given) if len(given) > 1 else "nothing" if not given else f"{given[0]} without a time"
            if given or not entry.value:
                reading.fault("HR119", f"{whose}, trigger, says {named}", fix, where)
            return Default()
        word, entry = f"{given[0]} ", found[given[0]]
    if isinstance(entry.value, list):
        reading.fault("HR119", f"{whose}, trigger, is a list", fix, where)
        return Default()
    text = reading.text(entry, f"{whose}, trigger,")
    if text is None:
        return Default()
    try:
        return parse_trigger(word + text)
    except ValueError as error:
        reading.fault("HR119", f"{whose}, trigger: {error}", fix, entry.where)
        return Default()
