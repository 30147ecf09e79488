"""A project on a real cluster of two workers: what is killed there changes no result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from headrace.api import load, status, verify
from headrace.cli.entry import main
from headrace.cluster import control
from headrace.errors import EXIT_BROKEN
from headrace.spark.jvm import cds
from headrace.spark.jvm.preconditions import require_java
from tests.crash.scenes import ClusterScene
from tests.runner.projects import land, ledger, rows, write_project
from tests.terminal import CTRL_C, Terminal
from tests.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

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
  bare: {master: "${MASTER}"}
  cluster:
    master: ${MASTER}
    worker_packages: workers.tar
    spark:
      spark.sql.codegen.wholeStage: "false"
      spark.sql.codegen.factoryMode: NO_CODEGEN
      spark.cores.max: "2"
      spark.executor.cores: "1"
      spark.executor.memory: 512m
      spark.executor.extraJavaOptions: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
  broken:
    master: ${MASTER}
    spark: {spark.executor.extraJavaOptions: "-agentlib:nosuch"}
  greedy:
    master: ${MASTER}
    spark: {spark.executor.memory: 900m}
"""


@dataclass
class Scene(ClusterScene):
    """A project of one query into SQLite, and what has landed for it."""

    driver: subprocess.Popen[bytes] | None = None
    greedy: subprocess.Popen[bytes] | None = None
    landed: int = 0
    total: int = 0
    classes: Path | None = None

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
            assert self.driver.poll() is None, self.tail()
            return bool(ledger(self.root / "out.db")) and self.result() == [("apple", self.total)]

        until("result: " + self.tail(), is_in)

    def wait_inside(self) -> None:
        """Until a task is at work on the row that takes long."""
        busy = self.root / "busy"
        until("task at work", busy.exists)
        busy.unlink()

    def result(self) -> list[tuple[Any, ...]]:
        return rows(self.root / "out.db", "SELECT name, total FROM totals")

    def finish(self) -> int:
        assert self.driver is not None
        return self.end(self.driver)


