"""Faults without end, and a result that is exact after each: `python -m tests.crash.soak [--rounds N] [DATABASE ...]`.

A project of two queries runs over files that keep landing: counts per action and hour (update mode, with state), and
every event as it is (append mode), into one database. In each round something dies: the driver at a random moment or
at a boundary of a batch, a Python worker of an executor, the database's server; or two drivers run at once, a copy of
the storage is run, the network fails, a file of a checkpoint is damaged. After each round both tables hold exactly the
files of the batches in the ledger. With `--minutes N` it is the soak of live_soak.py instead.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.api import load, run
from services import KINDS, Server
from services.process import new_home
from services.proxy import Proxy
from tests.connectors.sql.databases import Database
from tests.crash.disasters import LONGEST_RUN_SECONDS, copies, damage, network
from tests.crash.drivers import MOMENTS, Driver, KillAt
from tests.crash.live_soak import run_live
from tests.crash.monitoring import ACTIONS, START, committed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
import os

import headrace as hr
from pyspark.sql import DataFrame, functions as F

events = hr.source.files("landing", format="json", max_files_per_trigger=int(os.environ.get("SOAK_FILES", "1")),
                         schema="id BIGINT, time TIMESTAMP, action STRING")


def sink(table, key):
    return {sink}


@hr.query(sink=sink("action_counts", ["action", "hour"]), mode="update", trigger=hr.available_now)
def action_counts(events: DataFrame) -> DataFrame:
    return (events.groupBy("action", F.window("time", "1 hour")).count()
                  .select("action", F.col("window.start").alias("hour"), "count"))


@hr.query(sink=sink("every_event", ["id"]), mode="append", trigger=hr.available_now)
def every_event(events: DataFrame) -> DataFrame:
    return events
"""
SINKS = {
    "sqlite": 'hr.sink.sqlite("result.db", table=table, key=key)',
    "postgres": 'hr.sink.postgres("${SOAK_DATABASE_URL}", table=table, key=key)',
    "mariadb": 'hr.sink.mysql("${SOAK_DATABASE_URL}", table=table, key=key)',
}
# Few rows come through the driver, many by staging tables.
SIZES = (20, 20, 24_000)
LONGEST_LIFE = 11.0


