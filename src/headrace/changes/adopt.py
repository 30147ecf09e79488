"""A query that ran in plain PySpark taken over with its checkpoint and the result that it has written.

The former job's directory is only read, and compared with the query first. A copy of it is made in a directory of its
own; then the sink enters whose its rows are; the record that it is done makes the copy the live one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from headrace.changes.adopt_sources import AdoptedSource, match_sources, show_sources
from headrace.changes.change import Change
from headrace.checkpoint import Checkpoint, StateOperator
from headrace.checkpoint.handover import EVOLUTION, PARTITIONS, copy_checkpoint, listing, unfit
from headrace.checkpoint.problems import list_problems
from headrace.checkpoint.state_schema import OperatorSchema, schema_differences, state_schema
from headrace.checks.analysed import check_analysed
from headrace.checks.state_bounds import POLICY, check_policy
from headrace.checks.structure import check_structure_of
from headrace.contract import Held, SinkContext
from headrace.errors import CheckFailed, CheckpointError, Finding, HeadraceError, PlainData, Where
from headrace.frames.change_frames import build_result
from headrace.frames.plan_builder import build, registered_tables
from headrace.frames.project_session import borrow
from headrace.generations.blame import reset_command
from headrace.generations.changes import AdoptionRecord, ChangeStatus
from headrace.generations.facts import StartFacts
from headrace.generations.log import LogRecord, QueryLayout, log_of
from headrace.generations.manifest import enter
from headrace.generations.register import layout_of, read_register
from headrace.model import NamedSource, Project, Query
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.jvm.settings import is_local
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans.analysed import PlanFacts, plan_facts
from headrace.spark.stream.state import placeholder, probe
from headrace.starter.judge import current_revision, reader
from headrace.starter.rename import enter_sink
from headrace.starter.state_store import adopted_settings, provider_of, session_settings
from headrace.storage.durable import remove_tree, replace_file, size_of
from headrace.storage.location import is_known, place, reach
from headrace.storage.private import make_private, scratch, writing_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A batch that was written so lately may be that of a job that still runs.
_LATELY_SECONDS = 60

# What the user says of a batch that is planned and not committed: whether the result has its rows.
PlannedIs: TypeAlias = Literal["written", "not-written"]


@dataclass(frozen=True, kw_only=True)
class AdoptionPlan(PlainData):
    """What an adoption does.

    Attributes:
        checkpoint: The directory of the former job's checkpoint.
        id: Spark's id of the former job's query.
        generation: The generation that the query begins with.
        first: The first batch that the checkpoint holds.
        committed: The newest committed batch; None if there is none.
        planned: The batch that was planned and not committed; None if the newest one is committed.
        batch: The last batch that the result holds; None if it holds none.
        sources: The sources with their place in the checkpoint.
        operators: The operators with state.
        provider: The state store that wrote the state; None without state.
        settings: Spark's settings that the checkpoint keeps.
        size_bytes: The size of what is copied.
        result: What the sink holds.
        notes: Findings that you should read before you apply the plan.
        continues: Whether the plan ends an adoption that was cut off.
    """

    query: str
    checkpoint: str
    id: str
    generation: int
    first: int
    committed: int | None
    planned: int | None
    batch: int | None
    sources: tuple[AdoptedSource, ...]
    operators: tuple[StateOperator, ...]
    provider: str | None
    settings: Mapping[str, str]
    size_bytes: int
    result: tuple[Held, ...]
    notes: tuple[Finding, ...] = ()
    continues: bool = False


@dataclass(frozen=True, kw_only=True)
class Adoption(PlainData):
    """The outcome of an adoption.

    Attributes:
        next_batch: The first batch that Headrace makes.
        plan: What the adoption did.
    """

    optional: ClassVar[tuple[str, ...]] = ("plan",)
    query: str
    next_batch: int
    plan: AdoptionPlan | None = None


@dataclass(frozen=True)
class Built:
    """The result of the query, what its connectors gave, its sources by their former names, and what is to be done."""

    frame: DataFrame
    streams: Mapping[str, DataFrame]
    names: Mapping[str, tuple[str, ...]]
    plan: AdoptionPlan


class Adopt(Change[AdoptionPlan, Adoption]):
    """A query, which has never run, that continues the job of plain PySpark whose checkpointLocation is `checkpoint`.

    checkpoint: a path, or a URL of a store that can hold the storage as well; it may be left out where an adoption was
    cut off. sources: by a source's name, its number or name in that checkpoint, where that is not clear. planned:
    whether the result has the rows of a batch that was planned and not committed.
    """

    name, _done = "adopt", "adopted"

    def __init__(
        self,
        project: Project,
        query: str,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        sources: Mapping[str, str] | None = None,
        planned: PlannedIs | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        super().__init__(project, query, spark=spark)
        self.checkpoint = None if checkpoint is None else os.fspath(checkpoint)
        self.sources, self.planned = sources or {}, planned

    def _look(self) -> None:
        self.live = layout_of(self.project, self.query)
        self.record = log_of(self.live) or LogRecord()
        self.old = self._checkpoint_at()

    @property
    def status(self) -> ChangeStatus | None:
        live, name = layout_of(self.project, self.query), self.query.name
        record = log_of(live)
        if record is None or record.change != self.name or not record.is_between:
            return None
        return ChangeStatus(
            query=name,
            change="adopt",
            phase="adopt",
            begun=record.begun,
            is_cut_off=True,
            sentence=f"the adoption of {record.facts['checkpoint']} by query '{name}' was cut off; end it: "
            f"{self._then('resume')}; or take it back: {reset_command(self.query)}",
        )

    # ------------------------------------------------------------------------------------------------- the steps

    def _preview(self) -> AdoptionPlan:
        with self._built() as built:
            return built.plan

    def _make_steps(self, reached: Callable[[str], None]) -> Adoption:
        with self._built() as built:
            return self._adopt(built, reached)

    def _adopt(self, built: Built, reached: Callable[[str], None]) -> Adoption:
        query, plan, own = self.query, built.plan, self._next(self.live.generation)
        with writing_to(self.live.folder):
            make_private(self.live.storage)
        if not plan.continues:
            keys = {use: key for key, uses in built.names.items() for use in uses}
            self._require_alone()
            self._begin(own, **asdict(AdoptionRecord.begin(self.old, plan.batch, keys)))
        else:
            self._continue(own)
        reached("recorded")
        new = self.live.at(self._target)
        if not new.made_by.exists():
            self._make(new, built, reached)
        self._enter_made()
        reached("entered")
        with self.name_sink_faults():
            query.sink.adoption.take_over(built.frame, self._mark("there", new), plan.batch)
        reached("sink")
        return self._end(reached, plan)

    def _end(self, reached: Callable[[str], None], plan: AdoptionPlan | None = None) -> Adoption:
        batch = self.record.facts["batch"]
        self._complete()
        reached("done")
        return Adoption(query=self.query.name, next_batch=0 if batch is None else batch + 1, plan=plan)

    def _make(self, new: QueryLayout, built: Built, reached: Callable[[str], None]) -> None:
        """Make the directory of the generation, with a copy of the former job's checkpoint."""
        project, query, record = self.project, self.query, self.record
        with writing_to(new.home):
            remove_tree(new.home)
            new.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            facts = {name: record.facts[name] for name in AdoptionRecord.__dataclass_fields__}
            replace_file(new.adoption, json.dumps(facts) + "\n")
            made = copy_checkpoint(self.old, new.checkpoint, new.checkpoint, built.names)
        if errors := [problem for problem in list_problems(made) if problem.severity == "error"]:
            raise CheckpointError(errors)
        reached("copied")
        enter_sink(project, query, new)
        if not project.refreshed_tables_of(query):
            register = read_register(project.storage)
            made_facts = StartFacts(project=project, query=query, register=register, layout=new)
            enter(new, current_revision(made_facts, built.frame, built.streams))

    def _undone(self, reached: Callable[[str], None]) -> Adoption:
        raise self._irreversible("a reset takes it back", "reset the query (headrace reset QUERY)")

    _discard_steps = _undone

    # ------------------------------------------------------------------------------------------------- before them

    def _checkpoint_at(self) -> Checkpoint:
        """The checkpoint at a local path, or in a store that the project's settings lead to."""
        named, project = self.checkpoint, self.project
        if named is None and self.record.change == self.name and self.record.is_between:
            named = str(self.record.facts["checkpoint"])
        if named is None:
            raise self._refusal("it was not said which checkpoint", self._command("--checkpoint DIR"))
        if not is_known(named):
            fault = "it cannot be adopted: Headrace does not know how to read what lies there"
            fix = "copy the directory to a local path, to HDFS or to S3, and name the copy"
            raise CheckpointError(code="HR590", where=Where(file=named), what=fault, fix=fix)
        reach([named], project.target.spark)
        return Checkpoint(place(named).absolute())

    @contextmanager
    def _built(self) -> Iterator[Built]:
        """The query and the plan of its adoption, all of which was looked at."""
        record = self._require_possible()
        adoption, batch = self.query.sink.adoption, None
        if record is not None:
            batch = self._last_recorded(record)
        elif not adoption.tells_batches:
            batch = self._last_written(None)
        settings = adopted_settings(self.project, self.old)
        with (
            borrow(self.project, self.spark) as spark,
            apply_settings(spark, {**session_settings(self.project, spark), **settings}),
            registered_tables(self.project, self.query, spark),
        ):
            streams: dict[str, DataFrame] = {}
            frame = build_result(self.project, self.query, spark, reader(spark, self.query.trigger, streams)).frame
            facts = plan_facts(frame)
            notes = tuple(self._check_frame(frame, facts))
            names = match_sources(self.project, self.query, facts.sources, self.old, self.sources)
            # A join of two streams is none of the plan's stateful operators.
            stateful = self.old.is_stateful or bool(facts.stateful) or len(facts.sources) > 1
            if misfits := tuple(state_misfits(self.project, self.query, spark, self.old, stateful=stateful)):
                raise CheckpointError(misfits)
            held: tuple[Held, ...] = ()
            # What was cut off may have taken them over.
            if record is None:
                with self.name_sink_faults():
                    held = tuple(adoption.foreign_rows(frame, self._foreign()))
                    if adoption.tells_batches:
                        batch = self._last_written(adoption.foreign_batch(frame, self._foreign()))
            yield Built(
                frame, streams, names, self._plan_adoption(names, held, batch, notes, continues=record is not None)
            )

    def _plan_adoption(
        self,
        names: Mapping[str, tuple[str, ...]],
        held: tuple[Held, ...],
        batch: int | None,
        notes: tuple[Finding, ...],
        *,
        continues: bool,
    ) -> AdoptionPlan:
        old, kept = self.old, dict(self.old.conf)
        last, committed = old.last_batch, old.last_committed
        return AdoptionPlan(
            query=self.query.name,
            checkpoint=str(old.root),
            id=old.id or "",
            generation=self.live.generation,
            first=min(old.offset_numbers(), default=0),
            committed=committed,
            planned=None if last == committed else last,
            batch=batch,
            sources=tuple(show_sources(self.project, self.query, old, names)),
            operators=old.state_operators(),
            provider=provider_of(old),
            settings=kept,
            size_bytes=size_of(old.root),
            result=held,
            notes=(*self._notes(), *notes),
            continues=continues,
        )

    def _require_possible(self) -> AdoptionRecord | None:
        """Raise if the query, its place or the directory cannot be used, without Spark; what was cut off, if so."""
        query, layout = self.query, self.live
        errors = [finding for finding in check_structure_of(self.project, [query.name]) if finding.severity == "error"]
        if errors:
            raise CheckFailed(errors)
        can = query.sink.adoption.possible(query.mode)
        if not query.sink.facts.durable or not can.possible:
            why = can.why if query.sink.facts.durable else "it keeps nothing, so that each start begins from scratch"
            problem = f"cannot be given the result of the former job: of the sink {query.sink_kind}, {why}"
            fix = "write to a database table or to files, or let it read its sources from the beginning: headrace run"
            raise CheckFailed(query.finding("HR596", problem, fix))
        self._require_no_other()
        here, record = Checkpoint(layout.checkpoint), None
        if self.record.change == self.name and self.record.is_between:
            names = AdoptionRecord.__dataclass_fields__
            record = AdoptionRecord(**{name: self.record.facts[name] for name in names})
        begun = here.last_batch is not None or here.last_committed is not None or here.is_stateful
        if begun and record is None:
            how = "was adopted already" if layout.adoption.exists() else "has run already"
            fix = "reset the query first (headrace reset QUERY), if the former job is to continue in its place"
            raise CheckFailed(query.finding("HR580", f"{how}, and its checkpoint is in {layout.checkpoint}", fix))
        if findings := tuple(unfit(self.old)):
            raise CheckpointError(findings)
        if self.old.root.resolve().is_relative_to(self.project.storage.resolve()):
            fault = "it cannot be adopted: it lies in the storage of this project, and Headrace has written it"
            fix = "name the checkpointLocation that the former job ran with; a renamed query keeps its own"
            raise CheckpointError(code="HR590", where=self._place, what=fault, fix=fix)
        return record

    def _last_written(self, recorded: int | None) -> int | None:
        """The last batch that the sink has. Raises CheckFailed where it is unknown whether the newest one is in.

        recorded: the last one by a record that the former job has left in the sink.
        """
        planned, committed = self.old.last_batch, self.old.last_committed
        if planned is None or planned == committed:
            return committed
        if recorded is not None:
            return planned if recorded >= planned else committed
        if self.planned is None and self.query.sink.facts.transactional:
            command = f"headrace adopt {self.query.name} --checkpoint {self.old.root} --planned"
            raise CheckFailed(
                code="HR591",
                where=self._place,
                what=f"batch {planned} is planned and not committed, and the table does not show whether it has "
                "its rows: they would be missing, or be there twice",
                fix="let the former job run until it has committed the batch; or look into the table, and say "
                f"what is there: {command} written, or {command} not-written",
            )
        return planned if self.planned == "written" else committed

    def _last_recorded(self, record: AdoptionRecord) -> int | None:
        """The last batch that the sink has, or was about to be given, when an adoption was cut off."""
        if record.is_of(self.old):
            self.sources = record.sources
            return record.batch
        other = record.id != self.old.id
        fault = f"the adoption of {'another checkpoint, ' if other else ''}{record.checkpoint} was begun and cut off"
        if not other:
            fault += ", and the former job has made batches since"
        fix = f"end it: {self._then('resume')}; or " if other else ""
        fix += "reset the query (headrace reset QUERY)"
        raise CheckFailed(code="HR580", what=fault, fix=fix, where=self.query.where)

    def _check_frame(self, frame: DataFrame, facts: PlanFacts) -> Iterator[Finding]:
        project, query = self.project, self.query
        findings = list(check_analysed(query, frame, facts, calls_distinct=project.calls(query, "distinct")))
        if facts.watermarks > 1:
            wanted = project.target.spark.get(POLICY) or str(frame.sparkSession.conf.get(POLICY))
            findings += check_policy(query, self.old.conf, wanted)
        if errors := [finding for finding in findings if finding.severity == "error"]:
            raise CheckFailed(errors)
        yield from findings

    def _notes(self) -> Iterator[Finding]:
        newest = max((time_ns for _, time_ns in listing(self.old).values()), default=0) / 1e9
        if time.time() - newest < _LATELY_SECONDS:
            yield Finding(
                code="HR599",
                where=self._place,
                what=f"the newest batch was written {max(time.time() - newest, 0):.0f} seconds ago: a job that still "
                "runs would write the same rows as the query",
                fix="stop the former job for good, if it still runs",
                severity="warning",
            )

    @property
    def _place(self) -> Where:
        return Where(file=str(self.old.root))

    def _foreign(self) -> SinkContext:
        """The sink's context while the query's batches are still those of the former job."""
        return replace(self.context(self.live), checkpoint=self.old.root)


