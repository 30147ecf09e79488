"""The network between the driver and the workers of a cluster fails inside a batch: each sink is exact."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, verify_each
from headrace.checkpoint.directory import numbered_files
from tests.conftest import CONNECTORS, Sessions
from tests.connectors.sql.databases import Database
from tests.crash.driver_link import DriverLink, worker_of
from tests.crash.monitoring import committed_files
from tests.crash.scenes import ClusterScene
from tests.crash.test_cluster import knows_the_application
from tests.registered import layout_in
from tests.runner.projects import land
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Collection

pytestmark = [
    pytest.mark.crash,
    pytest.mark.connectors,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux shows whose connection it is"),
]

# Two files have so many keys that tasks stage each partition of the sums, and each file's rows.
ROWS = 6_000
# At which tasks are held, one after the other: the sums keep the largest.
RESET, LOST, SHORT, AGAIN = 1_000_003, range(1_000_030, 1_000_036), 1_000_037, 1_000_039
QUERIES = ("totals", "files", "delta")
# It takes another start of the master and of the driver; `make soak` has it.
FORGETS = bool(os.environ.get("HEADRACE_FORGETS"))
PIPELINE = """
import os
import time
from pathlib import Path

import headrace as hr
from pyspark import TaskContext
from pyspark.sql import functions as F

HOME = Path(__file__).parent
events = hr.source.files("landing", format="json", max_files_per_trigger=2, schema="id BIGINT, name STRING, amount INT")


def held(query):
    @F.udf("int")
    def taken(amount):
        if amount > 1_000_000 and (HOME / f"hold-{amount}").exists():
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            executor = daemon.rpartition(")")[2].split()[1]
            (HOME / f"at-{amount}-{query}-{executor}-{TaskContext.get().taskAttemptId()}").touch()
            while (HOME / f"hold-{amount}").exists() and not (HOME / f"go-{amount}-{executor}").exists():
                time.sleep(0.05)
        return amount

    return taken


@hr.query(sink=hr.sink.postgres("${NETWORK_DATABASE}", table="totals", key=["name"]), mode="update",
          trigger=hr.every("200 ms"))
def totals(events):
    whole = events.groupBy("name").agg(F.sum("amount").alias("total"), F.max("amount").alias("most"))
    return whole.select("name", "total", held("totals")("most").alias("most"))


@hr.query(sink=hr.sink.files("files"), mode="append", trigger=hr.every("200 ms"))
def files(events):
    return events.select("id", "name", held("files")("amount").alias("amount"))


@hr.query(sink=hr.sink.delta(path=str(HOME / "delta")), mode="append", trigger=hr.every("200 ms"))
def delta(events):
    return events.select("id", "name", held("delta")("amount").alias("amount"))
"""
YAML = """
name: network
targets:
  dev: {}
  cluster:
    master: ${MASTER}
    spark:
      spark.sql.codegen.wholeStage: "false"
      spark.sql.codegen.factoryMode: NO_CODEGEN
      spark.sql.shuffle.partitions: "2"
      spark.cores.max: "6"
      spark.executor.cores: "3"
      spark.executor.memory: 600m
      spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
      spark.network.timeout: 12s
      spark.network.timeoutInterval: 1s
      spark.scheduler.maxRegisteredResourcesWaitingTime: 10s
      spark.executor.heartbeatInterval: 2s
      # An executor that hears nothing ends itself after so long: here it outlives that the driver has given it up.
      spark.rpc.io.connectionTimeout: 120s
