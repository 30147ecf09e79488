"""Six kinds of sinks in one application on a cluster of two workers: whatever goes wrong there, each is exact."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, verify_each
from headrace.checkpoint.directory import numbered_files
from headrace.cluster import control
from tests.conftest import CONNECTORS, Sessions
from tests.connectors.iceberg import tables as iceberg_tables
from tests.connectors.sql.databases import Database
from tests.crash.monitoring import committed_files
from tests.crash.scenes import ClusterScene
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land
from tests.servers import Topics
from tests.waiting import until

if TYPE_CHECKING:
    from services import KafkaServer

# More than come through the driver: tasks stage them.
ROWS = 5_200
FAILS, SLOW, HOLDS, LOST = 1_000_013, 1_000_077, 1_000_099, 1_000_050
# With one query, test_cluster kills a worker; `make soak` does it with all of these.
WORKERS = os.environ.get("HEADRACE_LOST_WORKERS", "").split()
pytestmark = [pytest.mark.crash, pytest.mark.connectors, pytest.mark.timeout(1800 if WORKERS else 600)]
QUERIES = ("totals", "postgres", "mariadb", "delta", "iceberg", "files", "kafka", "kafka_repeated")
PIPELINE = """
import json
import os
import time
from pathlib import Path

import headrace as hr
from pyspark import TaskContext
from pyspark.sql import functions as F

HOME = Path(__file__).parent
GIVEN = json.loads((HOME / "given.json").read_text())
POSTGRES, MARIADB, KAFKA = GIVEN["postgres"], GIVEN["mariadb"], GIVEN["kafka"]
events = hr.source.files("landing", format="json", max_files_per_trigger=2, schema="id BIGINT, name STRING, amount INT")


def troubled(query, holds=False):
    @F.udf("int")
    def taken(amount):
        if amount in GIVEN["trouble"] and not (HOME / "calm").exists():
            attempt = TaskContext.get().attemptNumber()
            (HOME / f"{query}-{amount}-{attempt}").touch()
            if amount == GIVEN["fails"] and attempt == 0:
                raise ValueError("the first attempt fails")
            if amount == GIVEN["slow"] and attempt == 0:
                # As long as it takes until another attempt has begun, which the scene waits for.
                until = time.monotonic() + 60
                while not list(HOME.glob(f"*-{amount}-1")) and time.monotonic() < until:
                    time.sleep(0.1)
            if amount == GIVEN["lost"] and attempt == 0:
                time.sleep(4)
            if amount == GIVEN["holds"] and holds and not (HOME / "go").exists():
                time.sleep(4)
        return amount

    return taken


def each(events, query):
    return events.select("id", "name", troubled(query)("amount").alias("amount"))


def sums(events, query):
    # More partitions than cores: some fetch what was shuffled while another one is held.
    whole = events.groupBy("name").agg(F.sum("amount").alias("total"), F.max("amount").alias("most"))
    return whole.select("name", "total", troubled(query, holds=True)("most").alias("most"))


@hr.query(sink=hr.sink.postgres(POSTGRES, table="totals", key=["name"]), mode="update", trigger=hr.every("200 ms"))
def totals(events):
    return sums(events, "totals")


@hr.query(sink=hr.sink.postgres(POSTGRES, table="rows", key=["id"]), mode="append", trigger=hr.every("200 ms"))
def postgres(events):
    return each(events, "postgres")


@hr.query(sink=hr.sink.mysql(MARIADB, table="rows", key=["id"]), mode="append", trigger=hr.every("200 ms"))
def mariadb(events):
    return each(events, "mariadb")


@hr.query(sink=hr.sink.delta(path=str(HOME / "delta")), mode="append", trigger=hr.every("200 ms"))
def delta(events):
    return each(events, "delta")


@hr.query(sink=hr.sink.iceberg("db.rows", catalog=GIVEN["iceberg"]), mode="append", trigger=hr.every("200 ms"))
def iceberg(events):
    return each(events, "iceberg")


@hr.query(sink=hr.sink.files("files"), mode="append", trigger=hr.every("200 ms"))
def files(events):
    return each(events, "files")


@hr.query(sink=hr.sink.kafka(KAFKA, topic="exact", key=["id"], delivery_guarantee="exactly-once"), mode="append",
          trigger=hr.every("200 ms"))
def kafka(events):
    return each(events, "kafka").where("id % 20 = 0")


@hr.query(sink=hr.sink.kafka(KAFKA, topic="repeated", key=["id"]), mode="append", trigger=hr.every("200 ms"))
def kafka_repeated(events):
    return each(events, "kafka_repeated").where("id % 20 = 0")
"""
YAML = """
name: distribution
targets:
  dev: {}
  cluster:
    master: ${MASTER}
    spark:
      spark.sql.codegen.wholeStage: "false"
      spark.sql.codegen.factoryMode: NO_CODEGEN
      spark.sql.shuffle.partitions: "6"
      spark.cores.max: "4"
      spark.executor.cores: "2"
      spark.executor.memory: 600m
      spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
      spark.task.maxFailures: "4"
      spark.speculation: "true"
      spark.speculation.interval: 100ms
      spark.speculation.quantile: "0.5"
      spark.speculation.multiplier: "1.5"
      spark.speculation.minTaskRuntime: 1s
      spark.network.timeout: 12s
      spark.network.timeoutInterval: 1s
      spark.executor.heartbeatInterval: 1s
