"""A query brought back to the end of an earlier batch: its checkpoint, its records and its result together.

The record of what is intended comes first. The directory as it will be is made next to the present one, and the sink
goes back in a transaction of its own; the record that it is done makes the new directory the live one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.changes.change import Change, readers
from headrace.checkpoint import Archive, Checkpoint, committed_prefix
from headrace.checkpoint.handover import Repartitions
from headrace.checkpoint.relocation import rename_schemas
from headrace.checkpoint.restore import Past
from headrace.contract import Held, SinkContext, SinkRewind
from headrace.errors import CheckFailed, CheckpointError, HeadraceError, NothingChanged, PlainData, SourceError
from headrace.generations.changes import ChangeStatus
from headrace.generations.facts import read_source_names
from headrace.generations.late_rows import newest_late_batch
from headrace.generations.log import (
    Directory,
    LogRecord,
    QueryLayout,
    copy_directory,
    history_file,
    log_of,
    newest_of,
)
from headrace.generations.register import layout_of
from headrace.history import History
from headrace.model import Project, Query
from headrace.starter.rename import former_location
from headrace.starter.sink_work import ignore
from headrace.storage import json_lines
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In a directory of rows that were set aside: how far its batches were looked at.
_SEEN = ".seen"


@dataclass(frozen=True, kw_only=True)
class RewindPlan(PlainData):
    """What a rewind does: it takes back the batches after `batch`, up to `newest`.

    Attributes:
        generation: The generation that is rewound.
        batch: The last batch that stays.
        newest: The newest batch.
        planned_at: When `batch` was planned; None if that is not known.
        newest_at: When `newest` was planned; None if that is not known.
        held: What changes in the sink.
        lost: What will not come again.
        notes: What else you should read before you apply the plan.
        continues: Whether the plan ends a rewind that was cut off.
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
    """The outcome of a rewind.

    Attributes:
        done: What was done.
        generation: The generation that the query runs as.
        batch: The batch after which the next start continues.
        plan: The plan that was carried out.
    """

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

    @property
    def status(self) -> ChangeStatus | None:
        record = log_of(layout_of(self.project, self.query))
        current = None if record is None else record.current
        batch = None if current is None else current.facts.get("batch")
        return self._status_of(f"was rewound to the end of batch {batch}")

    # ------------------------------------------------------------------------------------------------- the steps

    def _preview(self) -> RewindPlan:
        if self.record.is_between:
            return self._plan_of(self.record)
        past = self._past(self.live)
        batch, newest = self._batch(past), past.checkpoint.last_batch
        if newest is None:
            raise self._nothing_to_rewind("it has planned no batch yet")
        self._require_possible()
        self._require_reached(past, batch)
        if self.query.late and newest_late_batch(self.live) > batch:
            why = f"query '{self.query.late}' has taken late rows of later batches, which would come again"
            fix = f"name a later batch; or headrace reset {self.query.name}, and headrace reset {self.query.late}"
            raise self._refusal(why, fix)
        context = self.context(self.live)
        with self.name_sink_faults():
            held = tuple(self._ability().list_taken_back(context, batch, self.session))
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
            lost=tuple(list_lost(self.project, self.query, self.live, batch, newest)),
            notes=tuple(notes(self.project, self.query, batch)),
        )

    def _make_steps(self, reached: Callable[[str], None]) -> RewindResult:
        plan = self._preview()
        if not plan.continues and (kept := self._unused_directories()):
            # Of two rewinds the later one can be undone.
            self._delete_kept(kept, ignore)
        live, own = self.live, self._next(self.live.generation)
        if not plan.continues:
            self._begin(own, batch=plan.batch, newest=plan.newest)
        else:
            self._continue(own)
        reached("recorded")
        new = live.at(self._target)
        with writing_to(live.folder):
            if not new.made_by.exists():
                _make_directory(self._past(live), live, new, plan.batch)
        self._enter_made()
        reached("made")
        try:
            with self.name_sink_faults():
                self._ability().go_back(self._mark("there", live), plan.batch, self.session)
        except NothingChanged:
            if not plan.continues:
                self._enter("undone", target=None)
                self._remove_unreachable()
            raise
        reached("sink")
        return self._end(reached, plan)

    def _end(self, reached: Callable[[str], None], plan: RewindPlan | None = None) -> RewindResult:
        batch = int(self.record.facts["batch"])
        with writing_to(self.live.folder):
            # Where the log had lost the rewind, the query may have run since.
            if Checkpoint(self.live.at(self._target).checkpoint).last_batch == batch:
                self._take_batches(batch)
            _forget_late_rows(self.live, batch)
            reached("history")
        self._complete()
        reached("done")
        return self._result("rewind", plan)

    def _undone(self, reached: Callable[[str], None]) -> RewindResult:
        self._undo_begins()
        reached("recorded")
        old = self.live.at(self._former)
        with self._undo_in_sink():
            self._ability().undo(self._mark("back", old), self.record.facts["batch"], self.session)
        reached("sink")
        self._restore_batches(old)
        reached("history")
        self._end_undoing()
        reached("done")
        return self._result("undo")

    def _discard_steps(self, reached: Callable[[str], None]) -> RewindResult:
        nothing = f"no rewind of query '{self.query.name}' has set anything aside"
        self._discard_kept(self._unused_directories(), reached, nothing)
        return self._result("discard")

    def _unused_directories(self) -> tuple[Directory, ...]:
        """The directories of the live generation that rewinds have put out of use."""
        generation = self.record.live.generation
        return tuple(directory for directory in self.record.kept if directory.generation == generation)

    def _forget(self, context: SinkContext) -> None:
        self._ability().forget(context, self.session)

    # ------------------------------------------------------------------------------------------- what is possible

    def _plan_of(self, begun: LogRecord) -> RewindPlan:
        self._require_not_undoing()
        batch, newest = int(begun.facts["batch"]), int(begun.facts["newest"])
        if self.to_time is not None or self.to_batch not in (None, batch):
            why = f"a rewind to batch {batch} was begun and cut off"
            way = f"end it: {self._command(f'--to-batch {batch}')}; or take it back: {self._then('undo')}"
            raise self._refusal(why, way)
        return RewindPlan(
            query=self.query.name,
            generation=begun.live.generation,
            batch=batch,
            newest=newest,
            planned_at=None,
            newest_at=None,
            held=(),
            lost=(),
            notes=tuple(notes(self.project, self.query, batch)),
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
            raise self._refusal("give either a batch or a time", self._command("--to-batch N"))
        batch = past.at(round(self.to_time.timestamp() * 1000))
        if batch is None:
            why = "no batch that is known was planned so early"
            raise self._refusal(why, "name a later time; `headrace reset` begins at the sources' beginning")
        return batch

    def _require_possible(self) -> None:
        query = self.query
        self._require_named()
        if (former := former_location(self.project, query, self.live)) is not None:
            why = f"its batches were written to {former}, which is not its sink any more"
            raise self._refusal(why, "name the former sink again")
        if why := self._ability().hindrance(query.mode):
            raise self._stays(why)

    def _ability(self) -> SinkRewind:
        sink = self.query.sink
        if sink.rewind is None:
            raise self._stays(f"what the sink {type(sink).__name__} was given stays there")
        return sink.rewind

    def _stays(self, why: str) -> CheckFailed:
        way = self._other_way(declares=hasattr(self.query.sink, "rewindable"))
        return self._refusal(f"the sink '{self.query.sink_kind}' cannot go back: {why}", way)

    def _require_reached(self, past: Past, batch: int) -> None:
        """Raise CheckFailed where the checkpoint or the sink does not reach back to the end of `batch`."""
        context = self.context(self.live)
        with self.name_sink_faults():
            kept = self._ability().earliest(context, batch, self.session)
        why = past.blocker(batch)
        behind = kept is None or batch < kept
        if not why and not behind:
            return
        if not why:
            why = f"its sink has kept what was there before only since batch {kept}"
        earliest = None if kept is None else past.earliest(kept)
        if earliest is None:
            raise self._refusal(why, f"no batch can be gone back to; {self._other_way(declares=False)}")
        fix = f"batch {earliest} is the earliest: {self._command(f'--to-batch {earliest}')}"
        raise self._refusal(why, f"{fix}; {self._other_way(declares=False)}")

    def _require_not_run(self, record: LogRecord) -> None:
        planned = Checkpoint(self.live.checkpoint).last_batch
        if record.target != self.record.live or planned != record.facts["batch"]:
            why = "it has run since, and what it has written would be lost"
            raise self._irreversible(why, f"rewind it once more, or delete the rest: {self._then('discard')}")

    def _require_former(self, record: LogRecord) -> None:
        if record.former is None or not self.live.at(record.former).home.exists():
            raise self._irreversible("what it was before is gone", f"delete the rest: {self._then('discard')}")

    def _other_way(self, *, declares: bool) -> str:
        query = self.query
        command = f"headrace rebuild {query.name}" if query.sink.swap is not None else f"headrace reset {query.name}"
        later = "declare rewindable: 7 days on the sink, for the batches to come; " if declares else ""
        return f"{later}recompute the result from the sources: {command}"

    # -------------------------------------------------------------------------------------------------- the history

    def _take_batches(self, batch: int) -> None:
        """Take the batches that come again out of the history; one that cannot be written is no reason to stop."""
        file, kept = history_file(self.project.local_storage), self.live.former_batches
        whose = self.query.name, self.live.generation
        if file.exists():
            with suppress(HeadraceError, OSError), History.open(file) as history:
                history.take_batches(*whose, batch, lambda batches: replace_file(kept, json.dumps(batches)))

    def _restore_batches(self, old: QueryLayout) -> None:
        file, kept = history_file(self.project.local_storage), old.former_batches
        if file.exists() and kept.exists():
            with suppress(HeadraceError, ValueError), History.open(file) as history:
                history.restore_batches(self.query.name, old.generation, json.loads(kept.read_text()))

    # ---------------------------------------------------------------------------------------------- what is shown

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


def list_lost(project: Project, query: Query, layout: QueryLayout, batch: int, newest: int) -> Iterator[str]:
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
    left = [
        f"query '{name}' reads the result, and has read rows that are taken back; rewind or reset it as well"
        for name in readers(project, query)
    ]
    return [*left, f"what its sources gave after batch {batch} is read again by the next start"]


def _make_directory(past: Past, layout: QueryLayout, new: QueryLayout, batch: int) -> None:
    """Make the directory `new` as that of `layout` was at the end of `batch`. Raises OSError, CheckpointError."""
    copy_directory(layout, new, batch=batch)
    # Without it, the next start would read and report the bad rows of all former batches again.
    _limit_seen(layout.quarantine, new.quarantine, batch)
    past.copy(new.checkpoint, batch)
    rename_schemas(new.checkpoint, str(layout.home.absolute()), str(new.home.absolute()))
    Archive(new.archive).void_after(batch)
    _cut_manifest(new.manifest, batch)
    _cut(new.table_record, lambda line: line.get("from_batch", 0) <= batch)
    _cut(new.repartitions, lambda line: line.get("batch", 0) <= batch)


def _forget_late_rows(layout: QueryLayout, batch: int) -> None:
    """Let the late rows of batches after `batch`, which come again, be looked for again. Raises OSError."""
    for file in layout.late.glob("*.jsonl"):
        if file.stem.isdigit() and int(file.stem) > batch:
            file.unlink(missing_ok=True)
    _limit_seen(layout.late, layout.late, batch)


def _limit_seen(folder: Path, new: Path, batch: int) -> None:
    """Let `new` say how far the batches were seen to, as `folder` says, up to `batch` at most."""
    if (folder / _SEEN).exists():
        text = (folder / _SEEN).read_text(encoding="utf-8").strip()
        new.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(new / _SEEN, str(min(int(text), batch)) if text.isdigit() else "-1")


def _cut_manifest(file: Path, batch: int) -> None:
    """Leave out the forms that the query had later, but for the one in force under other names of its sources.

    Those names are in the checkpoint, whatever batch it is at.
    """
    if not file.exists():
        return
    kept: list[Any] = []
    for line in json_lines.read(file):
        if not isinstance(line, dict) or line.get("from_batch", 0) <= batch:
            kept.append(line)
        elif line.get("continues"):
            kept.append({**line, "from_batch": batch + 1})
        else:
            break
    replace_file(file, json_lines.text_of(kept))


def _cut(file: Path, kept: Callable[[Any], bool]) -> None:
    """Leave out the lines of a record that are about later batches."""
    if file.exists():
        lines = json_lines.read(file, skip="any")
        replace_file(file, json_lines.text_of(line for line in lines if not isinstance(line, dict) or kept(line)))
