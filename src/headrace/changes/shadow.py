"""The query of a rebuild: the same declaration, with a generation and a place in the sink of its own, until its swap.

Its history has a place of its own as well, on this machine, since the query may run next to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.contract import Lag, Sink, SinkSwap, SourcePrefix
from headrace.errors import CheckFailed, HeadraceError
from headrace.generations.blame import attribute_errors, reset_command
from headrace.generations.changes import ChangeStatus
from headrace.generations.log import Directory, QueryLayout, history_file, log_of, rebuild_storage
from headrace.generations.manifest import move_sink
from headrace.generations.register import layout_of
from headrace.history import History
from headrace.history.lag import lag, read_committed_prefixes
from headrace.model import AvailableNow, NamedSource, Project, Query
from headrace.planner.ends import place_of
from headrace.starter.rename import enter_sink
from headrace.storage.durable import remove_tree
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class RebuildStatus(ChangeStatus):
    """How far the rebuild of a query is.

    Attributes:
        former: The generation whose result is live.
        generation: The generation that is built.
        batches: The batches that the rebuilt generation has made.
        rows: The rows that it has read.
        lag: What its sources hold that it has not taken.
        notes: What its result will lack.
        report: The comparison with the former result, as plain data.
    """

    former: int
    generation: int
    batches: int = 0
    rows: int = 0
    lag: Lag | None = None
    notes: Sequence[str] = ()
    report: Mapping[str, Any] | None = None


def shadow(project: Project, query: Query, *, sources: Mapping[str, NamedSource] | None = None) -> Project:
    """The project as the rebuild of `query` sees it; `sources` take the place of those of their names."""
    rebuilt = replace(query, sink=exchange(query).shadow, trigger=AvailableNow(), on_change="refuse")
    return replace(
        project,
        rebuilds=query.name,
        local=local_storage(project, query),
        queries={**project.queries, query.name: rebuilt},
        sources={**project.sources, **(sources or {})},
    )


def exchange(query: Query) -> SinkSwap:
    """What exchanges the results of `query`. Raises CheckFailed for a sink that cannot."""
    if query.sink.swap is None:
        why = f"the sink '{query.sink_kind}' cannot exchange one result for another"
        fix = f"reset it: {reset_command(query)}; or let it write to another place"
        raise CheckFailed(query.finding("HR580", f"cannot be rebuilt: {why}", fix))
    return query.sink.swap


def local_storage(project: Project, query: Query) -> Path:
    """Where the history of the rebuild is, on this machine."""
    return rebuild_storage(project.local_storage, layout_of(project, query)).absolute()


def remove_history(project: Project, query: Query) -> None:
    """Remove the history that the rebuild kept. Raises PlatformError."""
    storage = local_storage(project, query)
    with writing_to(storage):
        remove_tree(storage)
    # Other queries may be rebuilt at the same time.
    with suppress(OSError):
        storage.parent.rmdir()


def take_over_history(project: Project, query: Query, generation: int) -> None:
    """Bring what the rebuild kept of its batches into the project's history, if that can be written."""
    with suppress(HeadraceError), History.open(history_file(project.local_storage)) as history:
        history.take_over(history_file(local_storage(project, query)), query.name, generation)


def enter_place(project: Project, query: Query, layout: QueryLayout, sink: Sink) -> None:
    """Let the records of a generation name the place of `sink`, to which its result was moved."""
    move_sink(layout, place_of(project, sink))
    enter_sink(project, replace(query, sink=sink), layout)


PHASES: dict[str, str] = {
    "building": "building",
    "intent": "swapping",
    "done": "swapped",
    "undoing": "rolling-back",
    "discarding": "discarding",
}