"""


class Scene(ClusterScene):
    """The project, its servers, and what has landed."""

    files = 0

    def begin(self, postgres: str, mariadb: str, topics: Topics) -> None:
        self.postgres, self.mariadb, self.topics = Database("postgres", postgres), Database("mariadb", mariadb), topics
        for name in ("exact", "repeated"):
            topics.server.create_topic(name, partitions=2)
        (self.root / "landing").mkdir(parents=True)
        given = {"postgres": postgres, "mariadb": mariadb, "kafka": topics.url}
        given |= {"iceberg": iceberg_tables.properties(self.root)}  # type: ignore[dict-item]
        trouble = {"fails": FAILS, "slow": SLOW, "holds": HOLDS, "lost": LOST, "trouble": [FAILS, SLOW, HOLDS, LOST]}
        (self.root / "given.json").write_text(json.dumps({**given, **trouble}))
        (self.root / "headrace.yml").write_text(YAML)
        (self.root / "pipeline.py").write_text(PIPELINE)

    def land(self, *trouble: int) -> None:
        """Let two files land, each a task's; a row of each makes trouble, as far as some is named."""
        for number in (self.files, self.files + 1):
            rows = [{"id": number * ROWS + at, "name": f"n{at % 7}", "amount": at} for at in range(ROWS)]
            for amount in trouble[number - self.files :][:1]:
                rows[0]["amount"] = amount
            land(self.root, number, rows)
        self.files += 2

    def wait(self) -> None:
        """Until each query has committed all that has landed."""
        driver = self.processes[0]

        def is_in() -> bool:
            assert driver.poll() is None, self.tail()
            return all(self.count_committed(query) == self.files for query in QUERIES)

        try:
            until("result", is_in, pause=0.3)
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

    def happens(self, queries: Iterable[str], trouble: int, attempt: int = 0) -> None:
        """Until an attempt of a task of one of the queries is at the row that makes trouble."""
        places = [self.root / f"{query}-{trouble}-{attempt}" for query in queries]
        until(f"trouble with {trouble}, attempt {attempt}", lambda: any(place.exists() for place in places))


@pytest.fixture
def scene(
    tmp_path: Path, sessions: Sessions, postgres_url: str, mariadb_url: str, kafka_server: KafkaServer
) -> Iterator[Scene]:
    cluster = Scene(home=tmp_path / "cluster", root=tmp_path / "p", log=tmp_path / "driver.log")
    try:
        cluster.begin(postgres_url, mariadb_url, Topics(kafka_server))
        cluster.start_cluster("--workers", "2", "--cores", "2", "--memory", "1g")
        yield cluster
    finally:
        cluster.stop_cluster()


def tasks_fail(scene: Scene) -> None:
    """They are tried again."""
    scene.land(FAILS)
    scene.wait()


def a_task_is_slow(scene: Scene) -> None:
    """It shows next to others that are not the first of their process, and is tried at the other worker."""
    scene.land(SLOW)
    scene.happens(QUERIES, SLOW, attempt=1)
    scene.wait()


def what_is_shuffled_is_lost(scene: Scene) -> None:
    """An executor is killed between map and reduce."""
    scene.land(HOLDS)
    scene.happens(["totals"], HOLDS)
    (scene.root / "go").touch()
    os.kill(scene.executors()[0], signal.SIGKILL)
    scene.wait()


def a_machine_is_cut_off(scene: Scene) -> None:
    """It is given up and comes back: its Python workers live on, and write what is no longer needed."""
    scene.land(LOST)
    scene.happens(QUERIES, LOST)
    before = scene.executors()
    os.kill(before[0], signal.SIGSTOP)
    until("executor in its place", lambda: bool(set(scene.executors()) - set(before)))
    with suppress(ProcessLookupError):
        os.kill(before[0], signal.SIGCONT)
    scene.wait()


def tasks_fail_and_a_shuffle_is_lost(scene: Scene) -> None:
    """One batch after the other: some queries are still at the first when the executor is killed."""
    scene.land(FAILS)
    what_is_shuffled_is_lost(scene)


EVENTS = {
    "tasks and a shuffle are lost": (tasks_fail_and_a_shuffle_is_lost,),
    "all that may happen": (tasks_fail, a_task_is_slow, what_is_shuffled_is_lost, a_machine_is_cut_off),
}


@pytest.mark.capability("CLUSTER-04")
@pytest.mark.parametrize("events", rounds(EVENTS))
def test_whatever_goes_wrong_on_a_cluster_each_sink_is_exact(scene: Scene, sessions: Sessions, events: str) -> None:
    driver = scene.start("submit", "--target", "cluster")
    for happens in EVENTS[events]:
        happens(scene)
    for name in WORKERS:
        # A whole worker is lost in mid-batch.
        for mark in scene.root.glob(f"*-{SLOW}-*"):
            mark.unlink()
        scene.land(SLOW)
        scene.happens(QUERIES, SLOW)
        scene.kill_daemon(name)
        scene.wait()
        scene.start_cluster()
    assert [master.state for master in control.status(scene.home).masters] == ["ALIVE"]
    assert scene.end(driver) == 0, scene.tail()
    assert scene.postgres.left_over() == scene.mariadb.left_over() == []
    (scene.root / "calm").touch()
    proved = {
        verdict.query: verdict.exit_code
        for verdict in verify_each(
            load(scene.root),
            QUERIES[:-1],
            spark=sessions.with_connectors(CONNECTORS),
        )
    }
    assert proved == dict.fromkeys(proved, 0)
    assert len(proved) == 7
    wanted = {number for number in range(scene.files * ROWS) if number % 20 == 0}
    assert {int(json.loads(str(value))["id"]) for _, value in scene.topics.read("repeated")} == wanted
