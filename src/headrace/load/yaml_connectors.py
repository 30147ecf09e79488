"""The sources and sinks of `headrace.yml`: a kind, its options and the line of each."""

from __future__ import annotations

from typing import Any

from headrace import registry
from headrace.declare import DeclaredSink, DeclaredSource
from headrace.errors import PlatformError, Where, nearest
from headrace.load.document import Entry, Reading
from headrace.model import Duration, Watermark

# Beside the kind of a source.
SOURCE_KEYS = ("watermark", "renamed_from")
WATERMARK_KEYS = ("column", "delay")
_EXAMPLE = "files: {path: ..., format: json, schema: ...}"


def sources(entry: Entry | None, reading: Reading) -> dict[str, DeclaredSource]:
    """The section `sources`; what is wrong goes to `reading`."""
    entries = reading.mapping(entry, "sources", example=f"name: {{{_EXAMPLE}}}")
    found = {name: _source(name, each, reading) for name, each in entries.items()}
    return {name: source for name, source in found.items() if source is not None}


def _source(name: str, entry: Entry, reading: Reading) -> DeclaredSource | None:
    whose = f"source '{name}'"
    keys = reading.mapping(entry, whose, example=_EXAMPLE)
    watermark = keys.get("watermark")
    kind = _kind("source", whose, {key: keys[key] for key in keys if key not in SOURCE_KEYS}, entry, reading)
    if kind is None:
        return None
    options, arguments, lines = _options(keys[kind], f"{whose}, {kind},", reading)
    return DeclaredSource(
        kind=kind,
        options=options,
        arguments=arguments,
        lines=lines,
        watermark=_watermark(whose, watermark, reading) if watermark else None,
        renamed_from=former_names(whose, keys.get("renamed_from"), reading),
        where=entry.where,
    )


def sink(whose: str, query: Entry, entry: Entry | None, reading: Reading) -> DeclaredSink | None:
    """The sink of a query, or None when it has faults."""
    if entry is None:
        if isinstance(query.value, (dict, str, type(None))):
            reading.fault("HR120", f"{whose} has no sink", "add for example sink: console", query.where)
        return None
    if isinstance(entry.value, str):
        return DeclaredSink(kind=entry.value, where=entry.where)
    keys = reading.mapping(entry, f"{whose}, sink,", example="sqlite: {path: ..., table: ...}")
    kind = _kind("sink", f"the sink of {whose}", keys, entry, reading)
    if kind is None:
        return None
    options, arguments, lines = _options(keys[kind], f"{whose}, sink, {kind},", reading)
    return DeclaredSink(kind=kind, options=options, arguments=arguments, lines=lines, where=keys[kind].where)


def former_names(whose: str, entry: Entry | None, reading: Reading) -> tuple[str, ...]:
    """The names that a source or a query had before."""
    if entry is None or entry.value is None:
        return ()
    return tuple(name for name, _ in reading.many(entry, f"{whose}, renamed_from,"))


def _kind(
    what: registry.ConnectorKind, whose: str, keys: dict[str, Entry], entry: Entry, reading: Reading
) -> str | None:
    """The one key that names the kind; others are misspelt or too many."""
    known = registry.known(what)
    if keys and not any(key in known for key in keys) and (fix := _meant_kind(what, keys)):
        reading.fault("HR120", f"{whose} says no kind above its options", fix, entry.where)
        return None
    if not keys:
        if isinstance(entry.value, dict) or entry.value is None:
            fix = f"write one of {', '.join(known)} below it, with its options"
            reading.fault("HR120", f"{whose} says no kind", fix, entry.where)
        return None
    kinds = [key for key in keys if key in known] or list(keys)
    for key in keys:
        if key != kinds[0]:
            also = SOURCE_KEYS if what == "source" else ()
            fix = f"a {what} has one kind" if key in known else nearest(key, (*known, *also))
            reading.fault("HR103", f"{whose} has no key '{key}' beside '{kinds[0]}'", fix, keys[key].where)
    return kinds[0]


def _meant_kind(what: registry.ConnectorKind, keys: dict[str, Entry]) -> str:
    """How to write a source or sink whose options stand without its kind above them; empty if it is another mistake."""
    for word in ("type", "kind", "connector", "format", "name"):
        said = keys[word].value if word in keys else None
        if isinstance(said, str) and said in registry.known(what):
            rest = ", ".join(f"{key}: ..." for key in keys if key != word)
            return f"write {said}: {{{rest}}}"
    options = {kind: _option_names(what, kind) for kind in registry.known(what)}
    fits = [kind for kind, names in options.items() if set(keys) <= set(names)]
    if not fits or (len(keys) == 1 and len(fits) > 2):
        return ""
    kind = "files" if "files" in fits else fits[0]
    return f"write {kind}: {{{', '.join(f'{key}: ...' for key in keys)}}}, or another kind"


def _option_names(what: registry.ConnectorKind, kind: str) -> tuple[str, ...]:
    try:
        return registry.option_names(what, kind)
    except PlatformError:
        return ()


def _options(entry: Entry, what: str, reading: Reading) -> tuple[dict[str, Any], tuple[Any, ...], dict[str, Where]]:
    """Raw options, or one value in their place, which is the connector's first option."""
    if entry.value is None:
        return {}, (), {}
    if not isinstance(entry.value, (dict, list)):
        return {}, (entry.value,), {}
    keys = reading.mapping(entry, what, example="option: value")
    return (
        {key: value.plain() for key, value in keys.items()},
        (),
        {key: value.where for key, value in keys.items()},
    )


def _watermark(whose: str, entry: Entry, reading: Reading) -> Watermark | None:
    if isinstance(entry.value, list) and len(entry.value) == 2:
        keys = dict(zip(WATERMARK_KEYS, entry.value, strict=True))
    elif not isinstance(entry.value, dict):
        fix = "write watermark: {column: time, delay: 2 hours}"
        reading.fault("HR118", f"the watermark of {whose} is no pair of a column and a delay", fix, entry.where)
        return None
    else:
        keys = reading.mapping(entry, f"{whose}, watermark,", WATERMARK_KEYS)
    found = {key: reading.text(keys.get(key), f"{whose}, watermark, {key},") for key in WATERMARK_KEYS}
    for key in WATERMARK_KEYS:
        if key not in keys or keys[key].value is None:
            fix = "write watermark: {column: time, delay: 2 hours}"
            reading.fault("HR112", f"the watermark of {whose} lacks '{key}'", fix, entry.where)
    column, delay = found["column"], found["delay"]
    if column is None or delay is None:
        return None
    try:
        return Watermark(column=column, delay=Duration.parse(delay))
    except ValueError as error:
        reading.fault("HR118", f"the watermark of {whose}: {error}", "write for example 2 hours", keys["delay"].where)
        return None