def rebuild_status(project: Project, query: str) -> RebuildStatus | None:
    """How far the rebuild of `query` is; None without one. Raises CheckpointError for a record that is damaged."""
    declared = project.queries[query]
    live = layout_of(project, declared)
    newest = log_of(live)
    record = None if newest is None else newest.current
    if record is None or record.change != "rebuild":
        return None
    facts = record.facts
    made, former = Directory.parse(facts.get("made", "")) or record.live, record.former or record.live
    layout = live.at(made)
    committed, waiting = None, None
    try:
        committed = Checkpoint(layout.checkpoint).last_committed
        waiting = lag(project, declared, layout) if record.kind == "building" else None
    except HeadraceError:
        pass  # What is wrong with it is reported when the rebuild continues.
    batches = 0 if committed is None else committed + 1
    phase = "abandoning" if facts.get("abandons") else PHASES[record.kind]
    change = f"headrace change {{}} {query}"
    sentence = {
        "building": f"a rebuild is building generation {made.generation}, {batches} batches so far; "
        f"watch it: {change.format('status')}",
        "swapping": f"the swap of its rebuild was cut off; end it: {change.format('resume')}; or take it back: "
        f"{change.format('undo')}",
        "swapped": f"it was rebuilt, and generation {former.generation} is kept; bring it back: "
        f"{change.format('undo')}; delete it: {change.format('discard')}",
        "rolling-back": f"the roll-back of its rebuild was cut off; end it: {change.format('resume')}",
        "abandoning": f"its rebuild was being given up; end that: {change.format('resume')}",
        "discarding": f"generation {former.generation} is being deleted; end that: {change.format('resume')}",
    }[phase]
    return RebuildStatus(
        query=query,
        change="rebuild",
        phase=phase,
        begun=record.begun,
        is_cut_off=record.is_between,
        sentence=sentence,
        former=former.generation,
        generation=made.generation,
        batches=batches,
        rows=_rows(project, declared, made.generation),
        lag=waiting,
        notes=tuple(facts.get("notes", ())),
        report=facts.get("report"),
    )


def _rows(project: Project, query: Query, generation: int) -> int:
    """What the rebuilt generation has read, by its own history, or after the swap by that of the project."""
    totals = [0]
    for storage in (local_storage(project, query), project.local_storage):
        if history_file(storage).exists():
            with suppress(HeadraceError), History.open(history_file(storage), read_only=True) as history:
                own = [status for status in history.statuses() if status.query == query.name]
                totals += [status.rows_total for status in own if status.generation == generation]
    return max(totals)


def gone(project: Project, query: Query, layout: QueryLayout, spark: SparkSession) -> Iterator[str]:
    """What the generation in `layout` has read and a new one would not be given, a sentence for each source."""
    sources = project.sources_of(query)
    try:
        prefixes = read_committed_prefixes(project, query, layout)
    except HeadraceError as error:
        yield f"what the query has read so far is not known any more: {error.findings[0].what}"
        return
    for source in sources:
        with attribute_errors(query, source):
            missing = source.connector.unreachable(spark, prefixes[source.name])
        if missing:
            yield f"source '{source.name}': {missing}"


def sources_of_shadow(
    project: Project, query: Query, layout: QueryLayout, since: datetime | None, spark: SparkSession
) -> dict[str, NamedSource]:
    """The sources of `query`, each beginning where the generation in `layout` began, or with what came `since`."""
    sources = project.sources_of(query)
    try:
        prefixes = read_committed_prefixes(project, query, layout)
    except HeadraceError:
        prefixes = {source.name: SourcePrefix(batches=()) for source in sources}
    values = {}
    for source in sources:
        with attribute_errors(query, source):
            connector = source.connector.since(spark, prefixes[source.name])
            from_time = None if since is None else connector.since_time(spark, since)
        values[source.name] = replace(source, connector=from_time or connector)
    return values


def timeless(project: Project, query: Query, since: datetime, spark: SparkSession) -> list[str]:
    """The sources of `query` that cannot begin at a time."""
    sources = project.sources_of(query)
    return [source.name for source in sources if source.connector.since_time(spark, since) is None]