@contextmanager
def scene_of(tmp_path: Path, *words: str) -> Iterator[Scene]:
    root = write_project(tmp_path / "p", PROJECT)
    (root / "headrace.yml").write_text(YAML)
    classes = cds.archive_for(require_java())
    scene = Scene(home=tmp_path / "cluster", root=root, log=tmp_path / "driver.log", classes=classes)
    try:
        scene.start_cluster(*words)
        yield scene
    finally:
        scene.stop_cluster()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two workers, whose Python has no packages of its own."""
    with scene_of(tmp_path_factory.mktemp("cluster"), "--workers", "2", "--memory", "1g") as cluster:
        bare = cluster.home / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=60)
        cluster.environment["PYSPARK_PYTHON"] = str(bare / "bin" / "python")
        yield cluster


@pytest.mark.capability("CLUSTER-01", "CLUSTER-02", "CLUSTER-06")
def test_a_project_runs_unchanged_and_the_cluster_can_be_looked_at(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = scene.start("check", "--target", "bare")
    assert lacking.wait(PATIENCE_SECONDS) == 2
    assert re.search(r"HR826: the worker on \S+ lacks pyarrow in its Python", scene.log.read_text())
    broken = scene.start("check", "--target", "broken")
    assert broken.wait(PATIENCE_SECONDS) == 2
    assert "HR821: executors on the cluster" in scene.log.read_text()
    assert "Could not find agent library nosuch" in scene.log.read_text()
    archive = str(scene.root / "workers.tar")
    assert main(["cluster", "pack", "--out", archive, "-C", str(scene.root)]) == 0
    scene.submit()
    scene.land(1, 13)  # The task is tried again.
    scene.wait()
    status = control.status(scene.home)
    assert [master.state for master in status.masters] == ["ALIVE"]
    assert [(worker.cores_used, worker.memory_used_mb) for worker in status.workers] == [(1, 512)] * 2
    assert [(application.name, application.cores) for application in status.applications] == [("headrace totals", 2)]
    if Path("/proc/self/maps").exists() and scene.classes is not None:
        for process in (*status.processes.values(), *scene.executors()):
            assert str(scene.classes) in Path(f"/proc/{process}/maps").read_text(), "it maps the CDS archive"
    for page in (status.masters[0].web, status.workers[0].web):
        with urlopen(page, timeout=10) as answer:
            assert answer.status == 200
    assert main(["cluster", "status", "--home", str(scene.home)]) == 0
    output = capsys.readouterr().out
    assert "headrace totals" in output
    assert f"worker-2 is process {scene.daemon('worker-2').pid}" in output
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
    until("report of the lost executor", lambda: "HR882" in scene.log.read_text())
    scene.wait()
    scene.land(99, 3)
    scene.wait_inside()
    scene.kill_daemon("worker-2")
    scene.wait()
    assert scene.greedy is not None
    assert scene.greedy.wait(PATIENCE_SECONDS) == EXIT_BROKEN
    assert "HR825" in scene.log.read_text()
    assert main(["cluster", "status", "--home", str(scene.home)]) == 1
    assert "worker-2 has died" in capsys.readouterr().out
    assert main(["cluster", "start", "--home", str(scene.home)]) == 0
    scene.land(4)
    scene.wait()


@pytest.mark.capability("CLUSTER-05")
def test_the_stream_survives_the_masters_death_and_the_master_knows_it_again(scene: Scene) -> None:
    scene.kill_daemon("master-1")
    scene.land(6)
    scene.wait()
    assert main(["cluster", "start", "--home", str(scene.home)]) == 0
    until("application", lambda: knows_the_application(scene.home))
    scene.land(7)
    scene.wait()


@pytest.mark.capability("CLUSTER-03", "RDD-08")
def test_the_driver_is_ended_and_the_result_is_proved(
    scene: Scene, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stop", "-C", str(scene.root)]) == 0
    assert scene.driver is not None
    assert scene.driver.wait(PATIENCE_SECONDS) == 0, scene.tail()
    main(["cluster", "logs", "--query", "totals", "-C", str(scene.root)])
    assert "totals" in capsys.readouterr().out
    (scene.root / "calm").touch()
    assert verify(load(scene.root), "totals", spark=spark).exit_code == 0
    (entry,) = status(load(scene.root))
    assert entry.counters == {"seen": 10}, "tasks that were tried again, and those whose executor died, count once"


def test_ctrl_c_in_a_terminal_ends_a_supervised_driver_and_its_executors(scene: Scene) -> None:
    command = [sys.executable, "-m", "headrace", "submit", "--supervise", "--target", "cluster", "-C", str(scene.root)]
    terminal = Terminal(command, columns=80, environ=scene.environment)
    try:
        terminal.await_text("running; Ctrl-C stops")
        terminal.type(CTRL_C)
        *_, last = terminal.end().strip().splitlines()
        assert (terminal.process.returncode, last) == (0, "totals: stopped after 0 batches with 0 rows")
        assert "Traceback" not in terminal.text
        assert terminal.has_cursor
        until("end of the executors", lambda: scene.executors() == [])
    finally:
        terminal.close()


@pytest.mark.long
@pytest.mark.capability("CLUSTER-03")
def test_each_executor_has_state_though_one_task_has_read_the_first_batch(tmp_path: Path) -> None:
    with scene_of(tmp_path, "--workers", "2", "--cores", "1", "--memory", "1g") as scene:
        master = control.require(scene.home).url
        command = [sys.executable, "-m", "tests.crash.state_on_executors", master, str(tmp_path)]
        result = subprocess.run(
            command, env=scene.environment, capture_output=True, text=True, timeout=200, check=False
        )
    batches = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(batches) >= 3, result.stderr[-3000:]
    assert [len(set(batch.values())) for batch in batches] == [2] * len(batches), batches


@pytest.mark.long
@pytest.mark.capability("CLUSTER-05")
def test_with_two_masters_the_stream_survives_the_leaders_death(tmp_path: Path, spark: SparkSession) -> None:
    with scene_of(tmp_path, "--workers", "1", "--cores", "2", "--memory", "1g", "--masters", "2") as scene:
        (scene.root / "headrace.yml").write_text(YAML.replace("    worker_packages: workers.tar\n", ""))
        scene.submit()
        scene.land(1)
        scene.wait()
        masters = control.status(scene.home).masters
        assert sorted(master.state for master in masters) == ["ALIVE", "STANDBY"]
        (leader,) = [number for number, master in enumerate(masters, 1) if master.state == "ALIVE"]
        scene.kill_daemon(f"master-{leader}")
        scene.land(2)
        scene.wait()
        until("new leader", lambda: knows_the_application(scene.home))
        scene.land(3)
        scene.wait()
        assert scene.finish() == 0
        assert verify(load(scene.root), "totals", spark=spark).exit_code == 0


def knows_the_application(home: Path) -> bool:
    return [application.state for application in control.status(home).applications] == ["RUNNING"]