@dataclass
class Soak:
    """One project and its database."""

    root: Path
    database: Database
    server: Server | None
    seed: int
    proxy: Proxy | None = None
    # What nothing happens to may run in it instead of a driver.
    spark: SparkSession | None = None
    files: int = 0
    round_begins: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        (self.root / "landing").mkdir(parents=True)
        (self.root / "headrace.yml").write_text('name: soak\nstorage: "${SOAK_STORAGE:-.headrace}"\n')
        (self.root / "pipeline.py").write_text(PIPELINE.replace("{sink}", SINKS[self.database.kind]))
        # Always by way of the proxy: the address of a sink's database is part of what the sink is.
        place = self.database.place
        os.environ["SOAK_DATABASE_URL"] = place if self.proxy is None else self.proxy.url(place)

    @property
    def storage(self) -> Path:
        return self.root / ".headrace"

    @contextmanager
    def configure(self, *, storage: str, files: int) -> Iterator[None]:
        """Let the drivers of this time have another storage, and another number of files a batch."""
        os.environ.update(SOAK_STORAGE=storage, SOAK_FILES=str(files))
        try:
            yield
        finally:
            del os.environ["SOAK_STORAGE"], os.environ["SOAK_FILES"]

    def land(self) -> None:
        """Let one more file land; what it holds follows from its number."""
        draft = self.root / "landing" / f".{self.files:05d}"
        lines = [
            json.dumps({"id": number, "time": time, "action": action})
            for number, time, action in self.events(self.files)
        ]
        draft.write_text("\n".join(lines) + "\n")
        draft.rename(self.root / "landing" / f"{self.files:05d}.json")
        self.files += 1

    def events(self, file: int) -> Iterator[tuple[int, str, str]]:
        """The events of one file: id, time, action."""
        chance = random.Random(f"{self.seed} {file}")
        for number in range(chance.choice(SIZES)):
            hour, second = chance.randrange(24), chance.randrange(3600)
            stamp = START.replace(hour=hour, minute=second // 60, second=second % 60)
            yield file * 100_000 + number, stamp.strftime("%Y-%m-%dT%H:%M:%SZ"), chance.choice(ACTIONS)

    # ------------------------------------------------------------------------------------------------- faults

    def round(self) -> str:
        """Land files, let one thing go wrong, and check; returns what it was."""
        for _ in range(self.chance.randrange(1, 4)):
            self.land()
        faults: list[Callable[[], str]] = [
            *(self.driver_dies, self.driver_dies_at_a_boundary, self.worker_dies, self.two_drivers)
        ]
        faults += [partial(copies, self), partial(damage, self)]
        if self.server is not None:
            faults += [self.server_dies, partial(network, self)]
        fault = self.chance.choice(faults)
        self.round_begins = len(self.log())
        outcome = fault()
        self.check()
        self.seen[fault.func.__name__ if isinstance(fault, partial) else fault.__name__] += 1
        return outcome

    def driver_dies(self) -> str:
        life = self.chance.uniform(2.0, LONGEST_LIFE)
        killed = Driver(self.root).kill_after(life)
        return f"driver {'killed' if killed else 'had ended'} after {life:.1f} s"

    def driver_dies_at_a_boundary(self) -> str:
        query = self.chance.choice(["action_counts", "every_event"])
        batches = self.batches(query)
        kill = KillAt(self.chance.choice(MOMENTS), len(batches) + self.chance.randrange(2))
        code = Driver(self.root, kill=kill).wait()
        return f"driver set to die at {kill}: {code}"

    def worker_dies(self) -> str:
        # Only for many rows has a database workers of Python.
        while sum(1 for _ in self.events(self.files - 1)) < max(SIZES):
            self.land()
        driver, killed = Driver(self.root), 0
        while driver.process.poll() is None and killed < 2:
            workers = _python_workers(driver.process.pid)
            if workers and self.chance.random() < 0.3:
                with suppress(ProcessLookupError):
                    os.kill(self.chance.choice(workers), signal.SIGKILL)
                    killed += 1
            time.sleep(0.05)
        return f"{killed} Python workers killed: {driver.wait()}"

    def two_drivers(self) -> str:
        first = Driver(self.root)
        time.sleep(self.chance.uniform(0.0, 4.0))
        second = Driver(self.root)
        return f"two drivers: {first.wait()} and {second.wait()}"

    def server_dies(self) -> str:
        assert self.server is not None
        driver = Driver(self.root)
        time.sleep(self.chance.uniform(3.0, LONGEST_LIFE - 2))
        self.server.kill()
        time.sleep(self.chance.uniform(0.0, 1.5))
        self.server.start()
        return f"server killed: {driver.wait()}{self.last_finding()}"

    def last_finding(self) -> str:
        """The last finding that a driver ended with, for a reader of the log."""
        lines = [line for line in self.log_of_round().splitlines() if " failed " in line]
        return f" (last: {lines[-1][:200]})" if lines else ""

    # ------------------------------------------------------------------------------------------------- checks

    def run(self) -> int:
        """Run to the end, without a fault; returns the exit code."""
        if self.spark is None:
            return Driver(self.root).wait(LONGEST_RUN_SECONDS)
        return run(load(self.root), spark=self.spark).exit_code

    def finish(self) -> None:
        """Run to the end, and find everything."""
        assert self.run() == 0, self.end_of_log()
        self.check()
        for query in ("action_counts", "every_event"):
            files = self.files_of(query, len(self.batches(query)))
            assert sorted(files) == list(range(self.files)), (query, files, self.files)
        assert self.database.left_over() == []

    def check(self) -> None:
        """Both tables hold exactly what the files of the batches in the ledger give."""
        log = self.log()
        assert "Traceback (most recent call last)" not in _without_spark(log), self.end_of_log()
        batches, stored = self.stored_counts()
        counts: Counter[tuple[str, str]] = Counter()
        for file in self.files_of("action_counts", batches):
            counts.update((action, time[:13]) for _, time, action in self.events(file))
        assert stored == counts, f"{stored - counts} too many, {counts - stored} missing; {self.end_of_log()}"
        batches, events = self.stored_events()
        ids = [number for file in self.files_of("every_event", batches) for number, _, _ in self.events(file)]
        wanted = len(ids), len(ids), sum(ids)
        assert events == wanted, f"{events} after {batches} batches, not {wanted}; {self.end_of_log()}"

    def end_of_log(self) -> str:
        return self.log()[-3000:]

    def log(self) -> str:
        file = self.root / ".driver.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def log_of_round(self) -> str:
        return self.log()[self.round_begins :]

    def batches(self, query: str) -> list[int]:
        """The batches in the ledger, which must be 0, 1, 2, ..."""
        try:
            rows = self.database.query(f"SELECT batch FROM _headrace_ledger WHERE query = '{query}' ORDER BY batch")
        except Exception as error:
            if any(
                sign in str(error) for sign in ("no such table", "does not exist", "doesn't exist", "unable to open")
            ):
                return []
            raise
        batches = [int(row[0]) for row in rows]
        assert batches == list(range(len(batches)))
        return batches

    def files_of(self, query: str, batches: int) -> list[int]:
        """The files of that many batches, as the source's log in the checkpoint names them."""
        if not batches:
            return []
        return [int(Path(name).stem) for name in committed_files(self.root, batches - 1, query)]

    def stored_counts(self) -> tuple[int, Counter[tuple[str, str]]]:
        """How many batches are in, and what they gave."""
        if not self.batches("action_counts"):
            return 0, Counter()
        # In one statement: a server may still be at the commit of a driver that is dead.
        rows = self.database.query(f'SELECT action, hour, "count", {_IN.format("action_counts")} FROM action_counts')
        counts = Counter({(action, str(hour)[:13].replace(" ", "T")): int(count) for action, hour, count, _ in rows})
        return int(rows[0][3]), counts

    def stored_events(self) -> tuple[int, tuple[int, int, int]]:
        """How many batches are in; how many events, how many different ones, and the sum of their numbers."""
        if not self.batches("every_event"):
            return 0, (0, 0, 0)
        sums = "count(*), count(DISTINCT id), coalesce(sum(id), 0)"
        [row] = self.database.query(f"SELECT {_IN.format('every_event')}, {sums} FROM every_event")
        return int(row[0]), (int(row[1]), int(row[2]), int(row[3]))


_IN = "(SELECT count(*) FROM _headrace_ledger WHERE query = '{}')"

# What PySpark's own daemon writes when a worker of it is killed; no code of ours is in it.
_DAEMON = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?:  File [^\n]*(?:pyspark/(?:daemon|worker|serializers)|tests/worker_daemon)\.py[^\n]*\n(?:    [^\n]*\n)*)+"
    r"\w+(?:Error|Exception)[^\n]*\n"
)


