"""A query brought back to the end of an earlier batch: its checkpoint, its records and its result together.

The record comes first. The directory as it will be is made beside the present one, the sink goes back in a transaction
of its own, and the two directories change places. Each step may be done again, so that a rewind that was cut off is
ended by the same command, or taken back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.change import rewind_copy
from headrace.change.exclusive import ChangeWork, exclusive, ignore
from headrace.change.plans import RewindPlan, RewindResult, lost, notes, utc_text
from headrace.checkpoint import Archive, Checkpoint
from headrace.checkpoint.repartitions import Repartitions
from headrace.checkpoint.rewind import Past
from headrace.contract import SinkRewind
from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError, NothingChanged
from headrace.model import Project, Query
from headrace.observe.history import History
from headrace.queries.changes import RewindRecord, current, require_adopted, require_whole
from headrace.queries.layout import QueryLayout, history_file
from headrace.queries.rename_record import unfinished, unfinished_sources
from headrace.queries.sink_location import former_location, table_before
from headrace.storage.durable import remove_tree, replace_file
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HISTORY = "history.json"


def plan_rewind(
    project: Project,
    query: str,
    *,
    to_batch: int | None = None,
    to_time: datetime | None = None,
    spark: SparkSession | None = None,
) -> RewindPlan:
    """What `rewind` would do; nothing is changed. Raises as it does."""
    with exclusive(project, query, spark, _Work, changes=False) as work:
        return work.plan(to_batch, to_time)


def rewind(
    project: Project,
    query: str,
    *,
    to_batch: int | None = None,
    to_time: datetime | None = None,
    spark: SparkSession | None = None,
    reached: Callable[[str], None] = ignore,
) -> RewindResult:
    """Bring `query`, which must not be running, back to the end of a batch, or of the last one planned up to a time.

    What came after is set aside, and `undo_rewind` brings it back as long as nothing has run since. Called again after
    a crash, it ends what was begun. Raises ProjectError, CheckFailed, CheckpointError, SinkError or PlatformError.
    """
    with exclusive(project, query, spark, _Work, changes=True) as work:
        return work.rewind(to_batch, to_time, reached)


def undo_rewind(
    project: Project, query: str, *, spark: SparkSession | None = None, reached: Callable[[str], None] = ignore
) -> RewindResult:
    """Bring back what the last rewind of `query` removed, if no batch was planned since. Raises as `rewind`."""
    with exclusive(project, query, spark, _Work, changes=True) as work:
        return work.undo(reached)


def discard_rewind(project: Project, query: str, *, spark: SparkSession | None = None) -> RewindResult:
    """Delete what the last rewind of `query` has set aside, in the storage and in the sink. Raises as `rewind`."""
    with exclusive(project, query, spark, _Work, changes=True) as work:
        return work.discard()


class _Work(ChangeWork):
    """One command's work on one query."""

    verb, done = "rewind", "rewound"

    def __init__(self, project: Project, query: Query, spark: SparkSession | None, changes: bool) -> None:
        super().__init__(project, query, spark, changes)
        self.record = RewindRecord.of(self.live)
        if self.record is not None and self.record.is_cut_off:
            self.live = self.record.layout(self.live)
        require_whole(self.live)

    # ------------------------------------------------------------------------------------------------- the ways

    def plan(self, to_batch: int | None, to_time: datetime | None) -> RewindPlan:
        begun = self.record if self.record is not None and self.record.is_cut_off else None
        if begun is not None:
            return self._begun(begun, to_batch, to_time)
        # What is wrong with the newest batches may be mended by going back behind them.
        require_adopted(self.live)
        if begun_elsewhere := [*unfinished(self.live), *unfinished_sources(self.live)]:
            raise CheckpointError(begun_elsewhere)
        past = self._past(self.live)
        batch, newest = self._batch(past, to_batch, to_time), past.checkpoint.last_batch
        if newest is None:
            raise self._nothing("it has planned no batch yet")
        self._require_possible()
        self._require_reached(past, batch)
        context = self.context(self.live)
        with self.named():
            held = tuple(self._ability().taken_back(context, batch, self.session))
        if batch == newest and not held:
            raise self._nothing(f"batch {batch} is its newest, and its sink holds nothing that came later")
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

    def rewind(self, to_batch: int | None, to_time: datetime | None, reached: Callable[[str], None]) -> RewindResult:
        plan = self.plan(to_batch, to_time)
        if not plan.continues and self.record is not None:
            # Of two rewinds the later one can be taken back.
            self.discard()
        live, record = self.live, self.record
        with writing_to(live.home.parent):
            if not plan.continues or record is None:
                record = RewindRecord.begun(live, plan.batch, plan.newest)
                record.enter(live)
            reached("recorded")
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
            record.on("done").enter(live)
        return self._result("rewind", plan)

    def _sink(self, record: RewindRecord, plan: RewindPlan) -> None:
        live = self.live
        try:
            with self.named():
                self._ability().go_back(self.context(live), record.batch, self.session)
        except NothingChanged:
            if not plan.continues:
                RewindRecord.remove(live)
                with suppress(OSError):
                    remove_tree(live.after_rewind.home)
            raise

    def undo(self, reached: Callable[[str], None]) -> RewindResult:
        record, live = self.record, self.live
        if record is None or record.way == "discard":
            raise self.refused("HR583", "no rewind of it can be undone", "")
        if record.way == "done":
            self._require_unchanged(record)
        with writing_to(live.home.parent):
            record.on("undo").enter(live)
            reached("recorded")
            rewind_copy.end_moves(live)
        try:
            with self.named():
                self._ability().undo(self.context(live), record.batch, self.session)
        except NothingChanged:
            if record.way == "done":
                record.enter(live)
            raise
        reached("sink")
        with writing_to(live.home.parent):
            self._bring_batches()
            reached("history")
            rewind_copy.exchange_back(live, record)
            reached("exchanged")
            RewindRecord.remove(live)
        return self._result("undo")

    def discard(self) -> RewindResult:
        record, live = self.record, self.live
        if record is None:
            raise self._nothing("no rewind has set anything aside")
        if record.is_cut_off:
            way = "a rewind" if record.way == "rewind" else "the undoing of a rewind"
            raise self.refused("HR580", f"{way} was cut off", "end it first, by the same command")
        layout = record.layout(live)
        with writing_to(live.home.parent):
            record.on("discard").enter(live)
        if live.generation == record.generation:
            with self.named():
                self._ability().forget(self.context(layout), self.session)
        with writing_to(live.home.parent):
            with suppress(OSError):
                remove_tree(layout.before_rewind.home)
            RewindRecord.remove(live)
        return self._result("discard")

    # ------------------------------------------------------------------------------------------- what is possible

    def _begun(self, begun: RewindRecord, to_batch: int | None, to_time: datetime | None) -> RewindPlan:
        if begun.way == "undo":
            why, way = "the undoing of a rewind was cut off", f"end it: {self.command('--undo')}"
            raise self.refused("HR580", why, way)
        if to_time is not None or to_batch != begun.batch:
            why = f"a rewind to batch {begun.batch} was begun and cut off"
            way = f"end it: {self.command(f'--to-batch {begun.batch}')}; or take it back: {self.command('--undo')}"
            raise self.refused("HR580", why, way)
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

    def _batch(self, past: Past, to_batch: int | None, to_time: datetime | None) -> int:
        if to_batch is not None:
            return to_batch
        assert to_time is not None, "one of the two is given"
        found = past.at(round(to_time.timestamp() * 1000))
        if found is None:
            why = "no batch that is known was planned so early"
            raise self.refused("HR580", why, "name a later time; `headrace reset` begins at the sources' beginning")
        return found

    def _require_possible(self) -> None:
        query = self.query
        if table_before(self.project, query, self.live) is not None:
            why = "its table is to be renamed, which the next start does"
            raise self.refused("HR580", why, f"start it first: headrace run {query.name}; or remove renamed_from")
        if (former := former_location(self.project, query, self.live)) is not None:
            why = f"its batches were written to {former}, which is not its sink any more"
            raise self.refused("HR580", why, "name the former sink again")
        if why := self._ability().hindrance(query.mode):
            raise self._stays(why)

    def _ability(self) -> SinkRewind:
        sink = self.query.sink
        if sink.rewind is None:
            raise self._stays(f"what the sink {type(sink).__name__} was given stays there")
        return sink.rewind

    def _stays(self, why: str) -> CheckFailed:
        way = self._other_way(declares=hasattr(self.query.sink, "rewindable"))
        return self.refused("HR580", f"the sink '{self.query.sink_kind}' cannot go back: {why}", way)

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
            raise self.refused("HR580", why, f"no batch can be gone back to; {self._other_way(declares=False)}")
        fix = f"batch {earliest} is the earliest: {self.command(f'--to-batch {earliest}')}"
        raise self.refused("HR580", why, f"{fix}; {self._other_way(declares=False)}")

    def _require_unchanged(self, record: RewindRecord) -> None:
        live = self.live
        planned = Checkpoint(live.checkpoint).last_batch
        if live.generation != record.generation or planned != record.batch:
            why = "it has run since, and what it has written would be lost"
            raise self.refused("HR583", why, f"rewind it once more, or delete the rest: {self.command('--discard')}")
        if not rewind_copy.is_exchanged(live, record) or not live.before_rewind.home.exists():
            raise self.refused("HR583", "what it was before is gone", f"delete the rest: {self.command('--discard')}")

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
                history.bring_batches(self.query.name, self.live.generation, json.loads(kept.read_text()))

    # ---------------------------------------------------------------------------------------------- what is told

    def _nothing(self, why: str) -> CheckFailed:
        what = f"there is nothing to rewind of query '{self.query.name}': {why}"
        return CheckFailed(Finding(code="HR582", what=what, where=self.query.where))

    def _result(self, done: str, plan: RewindPlan | None = None) -> RewindResult:
        layout = current(self.live)
        batch = Checkpoint(layout.checkpoint).last_batch
        return RewindResult(query=layout.query, done=done, generation=layout.generation, batch=batch, plan=plan)