"""


# A backend reports at its end, and those of tasks end with what they stage. The sink inserts no row for a known key.
_INSERTED = "SELECT tup_inserted FROM pg_stat_database WHERE datname = current_database()"


@dataclass(frozen=True)
class Task:
    """An attempt of a task that has come to the row where it is held."""

    query: str
    executor: int
    attempt: int


class Scene(ClusterScene):
    """The project, and what has landed."""

    files = 0

    def begin(self, postgres: str, link: DriverLink) -> None:
        self.database = Database("postgres", postgres)
        for place in ("landing", "next/landing"):
            (self.root / place).mkdir(parents=True)
        settings = "".join(f'      {key}: "{value}"\n' for key, value in link.settings.items())
        (self.root / "headrace.yml").write_text(YAML + settings)
        (self.root / "pipeline.py").write_text(PIPELINE)
        self.environment["NETWORK_DATABASE"] = os.environ["NETWORK_DATABASE"] = postgres

    def land(self, amount: int) -> None:
        """Let two files land, each a task's; tasks are held at an amount in each."""
        (self.root / f"hold-{amount}").touch()
        for number in (self.files, self.files + 1):
            rows = [{"id": number * ROWS + at, "name": f"n{number % 2}-{at}", "amount": at % 97} for at in range(ROWS)]
            # A partition of the sums without one of them is very improbable.
            for row in rows[:: ROWS // 12]:
                row["amount"] = amount
            land(self.root / "next", number, rows)
        # Into one batch.
        for file in sorted((self.root / "next" / "landing").iterdir()):
            file.rename(self.root / "landing" / file.name)
        self.files += 2

    def tasks(self, amount: int) -> set[Task]:
        """Who has been held at an amount by now."""
        tasks = (path.name.split("-")[2:] for path in self.root.glob(f"at-{amount}-*"))
        return {Task(query, int(executor), int(attempt)) for query, executor, attempt in tasks}

    def await_tasks(self, amount: int) -> set[Task]:
        """Wait until each query is inside the batch."""
        until("tasks at work", lambda: {task.query for task in self.tasks(amount)} == set(QUERIES))
        # Those that began a little later: on a busy machine a worker of Python takes seconds.
        with suppress(AssertionError):
            until("all tasks", lambda: len(self.tasks(amount)) == 2 * len(QUERIES), seconds=30)
        return self.tasks(amount)

    def go(self, amount: int, executors: Collection[int]) -> None:
        """Let the tasks of some executors continue, and what they are given later."""
        for executor in executors:
            (self.root / f"go-{amount}-{executor}").touch()

    def written_amount(self, query: str) -> int:
        """How much tasks of a query have written by now, whatever became of it: partitions or bytes."""
        if query == "totals":
            [[rows]] = self.database.query(_INSERTED)
            return int(rows) // (ROWS // 2)
        return sum(file.stat().st_size for file in (self.root / query).glob("*.parquet"))

    def wait(self) -> None:
        """Until each query has committed all that has landed."""
        driver = self.processes[0]

        def is_in() -> bool:
            assert driver.poll() is None, self.tail()
            return all(self.count_committed(query) == self.files for query in QUERIES)

        try:
            until("result", is_in)
        except AssertionError as error:
            raise AssertionError(
                f"{[(query, self.count_committed(query)) for query in QUERIES]} {self.tail()}"
            ) from error

    def count_committed(self, query: str) -> int:
        """How many files the batches hold that Spark has committed."""
        last = max(numbered_files(layout_in(self.root / ".headrace", query).checkpoint / "commits"), default=-1)
        with suppress(Exception):
            return 0 if last < 0 else len(committed_files(self.root, last, query))
        return -1


@pytest.fixture
def link() -> Iterator[DriverLink]:
    with DriverLink() as link:
        yield link


@pytest.fixture
def scene(tmp_path: Path, sessions: Sessions, postgres_url: str, link: DriverLink) -> Iterator[Scene]:
    cluster = Scene(home=tmp_path / "cluster", root=tmp_path / "p", log=tmp_path / "driver.log")
    try:
        cluster.begin(postgres_url, link)
        cluster.start_cluster("--workers", "2", "--cores", "3", "--memory", "1g")
        yield cluster
    finally:
        # Held connections would keep executors from getting the request to end.
        link.let_go()
        cluster.stop_cluster()
        del os.environ["NETWORK_DATABASE"]


@pytest.mark.long
@pytest.mark.capability("CLUSTER-04")
def test_whatever_the_network_does_inside_a_batch_each_sink_is_exact(
    scene: Scene, link: DriverLink, sessions: Sessions
) -> None:
    driver = scene.start("submit", "--target", "cluster")
    # Before the others: a first batch is tried through the driver, and then computed once more.
    all_connections_are_reset(scene, link)
    one_worker_is_given_up_and_there_again(scene, link)
    # It begins with the state that was committed twice.
    cut_the_network_for_a_while(scene, link)
    if FORGETS:
        driver = the_master_forgets_the_application(scene, link, driver)
    assert scene.end(driver) == 0, scene.tail()
    assert scene.database.left_over() == []
    # The query that proves it is held nowhere.
    for file in scene.root.glob("hold-*"):
        file.unlink()
    spark = sessions.with_connectors(CONNECTORS)
    proved = {verdict.query: verdict.exit_code for verdict in verify_each(load(scene.root), QUERIES, spark=spark)}
    assert proved == dict.fromkeys(QUERIES, 0)


def all_connections_are_reset(scene: Scene, link: DriverLink) -> None:
    """Each executor loses its driver, and ends; others come at once and do the batch."""
    scene.land(RESET)
    held, executors = scene.await_tasks(RESET), set(scene.executors())
    assert {task.executor for task in held} <= executors
    assert link.cut() >= 2
    until("other executors", lambda: len(scene.executors()) == 2 and not executors & set(scene.executors()))
    scene.go(RESET, scene.executors())
    scene.wait()
    assert {task.query for task in scene.tasks(RESET) - held} == set(QUERIES)


def one_worker_is_given_up_and_there_again(scene: Scene, link: DriverLink) -> None:
    """One executor is half-open for longer: the other does its tasks, and what it does later changes nothing."""
    both = {"totals", "files"}
    # Spark decides who does what, and a state stays where it is: another batch, until one executor has tasks of both.
    for amount in LOST:
        scene.land(amount)
        held = scene.await_tasks(amount)
        lost = max(scene.executors(), key=lambda pid: len({task.query for task in held if task.executor == pid} & both))
        (other,) = set(scene.executors()) - {lost}
        late = [task for task in held if task.executor == lost]
        if both <= {task.query for task in late}:
            break
        scene.go(amount, scene.executors())
        scene.wait()
    assert both <= {task.query for task in late}
    worker = worker_of(lost, [scene.daemon(name).pid for name in ("worker-1", "worker-2")])
    assert worker is not None
    assert link.hold(lost) >= 1
    # The master is not heard either: it would have the worker kill the executor.
    os.kill(worker, signal.SIGSTOP)
    try:
        scene.go(amount, [other])
        scene.wait()
        again = scene.tasks(amount) - held
        assert {task.query for task in again} >= {task.query for task in late}
        assert {task.executor for task in again} == {other}
        assert "Executor heartbeat timed out" in scene.log.read_text()
        # What the tasks do now is no longer needed.
        before = {task.query: scene.written_amount(task.query) for task in late}
        scene.go(amount, [lost])
        until("late rows", lambda: all(scene.written_amount(query) > before[query] for query in before))
        # No driver drops it: none of its batches ends now.
        until("end of what was staged late", lambda: scene.database.left_over() == [], seconds=60)
        link.let_go()
        until("what it says of them", lambda: "Ignoring update with state FINISHED" in scene.log.read_text())
    finally:
        os.kill(worker, signal.SIGCONT)
    until("executor in its place", lambda: len(set(scene.executors()) - {lost, other}) == 1)


def cut_the_network_for_a_while(scene: Scene, link: DriverLink) -> None:
    """All is half-open for less than the time after which an executor is given up: the batch resumes."""
    scene.land(SHORT)
    held, executors = scene.await_tasks(SHORT), scene.executors()
    before = link.held_bytes
    assert len(executors) == 2
    assert link.hold() >= 2
    scene.go(SHORT, executors)
    until("word that is held", lambda: link.held_bytes > before)
    # Longer than what is not held takes.
    time.sleep(3)
    assert all(scene.count_committed(query) < scene.files for query in QUERIES)
    link.let_go()
    scene.wait()
    assert scene.executors() == executors
    # Each file and each partition of the sums is one task; some may have begun after the others were held.
    assert held <= scene.tasks(SHORT)
    assert Counter(task.query for task in scene.tasks(SHORT)) == dict.fromkeys(QUERIES, 2), "no task was tried again"
    until("report of the lost executors", lambda: "HR882" in scene.log.read_text())


def the_master_forgets_the_application(
    scene: Scene, link: DriverLink, driver: subprocess.Popen[bytes]
) -> subprocess.Popen[bytes]:
    """A master that was restarted speaks with the driver by a connection of its own; when that is cut the run ends."""
    scene.kill_daemon("master-1")
    scene.start_cluster()
    until("application", lambda: knows_the_application(scene.home))
    executors = set(scene.executors())
    assert link.cut() > len(executors)
    scene.land(AGAIN)
    (scene.root / f"hold-{AGAIN}").unlink()
    assert driver.wait(120) == 1, scene.tail()
    assert executors.isdisjoint(scene.executors())
    assert "HR863" in scene.log.read_text()
    again = scene.start("submit", "--target", "cluster")
    scene.processes.insert(0, scene.processes.pop())
    scene.wait()
    return again