def _without_spark(log: str) -> str:
    """The log without the traces that Spark's own JVM and daemon write when a Python worker or a connection dies."""
    log = _DAEMON.sub("", log)
    return "\n".join(line for line in log.splitlines() if not line.startswith(("\t", " ", "org.apache", "Caused by")))


def _python_workers(driver: int) -> list[int]:
    """The Python workers of a driver's executors: the children of Spark's daemon process."""
    parents: dict[int, tuple[int, str]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            parents[int(place.name)] = (parent, (place / "cmdline").read_text().replace("\0", " "))

    def is_below(pid: int) -> bool:
        while pid in parents and pid != driver:
            pid = parents[pid][0]
        return pid == driver

    daemons = {pid for pid, (_, command) in parents.items() if "daemon pyspark.worker" in command and is_below(pid)}
    return [pid for pid, (parent, _) in parents.items() if parent in daemons and pid in daemons]


@contextmanager
def soaking(kind: str, root: Path, seed: int, spark: SparkSession | None = None) -> Iterator[Soak]:
    """A project over a fresh database of `kind`, with a server of its own."""
    if kind == "sqlite":
        yield Soak(root, Database("sqlite", str(root / "result.db")), None, seed, spark=spark)
        return
    server = KINDS[kind](new_home(kind))
    try:
        server.create()
        with Proxy(server.port) as proxy:
            yield Soak(root, Database(kind, server.create_database("soak")), server, seed, proxy, spark)
    finally:
        server.remove()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run many rounds for each database and say what was done; stops at the first wrong result."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("databases", nargs="*", default=sorted(SINKS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, help="instead of rounds: an application and its dashboard, so long")
    parser.add_argument("--seed", type=int, default=20260301)
    parser.add_argument("--cluster", action="store_true", help="on a cluster of two workers, with storage on HDFS")
    parser.add_argument("--only", default="", metavar="FAULT", help="of a cluster: a part of the faults' names")
    options = parser.parse_args(arguments)
    if options.cluster:
        from tests.crash import cluster_soak

        cluster_soak.run(options.minutes or 20.0, options.seed, options.only)
        return 0
    if options.minutes:
        scratch = tempfile.mkdtemp(prefix="headrace-soak-")
        print(f"live: in {scratch}", flush=True)
        run_live(Path(scratch) / "project", options.seed, options.minutes, partial(print, flush=True))
        shutil.rmtree(scratch, ignore_errors=True)
        return 0
    for kind in options.databases:
        scratch = tempfile.mkdtemp(prefix="headrace-soak-")  # Kept with the driver's log where a round fails.
        with soaking(kind, Path(scratch) / "project", options.seed) as soak:
            for number in range(1, options.rounds + 1):
                try:
                    print(f"{kind} {number}: {soak.round()}", flush=True)
                except BaseException:
                    print(f"{kind} {number}: failed; the project is kept in {scratch}", flush=True)
                    raise
            soak.finish()
            print(f"{kind}: {options.rounds} rounds, {soak.files} files, {dict(soak.seen)}: exact", flush=True)
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
