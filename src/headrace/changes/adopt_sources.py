"""Which source of a query is which of a checkpoint that another program has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.identity import log_offset
from headrace.checkpoint.sources import batches_of, source_of
from headrace.contract import SourcePrefix
from headrace.errors import CheckFailed, HeadraceError, nearest
from headrace.model import NamedSource, Project, Query


@dataclass(frozen=True, kw_only=True)
class AdoptedSource:
    """A source: its name, its kind, what the former job's checkpoint calls it, and how far it was read.

    waits: what no batch has taken yet, which the first start gives; empty where that is not known without Spark.
    """

    name: str
    kind: str
    position: str
    reached: str
    waits: str = ""


def match_sources(
    project: Project, query: Query, uses: Sequence[str], old: Checkpoint, chosen: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The names of each source of `old`, by what it is called there. Raises CheckFailed where that is not known.

    uses: the names of the query's sources in the plan's order, each use of one by its own. chosen: by a source's name,
    what the user says it is called in the checkpoint.
    """
    prefixes = _prefixes(old)
    sources = {source.name: source for source in project.sources_of(query)}
    room = Counter(source_of(use) for use in uses)
    if len(prefixes) not in (len(uses), len(room)):
        raise _incompatible(
            query, f"the checkpoint has {_list_names(prefixes)}, and the query reads {_list_names(uses)}"
        )
    once = len(prefixes) != len(uses)
    if once:
        # One source of the checkpoint is read in several places, which Spark has counted as one.
        room = Counter(set(room))
    fixed = dict(_chosen(query, prefixes, room, chosen))
    reasons = {(key, name): sources[name].connector.mismatch(prefixes[key]) for key in prefixes for name in room}
    assignments = list(_assignments(list(prefixes), room, reasons, fixed))
    if not assignments:
        why = "; ".join(_describe_key(key, sources, reasons) for key in prefixes)
        raise _incompatible(query, why)
    if len(assignments) > 1:
        raise _ambiguous(query, prefixes, assignments)
    left = {name: [use for use in uses if source_of(use) == name] for name in room}
    if once:
        return {key: tuple(left[name]) for key, name in assignments[0].items()}
    return {key: (left[name].pop(0),) for key, name in assignments[0].items()}


def show_sources(
    project: Project, query: Query, old: Checkpoint, names: Mapping[str, Sequence[str]]
) -> list[AdoptedSource]:
    """The sources as they are shown to the user."""
    sources = {source.name: source for source in project.sources_of(query)}
    prefixes = _prefixes(old)
    return [
        AdoptedSource(
            name=use,
            kind=sources[source_of(use)].kind,
            position=key,
            reached=_say_how_far(prefixes[key]),
            waits=_waits(sources[source_of(use)], prefixes[key]),
        )
        for key, uses in names.items()
        for use in uses
    ]


def _prefixes(old: Checkpoint) -> dict[str, SourcePrefix]:
    """What each source has given, as far as the checkpoint still shows."""
    entries = old.offsets()
    return {
        key: SourcePrefix(batches=batches_of(key, entries), log=old.source_log(key))
        for key in entries[max(entries)].offsets
    }


def _chosen(
    query: Query, keys: Mapping[str, object], room: Mapping[str, int], chosen: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The source of each key that is certain: the user says so, or both have the same name."""
    for use, key in chosen.items():
        name = use if use in room else source_of(use)
        if name not in room:
            raise CheckFailed(query.finding("HR592", f"reads no source '{use}'", nearest(use, room)))
        if key not in keys:
            fault = f"the checkpoint has no source '{key}'; it has {_list_names(keys)}"
            raise CheckFailed(code="HR592", what=fault, fix="name one of those", where=query.where)
        yield key, name
    named = {key for key in keys if not key.isdigit()}
    yield from ((key, key) for key in named if key in room and key not in chosen.values() and key not in chosen)


def _assignments(
    keys: Sequence[str], room: Mapping[str, int], reasons: Mapping[tuple[str, str], str], fixed: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """The ways in which each key can be a source, two of them at most."""

    def further(at: int, taken: dict[str, str], left: Mapping[str, int]) -> Iterator[dict[str, str]]:
        if at == len(keys):
            yield taken
            return
        key = keys[at]
        for name in room:
            if left[name] and not reasons[key, name] and fixed.get(key, name) == name:
                yield from further(at + 1, {**taken, key: name}, {**left, name: left[name] - 1})

    yield from islice(further(0, {}, room), 2)


def _describe_key(key: str, sources: Mapping[str, NamedSource], reasons: Mapping[tuple[str, str], str]) -> str:
    """Why a key is none of the sources, or which it may be."""
    against = [f"not '{name}' ({reasons[key, name]})" for name in sources if reasons.get((key, name))]
    return f"source {key} of the checkpoint is {' and '.join(against) or 'one that another is as well'}"


def _incompatible(query: Query, why: str) -> CheckFailed:
    return CheckFailed(
        code="HR592",
        what=f"the sources of the checkpoint are not those of query '{query.name}': {why}",
        fix="declare the sources with the directories, topics and tables that the former job reads, each once",
        where=query.where,
    )


def _ambiguous(query: Query, keys: Mapping[str, SourcePrefix], pairs: Sequence[Mapping[str, str]]) -> CheckFailed:
    differing = [key for key in keys if len({names[key] for names in pairs}) > 1]
    doubts = "; ".join(
        f"source {key} ({_say_how_far(keys[key])}) may be {' or '.join(sorted({names[key] for names in pairs}))}"
        for key in differing
    )
    options = " ".join(f"--source {pairs[0][key]}={key}" for key in differing)
    return CheckFailed(
        code="HR592",
        what=f"it is not known which source of query '{query.name}' is which of the checkpoint: {doubts}",
        fix=f"say it, in the order in which the former job's plan reads them, as in: {options}",
        where=query.where,
    )


def _say_how_far(prefix: SourcePrefix) -> str:
    """How far a source was read, in words."""
    last = next((batch.end for batch in reversed(prefix.batches) if batch.end is not None), None)
    if log_offset(last) is not None:
        files = sum(len(lines) for lines in prefix.log.values())
        return f"{files} file{'s' if files != 1 else ''}"
    text = "nothing yet" if last is None else last
    return text if len(text) <= 100 else f"{text[:97]}..."


def _waits(source: NamedSource, prefix: SourcePrefix) -> str:
    try:
        lag = source.connector.lag(prefix)
    except (HeadraceError, OSError):
        return ""
    return "" if lag is None or not lag.count else f"{lag.count:,} {lag.unit}"


def _list_names(names: Mapping[str, object] | Sequence[str]) -> str:
    return f"{len(names)} source{'s' if len(names) != 1 else ''} ({', '.join(names)})"
