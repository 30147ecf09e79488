"""Several attempts at the tasks of a stateful batch, at once or one after the other: no row is lost or doubled.

Rows come to an aggregate in another order at each attempt, so that a list shows which attempt's state a batch has left
behind: what the next batch makes of it holds the list before as it was, or the list is torn. Tasks are slow after they
have written their state, executors hang in the middle of a batch and continue behind it, and some are killed.

With Spark 4.2 neither format of checkpoints keeps the order through all of it: in the first a list is torn now and
then, and in the second Spark ends a query now and then, which is started again here. How often is printed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint
from tests.crash.scenes import ClusterScene
from tests.registered import layout_in
from tests.runner.projects import land
from tests.waiting import until

ROUNDS = int(os.environ.get("HEADRACE_STATE_ROUNDS", "2"))
PATIENCE = 240.0
FILES, ROWS, KEYS = 4, 24, 4
# What Spark 4.2 ends a query of the second format with, after several attempts at a task.
ENDS = "CheckpointInfo length"
pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 + 60 * ROUNDS)]

PIPELINE = """
import json
import random
import time
from pathlib import Path

import headrace as hr
from pyspark import TaskContext
from pyspark.sql import functions as F

HOME = Path(__file__).parent
events = hr.source.files("landing", format="json", schema="id BIGINT, name STRING")


@F.udf("string")
def slow_at_first(text):
    # What feeds this function has been read to its end, and with it the state is written.
    if TaskContext.get().attemptNumber() == 0 and random.random() < 0.05:
        time.sleep(1.5)
    return text


def write(batch, number):
    rows = {row.name: row.ids for row in batch.collect()}
    with (HOME / "history.jsonl").open("a") as history:
        history.write(json.dumps({"batch": number, "rows": rows}) + "\\n")


@hr.query(sink=hr.sink.foreach_batch(write, idempotent=True), mode="update", trigger=hr.every("100 ms"))
def listed(events):
    lists = events.groupBy("name").agg(F.concat_ws(" ", F.collect_list(F.col("id").cast("string"))).alias("ids"))
    return lists.select("name", slow_at_first("ids").alias("ids"))
"""
YAML = """
name: attempts
targets:
  dev: {{}}
  cluster:
    master: ${{MASTER}}
    spark:
      spark.sql.streaming.stateStore.checkpointFormatVersion: "{format}"
      spark.sql.shuffle.partitions: "4"
      spark.cores.max: "4"
      spark.executor.cores: "2"
      spark.executor.memory: 600m
      spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
      spark.task.maxFailures: "20"
      spark.stage.maxConsecutiveAttempts: "20"
      spark.speculation: "true"
      spark.speculation.interval: 100ms
      spark.speculation.quantile: "0.25"
      spark.speculation.multiplier: "1.1"
      spark.speculation.minTaskRuntime: 200ms
"""


class Scene(ClusterScene):
    """The project, what has landed, and what goes wrong."""

    files = ended = read = 0

    def begin(self, format_: str) -> None:
        (self.root / "landing").mkdir(parents=True)
        (self.root / "headrace.yml").write_text(YAML.format(format=format_))
        (self.root / "pipeline.py").write_text(PIPELINE)

    def submit(self) -> None:
        self.start("submit", "--target", "cluster")

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(layout_in(self.root / ".headrace", "listed").checkpoint)

    def land(self) -> None:
        for number in range(self.files, self.files + FILES):
            ids = range(number * ROWS, (number + 1) * ROWS)
            land(self.root, number, [{"id": id_, "name": f"n{id_ % KEYS}"} for id_ in ids])
        self.files += FILES

    def wait(self) -> None:
        """Until a committed batch has taken all that has landed."""

        def is_in() -> bool:
            if self.processes[-1].poll() is not None:
                assert ENDS in self.log.read_text(errors="replace")[self.read :], self.tail()
                self.ended, self.read = self.ended + 1, len(self.log.read_text(errors="replace"))
                self.submit()
            ids = [id_ for text in latest(self.root).values() for id_ in text.split()]
            assert len(ids) == len(set(ids)), "rows came twice"
            # Spark may end the query between what the sink has written and the commit, which is not the run's end.
            return len(ids) == self.files * ROWS and self.checkpoint.last_committed == max(batches(self.root))

        until("result", is_in, seconds=PATIENCE, pause=0.1)

    def trouble(self, chance: random.Random, number: int) -> None:
        """Let one executor hang for a moment, or die every tenth time."""
        executors = self.executors()
        if not executors:
            return
        pid = chance.choice(executors)
        time.sleep(chance.uniform(0.0, 0.6))
        with suppress(ProcessLookupError):
            if number % 10 == 9:
                os.kill(pid, signal.SIGKILL)
                return
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(chance.uniform(0.3, 2.0))
            finally:
                os.kill(pid, signal.SIGCONT)


def batches(root: Path) -> dict[int, dict[str, str]]:
    """What each batch gave, of one that came again its last time, by the batches' numbers."""
    with suppress(FileNotFoundError):
        lines = [json.loads(line) for line in (root / "history.jsonl").read_text().splitlines() if line.endswith("}")]
        last = {line["batch"]: line["rows"] for line in lines}
        return {batch: last[batch] for batch in sorted(last)}
    return {}


def latest(root: Path) -> dict[str, str]:
    newest: dict[str, str] = {}
    for rows in batches(root).values():
        newest |= rows
    return newest


def torn(root: Path) -> Iterator[str]:
    """The batches whose lists do not hold those before as they were: they began with the state of another attempt."""
    before: dict[str, list[str]] = {}
    for number, rows in batches(root).items():
        for name, text in rows.items():
            ids, old = text.split(), before.get(name, [])
            if len(set(ids)) != len(ids) or (old and ids[: len(old)] != old and ids[-len(old) :] != old):
                at = next(at for at, (one, other) in enumerate(zip(old, ids, strict=False)) if one != other)
                yield f"batch {number}, {name}: of {len(old)} ids, those from {at} on are in another order"
            before[name] = ids


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    cluster = Scene(home=tmp_path / "cluster", root=tmp_path / "p", log=tmp_path / "driver.log")
    try:
        cluster.start_cluster("--workers", "2", "--cores", "2", "--memory", "1g")
        yield cluster
    finally:
        cluster.stop_cluster()


# In `make test`, test_distribution lets several attempts write one state.
@pytest.mark.long
@pytest.mark.parametrize("format_", ["2", "1"], ids=["format-2", "format-1"])
def test_no_row_is_lost_or_doubled_whichever_attempt_counts(scene: Scene, format_: str) -> None:
    scene.begin(format_)
    scene.submit()
    chance = random.Random(7)
    for number in range(ROUNDS):
        scene.land()
        scene.trouble(chance, number)
        scene.wait()
    assert scene.end(scene.processes[-1]) == 0, scene.tail()
    last = scene.checkpoint.last_committed
    assert last is not None
    commit = scene.checkpoint.commit(last)
    assert commit is not None
    assert commit.version == int(format_)
    print(f"format {format_}: {ROUNDS} rounds, {last + 1} batches, ended by Spark {scene.ended} times")
    print(*torn(scene.root), sep="\n")
