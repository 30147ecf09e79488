"""One simulated world: a database, buckets, an input, drivers that come and go; and what must hold all the time."""

from __future__ import annotations

import random
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.change import pending
from headrace.change.reset import Reset
from headrace.change.rewind import Rewind
from headrace.checkpoint import Archive, Checkpoint
from headrace.connectors.exactly_once import batches as exactly_once
from headrace.connectors.sql import prepare, silence
from headrace.connectors.sql import sink as sql_sink
from headrace.errors import HeadraceError
from headrace.model import AvailableNow, NamedSource, Project, Query, SqlTransform, Target
from headrace.queries import driver_lock, lease, manifest
from headrace.queries.form import QueryForm
from headrace.queries.layout import layout_of
from headrace.run import plan as planning
from headrace.run import start as starting
from headrace.run.query_run import Request
from headrace.spark.plans.analysed import PlanFacts
from headrace.storage import remembered, store

from .bucket import Bucket, FileSystem, copied
from .database import Database, Faults, ModelSink, Written, known
from .query import SOURCE, Frame, Given, Input, ModelSource, Session
from .scheduler import Clock, NoLock, PerProcess, Process, Scheduler, Threading


class Broken(AssertionError):
    """Something that must always hold does not."""


ROOT = Path("/model")
# Those of the generation that has the table.
_LINES = (
    "SELECT batch FROM _headrace_ledger JOIN _headrace_tables USING (table_name, generation) "
    "WHERE table_name = 'result' ORDER BY batch"
)


@dataclass(frozen=True, kw_only=True)
class Chances:
    """What can happen in a world, by chance of its seed.

    crashes, pauses: a driver is killed, or stopped for a while. lost: answers are lost. unlocked: the storage has no
    locks. events, changes: something happens before the next driver begins, and in a world of resets and rewinds.
    """

    drivers: int = 4
    files: int = 8
    crashes: float = 0.6
    pauses: float = 0.3
    lost: float = 0.3
    unlocked: float = 0.3
    events: float = 0.4
    changes: float = 0.8


Work = Callable[[Process, str], None]


