"""A project on a real cluster of two workers: what is killed there changes no result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from headrace.api import load, status, verify
from headrace.cli.entry import main
from headrace.cluster import control
from headrace.cluster.record import HOME_VARIABLE
from headrace.history.processes import birth

from ..run.projects import land, ledger, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

DEADLINE = 180.0
PROJECT = """
import time
from pathlib import Path

from pyspark import TaskContext

CALM = Path(__file__).with_name("calm")
seen = hr.counter()


kept = hr.sink.sqlite("out.db", table="totals", key=["name"])


@hr.query(sink=kept, mode="update", trigger=hr.every("200 milliseconds"))
def totals(events, seen):
    @F.udf("int")
    def taken(amount):
        seen.add(1)
        if amount == 13 and TaskContext.get().attemptNumber() == 0 and not CALM.exists():
            raise ValueError("the first attempt fails")
        if amount == 99 and not CALM.exists():
            CALM.with_name("busy").touch()
            time.sleep(3)
        return amount

    return events.select("name", taken("amount").alias("amount")).groupBy("name").agg(F.sum("amount").alias("total"))
"""
YAML = """
name: totals
targets:
  dev: {}
  cluster:
    master: ${MASTER}
    spark:
      spark.sql.codegen.wholeStage: "false"
      spark.sql.codegen.factoryMode: NO_CODEGEN
      spark.cores.max: "2"
      spark.executor.cores: "1"
      spark.executor.memory: 512m
      spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
  greedy:
    master: ${MASTER}
    spark: {spark.executor.memory: 900m}
"""


def until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.1)


@dataclass
class Scene:
    """A cluster, a project, and a driver of it that runs."""

    home: Path
    root: Path
    log: Path
    driver: subprocess.Popen[bytes] | None = None
    greedy: subprocess.Popen[bytes] | None = None
    landed: int = 0
    total: int = 0
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def start(self, *words: str, **more: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "headrace", *words, "-C", str(self.root)]
            return subprocess.Popen(command, stdout=log, stderr=log, env={**self.environment, **more})

    def submit(self) -> None:
        self.driver = self.start("submit", "--target", "cluster")

    def land(self, *amounts: int) -> None:
        """Let a file land."""
        land(self.root, self.landed, [{"name": "apple", "amount": amount} for amount in amounts])
        self.landed, self.total = self.landed + 1, self.total + sum(amounts)

    def wait(self) -> None:
        """Until all that has landed is in the result."""
        assert self.driver is not None

        def is_in() -> bool:
            assert self.driver is not None
            assert self.driver.poll() is None, self.log.read_text()[-4000:]
            return bool(ledger(self.root / "out.db")) and self.result() == [("apple", self.total)]

        until("result: " + self.log.read_text()[-2000:], is_in)

    def wait_inside(self) -> None:
        """Until a task is at work on the row that takes long."""
        busy = self.root / "busy"
        until("task at work", busy.exists)
        busy.unlink()

    def result(self) -> list[tuple[Any, ...]]:
        return rows(self.root / "out.db", "SELECT name, total FROM totals")

    def executors(self) -> list[int]:
        """The processes that the workers have started."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                command = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if (
                b"CoarseGrainedExecutorBackend" in command
                and str(self.home).encode() in (place / "environ").read_bytes()
            ):
                found.append(int(place.name))
        return found

    def end(self) -> int:
        assert self.driver is not None
        self.driver.send_signal(signal.SIGTERM)
        return self.driver.wait(DEADLINE)


@contextmanager
def scene_of(tmp_path: Path, *words: str) -> Iterator[Scene]:
    home = tmp_path / "cluster"
    root = write_project(tmp_path / "p", PROJECT)
    (root / "headrace.yml").write_text(YAML)
    scene = Scene(home, root, tmp_path / "driver.log")
    try:
        assert main(["cluster", "start", "--home", str(home), "--port", "0", "--web-port", "0", *words]) == 0
        scene.environment |= {"MASTER": control.require(home).url, HOME_VARIABLE: str(home)}
        yield scene
    finally:
        for process in (scene.driver, scene.greedy):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(DEADLINE)
        control.stop(home)
        until("end of the executors", lambda: scene.executors() == [])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of(tmp_path_factory.mktemp("cluster"), "--workers", "2", "--memory", "1g") as found:
        yield found