def state_misfits(
    project: Project, query: Query, spark: SparkSession, old: Checkpoint, *, stateful: bool
) -> Iterator[Finding]:
    """Each difference between the state that `old` holds and that of `query`; `stateful`: it may keep any."""
    there = state_schema(old)
    needed = _needed(project, query, spark, old) if stateful else {}
    for difference in schema_differences(there, needed):
        yield Finding(
            code="HR594",
            what=f"the state of the checkpoint is not that of query '{query.name}': {difference}",
            fix="write the query as the former job has it, with the same keys and aggregates in the same order and "
            "under the same names",
            where=query.where,
        )


def _needed(project: Project, query: Query, spark: SparkSession, old: Checkpoint) -> dict[int, OperatorSchema]:
    """What Spark would keep, under the settings that it has pinned in `old`."""
    # Executors elsewhere see the project's storage, and not this machine's own directories.
    local = is_local(spark.sparkContext.master or "")
    if not local:
        project.storage.mkdir(parents=True, exist_ok=True)
    with scratch(None if local else project.storage) as home:

        def read(source: NamedSource) -> DataFrame:
            return placeholder(spark, source.name, source.connector.stream(spark, source.name), home)

        settings = {**old.conf, EVOLUTION: "true", PARTITIONS: "1"}
        try:
            made = probe(spark, lambda: build(project, query.transform, spark, read), query.mode, home, settings)
            return state_schema(Checkpoint(made))
        except HeadraceError:
            raise
        except Exception as error:
            subject = f"query '{query.name}', over no rows and with the settings of the checkpoint"
            raise CheckFailed(finding_of(error, where=query.where, subject=subject)) from error
