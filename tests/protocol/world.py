"""One simulated world: a database, buckets, an input, drivers that come and go; and what must hold all the time."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

from headrace.changes import adopt, pending, rebuild, shadow
from headrace.changes.adopt import Adopt
from headrace.changes.comparison import RebuildReport
from headrace.changes.rebuild import Rebuild
from headrace.changes.reset import Reset
from headrace.changes.rewind import Rewind
from headrace.checkpoint import Archive, Checkpoint, PlannedBatch
from headrace.checkpoint.identity import planned_batch
from headrace.connectors.exactly_once import batches as exactly_once
from headrace.connectors.kafka import producer, topic_ledger, transactions
from headrace.connectors.sql import preparation, silence
from headrace.connectors.sql import sink as sql_sink
from headrace.contract import Sink
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.frames import change_frames
from headrace.generations import driver_lock, log, manifest
from headrace.generations.driver_lock import LEASE_SECONDS
from headrace.generations.log import QueryLayout, log_of
from headrace.generations.manifest import QueryForm
from headrace.generations.register import layout_of, rebuild_register, register_project, register_query
from headrace.model import AvailableNow, NamedSource, Project, Query, SqlTransform, Target
from headrace.planner.ends import place_of
from headrace.planner.verdict import Judgement
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.plans.analysed import PlanFacts
from headrace.starter import judge as judging
from headrace.starter import prepare as preparing
from headrace.starter import start as starting
from headrace.starter.request import Request
from headrace.storage import remembered, store
from headrace.storage.numbered import file_of

from . import topics
from .bucket import KEPT_PATHS, Bucket, FileSystem, Object, copy_store
from .database import Database, Faults, ModelSink, Written, databases
from .query import SOURCE, AnotherDriver, Frame, Given, Input, ModelSource, Session
from .scheduler import Clock, NoLock, PerProcess, Process, Scheduler, Threading
from .topics import RESULT, Broker, ModelTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Broken(AssertionError):
    """Something that must always hold does not."""


ROOT = Path("/model")
# Those of the generation that has the table.
_OF_RESULT = (
    "FROM _headrace_ledger JOIN _headrace_tables USING (table_name, generation) WHERE table_name = 'result' "
    "ORDER BY batch"
)
_PLANNED = re.compile(r"/queries/q-[0-9a-f]{8}/g1\.\d+/checkpoint/offsets/\d")
_LOGS = re.compile(r"/g\d+\.\d+/checkpoint/(offsets|commits)/\d+$")
_LINES, _PLANS = f"SELECT batch {_OF_RESULT}", f"SELECT batch, planned {_OF_RESULT}"


@dataclass(frozen=True, kw_only=True)
class Chances:
    """What can happen in a world, and how often.

    drivers: how many begin, at most. crashes, pauses: how many of them are killed, or stopped for a while. lost:
    answers are lost. unlocked: the storage has no locks. events: what may happen before the next driver begins, and
    `eventful` how often it does. changes: what may be done to the query. slow: batches are far apart, so that drivers
    meet. again: how often a process starts the query once more. cut_short: the change, or the rename, of which the
    world is about: it is cut off at one of its steps, and somebody goes on from there.
    """

    drivers: int = 4
    files: int = 8
    crashes: float = 0.0
    pauses: float = 0.0
    lost: bool = False
    unlocked: bool = False
    events: tuple[str, ...] = ()
    eventful: float = 0.0
    changes: tuple[str, ...] = ("reset",)
    slow: bool = False
    again: float = 0.0
    cut_short: str = ""

    @classmethod
    def drawn(cls, random: random.Random, *, is_rewindable: bool, about: str = "") -> Chances:
        """Some of it, by chance: what is left out leaves the more to what remains; `about`: see World."""
        if about == "starts":
            return cls(
                unlocked=True,
                crashes=random.choice((0.0, 0.0, 0.3)),
                lost=random.random() < 0.3,
                again=random.choice((0.0, 0.5)),
            )
        if about in ("stops", "scenes"):
            return cls()
        if about == "registers":
            return cls(unlocked=random.random() < 0.3, lost=random.random() < 0.5)
        if about == "adoptions":
            crashes, pauses = random.choice((0.0, 0.6)), random.choice((0.0, 0.6))
            return cls(crashes=crashes, pauses=pauses, lost=random.random() < 0.3)
        if about == "topics":
            return cls(
                crashes=random.choice((0.0, 0.3)),
                pauses=random.choice((0.0, 0.3, 0.6)),
                lost=random.random() < 0.3,
                events=("change", "change", random.choice(("copy_storage", "silence_database", "change"))),
                eventful=0.9,
                slow=random.random() < 0.5,
                again=random.choice((0.0, 0.5)),
            )
        is_changing = random.random() < 0.45
        if about:
            is_changing = about == "changes"
        events = random.sample(LOSSES if about == "losses" else EVENTS, random.choice((1, 1, 2, 3)))
        if is_changing:
            events = ["change"] * 3 + events[: random.randint(0, 1)]
        changes = [name for name in CHANGES if random.random() < 0.5 and (is_rewindable or name != "rewind")]
        cut_short = "change" if is_changing and (random.random() < 0.6 or about == "changes") else ""
        if not is_changing and (random.random() < 0.15 or about == "renames") and about != "losses":
            cut_short = "rename"
        return cls(
            drivers=random.randint(1, 5),
            crashes=random.choice((0.0, 0.3, 0.6, 0.9)),
            pauses=random.choice((0.0, 0.0, 0.3, 0.6)),
            lost=random.random() < 0.3,
            unlocked=not (is_changing or cut_short) and random.random() < 0.25,
            events=tuple(events),
            eventful=random.choice((0.5, 0.9)),
            changes=tuple(changes) or ("rewind" if is_rewindable else "reset",),
            slow=not cut_short and random.random() < 0.25,
            again=random.choice((0.0, 0.0, 0.5)),
            cut_short=cut_short,
        )


Work = Callable[[Process, str], None]


@dataclass
class World:
    """Everything of one seed; `chances`, `kind`, `is_rewindable`: where they are not left to it.

    about: one of `ABOUT`, of which there is something in each such world; "": of anything. kind: of its storage.
    is_rewindable: its sink keeps what a rewind needs. is_topic: its sink is a topic of Kafka's. scene: one of `SCENES`.
    """

    seed: int
    chances: Chances | None = None
    about: str = ""
    kind: type[Bucket] | type[FileSystem] | None = None
    is_rewindable: bool | None = None
    is_topic: bool | None = None
    scene: str = ""

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.seed)
        self.random = self.scheduler.random
        if self.is_topic is None:
            has_changes = self.about in ("changes", "stops", "adoptions", "scenes")
            self.is_topic = self.chances is None and not has_changes and self.random.random() < 0.2
            self.is_topic = self.is_topic or self.about == "topics"
        if self.is_rewindable is None:
            self.is_rewindable = self.about in ("stops", "scenes") or (not self.is_topic and self.random.random() < 0.5)
        drawn = Chances.drawn(self.random, is_rewindable=self.is_rewindable, about=self.about)
        self.may = self.chances or drawn
        if self.is_topic and self.about != "topics":
            events = tuple(TOPIC_EVENTS.get(name, name) for name in drawn.events)
            self.may = replace(drawn, events=events, cut_short="rename" if drawn.cut_short else "")
        faults = Faults(commit=self.random.choice((0.1, 0.5)), statement=0.01) if self.may.lost else Faults()
        self.database = Database(self.scheduler, faults, committed=self._record_commit)
        self.broker = Broker(self.scheduler, faults, committed=self._batch_came_in)
        kind = self.random.choice((Bucket, FileSystem)) if self.kind is None else self.kind
        self.buckets = {"main": kind("main", self.scheduler, lost=0.04 if self.may.lost else 0.0)}
        self.scheme = kind.scheme
        self.input = Input(self.scheduler, self.random.randint(1, 4))
        self.path = f"model-{self.seed}"
        # The names that the query has had over each storage.
        self.names = {"main": ["q"]}
        self.refusals: list[str] = []
        self.refusal: Finding | None = None
        self.drivers: list[tuple[Process, str]] = []
        # The drivers that run, and under which name.
        self._running: dict[Process, str] = {}
        # What those that rebuild the query do.
        self._rebuilding: dict[Process, str] = {}
        # Those that are killed soon after a step of a change, if they are not before.
        self._cut: set[Process] = set()
        self._most: dict[Process, int] = {}
        # The batches that a job had written before the query was given its checkpoint; whether its last planned one is.
        self.former: range = range(0)
        self._is_written = True
        # What a storage lacks by which no start may begin, and what it held then.
        self._lacks: tuple[str, dict[str, bytes]] | None = None
        # The drivers that have begun, by when.
        self._begun: dict[Process, float] = {}
        # How many batches had come in when a topic was deleted.
        self._gone: list[int] = []
        self._has_lost_power = self._has_lost_log = False
        # Whether something was lost that no start can bring back: then it must be refused, if it does not do so.
        self.is_lost = False
        self.last: Process | None = None
        self._epochs: dict[tuple[str, int], Process | None] = {}
        self._backup: tuple[float, sqlite3.Connection] | None = None
        # How many batches have come in; and what the result was before each change, by when that was.
        self._batches = 0
        self._count = 0
        self._before: list[tuple[str, int, set[tuple[str, int]], dict[str, bytes]]] = []

    # --------------------------------------------------------------------------------------------- the story

    def run(self, story: Callable[[], None] | None = None) -> World:
        """Let the world happen, or a story of its own; raises Broken where something does not hold."""
        with self.in_place():
            self.scheduler.spawn(Process("world", 1), "main", story or self._story)
            self.scheduler.run()
        return self

    def _story(self) -> None:
        may, random = self.may, self.random
        if self.about == "changes":
            return self._story_of_changes()
        if self.about == "starts":
            return self._story_of_starts()
        if self.about == "stops":
            stopped, others = random.choice(STOPS)
            return self.story_of_a_stop(stopped, others, random.randint(1, _STEPS[stopped]))
        if self.about == "scenes":
            return self.story_of_a_scene(self.scene or random.choice(SCENES))
        if self.about == "adoptions":
            return self._story_of_adoptions()
        if self.about == "registers":
            return self._story_of_registers()
        if self.about == "topics" and random.random() < 0.7:
            if random.random() < 0.3:
                return self._story_of_a_copy()
            stopped, others = random.choice(TOPIC_STOPS)
            return self.story_of_a_stop(stopped, others, random.randint(1, _STEPS[stopped]))
        if may.cut_short:
            return self._short_story()
        is_changing = "change" in may.events
        if is_changing and random.random() < 0.8:
            # There is something to be changed.
            for _ in range(random.randint(1, 2)):
                self.wait_for(self.begin("main", self.drive, calm=True), 100.0)
                self._more_files()
        for number in range(random.randint(1, may.drivers) + is_changing):
            if number and may.events and random.random() < may.eventful:
                getattr(self, random.choice(may.events))()
            self._driver(random.choice(list(self.buckets)))
            if random.random() < 0.7:
                self.scheduler.sleep(random.choice((0.05, 1.0, 5.0) if may.unlocked else (0.05, 1.0, 5.0, 30.0, 100.0)))
            self._more_files()
        self.scheduler.sleep(2_000.0)
        self.end()

    def _short_story(self) -> None:
        """A query that has run is changed or renamed, which is cut off; then somebody ends it, undoes it, or starts."""
        random, is_rename = self.random, self.may.cut_short == "rename"
        for _ in range(random.randint(1, 2)):
            self.wait_for(self.begin("main", self.drive, calm=True, most=random.randint(0, 3)), 300.0)
            self._more_files()
        if is_rename and self.may.pauses:
            # An older driver goes on, after a long stop, under the former name.
            old = self.begin("main", self.drive, calm=True)
            old.pause_in, old.pause_seconds = random.randint(120, 300), 200.0
            self.scheduler.wait(lambda: old.dead or old.paused_until > 0.0, 100.0)
            self._more_files()
            self.scheduler.sleep(LEASE_SECONDS + 15.0)
        elif not is_rename and random.random() < 0.3:
            self.begin("main", self.drive, calm=True)
            self._more_files()
        for turn in range(random.randint(1, 3)):
            if is_rename and turn != 1:
                self.rename()
            works = (self.drive,) if is_rename else (self._change, self._change, self._change, self.drive)
            process = self.begin("main", works[0] if turn == 0 else random.choice(works))
            if turn == 0 or random.random() < 0.3:
                self._cut.add(process)
                if is_rename or random.random() < 0.5:
                    process.crash_in = random.randint(1, random.choice((8, 25, 70)))
            self.wait_for(process, 300.0)
            self.scheduler.sleep(LEASE_SECONDS + 1.0)
            self._more_files()
        if self.may.pauses:
            self.scheduler.sleep(300.0)
        self.end()

    def _story_of_changes(self) -> None:
        """A query of some batches is changed again and again, by commands that are cut off, stopped, or two at once."""
        random = self.random
        for _ in range(random.randint(1, 2)):
            self._more_files(1)
            self.wait_for(self.begin("main", self.drive, calm=True, most=random.randint(1, 4)), 300.0)
        if random.random() < 0.2:
            self.begin("main", self.drive, calm=True)
        for turn in range(random.randint(2, 5)):
            self._more_files()
            work = self.drive if turn and random.random() < 0.3 else self._change
            process = self.begin("main", work, most=random.randint(1, 4) if work == self.drive else 0)
            if random.random() < 0.15:
                self.begin("main", self._change)
            if random.random() < 0.4:
                self._cut.add(process)
            # Who is stopped in the midst wakes while others are at it.
            self.scheduler.wait(partial(self._is_out, process), 300.0)
            self.scheduler.sleep(random.choice((0.05, 20.0, LEASE_SECONDS + 1.0, LEASE_SECONDS + 1.0)))
        self.scheduler.sleep(400.0)
        self.calm()
        self.wait_for(self.begin("main", self._rebuild_at_last, undisturbed=True))
        self.end()

    def _story_of_starts(self) -> None:
        """Drivers begin together, which no lock keeps apart: the first of all, and others while one runs."""
        random = self.random
        for _ in range(random.randint(1, 3)):
            self._more_files(1)
            for _ in range(random.randint(2, 3)):
                self._driver("main")
                self.scheduler.sleep(random.choice((0.0, 0.0, 0.05, 0.3, 1.0)))
                self._more_files()
            self.scheduler.sleep(random.choice((1.0, 100.0)))
        self.scheduler.sleep(2_000.0)
        self.end()

    def story_of_a_stop(self, stopped: str, others: str, step: int) -> None:
        """Who does one of `STOPS` is stopped at a step for longer than its lease, while somebody else does another."""
        self.input.count = self.may.files - 1
        for following in ("start", "reset") if stopped in ("start", "discard", "undo") else ("start",):
            self.wait_for(self.begin("main", self._work(following), calm=True, most=3))
        if stopped == "restore":
            self.scheduler.sleep(LEASE_SECONDS + 1.0)
            self.lose_newest_batch("main")
        late = self.begin("main", self._work(stopped), calm=True, most=3)
        late.pause_in, late.pause_seconds = step, 200.0
        self.scheduler.wait(partial(self._is_out, late), 100.0)
        self.scheduler.sleep(LEASE_SECONDS + 1.0)
        self.input.count = self.may.files
        for work in others.split(", "):
            if work == "restore":
                self.lose_newest_batch("main")
            self.wait_for(self.begin("main", self._work(work), calm=True), 100.0)
        self.scheduler.sleep(400.0)
        self.end()

    def story_of_a_scene(self, scene: str) -> None:
        """One does something after the other, as a line of `SCENES` says."""
        random, stopped, last = self.random, list[Process](), ""
        self.input.count = random.randint(3, 5)
        for words in scene.split(", "):
            match = _PART.fullmatch(words)
            assert match is not None, words
            bucket, kind, batches, mark, most, place = match.groups()
            if kind in _ASIDE:
                _ASIDE[kind](self)
                last = kind
                continue
            if kind == "wake":
                self.scheduler.wait(lambda: all(process.dead for process in stopped), 600.0)
                continue
            work = self._steady if mark == "&" else self.drive if kind == "start" else self._part(kind)
            process = self.begin(bucket or "main", work, calm=True, most=int(batches or random.randint(2, 3)))
            process.at, step = place or "", random.randint(1, int(most or (8 if place else 250)))
            if mark == "!":
                process.crash_in = step
            if mark == "*":
                process.pause_in, process.pause_seconds = step, 220.0
                stopped.append(process)
            before, log = self._inside_data("main"), self._log_of("main")
            is_out = None if mark == "&" else partial(self._is_out, process)
            self.scheduler.wait(is_out, 5.0 if mark == "&" else 200.0)
            if last == "lose" and kind == "start" and len(self._log_of("main")) < len(log) + 2:
                live = [key for key, data in self._inside_data("main").items() if before.get(key) != data]
                if any("/g1.1/" in key for key in live):
                    self._broken(f"{process.name} has changed the live directory, and no record says so: {live}")
            last = kind
            self.scheduler.sleep(0.05 if mark == "&" else LEASE_SECONDS + 1.0)
            self._more_files()
        self.scheduler.wait(lambda: all(process.dead for process in stopped), 600.0)
        self.end()

    def _steady(self, process: Process, bucket: str) -> None:
        """A driver whose batches are far apart."""
        self.may = replace(self.may, slow=True)
        try:
            self._drive(process, bucket)
        finally:
            self.may = replace(self.may, slow=False)

    def _part(self, kind: str) -> Work:
        """A change that is begun, or what is done with those that are."""

        def change(process: Process, bucket: str) -> None:
            (project, query), spark = self.declare(bucket), cast("SparkSession", self._session())
            if kind in CHANGES:
                self.may = replace(self.may, changes=(kind,))
                self._make(process, bucket, self._fresh_change(project, query), "apply")
            for begun in pending.changes(project, query.name, spark=spark) if kind not in CHANGES else ():
                self._make(process, bucket, begun, kind)

        return change

    def _story_of_a_copy(self) -> None:
        """The storage is copied before the query is reset, and then somebody runs the copy."""
        random = self.random
        self._more_files(1)
        self.wait_for(self.begin("main", self.drive, calm=True, most=random.randint(1, 3)), 300.0)
        if not self._is_registered("main"):
            return self.end()
        self._copy("main")
        for work in (self._work("reset"), self.drive):
            self.wait_for(self.begin("main", work, calm=random.random() < 0.5), 300.0)
            self.scheduler.sleep(LEASE_SECONDS + 1.0)
        self._more_files()
        self.wait_for(self.begin("copy1", self.drive), 300.0)
        self.end()

    def _story_of_adoptions(self) -> None:
        """The checkpoint and the table of a job of plain PySpark are taken over, by commands as in other worlds."""
        random = self.random
        self._run_former_job()
        for turn in range(random.randint(1, 4)):
            work = random.choice((self.drive, self._change, self._adopt)) if turn else self._adopt
            process = self.begin("main", work, most=random.randint(1, 4) if work == self.drive else 0)
            if random.random() < 0.2:
                self.begin("main", random.choice((self._adopt, self.drive)))
            if random.random() < 0.4:
                self._cut.add(process)
            self.scheduler.wait(partial(self._is_out, process), 300.0)
            self.scheduler.sleep(random.choice((0.05, 20.0, LEASE_SECONDS + 1.0, LEASE_SECONDS + 1.0)))
            self._more_files()
        self.scheduler.sleep(400.0)
        self.calm()
        self.scheduler.sleep(LEASE_SECONDS + 1.0)
        self.wait_for(self.begin("main", self._adopt, undisturbed=True))
        self.end()

    def _story_of_registers(self) -> None:
        """What says which query is which is written by several at once; then it is lost, and then brought back."""
        random = self.random
        self._more_files(1)
        if random.random() < 0.3:
            with self.scheduler.aside():
                register_project(self.declare("main")[0])
            self._copy("main")
        for _ in range(random.randint(1, 3)):
            self._driver(random.choice(list(self.buckets)))
            self.scheduler.sleep(random.choice((0.0, 0.0, 0.05, 1.0)))
        self.scheduler.wait(lambda: all(process.dead for process, _ in self.drivers), 2_000.0)
        self.scheduler.sleep(LEASE_SECONDS + 1.0)
        self._more_files()
        if len(self.buckets) == 1 and random.random() < 0.4:
            self.rename()
            self.wait_for(self._driver("main"), 300.0)
            self.scheduler.sleep(LEASE_SECONDS + 1.0)
        if "/checkpoint/offsets/0" in "".join(self.buckets["main"].objects) and random.random() < 0.8:
            self.lose_what_says_which_query("main")
        self.end()

    def lose_what_says_which_query(self, name: str, place: str = "") -> None:
        """A part of a storage is gone or damaged, starts are refused, and then it is brought back; `what`: which."""
        random, objects = self.random, self.buckets[name].objects
        records = [key for key in objects if "/register/" in key and key.endswith(".json")]
        query = [key for key in objects if "/queries/" in key]
        lost = {
            "the register": records,
            "the newest record": records[-1:],
            "the directory of the query": query,
            "all but the register": [key for key in objects if "/register/" not in key],
        }
        homes = {key.split("/")[2] for key in query if key.count("/") > 2}
        if place or len(self.names[name]) == len(homes) == 1:
            lost["the records that know the query"] = [key for key in records if b"q-" in objects[key].data]
        place = place or random.choice(list(lost))
        keys = lost[place]
        is_damaged = place == "the newest record"
        before = {key: objects[key] for key in keys}
        self.scheduler.step(f"{name} {'has damaged' if is_damaged else 'loses'} {place}")
        for key in keys:
            # The file system keeps directories as keys of their own.
            if is_damaged:
                objects[key] = Object(key, objects[key].data[:-40], self.scheduler.now, {})
            else:
                objects.take(key)
        self._lacks = place, self._outside_leases(name)
        for _ in range(random.randint(1, 2)):
            self.begin(name, self.drive, calm=True)
        self.scheduler.wait(lambda: all(process.dead for process, _ in self.drivers), 300.0)
        if self._outside_leases(name) != self._lacks[1]:
            self._broken(f"{place} was lost, and a start has changed the storage")
        self._lacks = None
        if place == "the register" and len(self.names[name]) == 1 and random.random() < 0.5:
            with self.scheduler.aside():
                rebuild_register(self.declare(name)[0].storage)
            return
        for key, value in before.items():
            objects[key] = value

    def _outside_leases(self, name: str) -> dict[str, bytes]:
        objects = self.buckets[name].objects
        return {key: objects[key].data for key in objects if ".leases" not in key and not key.endswith("/")}

    def _run_former_job(self) -> None:
        """A job that knows nothing of Headrace has written some batches, of which it may not have marked the last."""
        random, database, store = self.random, self.database.real, self.buckets["main"]
        key = ", PRIMARY KEY (name)" if self.is_rewindable else ""
        not_null = " NOT NULL" if self.is_rewindable else ""
        database.execute(f'CREATE TABLE "result" ("name" TEXT{not_null}, "total" INTEGER{key})')
        self.former, self._is_written = range(random.randint(1, 3)), random.random() < 0.7
        is_marked, files = self._is_written and random.random() < 0.5, 0
        texts = {"metadata": json.dumps({"id": str(uuid.uuid4())})}
        for batch in self.former:
            names = [self.input.name(number) for number in range(files, files + random.randint(1, 2))]
            files += len(names)
            lines = [json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": batch}) for name in names]
            texts[f"sources/0/{batch}"] = "\n".join(["v1", *lines])
            facts = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
            texts[f"offsets/{batch}"] = f'v1\n{facts}\n{{"logOffset":{batch}}}'
            is_last = batch == self.former[-1]
            if not is_last or is_marked:
                texts[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
            if not is_last or self._is_written:
                database.executemany('INSERT INTO "result" VALUES (?, ?)', [(name, batch) for name in names])
        if not self._is_written:
            self.former = range(len(self.former) - 1)
        self.input.count = max(self.input.count, files)
        for name, text in texts.items():
            store.objects[f"former/{name}"] = Object(f"former/{name}", text.encode(), self.scheduler.now, {})
        self._count = len(self._rows())

    def _adopt(self, process: Process, bucket: str) -> None:
        """Take over what the former job has written, unless that is done."""
        project, query = self.declare(bucket)
        if len({batch for _, batch in self._rows()} & set(self.former)) < len(self.former):
            return  # A reset has set the rows of the former job aside.
        before, at = self._read_kept(bucket), self._now().isoformat()
        checkpoint = f"{self.scheme}://{bucket}/former"
        spark = cast("SparkSession", self._session())
        change = Adopt(project, query.name, checkpoint, planned=self._planned, spark=spark)
        others, begun_so_far = self._others(process), len(self.drivers)
        with self.scheduler.aside():
            status = change.status
        try:
            change.apply(reached=lambda step: self._trace_step(process, step))
        except BaseException:
            is_alone = self.scheduler.fault is None and not others and len(self.drivers) == begun_so_far
            with self.scheduler.aside():
                newest = log_of(layout_of(project, query))
                is_recorded = newest is not None and newest.change == "adopt"
            if is_alone and not is_recorded:
                self._require_reported(process, bucket, change, before, "" if status is None else at)
            raise
        self.scheduler.trace.append(f"{process.name}: the former job is taken over")

    @property
    def _planned(self) -> Literal["written", "not-written"]:
        return "written" if self._is_written else "not-written"

    def _work(self, chosen: str) -> Work:
        def done(process: Process, bucket: str) -> None:
            project, spark = self.declare(bucket)[0], self._session()
            if chosen.startswith("half a "):
                process.crash_in = 11
            if chosen == "rebuild":
                self._rebuilding[process] = "apply"
            if (kind := chosen.removeprefix("half a ")) in CHANGES:
                self._make_change(kind, project, project.query("q"), spark).apply()
            for begun in pending.changes(project, "q") if chosen in ("undo", "discard") else ():
                getattr(begun, chosen)()

        return self.drive if chosen in ("start", "restore") else done

    def _is_out(self, process: Process) -> bool:
        """Whether a process has ended, or is stopped."""
        return process.dead or process.paused_until > self.scheduler.now

    def _rebuild_at_last(self, process: Process, bucket: str) -> None:
        """Whatever was cut off: once that is ended, and what is kept of it discarded, the query can be rebuilt."""
        self.end_changes(process, bucket)
        project, query = self.declare(bucket)
        while begun := pending.changes(project, query.name, spark=cast("SparkSession", self._session())):
            self.scheduler.trace.append(f"{process.name}: discard of a {begun[0].name}")
            begun[0].discard()
        with self.scheduler.aside():
            has_run = Checkpoint(layout_of(project, query).checkpoint).last_batch is not None
        if not has_run:
            return
        self.scheduler.trace.append(f"{process.name}: apply of a rebuild")
        self._rebuilding[process] = "apply"
        try:
            Rebuild(project, query.name, spark=cast("SparkSession", self._session())).apply(wait=True)
        except HeadraceError as error:
            self._broken(f"the query cannot be rebuilt: {error}")

    def end(self) -> None:
        """Nothing disturbs any more: what was cut off is ended, and a driver on each storage brings in what it can."""
        random = self.random
        self.input.count = self.may.files
        self.calm()
        # One that could not reach the database for long may still be at it, or has just left a lease behind.
        self.scheduler.wait(lambda: all(process.dead for process, _ in self.drivers), 2_000.0)
        self.scheduler.sleep(LEASE_SECONDS + 1.0)
        ends = []
        for bucket in random.sample(list(self.buckets), len(self.buckets)):
            ends.append(self._last_start(bucket))
        self._require_end(ends)

    def calm(self) -> None:
        """Nothing disturbs any more."""
        self.database.faults = self.broker.faults = Faults()
        self.database.away_until = self.broker.away_until = 0.0
        for bucket in self.buckets.values():
            bucket.lost = 0.0

    def _last_start(self, bucket: str) -> str:
        """How the last start over a storage is refused; "": it is not. What is said of a rename is done."""
        adopts = self.about == "adoptions"
        while True:
            self.wait_for(self.begin(bucket, self.end_changes, undisturbed=True))
            self.refusal = None
            self.wait_for(self.begin(bucket, self.drive, undisturbed=True))
            code, names = "" if self.refusal is None else self.refusal.code, self.names[bucket]
            if adopts and code == "HR407":
                # An adoption was reset before it took the table over, which is still the former job's.
                adopts = False
                for work in (self._work("discard"), self._adopt):  # What is half deleted is in the way of an adoption.
                    self.wait_for(self.begin(bucket, work, undisturbed=True))
                continue
            if code not in ("HR407", "HR547", "HR549") or len(names) == 1:
                return code
            if self.refusal is not None and "have both run" in self.refusal.what:
                # A driver that was stopped for long has gone on under the former name.
                del names[: -1 if "itself" in self.refusal.what else 1]
            else:
                names.pop()

    def wait_for(self, process: Process, seconds: float = 1_000.0) -> None:
        """Wait until a process has ended."""
        self.scheduler.wait(lambda: process.dead, seconds)

    def _more_files(self, least: int = 0) -> None:
        self.input.count = min(self.input.count + self.random.randint(least, 3), self.may.files)

    # ---------------------------------------------------------------------------------------------- the events

    def copy_storage(self) -> None:
        """A storage is copied, as by a backup, and somebody runs the copy."""
        original = self.random.choice(list(self.buckets))
        if self._is_registered(original) and len(self.buckets) < 3:
            for bucket in self.random.sample([self._copy(original), original], 2):
                self._driver(bucket)
                self._more_files()

    def _copy(self, original: str) -> str:
        name = f"copy{len(self.buckets)}"
        self.scheduler.step(f"the storage {original} is copied to {name}")
        self.buckets[name] = copy_store(self.buckets[original], name)
        self.names[name] = list(self.names[original])
        store.keep(self.scheme, name, lambda: self.buckets[name])
        return name

    def _is_registered(self, name: str) -> bool:
        return any("headrace/register/" in key for key in self.buckets[name].objects)

    def silence_database(self) -> None:
        """The database does not answer for a while."""
        seconds = self.random.choice((1.0, 20.0, 100.0))
        self.scheduler.step(f"the database is silent for {seconds:.0f} s")
        self.database.away_until = self.broker.away_until = self.scheduler.now + seconds

    def back_up_database(self) -> None:
        """The database is copied, and brought back from that copy: later, or after a driver or two.

        It may come alone, or with the checkpoints as they were then.
        """
        if self._backup is None:
            self.keep_database()
            for _ in range(self.random.randint(0, 2)):
                self._more_files()
                self.wait_for(self.begin(self.random.choice(list(self.buckets)), self.drive, most=1), 200.0)
            if self.random.random() < 0.5:
                return
        self._kill(set(self.buckets))
        since = self.bring_database_back()
        is_same = len(self.buckets) == 1 and len(self.names["main"]) == 1 and self.random.random() < 0.5
        if is_same and "change" not in self.may.events:
            self._forget("main", [key for key in self._inside("main") if self.buckets["main"].objects[key].at >= since])
        else:
            self.is_lost = True

    def keep_database(self) -> None:
        """Copy the database."""
        self.scheduler.step("the database is copied")
        self._backup = self.scheduler.now, self.database.copy()

    def bring_database_back(self) -> float:
        """Let the database be what it was; when that was."""
        assert self._backup is not None
        since, copy = self._backup
        self.scheduler.step("the database is brought back from its copy")
        self.database.bring_back(copy)
        self._count = len(self._rows())
        self._before.clear()
        # Epochs are counted on from the copy's, so that some are given once more.
        self._epochs.clear()
        return since

    def fail_lease(self) -> None:
        """Let the next question by which a lease is taken not come through."""
        for bucket in self.buckets.values():
            bucket.fails = ".leases/0"

    def lose_power(self) -> None:
        """The machine of a storage stops, and what was written last into the checkpoint is lost, or most of it.

        Not where the ledger is deleted: nothing would show a batch whose files are lost too.
        """
        if self._gone:
            return
        name = self.random.choice(list(self.buckets))
        objects = self.buckets[name].objects
        inside = self._inside(name)
        times = sorted({objects[key].at for key in inside})
        if len(times) > 2:
            self._kill({name})
            self._has_lost_power = True
            since, kept = self.random.choice(times[-5:]), self.random.choice((0.0, 0.5))
            # A file reaches the disk when the system likes. What is marked as done is in the result, whatever is lost.
            lost = [key for key in inside if objects[key].at >= since]
            self._forget(name, [key for key in lost if "/commits/" not in key or self.random.random() >= kept])

    def _inside(self, name: str) -> list[str]:
        """The entries of a storage's checkpoints."""
        objects = self.buckets[name].objects
        return [key for key in objects if "/checkpoint/" in key and not key.endswith(("/", "/metadata"))]

    def lose_newest_batch(self, name: str) -> None:
        """Whatever the checkpoint in use has of its newest batch is gone."""
        objects = self.buckets[name].objects
        records = sorted(key for key in objects if "/log/" in key and key.endswith(".json"))
        live = json.loads(objects[records[-1]].data)["live"] if records else "g1.1"
        inside = [key for key in self._inside(name) if f"/{live}/" in key]
        newest = max(int(key.rpartition("/")[2]) for key in inside if "/offsets/" in key)
        self._forget(name, [key for key in inside if key.rpartition("/")[2].partition(".")[0] == str(newest)])

    def lose_log(self) -> None:
        """The storage is brought back from a copy that read the log before all changes, and the rest after them."""
        self._forget("main", [key for key in self._log_of("main") if not key.endswith("/000001.json")])
        self._has_lost_log = True

    def _inside_data(self, name: str) -> dict[str, bytes]:
        return {key: self.buckets[name].objects[key].data for key in self._inside(name)}

    def _forget(self, name: str, lost: Sequence[str]) -> None:
        self.scheduler.step(f"{name} loses {', '.join(sorted(lost))}")
        for key in lost:
            del self.buckets[name].objects[key]

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

    def lose_topic(self) -> None:
        """Somebody deletes the topic of the ledger, or that of the result, which is made again.

        Not where power was lost: nothing would show a batch whose files are gone as well.
        """
        if self._has_lost_power:
            return
        name = self.random.choice(sorted(self.broker.topics))
        self._kill(set(self.buckets))
        self.scheduler.step(f"the topic {name} is deleted")
        for transaction in list(self.broker.open.values()):
            self.broker.end(transaction, "aborted", None)
        if self.broker.rows():
            self._gone = [self._batches]
        self.is_lost = True
        del self.broker.topics[name]
        self.broker.topics.setdefault(RESULT, [])

    def rename(self) -> None:
        """A query that has planned a batch gets another name, which its next start takes over."""
        name = self.random.choice(list(self.buckets))
        if (
            not self.may.unlocked
            and len(self.names[name]) < 3
            and any(_PLANNED.search(key) for key in self.buckets[name].objects)
        ):
            self.names[name].append(f"{self.names[name][-1]}{'rst'[len(self.names[name])]}")
            self.scheduler.step(f"the query over {name} is called {self.names[name][-1]}")

    def change(self) -> None:
        """Somebody resets, rewinds or rebuilds the query, takes that back, makes it final, or ends what was cut off."""
        if self.may.unlocked:
            return  # Nothing keeps commands apart there.
        for _ in range(self.random.randint(1, 3)):
            # Some wait for the drivers to end, some for their leases, and some for nothing.
            patience = self.random.choice((300.0, 300.0, 20.0, 0.0))
            if patience:
                self.scheduler.wait(lambda: all(process.dead for process, _ in self.drivers), patience)
                self.scheduler.sleep(LEASE_SECONDS + 1.0)
            self.begin(self.random.choice(list(self.buckets)), self._change)
            self.scheduler.sleep(self.random.choice((0.05, 5.0)))

    def _kill(self, buckets: set[str]) -> None:
        for process, bucket in self.drivers:
            if bucket in buckets and not process.dead:
                self.scheduler.trace.append(f"{process.name} is killed")
                process.dead = True

    # ------------------------------------------------------------------------------------------- the processes

    def _driver(self, bucket: str) -> Process:
        return self.begin(bucket, self.drive)

    def begin(
        self, bucket: str, work: Work, *, undisturbed: bool = False, calm: bool = False, most: int = 0
    ) -> Process:
        """Let a process begin. undisturbed: it is one of those at the end. calm: it is neither killed nor stopped.

        most: how many batches it makes; 0: some.
        """
        random, number = self.random, len(self.drivers) + 1
        process = Process(f"d{number}", 100 + number)
        self._most[process] = most
        if not undisturbed and not calm:
            process.skew = random.choice((0.0, 0.0, -100.0, 100.0))
            is_change = work in (self._change, self._adopt)
            most = random.choice((10, 30, 100)) if is_change else random.choice((20, 60, 150))
            if random.random() < self.may.crashes * (0.6 if is_change else 1.0):
                process.crash_in = random.randint(1, most)
            if random.random() < self.may.pauses:
                process.pause_in = random.randint(1, _STEPS_PER_CHANGE * most)
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
            self._record_refusal(process, error.findings[0])
        process.dead = True

    def _record_refusal(self, process: Process, finding: Finding) -> None:
        self.refusals.append(finding.code)
        self.refusal = finding
        self.scheduler.trace.append(f"{process.name} is refused: {finding.code} {finding.what}")
        # Those come where answers are lost, or locks; a rebuild writes next to the result, and a change may have begun.
        is_late = "longer than its lease" in finding.what
        is_exempt = finding.code in ("HR405", "HR434", "HR540", "HR587", "HR831") or is_late
        if not is_exempt and process not in self._rebuilding:
            self._require_unchanged(process)
        if finding.code == "HR526" and f"process {process.pid} " in finding.what:
            self._broken(f"{process.name} is kept out by itself")
        is_in_the_way = self.is_lost or self.database.away_until or any(other.paused_until for other, _ in self.drivers)
        if finding.code == "HR587" and self.about == "scenes" and not is_in_the_way:
            self._broken(f"{process.name} is refused by the sink, and nothing is in the way: {finding.what}")
        if finding.code == "HR410" and not (
            self._is_foreign or self.is_lost or self._has_lost_log or len(self.buckets) > 1 or self.may.pauses
        ):
            self._broken(f"{process.name} is refused, and nothing is lost: {finding.what}")

    def drive(self, process: Process, bucket: str) -> None:
        """Start the query, once or again, and let its batches come in."""
        while True:
            self._drive(process, bucket)
            if process is self.last or self.random.random() >= self.may.again:
                return
            self.scheduler.sleep(1.0)

    def _drive(self, process: Process, bucket: str) -> None:
        project, query = self.declare(bucket)
        session = self._session()
        for written in (self.database.written, self.broker.written):
            written.pop(process, None)
        if process is self.last:
            session.most, session.polls, session.interval = 100, 0, 0.0
        session.most = self._most[process] or session.most
        before, is_alone, begun = self._inside_data(bucket), not self._others(process), len(self.drivers)
        log = self._log_of(bucket)
        try:
            running = starting.start_query(Request(project=project, query=query, spark=session))  # type: ignore[arg-type]
        except HeadraceError as error:
            after = self._inside_data(bucket)
            is_changed = {key: after.get(key) for key in before} != before
            is_alone = is_alone and len(self.drivers) == begun
            if is_changed and is_alone and not self._has_restored(bucket):
                self._broken(f"{process.name} was refused ({error.findings[0].code}), and has changed the checkpoint")
            if error.findings[0].code == "HR581" and is_alone and self._log_of(bucket) != log:
                self._broken(f"{process.name} was refused over a change that was cut off, and has written into its log")
            raise
        if self._lacks is not None and bucket == "main":
            self._broken(f"{process.name} has begun though {self._lacks[0]} was lost")
        self._require_alone(process, bucket)
        self._begun[process] = self.scheduler.now
        self._running[process] = query.name
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
        self._running.pop(process, None)
        running.clean_up()
        if process is self.last:
            self._require_archived(bucket, running.layout)

    def _log_of(self, bucket: str) -> list[str]:
        return [key for key in self.buckets[bucket].objects if "/log/" in key and key.endswith(".json")]

    def _has_restored(self, bucket: str) -> bool:
        """Whether the live directory was made by a start, so that the one before it is gone."""
        with self.scheduler.aside():
            layout = layout_of(*self.declare(bucket))
            record = log_of(layout)
            is_made = record is not None and record.live.made != 1 and layout.made_by.exists()
            return is_made and json.loads(layout.made_by.read_text())["kind"] != "intent"

    def _session(self) -> Session:
        session, random = Session(self.scheduler, self.input), self.random
        session.most, session.polls = random.randint(1, 8), random.choice((0, 0, 1, 5))
        session.interval = random.choice((0.0, 0.0, 1.0))
        if self.may.slow:
            session.most, session.polls, session.interval = 8, 5, random.choice((20.0, 40.0))
        return session

    def _change(self, process: Process, bucket: str) -> None:
        random, (project, query) = self.random, self.declare(bucket)
        begun = pending.changes(project, query.name, spark=self._session())  # type: ignore[arg-type]
        verb = random.choice(("resume", "undo", "discard")) if begun and random.random() < 0.7 else "apply"
        change = self._fresh_change(project, query) if verb == "apply" else begun[0]
        more = {"wait": random.random() < 0.5} if isinstance(change, Rebuild) and verb == "apply" else {}
        self._make(process, bucket, change, verb, **more)

    def _make(self, process: Process, bucket: str, change: pending.AnyChange, verb: str, **more: bool) -> None:
        """Make a change, or a part of it, and compare what comes of it with what it says."""
        self.scheduler.trace.append(f"{process.name}: {verb} of a {change.name}")
        if isinstance(change, Rebuild):
            self._rebuilding[process] = verb
        before, at = self._read_kept(bucket), self._now().isoformat()
        if verb == "apply":
            self._before.append((at, self._batches, *before))
        with self.scheduler.aside():
            status = change.status
            continued = "" if status is None or status.phase in ("done", "swapped") else status.begun
        is_gone = verb != "apply" and status is None
        others, begun_so_far = self._others(process), len(self.drivers)
        with self.scheduler.aside():
            is_done = change.status is not None and change.status.phase == "done"
        is_reset = isinstance(change, Reset) and is_done and not self.is_lost
        has_run = verb == "undo" and is_reset and bool(self._rows()) and not self.is_topic
        try:
            getattr(change, verb)(reached=lambda step: self._trace_step(process, step), **more)
        except BaseException:
            if self.scheduler.fault is None and not others and len(self.drivers) == begun_so_far:
                if verb == "apply":
                    self._require_reported(process, bucket, change, before, continued or at)
                if verb == "resume" and is_done:  # Nothing was cut off, so that it does nothing.
                    if self._read_kept(bucket) != before:
                        self._broken(f"{process.name} had nothing to resume, and has changed the result or checkpoint")
                elif not is_gone:  # Another command has discarded it meanwhile.
                    self._require_changed(process, change, verb)
            raise
        self.scheduler.trace.append(f"{process.name}: {verb} of a {change.name} is done")
        if has_run:
            self._broken(f"{process.name} has undone a reset though rows have come in since")
        self._require_changed(process, change, verb)

    def _trace_step(self, process: Process, step: str) -> None:
        self.scheduler.trace.append(f"{process.name}: {step}")
        if process in self._cut and process.crash_in is None and self.random.random() < 0.3:
            process.crash_in = process.changes + self.random.randint(1, 6)

    def _others(self, process: Process) -> set[Process]:
        return {other for other, _ in self.drivers if other is not process and not other.dead}

    def _read_kept(self, bucket: str) -> tuple[set[tuple[str, int]], dict[str, bytes]]:
        """The result, and what the checkpoint in use has of its batches."""
        with self.scheduler.aside():
            layout = layout_of(*self.declare(bucket))
        below = f"/queries/{layout.directory}/{layout.place}/"
        objects = self.buckets[bucket].objects
        logs = {key: objects[key].data for key in objects if below in key and _LOGS.search(key)}
        return set(self._rows()), logs

    def _fresh_change(self, project: Project, query: Query) -> pending.AnyChange:
        random, spark = self.random, cast("SparkSession", self._session())
        kind = random.choice(self.may.changes)
        if kind == "rewind":
            with self.scheduler.aside():
                newest = Checkpoint(layout_of(project, query).checkpoint).last_committed
            return Rewind(project, query.name, to_batch=random.randint(0, max((newest or 0) - 1, 0)), spark=spark)
        return self._make_change(kind, project, query, spark)

    def _make_change(self, kind: str, project: Project, query: Query, spark: Any) -> pending.AnyChange:
        if kind == "reset":
            return Reset(project, query.name, result="keep" if self.is_topic else "drop", spark=spark)
        return CHANGES[kind](project, query.name, spark)

    def end_changes(self, process: Process, bucket: str) -> None:
        """What was cut off is ended, as each start asks for it."""
        project, query = self.declare(bucket)
        for change in pending.changes(project, query.name, spark=cast("SparkSession", self._session())):
            if change.status is not None and change.status.is_cut_off:
                self.scheduler.trace.append(f"{process.name}: resume of a {change.name}")
                try:
                    change.resume()
                except HeadraceError as error:
                    # What a command has begun that was stopped for long may be of what is there no more.
                    self.scheduler.trace.append(f"{process.name}: undo of a {change.name}, because of {error}")
                    change.undo()

    def declare(self, bucket: str) -> tuple[Project, Query]:
        """The project over a storage, and its query."""
        keeps: dict[str, Any] = {"key": ["name"], "rewindable": "7 days"} if self.is_rewindable else {}
        sink: Sink = ModelSink(path=self.path, table="result", **keeps)
        if self.is_topic:
            sink = ModelTopic(bootstrap_servers=self.path, topic=RESULT, delivery_guarantee="exactly-once")
        *formers, name = self.names[bucket]
        query = Query(
            name=name,
            transform=SqlTransform(sql=f"SELECT * FROM {SOURCE}", inputs=(SOURCE,)),
            sink=sink,
            sink_kind="model",
            trigger=AvailableNow(),
            renamed_from=tuple(formers),
        )
        source = NamedSource(name=SOURCE, kind="files", connector=ModelSource())
        project = Project(
            name="model",
            root=ROOT,
            target=Target(storage=f"{self.scheme}://{bucket}/headrace"),
            sources={SOURCE: source},
            queries={name: query},
        )
        return project, query

    # ------------------------------------------------------------------------------------------- what must hold

    def _record_commit(self, process: Process | None, written: Sequence[Written]) -> None:
        before, self._count = self._count, self._require_prefix()
        if self._count < before and process is not None:
            self._require_newest(process, f"{process.name} has taken {before - self._count} rows back")
        if self._count < before and process is not None and self._rebuilding.get(process) == "apply":
            self._broken(f"{process.name} has exchanged a result for one that lacks {before - self._count} rows")
        for statement, values, _ in written:
            if "INTO _headrace_ledger" in statement:
                application, query, _, _, table, batch, epoch = values[:7]
                driver = query if table == RESULT else f"{query} (rebuild)"
                asked = "SELECT epoch FROM _headrace_epochs WHERE application = ? AND query_id = ?"
                newest = self.database.rows(asked, application, driver)
                if not newest and table != RESULT:
                    # A rebuild that another has discarded goes on after a long stop, as an application of its own.
                    newest = self.database.rows(asked, application, query)
                self._batches += 1
                if newest != [(epoch,)]:
                    self._broken(f"batch {batch} was written with epoch {epoch}, and {newest} had begun")
                first = self._epochs.setdefault((driver, epoch), process)
                # Of a rebuild that was given up nothing is kept, and the next one counts from the beginning.
                if first is not process and not self.is_lost and driver == query:
                    self._broken(f"two drivers have written with epoch {epoch}")

    def _batch_came_in(self, process: Process | None) -> None:
        self._batches += 1
        *former, last = [int(life.rpartition("/")[2] or 0) for life in self.broker.lives]
        if 0 < last < max(former, default=0):
            self._broken(f"a batch of generation {last} came in after those of {max(former)}")
        if len({life.rpartition("/")[0] for life in self.broker.lives}) > 1:
            self._broken(f"a batch came in by another id: {self.broker.lives}")
        if process is not None and not self.may.unlocked:
            self._require_newest(process, f"{process.name} has written")
        self._require_prefix()

    def _require_newest(self, process: Process, sentence: str) -> None:
        """Who has lost its lease does nothing to the result of a driver that began later."""
        [bucket] = [bucket for other, bucket in self.drivers if other is process]
        for other, where in self.drivers:
            begun = self._begun.get(other, 0.0)
            if where == bucket and other is not process and begun > other.locked_at > process.locked_at > 0.0:
                self._broken(f"{sentence}, and {other.name} had begun since")

    def _rows(self) -> list[tuple[str, int]]:
        """The rows of the result, each with the batch that it came with."""
        if self.is_topic:
            return self.broker.rows()
        return [(str(name), int(batch)) for name, batch in self.database.rows('SELECT name, total FROM "result"')]

    def _require_prefix(self) -> int:
        """The rows are the first files, each once; the ledger has a line of each batch, and no other."""
        rows = self._rows()
        names = sorted(name for name, _ in rows)
        if len(set(names)) < len(names):
            self._broken(f"rows came twice: {names}")
        if names != [self.input.name(number) for number in range(len(names))] and not self._is_emptied:
            self._broken(f"rows are missing: {names}")
        lines = self.broker.lines() if self.is_topic else [int(batch) for (batch,) in self.database.rows(_LINES)]
        if self.is_topic and lines and len(lines) >= TOPIC_LINES:
            lines = [*range(lines[0]), *lines]
        if self.former and rows and (lines or [self.former[-1]])[0] == self.former[-1]:
            lines = [*self.former, *lines[1:]]
        if (lines != list(range(len(lines))) or set(lines) != {batch for _, batch in rows}) and not self._is_emptied:
            self._broken(f"the ledger has the batches {lines}, the result those of {sorted({b for _, b in rows})}")
        return len(names)

    @property
    def _is_foreign(self) -> bool:
        """Whether the rows are those of the former job, and not yet the query's."""
        return bool(self.former) and not self.database.rows(_LINES) and bool(self._rows())

    @property
    def _is_emptied(self) -> bool:
        """Whether a topic is gone: what came in before is not there, and nothing may come in after."""
        if not self._gone:
            return False
        if self._batches > self._gone[0]:
            self._broken("a batch came in after the topic was gone")
        return True

    def _require_alone(self, process: Process, bucket: str) -> None:
        """Where there are locks, a driver runs alone and not over half a change, but after a long stop."""
        if process.paused_until > process.locked_at or self.may.unlocked:
            return  # It was that one itself, and is fenced off.
        for other, where in self.drivers:
            silent = self.scheduler.now - other.paused_until < LEASE_SECONDS
            # Its lease ended while it was stopped, and others had it since: the sink alone refuses it.
            after = [third.locked_at for third, place in self.drivers if place == bucket and third is not process]
            is_over = max(after, default=0.0) > other.locked_at and other.paused_until > other.locked_at
            is_same = where == bucket and self._running.get(other) in self.names[bucket]
            if other is not process and is_same and not (other.dead or silent or is_over):
                self._broken(f"{process.name} has begun while {other.name} runs")
        with self.scheduler.aside():
            project, query = self.declare(bucket)
            for change in pending.changes(project, query.name):
                if change.status is not None and change.status.is_cut_off:
                    self._broken(f"{process.name} has begun over a {change.name} that was cut off")

    def _require_changed(self, process: Process, change: pending.AnyChange, verb: str) -> None:
        """A change that has come to its end is whole, or undone: what it has made of the result is what it says."""
        with self.scheduler.aside():
            status = change.status
        begun = "" if status is None else status.begun
        rows, states = set(self._rows()), [state for state in self._before if not begun or state[0] <= begun]
        if not states or states[-1][1] != self._batches or len(self.buckets) > 1 or isinstance(change, Rebuild):
            return
        _, _, before, logs = states[-1]
        expected = None
        if (
            isinstance(change, Reset)
            and status is not None
            and status.phase == "done"
            and not (self.is_topic or self._is_foreign)
        ):
            expected = set[tuple[str, int]]()
        if isinstance(change, Rewind) and status is not None and status.phase == "done":
            with self.scheduler.aside():
                layout = layout_of(change.project, change.query)
                newest = log_of(layout)
                assert newest is not None
                assert newest.settled is not None
                to_batch = int(newest.settled.facts["batch"])
                archive = Archive(layout.archive)
                later = max(archive.entries(), default=-1)
            expected = {(name, batch) for name, batch in before if batch <= to_batch}
            if later > to_batch:
                self._broken(f"{process.name}: the archive has batch {later}, which was taken back")
        if verb == "undo" and status is None and len(self._before) == 1:
            expected = before
            now = self._read_kept("main")[1]
            if self.about == "changes" and not self._others(process) and (lacking := logs.keys() - now.keys()):
                self._broken(f"{process.name}: after undo of a {change.name} the checkpoint lacks {lacking}")
        if expected is not None and rows != expected:
            self._broken(f"{process.name}: after {verb} of a {change.name} the result is {rows}, not {expected}")

    def _require_reported(
        self,
        process: Process,
        bucket: str,
        change: pending.AnyChange,
        before: tuple[set[tuple[str, int]], dict[str, bytes]],
        at: str,
    ) -> None:
        """A change that did not come to its end has changed nothing, or is recorded as begun; `at`: at the earliest."""
        with self.scheduler.aside():
            status = change.status
        # What it has continued was begun earlier; another that was ended before says nothing of it.
        is_recorded = status is not None and (status.phase not in ("done", "swapped") or status.begun[:19] >= at[:19])
        if not is_recorded and self._read_kept(bucket) != before:
            self._broken(f"{process.name} was cut off in a {change.name}, and nothing records it")

    def _require_archived(self, bucket: str, layout: QueryLayout) -> None:
        """What is committed is archived, with the offsets that the ledger has."""
        with self.scheduler.aside():
            archived, checkpoint = Archive(layout.archive).entries(), Checkpoint(layout.checkpoint)
            if lacking := set(checkpoint.commit_numbers()) - set(archived):
                self._broken(f"{bucket} has committed batches that are not archived: {lacking}")
        for batch, text in self.database.rows(_PLANS):
            if text is None or batch not in archived:
                continue
            ours, theirs = archived[batch].offsets, PlannedBatch.loads(text)
            with self.scheduler.aside():
                # Another copy of the storage may have given the same files other numbers.
                own = theirs if ours == theirs.entry.offsets else planned_batch(checkpoint, batch)
            if own is None or (own.entry.offsets, own.digest()) != (ours, theirs.digest()):
                self._broken(f"{bucket} has archived {ours} of batch {batch}, which has {theirs.entry.offsets}")

    def _require_unchanged(self, process: Process) -> None:
        """A start that was refused has written nothing but the tables that it needs, and the names of a rename."""
        if any(len(names) > 1 for names in self.names.values()):
            return
        for statement in (*self.database.written.get(process, ()), *self.broker.written.get(process, ())):
            if statement.startswith(("UPDATE", "DELETE")) or '"result"' in statement:
                self._broken(f"{process.name} was refused, and has written: {statement}")

    def _require_truth(self, process: Process, message: str) -> None:
        """A batch of which a driver says that it was not written was not written by it."""
        match = re.search(r"batch (\d+) of query '\w+' was not written", message)
        sent = self.broker.sent if self.is_topic else self.database.sent
        if match is not None and int(match[1]) in sent.get(process, ()):
            self._broken(f"{process.name} has written a batch, and says: {message}")

    def _require_end(self, ends: Sequence[str]) -> None:
        """All rows are in once nothing disturbs: where there are copies, by one of them."""
        # Of a rename that an older copy of the storage has made the newest one alone finds the way out.
        is_apart = len(self.buckets) > 1 and any(len(names) > 1 for names in self.names.values())
        # Offsets that were lost too are in no ledger that was brought back from before.
        is_refused = (self.is_lost or is_apart) and set(ends) <= {"HR407", "HR410", *(["HR514"] * self.is_lost)}
        if self._require_prefix() != self.input.count and not is_refused:
            self._broken(f"not all rows came in: {ends}")

    def _broken(self, sentence: str) -> None:
        self.scheduler.fail(Broken(f"seed {self.seed}, step {len(self.scheduler.trace)}: {sentence}"))

    # ------------------------------------------------------------------------------------------ the edges

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the product ask the model: its clock, its threads, its processes, its stores, and no Spark."""
        scheduler = self.scheduler
        clock, threads = Clock(scheduler), Threading(scheduler)
        ids = random.Random(self.seed)
        databases[self.path], topics.brokers[self.path] = self.database, self.broker
        before: list[tuple[Any, str, Any]] = []

        def let(owner: Any, name: str, value: Any) -> None:
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

        try:
            for module in (exactly_once, preparation, silence, rebuild, transactions, adopt):
                let(module, "time", clock)
            let(exactly_once, "random", SimpleNamespace(uniform=scheduler.random.uniform))
            let(log, "datetime", SimpleNamespace(now=lambda _: self._now()))
            let(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
            let(driver_lock, "threading", threads)
            let(driver_lock, "os", SimpleNamespace(getpid=lambda: scheduler.process.pid))
            let(driver_lock, "birth", lambda pid: None if self._is_dead(pid) else f"born {pid}")
            let(driver_lock, "_taking", NoLock())
            let(driver_lock, "_live", set())
            let(driver_lock, "_guard", NoLock())
            let(starting, "ONE_AT_A_TIME", NoLock())
            let(starting, "share_settings", apply_settings)
            let(starting, "observe_event_times", lambda frame: frame)
            let(driver_lock, "_now", lambda: f"second {scheduler.now - 1_000_000:.0f}")
            let(driver_lock, "_held", PerProcess(scheduler, "held"))
            let(store, "_stores", {f"{self.scheme}://{name}": bucket for name, bucket in self.buckets.items()})
            let(remembered, "ThreadPoolExecutor", OneAfterTheOther)
            let(sql_sink, "Stage", Given)
            take = driver_lock.take

            def took(project: Project, query: Query, **more: Any) -> Any:
                if self.may.unlocked and query.sink.facts.durable:
                    register_query(project, query)
                begun = scheduler.now
                lock = None if self.may.unlocked else take(project, query, **more)
                held = None if lock is None else driver_lock._held[lock.path]
                if held is None or held.times == 1:
                    scheduler.process.locked_at = scheduler.now if held is None else self._lease_time(held.lease, begun)
                return lock

            let(driver_lock, "take", took)
            let(manifest, "version", lambda _: "0")
            for owner, name, value in PLANNING:
                let(owner, name, value)
            let(change_frames, "build", lambda project, transform, spark, *_: Frame(spark))
            let(rebuild, "catch_up", self._catch_up)
            let(rebuild, "_LOOK_SECONDS", 10.0)
            let(Rebuild, "_report", lambda *_: self._report())
            let(transactions, "ends", self.broker.ends)
            let(transactions, "as_messages", lambda frame, value, key: frame)
            let(producer, "connect", self.broker.connect)
            for name in ("read", "ends", "partitions", "require_ledger"):
                let(topic_ledger, name, getattr(self.broker, name))
            for owner, name, value in (*REBUILDING, *ADOPTING, *KEPT_PATHS):
                let(owner, name, value)
            yield
        finally:
            for owner, name, value in reversed(before):
                setattr(owner, name, value)
            del databases[self.path], topics.brokers[self.path]
            self.database.close()

    def _lease_time(self, lease: driver_lock.Lease | None, begun: float) -> float:
        """When the record of a lease was written, which was asked for at `begun`."""
        if lease is None:
            return self.scheduler.now
        with self.scheduler.aside():
            return driver_lock._time_of(file_of(lease.folder, lease._number)) or begun

    def _is_dead(self, pid: int) -> bool:
        return False

    def _report(self) -> RebuildReport:
        """A comparison takes its time, in which the query may run on."""
        self.scheduler.sleep(self.random.choice((0.0, 5.0, 30.0)))
        return RebuildReport(batch=None, verdict="ok", sentence="", differences=None)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.scheduler.now, timezone.utc)

    def _catch_up(self, rebuilt: Project, query: Query, session: Session, reporter: object) -> bool:
        """In place of a supervised run of the query that a rebuild makes."""
        spark = cast("SparkSession", replace(session, most=100, polls=0, interval=0.0))
        running = starting.start_query(Request(project=rebuilt, query=rebuilt.query(query.name), spark=spark))
        try:
            running.handle.awaitTermination()
        except (AnotherDriver, FileNotFoundError) as error:
            # Where it is supervised, what ends a query is a finding; another command may have discarded its files.
            raise CheckFailed(code="HR571", what=str(error)) from None
        else:
            Archive(running.layout.archive).catch_up(Checkpoint(running.layout.checkpoint))
        finally:
            running.clean_up()
        return True


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


def _plan_facts(frame: object) -> PlanFacts:
    return PlanFacts(streaming=True, indeterminate=(), sources=(SOURCE,))


# What asks Spark for its plan; the records of it are made and compared as always.
PLANNING: tuple[tuple[Any, str, Any], ...] = (
    (preparing, "compare_state_store", _nothing),
    (preparing, "plan_facts", _plan_facts),
    (preparing, "check_analysed", _nothing),
    (
        judging,
        "form_of",
        lambda project, query, *_, **__: QueryForm(spark="4.2.0", sink=place_of(project, query.sink)),
    ),
    (judging, "plan_text", lambda frame: "the plan"),
    (preparing, "ONE_AT_A_TIME", NoLock()),
    (preparing, "check_cores", _nothing),
    (preparing, "register_written", _nothing),
)


class NoHistory:
    """In place of the history, which keeps no change from being made."""

    @staticmethod
    def open(file: Path, **_: object) -> Any:
        raise HeadraceError(code="HR601", what="there is none")


# What a rebuild asks of Spark in addition to the run of its query.
REBUILDING: tuple[tuple[Any, str, Any], ...] = (
    (rebuild, "plan", lambda *_, **__: [Judgement(query="q", verdict="same", from_batch=0)]),
    (shadow, "gone", lambda *_: iter(())),
    (shadow, "sources_of_shadow", lambda *_: {}),
    (shadow, "lag", lambda *_: None),
    (shadow, "History", NoHistory),
)
# What an adoption asks of Spark, and of the plan.
_IN_ADOPT: dict[str, Any] = {
    "borrow": lambda project, spark: nullcontext(spark),
    "apply_settings": lambda *_: nullcontext(),
    "registered_tables": lambda *_: nullcontext(),
    "reader": _nothing,
    "plan_facts": _plan_facts,
    "match_sources": lambda *_: {"0": (SOURCE,)},
    "show_sources": _nothing,
    "state_misfits": _nothing,
    "session_settings": lambda *_: {},
    "adopted_settings": lambda *_: {},
    "check_structure_of": _nothing,
    "reach": _nothing,
}
ADOPTING = [*((adopt, name, value) for name, value in _IN_ADOPT.items()), (Adopt, "_check_frame", _nothing)]
# As many lines as the ledger of a topic keeps.
TOPIC_LINES = 10
# What happens to a topic in place of what happens to a table.
TOPIC_EVENTS = {"change": "rename", "back_up_database": "lose_topic"}
ABOUT = ("changes", "renames", "losses", "starts", "stops", "topics", "adoptions", "registers", "scenes")
# How many steps a process makes for each of its changes of the world; and each that is stopped, at most.
_STEPS_PER_CHANGE = 6
_STEPS = {"start": 250, "restore": 400, "reset": 150, "undo": 150, "discard": 100, "rewind": 400, "rebuild": 600}
# What is stopped, and what others do meanwhile, one after the other.
STOPS = (
    ("start", "rewind"),
    ("start", "undo"),
    ("start", "reset, start"),
    ("discard", "undo"),
    ("undo", "start"),
    ("reset", "half a rewind"),
    ("rewind", "start"),
    ("rebuild", "start"),
    ("reset", "undo"),
    ("reset", "undo, start"),
    ("rewind", "undo"),
    ("rewind", "undo, start"),
    ("rebuild", "undo"),
    ("rebuild", "undo, start"),
    ("rebuild", "discard"),
    ("restore", "start"),
    ("restore", "reset, start"),
    ("rebuild", "restore"),
)
# Of a query into Kafka.
TOPIC_STOPS = (
    ("start", "reset, start"),
    ("start", "undo, start"),
    ("reset", "undo, start"),
    ("undo", "undo, start"),
    ("reset", "start"),
    ("undo", "start"),
)
# Who does what, one after the other: `*`: stopped at a step for longer than its lease; `!`: it dies there; `&`: a
# driver that runs on while others follow. Before the sign: how many batches a driver makes. Behind it: at which step
# at most, and what the labels of such steps match.
_PART = re.compile(r"(?:(copy1) )?([a-z ]+?)(\d?)(?:([*!&])(\d*)(.*))?")
_ASIDE: dict[str, Callable[[World], object]] = {
    "adopt": lambda world: world.wait_for(world.begin("main", world._adopt, calm=True)),
    "back up": lambda world: world.keep_database(),
    "bring back": lambda world: world.bring_database_back() and setattr(world, "is_lost", True),
    "copy": lambda world: world._copy("main"),
    "fail": lambda world: world.fail_lease(),
    "forget": lambda world: world.lose_what_says_which_query("main", "the records that know the query"),
    "former": lambda world: world._run_former_job(),
    "lose": lambda world: world.lose_newest_batch("main"),
    "lose all": lambda world: world.lose_checkpoint(),
    "lose log": lambda world: world.lose_log(),
    "power": lambda world: world.lose_power(),
    "register": lambda world: register_project(world.declare("main")[0]),
    "rename": lambda world: world.names["main"].append("qr"),
    "silence": lambda world: world.silence_database(),
    "unsure": lambda world: setattr(world.database, "faults", Faults(commit=0.5)),
}
SCENES = (
    # A batch whose driver was stopped between its look at the log and its transaction.
    "start, start*sql BEGIN, rewind, start",
    "start, start*sql SELECT _headrace_epochs, rewind",
    "start, start*sql BEGIN, reset, undo",
    # Two copies, which have planned one batch otherwise, or of which one was changed.
    "start, copy, copy1 start!2sql INSERT _headrace_ledger, start, copy1 start",
    "start, copy, copy1 start!1sql INSERT _headrace_ledger, start1, copy1 start",
    "start, copy, reset, start, copy1 start, start",
    "start, copy, rewind, copy1 start, start",
    "start, copy, rewind, start, copy1 start, start",
    "start, copy, start, copy1 start&, start, copy1 start",
    # Leases that end, are given back and are taken again.
    "start, rewind*120, start, start&, wake",
    "start, reset*, start, start&, wake",
    "start, start*, start&, wake, start",
    "start, start*.leases/0000, start, start&, wake, start",
    "start, fail, start&, start",
    # A COMMIT whose answer is lost, and a database that is away then.
    "start, unsure, start, start",
    # Changes over changes, and the ways back.
    "start, rewind, start, rewind, undo, start",
    "start, rewind, rewind, undo, undo, start",
    "start, rewind, start, rewind, discard, start",
    "start, reset, start, discard, start, rewind",
    "start, rewind, reset, discard, undo, start",
    "start, reset, undo, reset, start, undo",
    "start, reset, start, reset, undo, undo, discard, start",
    "start, rewind!, resume, undo, start",
    "start, rewind!30/g1.2/, resume, start",
    "start, rebuild, undo, discard, start",
    "start, rebuild, start, undo, start",
    "start, silence, rewind, start",
    "start, rewind, silence, undo, start",
    "start, reset, silence, undo, start",
    "start, rebuild*6/log/0000, start&, wake",
    "start, start&, rebuild",
    # Who comes late to what others have changed since.
    "start, rewind*2/log/0000, reset, start, wake",
    "start, rewind*30/g1.2/, resume, start, wake",
    r"start, rewind*3 list\S* /?headrace/queries/q-\w+/?$, rewind, start, wake",
    r"start, reset*3 list\S* /?headrace/queries/q-\w+/?$, reset, start, wake",
    "start, rewind*, rewind, undo, rewind, wake",
    "start, rewind*sql, rewind, start, wake",
    "start, rewind, discard*, undo, start, wake",
    "start, rewind, discard*sql, start, rewind, wake",
    "start, reset, discard*sql, undo, reset, wake",
    "start, reset, undo*, start, wake",
    "start, rebuild, rebuild*rebuild.lock.leases, discard, wake",
    "start, start*sql, rewind, undo, start, wake",
    "start, rewind*sql BEGIN, undo, start, wake",
    "start, reset*sql BEGIN, undo, start, wake",
    "start, rewind*sql BEGIN, resume, start, wake",
    "start, rewind, undo!20sql, start, resume, start",
    "start, start*sql connect, reset, start, wake",
    # What was lost, in the midst of something else.
    "start, rewind!80, lose, start, resume, start",
    "start, lose, start!80, start",
    "start, lose, start!30/g1.2/, start",
    "start, lose, start*30/g1.2/, start, start, wake",
    "start, lose, start*, rewind, wake, start",
    "start, power, start!, power, start",
    "start, rewind, power, start, undo, start",
    "start, back up, reset, start, bring back, discard, start",
    "start, back up, start1, bring back, start",
    "start, rewind, lose log, start, resume, start",
    "start, rewind, start, lose log, start, resume, undo, start",
    "start, reset, start, lose log, resume, start, reset",
    "start, rebuild, lose log, start, resume, undo, start",
    "start, rewind, start, reset!1sql UPDATE _headrace_epochs, lose log, start, resume, start",
    "start, rewind!120, lose log, start, resume, start",
    "start, rewind, lose log, resume!25, resume, start",
    "start, rewind, lose log, resume*60, resume, start, wake",
    "start, rewind, lose log, copy, resume, start, copy1 resume, copy1 start",
    "former, adopt, lose log, start, resume, start",
    "register, start, rename, forget",
    "former, adopt, start, lose all, adopt, start",
)
# Methods of the world, and changes of the query by their names.
LOSSES = ("back_up_database", "lose_power", "silence_database")
EVENTS = (
    "change",
    "rename",
    "copy_storage",
    "silence_database",
    "back_up_database",
    "lose_power",
    "lose_checkpoint",
)
CHANGES: dict[str, Callable[[Project, str, Any], pending.AnyChange]] = {
    "reset": lambda project, query, spark: Reset(project, query, spark=spark),
    "rewind": lambda project, query, spark: Rewind(project, query, to_batch=0, spark=spark),
    "rebuild": lambda project, query, spark: Rebuild(project, query, spark=spark),
}