@pytest.mark.capability("CLUSTER-01", "CLUSTER-02", "CLUSTER-06")
def test_a_project_runs_unchanged_and_the_cluster_can_be_looked_at(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = scene.home / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=60)
    lacking = scene.start("check", "--target", "cluster", PYSPARK_PYTHON=str(bare / "bin" / "python"))
    assert lacking.wait(DEADLINE) == 2
    assert re.search(r"HR826: the worker on \S+ lacks pyarrow in its Python", scene.log.read_text())
    scene.submit()
    scene.land(1, 13)  # The task is tried again.
    scene.wait()
    found = control.status(scene.home)
    assert [each.state for each in found.masters] == ["ALIVE"]
    assert [(each.cores_used, each.memory_used_mb) for each in found.workers] == [(1, 512)] * 2
    assert [(each.name, each.cores) for each in found.applications] == [("headrace totals", 2)]
    for page in (found.masters[0].web, found.workers[0].web):
        with urlopen(page, timeout=10) as answer:
            assert answer.status == 200
    assert main(["cluster", "status", "--home", str(scene.home)]) == 0
    assert "headrace totals" in capsys.readouterr().out
    main(["cluster", "logs", "--home", str(scene.home)])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"master-1", "worker-1", "worker-2"} < set(listed)
    main(["cluster", "logs", "0", "--home", str(scene.home)])
    assert "CoarseGrainedExecutorBackend" in capsys.readouterr().out
    secret = control.require(scene.home).secret
    commands = [place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline") if os.access(place, os.R_OK)]
    assert not any(secret.encode() in command for command in commands)
    scene.greedy = scene.start("check", "--target", "greedy")  # All cores are taken: it will wait for a while.


@pytest.mark.capability("CLUSTER-04")
def test_an_executor_and_a_worker_are_killed_inside_a_batch(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land(5)
    scene.wait()
    scene.land(99, 2)
    scene.wait_inside()
    os.kill(scene.executors()[0], signal.SIGKILL)
    scene.wait()
    scene.land(99, 3)
    scene.wait_inside()
    worker = control.require(scene.home).daemon("worker-2")
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    scene.wait()
    assert scene.greedy is not None
    assert scene.greedy.wait(DEADLINE) == 2
    assert "HR825" in scene.log.read_text()
    assert main(["cluster", "status", "--home", str(scene.home)]) == 1
    assert "worker-2 has died" in capsys.readouterr().out
    assert main(["cluster", "start", "--home", str(scene.home)]) == 0
    scene.land(4)
    scene.wait()


@pytest.mark.capability("CLUSTER-05")
def test_the_stream_survives_the_masters_death_and_the_master_knows_it_again(scene: Scene) -> None:
    master = control.require(scene.home).daemon("master-1")
    assert master is not None
    os.kill(master.pid, signal.SIGKILL)
    until("death", lambda: birth(master.pid) is None)
    scene.land(6)
    scene.wait()
    assert main(["cluster", "start", "--home", str(scene.home)]) == 0
    until("application", lambda: knows_the_application(scene.home))
    scene.land(7)
    scene.wait()


@pytest.mark.capability("CLUSTER-03", "RDD-08")
def test_the_driver_is_ended_and_the_result_is_proved(scene: Scene, spark: SparkSession) -> None:
    assert scene.end() == 0, scene.log.read_text()[-4000:]
    (scene.root / "calm").touch()
    assert verify(load(scene.root), "totals", spark=spark).exit_code == 0
    (told,) = status(load(scene.root))
    assert told.counters == {"seen": 10}, "tasks that were tried again, and those whose executor died, count once"


@pytest.mark.capability("CLUSTER-05")
def test_with_two_masters_the_stream_survives_the_leaders_death(tmp_path: Path, spark: SparkSession) -> None:
    with scene_of(tmp_path, "--workers", "1", "--cores", "2", "--memory", "1g", "--masters", "2") as scene:
        scene.submit()
        scene.land(1)
        scene.wait()
        found = control.status(scene.home).masters
        assert sorted(each.state for each in found) == ["ALIVE", "STANDBY"]
        (leader,) = [number for number, each in enumerate(found, 1) if each.state == "ALIVE"]
        master = control.require(scene.home).daemon(f"master-{leader}")
        assert master is not None
        os.kill(master.pid, signal.SIGKILL)
        scene.land(2)
        scene.wait()
        until("new leader", lambda: knows_the_application(scene.home))
        scene.land(3)
        scene.wait()
        assert scene.end() == 0
        assert verify(load(scene.root), "totals", spark=spark).exit_code == 0


def knows_the_application(home: Path) -> bool:
    return [each.state for each in control.status(home).applications] == ["RUNNING"]