@dataclass
class World:
    """Everything of one seed; `kind`, `is_rewindable`: of its storage and its sink, where they are not left to it."""

    seed: int
    chances: Chances = field(default_factory=Chances)
    kind: type[Bucket] | type[FileSystem] | None = None
    is_rewindable: bool | None = None

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.seed)
        self.random = self.scheduler.random
        lossy = self.random.random() < self.chances.lost
        self.has_locks = self.random.random() >= self.chances.unlocked
        faults = Faults(commit=0.1, statement=0.01) if lossy else Faults()
        self.database = Database(self.scheduler, faults, committed=self._committed)
        kind = self.random.choice((Bucket, FileSystem)) if self.kind is None else self.kind
        self.buckets = {"main": kind("main", self.scheduler, lost=0.04 if lossy else 0.0)}
        self.scheme = kind.scheme
        self.input = Input(self.scheduler, self.random.randint(1, 4))
        self.path = f"model-{self.seed}"
        self.refusals: list[str] = []
        self.drivers: list[tuple[Process, str]] = []
        # Whether something was lost that no start can bring back: then it must be refused, if it does not do so.
        self.is_lost = False
        self.is_changing = self.random.random() < 0.4
        if self.is_rewindable is None:
            self.is_rewindable = self.random.random() < 0.5
        self.last: Process | None = None
        self._epochs: dict[int, Process | None] = {}
        self._backup: sqlite3.Connection | None = None

    # --------------------------------------------------------------------------------------------- the story

    def run(self, story: Callable[[], None] | None = None) -> World:
        """Let the world happen, or a story of its own; raises Broken where something does not hold."""
        with self.in_place():
            self.scheduler.spawn(Process("world", 1), "main", story or self._story)
            self.scheduler.run()
        return self

    def _story(self) -> None:
        chances, random = self.chances, self.random
        for number in range(random.randint(1, chances.drivers) + self.is_changing):
            if number and random.random() < (chances.changes if self.is_changing else chances.events):
                self._event()(self)
            self._driver(random.choice(list(self.buckets)))
            if random.random() < 0.7:
                self.scheduler.sleep(random.choice((0.05, 1.0, 5.0, 30.0, 100.0)))
            self.input.count = min(self.input.count + random.randint(0, 3), chances.files)
        self.scheduler.sleep(2_000.0)
        self.end()

    def end(self) -> None:
        """Nothing disturbs any more: what was cut off is ended, and a driver on each storage brings in what it can."""
        random = self.random
        self.input.count = self.chances.files
        self.database.faults = Faults()
        for bucket in self.buckets.values():
            bucket.lost = 0.0
        for bucket in random.sample(list(self.buckets), len(self.buckets)):
            for work in (self.end_changes, self.drive):
                self.wait_for(self.begin(bucket, work, undisturbed=True))
        self._require_end()

    def wait_for(self, process: Process) -> None:
        """Wait until a process has ended."""
        self.scheduler.wait(lambda: process.dead, 1_000.0)

    def _event(self) -> Callable[[World], None]:
        if self.is_changing and self.random.random() < 0.8:
            return World.change
        if self._backup is not None and self.random.random() < 0.5:
            return World.back_up_database
        return self.random.choice(EVENTS)

    def copy_storage(self) -> None:
        """A storage is copied, as by a backup, and somebody runs the copy."""
        name = f"copy{len(self.buckets)}"
        original = self.buckets[self.random.choice(list(self.buckets))]
        if "headrace/application.json" in original.objects and len(self.buckets) < 3:
            self.scheduler.step(f"the storage {original.bucket} is copied to {name}")
            self.buckets[name] = copied(original, name)
            store.keep(self.scheme, name, lambda: self.buckets[name])
            for bucket in self.random.sample([name, original.bucket], 2):
                self._driver(bucket)

    def silence_database(self) -> None:
        """The database does not answer for a while."""
        seconds = self.random.choice((1.0, 20.0, 100.0))
        self.scheduler.step(f"the database is silent for {seconds:.0f} s")
        self.database.away_until = self.scheduler.now + seconds

    def back_up_database(self) -> None:
        """The database is copied, or brought back from such a copy."""
        if self._backup is None:
            self.scheduler.step("the database is copied")
            self._backup = self.database.copied()
        else:
            self._kill(set(self.buckets))
            self.scheduler.step("the database is brought back from its copy")
            self.database.end_all()
            self._backup.backup(self.database.real)
            self.is_lost = True

    def lose_power(self) -> None:
        """The machine of a storage stops, and what was written last into the checkpoint is lost."""
        name = self.random.choice(list(self.buckets))
        objects = self.buckets[name].objects
        inside = [key for key in objects if "/checkpoint/" in key and not key.endswith(("/", "/metadata"))]
        times = sorted({objects[key].at for key in inside})
        if len(times) > 2:
            self._kill({name})
            since = self.random.choice(times[-5:])
            self.scheduler.step(f"{name} loses its checkpoint's entries since {since:.2f}")
            for key in inside:
                if objects[key].at >= since:
                    del objects[key]

    def lose_checkpoint(self) -> None:
        """Somebody removes the checkpoint."""
        name = self.random.choice(list(self.buckets))
        objects = self.buckets[name].objects
        if inside := [key for key in objects if "/checkpoint/" in key]:
            self._kill({name})
            self.scheduler.step(f"{name} loses its checkpoint")
            for key in inside:
                del objects[key]
            self.is_lost = True

    def _kill(self, buckets: set[str]) -> None:
        for process, bucket in self.drivers:
            if bucket in buckets and not process.dead:
                self.scheduler.trace.append(f"{process.name} is killed")
                process.dead = True

    def change(self) -> None:
        """Somebody resets or rewinds the query, takes that back, makes it final, or ends what was cut off."""
        if not self.has_locks:
            return  # Nothing keeps commands apart there.
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < 0.85:
                self.scheduler.wait(lambda: all(process.dead for process, _ in self.drivers), 300.0)
                self.scheduler.sleep(lease.LEASE_SECONDS + 1.0)
            self.begin(self.random.choice(list(self.buckets)), self._change)
            self.scheduler.sleep(self.random.choice((0.05, 5.0)))

    def _driver(self, bucket: str) -> None:
        self.begin(bucket, self.drive)

    def begin(self, bucket: str, work: Work, *, undisturbed: bool = False) -> Process:
        random, number = self.random, len(self.drivers) + 1
        process = Process(f"d{number}", 100 + number)
        if not undisturbed:
            if random.random() < (0.5 if self.is_changing else 1.0) * self.chances.crashes:
                process.crash_in = random.randint(1, 120 if work == self._change else 300)
            if random.random() < self.chances.pauses:
                process.pause_in = random.randint(1, 300)
                process.pause_seconds = random.choice((3.0, 25.0, 70.0, 200.0))
        self.drivers.append((process, bucket))
        self.last = process if undisturbed else None
        self.scheduler.trace.append(f"{process.name} begins on {bucket}: {work.__name__.strip('_')}")
        self.scheduler.spawn(process, "main", lambda: self._worked(process, bucket, work))
        return process

    def _worked(self, process: Process, bucket: str, work: Work) -> None:
        try:
            work(process, bucket)
        except HeadraceError as error:
            told = error.findings[0]
            self.refusals.append(told.code)
            self.scheduler.trace.append(f"{process.name} is refused: {told.code} {told.what}")
            if told.code not in ("HR405", "HR540", "HR587", "HR831"):  # Those come where answers are lost, or locks.
                self._require_unchanged(process)
            if told.code == "HR526" and f"process {process.pid} " in told.what:
                self._broken(f"{process.name} is kept out by itself")
        process.dead = True

    def _change(self, process: Process, bucket: str) -> None:
        random, (project, query) = self.random, self.declared(bucket)
        begun = pending.changes(project, "q")
        verb = random.choice(("resume", "undo", "discard")) if begun and random.random() < 0.7 else "apply"
        if verb == "apply" and (not self.is_rewindable or random.random() < 0.3):
            change: pending.AnyChange = Reset(project, "q", result="drop")
        elif verb == "apply":
            newest = Checkpoint(layout_of(project, query).checkpoint).last_committed
            change = Rewind(project, "q", to_batch=random.randint(0, max((newest or 0) - 1, 0)))
        else:
            change = begun[0]
        self.scheduler.trace.append(f"{process.name}: {verb} of a {change.name}")
        getattr(change, verb)()
        self.scheduler.trace.append(f"{process.name}: {verb} of a {change.name} is done")

    def end_changes(self, process: Process, bucket: str) -> None:
        """What was cut off is ended, as each start asks for it."""
        for change in pending.changes(self.declared(bucket)[0], "q"):
            if change.status is not None and change.status.is_cut_off:
                self.scheduler.trace.append(f"{process.name}: resume of a {change.name}")
                change.resume()

    def drive(self, process: Process, bucket: str) -> None:
        project, query = self.declared(bucket)
        session = Session(self.scheduler, self.input)
        if process is not self.last:
            session.most, session.polls = self.random.randint(1, 8), self.random.choice((0, 0, 1, 5))
            session.interval = self.random.choice((0.0, 1.0, 40.0))
        running = starting.bring_up(Request(project=project, query=query, spark=session))  # type: ignore[arg-type]
        self._require_alone(process, bucket)
        archive, checkpoint = Archive(running.layout.archive), Checkpoint(running.layout.checkpoint)
        try:
            is_over = False
            while not is_over:
                is_over = self.scheduler.wait(lambda: running.handle.ended, 10.0)  # type: ignore[attr-defined]
                archive.catch_up(checkpoint)
        except HeadraceError as error:
            self.scheduler.trace.append(f"{process.name}: {error}")
        if (fault := running.handle.exception()) is not None:
            self.scheduler.trace.append(f"{process.name} fails: {type(fault).__name__} {fault}")
            self._require_truth(process, str(fault))
        running.clean_up()
        if process is self.last and set(checkpoint.commit_numbers()) - set(archive.batches()):
            self._broken(f"{bucket} has committed batches that are not archived")

    def declared(self, bucket: str) -> tuple[Project, Query]:
        keeps: dict[str, Any] = {"key": ["name"], "rewindable": "7 days"} if self.is_rewindable else {}
        sink = ModelSink(path=self.path, table="result", **keeps)
        query = Query(
            name="q",
            transform=SqlTransform(sql=f"SELECT * FROM {SOURCE}", inputs=(SOURCE,)),
            sink=sink,
            sink_kind="model",
            trigger=AvailableNow(),
        )
        source = NamedSource(name=SOURCE, kind="files", connector=ModelSource())
        project = Project(
            name="model",
            root=ROOT,
            target=Target(storage=f"{self.scheme}://{bucket}/headrace"),
            sources={SOURCE: source},
            queries={"q": query},
        )
        return project, query

    # ------------------------------------------------------------------------------------------- what must hold

    def _committed(self, process: Process | None, written: Sequence[Written]) -> None:
        self._require_prefix()
        for statement, values, _ in written:
            if "INTO _headrace_ledger" in statement:
                batch, epoch = values[4], values[5]
                newest = self.database.rows("SELECT epoch FROM _headrace_epochs")[0][0]
                if epoch != newest:
                    self._broken(f"batch {batch} was written with epoch {epoch}, and {newest} had begun")
                if self._epochs.setdefault(epoch, process) is not process and not self.is_lost:
                    self._broken(f"two drivers have written with epoch {epoch}")

    def _require_prefix(self) -> int:
        """The rows are the first files, each once; the ledger has a line of each batch, and no other."""
        rows = [(str(name), int(batch)) for name, batch in self.database.rows('SELECT name, total FROM "result"')]
        names = sorted(name for name, _ in rows)
        if len(set(names)) < len(names):
            self._broken(f"rows came twice: {names}")
        if names != [self.input.name(number) for number in range(len(names))]:
            self._broken(f"rows are missing: {names}")
        lines = [int(batch) for (batch,) in self.database.rows(_LINES)]
        if lines != list(range(len(lines))) or set(lines) != {batch for _, batch in rows}:
            self._broken(f"the ledger has the batches {lines}, the result those of {sorted({b for _, b in rows})}")
        return len(names)

    def _require_alone(self, process: Process, bucket: str) -> None:
        """Where there are locks, no other driver runs over the storage, but one that was stopped for long."""
        if process.paused_until:
            return  # It was that one itself, and is fenced off.
        for other, where in self.drivers if self.has_locks else ():
            silent = self.scheduler.now - other.paused_until < lease.LEASE_SECONDS
            if other is not process and where == bucket and other.kept.get("held") and not (other.dead or silent):
                self._broken(f"{process.name} has begun beside {other.name}")

    def _require_unchanged(self, process: Process) -> None:
        """A start that was refused has written nothing but the tables that it needs."""
        for statement in self.database.written.get(process, ()):
            if statement.startswith(("UPDATE", "DELETE")) or '"result"' in statement:
                self._broken(f"{process.name} was refused, and has written: {statement}")

    def _require_truth(self, process: Process, told: str) -> None:
        """A batch of which a driver says that it was not written was not written by it."""
        match = re.search(r"batch (\d+) of query 'q' was not written", told)
        if match is not None and int(match[1]) in self.database.sent.get(process, ()):
            self._broken(f"{process.name} has written a batch, and says: {told}")

    def _require_end(self) -> None:
        """All rows are in once nothing disturbs: where there are copies, by one of them."""
        ends = self.refusals[-len(self.buckets) :]
        is_refused = self.is_lost and ends and set(ends) <= {"HR407", "HR410"}
        if self._require_prefix() != self.input.count and not is_refused:
            self._broken(f"not all rows came in: {ends}")

    def _broken(self, what: str) -> None:
        self.scheduler.fail(Broken(f"seed {self.seed}, step {len(self.scheduler.trace)}: {what}"))

    # ------------------------------------------------------------------------------------------ the edges

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the product ask the model: its clock, its threads, its processes, its stores, and no Spark."""
        scheduler = self.scheduler
        clock, threads = Clock(scheduler), Threading(scheduler)
        ids = random.Random(self.seed)
        known[self.path] = self.database
        before: list[tuple[Any, str, Any]] = []

        def let(owner: Any, name: str, value: Any) -> None:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        try:
            for module in (exactly_once, prepare, silence):
                let(module, "time", clock)
            let(exactly_once, "random", SimpleNamespace(uniform=scheduler.random.uniform))
            let(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
            let(lease, "threading", threads)
            let(lease, "os", SimpleNamespace(getpid=lambda: scheduler.process.pid))
            let(lease, "birth", lambda pid: None if self._is_dead(pid) else f"born {pid}")
            let(lease, "_taking", NoLock())
            let(lease, "_live", set())
            let(driver_lock, "_guard", NoLock())
            let(driver_lock, "_now", lambda: f"second {scheduler.now - 1_000_000:.0f}")
            let(driver_lock, "_held", PerProcess(scheduler, "held"))
            let(store, "_in_place", PerProcess(scheduler, "in place"))
            let(store, "_stores", {f"{self.scheme}://{name}": bucket for name, bucket in self.buckets.items()})
            let(remembered, "ThreadPoolExecutor", OneAfterTheOther)
            let(sql_sink, "Stage", Given)
            if not self.has_locks:
                let(driver_lock, "take", lambda *_, **__: None)
            let(manifest, "version", lambda _: "0")
            for name, value in PLANNING.items():
                let(planning, name, value)
            yield
        finally:
            for owner, name, value in reversed(before):
                setattr(owner, name, value)
            del known[self.path]
            self.database.close()

    def _is_dead(self, pid: int) -> bool:
        return False


class OneAfterTheOther:
    """In place of a pool of threads."""

    def __init__(self, _: int) -> None: ...

    def __enter__(self) -> OneAfterTheOther:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[Any], Any], values: Sequence[Any]) -> Iterator[Any]:
        return iter([function(value) for value in values])


def _nothing(*_: Any, **__: Any) -> tuple[Any, ...]:
    return ()


# What asks Spark for its plan; the records of it are made and compared as always.
PLANNING: dict[str, Any] = {
    "compared": _nothing,
    "cores": _nothing,
    "register_written": _nothing,
    "build": lambda project, transform, spark, reader, tables: Frame(spark),
    "plan_facts": lambda frame: PlanFacts(streaming=True, indeterminate=(), sources=(SOURCE,)),
    "analysed": _nothing,
    "form_of": lambda *_, **__: QueryForm(spark="4.2.0"),
    "plan_text": lambda frame: "the plan",
}
EVENTS: tuple[Callable[[World], None], ...] = (
    World.change,
    World.change,
    World.change,
    World.copy_storage,
    World.copy_storage,
    World.silence_database,
    World.back_up_database,
    World.lose_power,
    World.lose_checkpoint,
)
