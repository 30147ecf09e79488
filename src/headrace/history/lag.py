"""What a query's sources still hold that no batch of it has taken: asked of the sources, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.sources import SourceNames, committed_prefix, further_uses, source_of
from headrace.contract import BatchRecord, Lag, SourcePrefix, overrides
from headrace.errors import Finding, HeadraceError
from headrace.generations.facts import read_source_names
from headrace.generations.log import QueryLayout, history_file
from headrace.generations.register import layout_of
from headrace.history import History, QueryStatus
from headrace.model import NamedSource, Project, Query

# How long all sources together may take to answer who asks, and for how long their answer counts as of now.
ANSWER_SECONDS = 4.0
FRESH_SECONDS, FRESH_SHARE = 1.0, 5


class SourceLags:
    """What the sources of queries hold at the moment of the question.

    Each query is asked in a thread of its own, so that a broker or a store that does not answer delays no other: then
    the last known answer is given, with its time, and a question that hangs is not asked again.

    projects: by query, another one that it is declared in now.
    """

    def __init__(self, project: Project, projects: Mapping[str, Project] | None = None) -> None:
        self._project, self._projects = project, {} if projects is None else projects
        self._file = history_file(project.local_storage)
        self._asked: dict[str, _Question] = {}
        self._guard = threading.Lock()

    def of(
        self, queries: Iterable[str], counted: Mapping[str, int] | None = None
    ) -> dict[str, Mapping[str, Lag | None]]:
        """By query and source; None: not known. Nothing of a query without a checkpoint that lasts.

        counted: of each query the batch up to which its rows are counted, so that no row is missing in both: it waits
        until its batch is counted. Those of other queries are as the history knows them.
        """
        until = time.monotonic() + ANSWER_SECONDS
        counted = {**self._recorded_batches(), **(counted or {})}
        with self._guard:
            questions = {
                name: self._question(name, counted.get(name))
                for name in queries
                if name in self._projects.get(name, self._project).queries
            }
        for question in questions.values():
            if not question.late:
                question.answered.wait(max(0.0, until - time.monotonic()))
                question.late = not question.answered.is_set()
        return {name: dict(question.latest()) for name, question in questions.items()}

    def _recorded_batches(self) -> dict[str, int]:
        with suppress(HeadraceError, OSError), History.open(self._file, read_only=True) as history:
            return history.newest_batches()
        return {}

    def statuses(self) -> list[QueryStatus]:
        """Return how each query that was ever run stands, with what its sources hold now."""
        if not self._file.exists():
            return []
        with History.open(self._file, read_only=True) as history:
            history.note_killed()
            return self.now(history.statuses())

    def now(self, statuses: Sequence[QueryStatus]) -> list[QueryStatus]:
        """Return the same; of a source that does not answer, what the newest batch reported."""
        counted = {status.query: status.batch for status in statuses if status.batch is not None}
        asked = self.of([status.query for status in statuses], counted)
        current = []
        for status in statuses:
            recorded, answers = status.lags, asked.get(status.query, {})
            lags = {name: answers.get(name) or recorded.get(name) for name in answers or recorded}
            current.append(replace(status, lags=lags, backlog=total(lags)))
        return current

    def _question(self, name: str, counted: int | None) -> _Question:
        project = self._projects.get(name, self._project)
        question = self._asked.get(name)
        if question is None or question.project is not project:
            question = self._asked[name] = _Question(project=project, query=project.queries[name])
        is_old = time.monotonic() >= question.fresh_until or question.counted != counted
        if question.answered.is_set() and is_old:
            question.late, question.counted = False, counted
            question.answered.clear()
            threading.Thread(target=question.ask, name=f"lag of {name}", daemon=True).start()
        return question


@dataclass(kw_only=True, eq=False)
class _Question:
    """What the sources of one query answered last, each with its time; late: no caller waits for it any more.

    counted: the batch up to which the rows are counted that what waits comes after.
    """

    project: Project
    query: Query
    answers: dict[str, tuple[float, Lag]] = field(default_factory=dict)
    answered: threading.Event = field(default_factory=threading.Event)
    late: bool = False
    counted: int | None = None
    begun: float = 0.0
    fresh_until: float = 0.0

    def __post_init__(self) -> None:
        self.answered.set()

    def ask(self) -> None:
        """Take the answers one by one, so that a source that hangs leaves those before it."""
        self.begun, since = time.time(), time.monotonic()
        # Whatever a source of the user's raises, or a checkpoint that is damaged: it is not known.
        with suppress(Exception):
            if self.query.sink.facts.durable:
                layout = layout_of(self.project, self.query)
                for name, lag in _ask_sources(
                    self.project, self.query, layout, -1 if self.counted is None else self.counted
                ):
                    if lag is not None:
                        self.answers[name] = (time.time(), lag)
        ended = time.monotonic()
        self.fresh_until = ended + max(FRESH_SECONDS, FRESH_SHARE * (ended - since))
        self.answered.set()

    def latest(self) -> Iterator[tuple[str, Lag | None]]:
        """Yield each source with its answer, which has its time where it is not of the newest question."""
        for source in self.project.sources_of(self.query) if self.query.sink.facts.durable else ():
            at, lag = self.answers.get(source.name, (0.0, None))
            yield source.name, replace(lag, at_ms=int(at * 1000)) if lag is not None and at < self.begun else lag


def lag(project: Project, query: Query, layout: QueryLayout) -> Lag | None:
    """Return the sum over the sources of `query`, without a JVM; None if one is not known or counts in another unit."""
    return total(lags(project, query, layout))


def lags(
    project: Project, query: Query, layout: QueryLayout, *, counted: int | None = None, cheap: bool = False
) -> dict[str, Lag | None]:
    """Ask each source of `query` what it still holds.

    None for a source that does not know; nothing if the checkpoint cannot be read.

    Of a source that the query reads in several places, what waits for the place that has taken the least. counted: the
    batch after which it is asked; None: the newest. cheap: sources whose lag Spark reports of each batch are not asked.
    """
    try:
        return dict(_ask_sources(project, query, layout, counted, cheap=cheap))
    except (HeadraceError, OSError):
        return {}


def _ask_sources(
    project: Project, query: Query, layout: QueryLayout, counted: int | None = None, *, cheap: bool = False
) -> Iterator[tuple[str, Lag | None]]:
    """Yield each source with its answer; `cheap`: those whose lag Spark reports of each batch are not asked."""
    sources = project.sources_of(query)
    prefixes = _read_prefixes(layout, read_source_names(project, query, layout), counted)
    further = further_uses((source.name for source in sources), prefixes)
    for source in sources:
        reported = cheap and overrides(source.connector, "reported_lag")
        yield source.name, None if reported else _lag_of(source, prefixes, further)


def read_reported_lags(project: Project, query: Query, record: BatchRecord) -> dict[str, Lag]:
    """Return the lag by Spark's report of a batch, for sources that can read it; no source is asked."""
    lags: dict[str, Lag] = {}
    sources = {source.name: source.connector for source in project.sources_of(query)}
    for progress in record.sources:
        name = source_of(progress.name)
        if name not in sources or progress.end is None or progress.latest is None:
            continue
        lag = sources[name].reported_lag(progress.end, progress.latest)
        if lag is not None and (name not in lags or lags[name].count < lag.count):
            lags[name] = lag
    return lags


