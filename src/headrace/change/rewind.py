"""A query brought back to the end of an earlier batch: its checkpoint, its records and its result together.

The record comes first. The directory as it will be is made beside the present one, the sink goes back in a transaction
of its own, and the two directories change places.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, ClassVar

from headrace.change import rewind_copy
from headrace.change.change import Change, readers
from headrace.checkpoint import Archive, Checkpoint, committed_prefix
from headrace.checkpoint.repartitions import Repartitions
from headrace.checkpoint.restore import Past
from headrace.contract import Held, SinkRewind
from headrace.errors import CheckFailed, CheckpointError, HeadraceError, NothingChanged, PlainData, SourceError
from headrace.history import History
from headrace.model import Project, Query
from headrace.queries.changes import AdoptionRecord, ChangeStatus, ResetRecord, RewindRecord, require_ended
from headrace.queries.late_rows import newest_late_batch
from headrace.queries.layout import QueryLayout, history_file, layout_of, newest_of
from headrace.queries.location import former_location, table_before
from headrace.queries.source_names import read_source_names
from headrace.storage.durable import remove_tree, replace_file
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HISTORY = "history.json"


@dataclass(frozen=True, kw_only=True)
class RewindPlan(PlainData):
    """What a rewind does: the batches after `batch`, up to `newest`, are taken back.

    planned_at, newest_at: when the two were planned; None: not known. held: what changes in the sink. lost: what does
    not come again. notes: what is to be known besides. continues: it ends a rewind that was cut off.
    """

    query: str
    generation: int
    batch: int
    newest: int
    planned_at: str | None
    newest_at: str | None
    held: tuple[Held, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...]
    continues: bool = False


@dataclass(frozen=True, kw_only=True)
class RewindResult(PlainData):
    """What was done, and the batch that the next start continues after."""

    optional: ClassVar[tuple[str, ...]] = ("plan",)
    query: str
    done: str
    generation: int
    batch: int | None
    plan: RewindPlan | None = None


class Rewind(Change[RewindPlan, RewindResult]):
    """A query brought back to the end of batch `to_batch`, or of the last one that was planned by `to_time`."""

    name, _done = "rewind", "rewound"

    def __init__(
        self,
        project: Project,
        query: str,
        *,
        to_batch: int | None = None,
        to_time: datetime | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        super().__init__(project, query, spark=spark)
        self.to_batch, self.to_time = to_batch, to_time

    def _look(self) -> None:
        super()._look()
        self.record = RewindRecord.of(self.live)
        if self.record is not None and self.record.is_cut_off:
            self.live = self.record.layout(self.live)
        self._require_ended(ResetRecord)

    @property
    def status(self) -> ChangeStatus | None:
        record = RewindRecord.of(layout_of(self.project, self.query))
        if record is None:
            return None
        return self._standing(record.way, record.at, f"was rewound to the end of batch {record.batch}")

    # ------------------------------------------------------------------------------------------------- the steps

    def _preview(self) -> RewindPlan:
        begun = self.record if self.record is not None and self.record.is_cut_off else None
        if begun is not None:
            return self._begun(begun)
        # What is wrong with the newest batches may be mended by going back behind them.
        require_ended(self.live, AdoptionRecord)
        past = self._past(self.live)
        batch, newest = self._batch(past), past.checkpoint.last_batch
        if newest is None:
            raise self._nothing_to_rewind("it has planned no batch yet")
        self._require_possible()
        self._require_reached(past, batch)
        if self.query.late and newest_late_batch(self.live) > batch:
            why = f"query '{self.query.late}' has taken late rows of later batches, which would come again"
            fix = f"name a later batch; or headrace reset {self.query.name}, and headrace reset {self.query.late}"
            raise self._refused(why, fix)
        context = self.context(self.live)
        with self.named():
            held = tuple(self._ability().taken_back(context, batch, self.session))
        if batch == newest and not held:
            raise self._nothing_to_rewind(f"batch {batch} is its newest, and its sink holds nothing that came later")
        # What was shown is what is done, whatever batch the time would name meanwhile.
        self.to_batch, self.to_time = batch, None
        return RewindPlan(
            query=self.query.name,
            generation=self.live.generation,
            batch=batch,
            newest=newest,
            planned_at=utc_text(past.planned_ms(batch)),
            newest_at=utc_text(past.planned_ms(newest)),
            held=held,
            lost=tuple(lost(self.project, self.query, self.live, batch, newest)),
            notes=tuple(notes(self.project, self.query, batch)),
        )

    def _applied(self, reached: Callable[[str], None]) -> RewindResult:
        plan = self._preview()
        if not plan.continues and self.record is not None:
            # Of two rewinds the later one can be taken back.
            self._discarded(reached)
        live, record = self.live, self.record
        if not plan.continues or record is None:
            record = RewindRecord(generation=live.generation, batch=plan.batch, newest=plan.newest, way="rewind")
            record.begin(live, self._require_alone)
        reached("recorded")
        with writing_to(live.home.parent):
            rewind_copy.end_moves(live)
            # Between two renames the directory is missing, or what a start has made in its place holds no checkpoint.
            if not rewind_copy.is_exchanged(live, record) and live.checkpoint.exists():
                rewind_copy.make(self._past(live), live, record)
            reached("made")
        self._sink(record, plan)
        reached("sink")
        with writing_to(live.home.parent):
            rewind_copy.exchange_in(live, record)
            reached("exchanged")
            self._forget_batches(record)
            reached("history")
        self._enter(record.on("done"), live)
        return self._result("rewind", plan)

    def _sink(self, record: RewindRecord, plan: RewindPlan) -> None:
        live = self.live
        try:
            with self.named():
                self._ability().go_back(self.context(live), record.batch, self.session)
        except NothingChanged:
            self._require_locked()
            if not plan.continues:
                RewindRecord.remove(live)
                with suppress(OSError):
                    remove_tree(live.after_rewind.home)
            raise

    def _undone(self, reached: Callable[[str], None]) -> RewindResult:
        record, live = self.record, self.live
        if record is None or record.way == "discard":
            raise self._irreversible("there is none")
        if record.way == "done":
            self._require_unchanged(record)
        self._enter(record.on("undo"), live)
        reached("recorded")
        with writing_to(live.home.parent):
            rewind_copy.end_moves(live)
        try:
            with self.named():
                self._ability().undo(self.context(live), record.batch, self.session)
        except NothingChanged:
            if record.way == "done":
                self._enter(record, live)
            raise
        reached("sink")
        with writing_to(live.home.parent):
            self._bring_batches()
            reached("history")
            rewind_copy.exchange_back(live, record)
            reached("exchanged")
        RewindRecord.remove(live)
        return self._result("undo")

    def _discarded(self, reached: Callable[[str], None]) -> RewindResult:
        record, live = self.record, self.live
        if record is None:
            raise self._nothing_to_rewind("no rewind has set anything aside")
        if record.is_cut_off:
            way = "a rewind" if record.way == "rewind" else "the undoing of a rewind"
            raise self._refused(f"{way} was cut off", f"end it first: {self._then('resume')}")
        layout = record.layout(live)
        self._enter(record.on("discard"), live)
        if live.generation == record.generation:
            with self.named():
                self._ability().forget(self.context(layout), self.session)
        with suppress(OSError):
            remove_tree(layout.before_rewind.home)
        RewindRecord.remove(live)
        return self._result("discard")

    # ------------------------------------------------------------------------------------------- what is possible

    def _begun(self, begun: RewindRecord) -> RewindPlan:
        if begun.way == "undo":
            raise self._refused("the undoing of a rewind was cut off", f"end it: {self._then('undo')}")
        if self.to_time is not None or self.to_batch not in (None, begun.batch):
            why = f"a rewind to batch {begun.batch} was begun and cut off"
            way = f"end it: {self._command(f'--to-batch {begun.batch}')}; or take it back: {self._then('undo')}"
            raise self._refused(why, way)
        return RewindPlan(
            query=self.query.name,
            generation=begun.generation,
            batch=begun.batch,
            newest=begun.newest,
            planned_at=None,
            newest_at=None,
            held=(),
            lost=(),
            notes=tuple(notes(self.project, self.query, begun.batch)),
            continues=True,
        )

    def _past(self, layout: QueryLayout) -> Past:
        checkpoint, changes = Checkpoint(layout.checkpoint), Repartitions(layout.repartitions)
        since = max(changes.batches(checkpoint), default=0)
        return Past.of(checkpoint, Archive(layout.archive), partitions=changes.partitions(checkpoint), since=since)

    def _batch(self, past: Past) -> int:
        if self.to_batch is not None and self.to_time is None:
            return self.to_batch
        if self.to_time is None or self.to_batch is not None:
            raise self._refused("give either a batch or a time", self._command("--to-batch N"))
        batch = past.at(round(self.to_time.timestamp() * 1000))
        if batch is None:
            why = "no batch that is known was planned so early"
            raise self._refused(why, "name a later time; `headrace reset` begins at the sources' beginning")
        return batch

    def _require_possible(self) -> None:
        query = self.query
        if table_before(self.project, query, self.live) is not None:
            why = "its table is to be renamed, which the next start does"
            raise self._refused(why, f"start it first: headrace run {query.name}; or remove renamed_from")
        if (former := former_location(self.project, query, self.live)) is not None:
            why = f"its batches were written to {former}, which is not its sink any more"
            raise self._refused(why, "name the former sink again")
        if why := self._ability().hindrance(query.mode):
            raise self._stays(why)

    def _ability(self) -> SinkRewind:
        sink = self.query.sink
        if sink.rewind is None:
            raise self._stays(f"what the sink {type(sink).__name__} was given stays there")
        return sink.rewind

    def _stays(self, why: str) -> CheckFailed:
        way = self._other_way(declares=hasattr(self.query.sink, "rewindable"))
        return self._refused(f"the sink '{self.query.sink_kind}' cannot go back: {why}", way)

    def _require_reached(self, past: Past, batch: int) -> None:
        """Raise CheckFailed where the checkpoint or the sink does not reach back to the end of `batch`."""
        context = self.context(self.live)
        with self.named():
            kept = self._ability().earliest(context, batch, self.session)
        why = past.blocker(batch)
        behind = kept is None or batch < kept
        if not why and not behind:
            return
        if not why:
            why = f"its sink has kept what was there before only since batch {kept}"
        earliest = None if kept is None else past.earliest(kept)
        if earliest is None:
            raise self._refused(why, f"no batch can be gone back to; {self._other_way(declares=False)}")
        fix = f"batch {earliest} is the earliest: {self._command(f'--to-batch {earliest}')}"
        raise self._refused(why, f"{fix}; {self._other_way(declares=False)}")

    def _require_unchanged(self, record: RewindRecord) -> None:
        live = self.live
        planned = Checkpoint(live.checkpoint).last_batch
        if live.generation != record.generation or planned != record.batch:
            why = "it has run since, and what it has written would be lost"
            raise self._irreversible(why, f"rewind it once more, or delete the rest: {self._then('discard')}")
        if not rewind_copy.is_exchanged(live, record) or not live.before_rewind.home.exists():
            raise self._irreversible("what it was before is gone", f"delete the rest: {self._then('discard')}")

    def _other_way(self, *, declares: bool) -> str:
        query = self.query
        anew = f"headrace rebuild {query.name}" if query.sink.swap is not None else f"headrace reset {query.name}"
        later = "declare rewindable: 7 days on the sink, for the batches to come; " if declares else ""
        return f"{later}recompute the result from the sources: {anew}"

    # -------------------------------------------------------------------------------------------------- the history

    def _forget_batches(self, record: RewindRecord) -> None:
        """The batches that come again are told of again; a history that cannot be written is no reason to stop."""
        file, kept = history_file(self.project.local_storage), self.live.before_rewind.home / _HISTORY
        if file.exists():
            with suppress(HeadraceError), History.open(file) as history:
                history.take_batches(
                    self.query.name,
                    record.generation,
                    record.batch,
                    lambda batches: replace_file(kept, json.dumps(batches)),
                )

    def _bring_batches(self) -> None:
        file, kept = history_file(self.project.local_storage), self.live.before_rewind.home / _HISTORY
        if file.exists() and kept.exists():
            with suppress(HeadraceError, ValueError), History.open(file) as history:
                history.restore_batches(self.query.name, self.live.generation, json.loads(kept.read_text()))

    # ---------------------------------------------------------------------------------------------- what is told

    def _nothing_to_rewind(self, why: str) -> CheckFailed:
        return self._nothing(f"there is nothing to rewind of query '{self.query.name}': {why}")

    def _result(self, done: str, plan: RewindPlan | None = None) -> RewindResult:
        layout = newest_of(self.live)
        batch = Checkpoint(layout.checkpoint).last_batch
        return RewindResult(query=layout.query, done=done, generation=layout.generation, batch=batch, plan=plan)


def utc_text(time_ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC."""
    if time_ms is None:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lost(project: Project, query: Query, layout: QueryLayout, batch: int, newest: int) -> Iterator[str]:
    """What the sources will not give again of the batches after `batch`, as far as that is seen without a JVM."""
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    names = read_source_names(project, query, layout)
    for source in project.sources_of(query):
        facts = source.connector.facts
        if facts.ephemeral or not facts.replayable:
            yield f"source '{source.name}' does not keep what it has given: its rows of these batches do not come again"
            continue
        try:
            prefix = committed_prefix(checkpoint, archive, names, newest, since=batch + 1)
            source.connector.ensure_available(prefix[source.name])
        except SourceError as error:
            yield f"source '{source.name}': {error.findings[0].what}"
        except CheckpointError:
            continue  # The archive lacks a batch: what it took is not known.


def notes(project: Project, query: Query, batch: int) -> Sequence[str]:
    """What is to be known of a rewind."""
    found = [
        f"query '{name}' reads the result, and has read rows that are taken back; rewind or reset it as well"
        for name in readers(project, query)
    ]
    return [*found, f"what its sources gave after batch {batch} is read again by the next start"]