def total(parts: Mapping[str, Lag | None]) -> Lag | None:
    """Return the sum; None where one part is not known, or they count different things."""
    lags = [part for part in parts.values() if part is not None]
    if not lags or len(lags) < len(parts) or len({part.unit for part in lags}) > 1:
        return None
    sizes = [part.bytes for part in lags if part.bytes is not None]
    oldest = [part.oldest_ms for part in lags if part.oldest_ms is not None]
    return Lag(
        count=sum(part.count for part in lags),
        unit=lags[0].unit,
        bytes=sum(sizes) if len(sizes) == len(lags) else None,
        left_out=sum(part.left_out for part in lags),
        changed=sum(part.changed for part in lags),
        problem=next((part.problem for part in lags if part.problem), ""),
        oldest_ms=min(oldest) if len(oldest) == sum(part.count > 0 for part in lags) > 0 else None,
        at_ms=min((part.at_ms for part in lags if part.at_ms is not None), default=None),
    )


def _lag_of(source: NamedSource, prefixes: Mapping[str, SourcePrefix], further: Sequence[str]) -> Lag | None:
    uses = (source.name, *(use for use in further if source_of(use) == source.name))
    answers = [source.connector.lag(prefixes[use]) for use in uses]
    lags = [lag for lag in answers if lag is not None]
    return max(lags, key=lambda lag: lag.count) if len(lags) == len(answers) else None


def find_left_out(project: Project, query: Query, layout: QueryLayout) -> Iterator[Finding]:
    """Yield what the sources of `query` hold and will never give, without a JVM."""
    sources = project.sources_of(query)
    if not any(overrides(source.connector, "left_out") for source in sources):
        return
    try:
        prefixes = _read_prefixes(layout, read_source_names(project, query, layout))
        problems = [(source, fault) for source in sources for fault in source.connector.left_out(prefixes[source.name])]
    except (HeadraceError, OSError):
        return
    for source, problem in problems:
        yield Finding(
            code=problem.code,
            what=f"source '{source.name}': {problem.what}",
            fix=problem.fix,
            where=source.where,
            severity=problem.severity,
        )


def _read_prefixes(layout: QueryLayout, names: SourceNames, counted: int | None = None) -> dict[str, SourcePrefix]:
    """How far each of the sources was read: the newest committed batch alone, or the one that is `counted` before it.

    All batches since the first would be read from the archive, which takes seconds after a day of a batch a second.
    Where none is counted (below 0), the history may have been removed; so only the very first batch waits.
    """
    checkpoint = Checkpoint(layout.checkpoint)
    through = checkpoint.last_committed
    if counted is not None and through is not None:
        through = min(through, counted) if counted >= 0 else through or None
    if through is None:
        # Where a first batch is planned, the log of its source holds where it began.
        logs = {name: checkpoint.source_log(names.in_spark(name)) for name in names.declared}
        return {name: SourcePrefix(batches=(), log=log) for name, log in logs.items()}
    return committed_prefix(checkpoint, Archive(layout.archive), names, through, since=through)


def read_committed_prefixes(project: Project, query: Query, layout: QueryLayout) -> dict[str, SourcePrefix]:
    """Return what each of the sources has given to the batches that are committed."""
    checkpoint = Checkpoint(layout.checkpoint)
    through = checkpoint.last_committed
    if through is None:
        return {source.name: SourcePrefix(batches=()) for source in project.sources_of(query)}
    names = read_source_names(project, query, layout)
    return committed_prefix(checkpoint, Archive(layout.archive), names, through)
