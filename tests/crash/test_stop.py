"""A stop always stops, whatever hangs, and leaves no process; no other user sees the secrets of a JVM on its way up."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, status, verify
from headrace.api import run as run_project
from headrace.cli import main
from headrace.model import AvailableNow
from tests.registered import layout_in
from tests.rounds import as_long, rounds
from tests.runner.projects import land, ledger, write_project
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes by Linux's /proc"),
]

MARK = "HEADRACE_TEST_MARK"
FEW_SECONDS = 25.0


class Family:
    """A process, and all that come from it, known by a mark in their environment."""

    def __init__(self, mark: str, command: list[str], home: Path) -> None:
        self.mark = f"{MARK}={mark}".encode()
        self.log = home / f"{mark}.log"
        scratch = home / "tmp"
        scratch.mkdir(exist_ok=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=log,
                stderr=log,
                # Python then shows where its threads are when it is aborted.
                env={**os.environ, MARK: mark, "TMPDIR": str(scratch), "PYTHONFAULTHANDLER": "1"},
                # As from a shell of one's own, whose Ctrl-C is not ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def members(self) -> dict[int, bytes]:
        """The command lines of the living, by process id."""
        processes = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark in (place / "environ").read_bytes().split(b"\0"):
                    processes[int(place.name)] = (place / "cmdline").read_bytes()
        return processes

    def has_open(self, file: Path) -> bool:
        """Whether the process itself has this file open."""
        return any(_target(link) == str(file) for link in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def result(self) -> dict[str, object]:
        """The exit code and the state of each query, as the last line of `--json` has them."""
        document = json.loads(self.output().splitlines()[-1])
        assert document["event"] == "result", self.output()
        return {
            "exit_code": document["exit_code"],
            **{outcome["query"]: outcome["state"] for outcome in document["outcomes"]},
        }

    def await_word(self, word: str, *, asked_by: Family | None = None) -> None:
        """Wait until it says `word`; `asked_by` waits for that as well, and is not to end before."""

        def is_said() -> bool:
            if word in self.output():
                return True
            assert self.process.poll() is None, self.output()
            assert asked_by is None or asked_by.process.poll() is None, asked_by.output()
            return False

        try:
            until(f"word {word!r}", is_said)
        except AssertionError as error:
            raise AssertionError(self.stacks() + ("" if asked_by is None else asked_by.output())) from error

    def gone(self, seconds: float = FEW_SECONDS) -> bool:
        ends = time.monotonic() + seconds
        while self.members() and time.monotonic() < ends:
            self.process.poll()
            time.sleep(0.1)
        return not self.members()

    def stacks(self) -> str:
        """What is left, what it has printed, and where its threads are; ends it."""
        left = self.members()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            time.sleep(1.0)
        return f"of process {self.process.pid}: {left}\n{self.output()}"

    def end(self) -> None:
        for pid in {self.process.pid, *self.members()} if self.process.poll() is None else self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(FEW_SECONDS)


def _target(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""


@pytest.fixture
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Family]]:
    families: list[Family] = []
    yield families
    for member in families:
        member.end()


SESSION = """
from headrace.spark.jvm.session import start
spark = start(master="local[1]", purpose="short", name="p", overrides={{
    "spark.hadoop.fs.s3a.secret.key": "{secret}",
    "spark.driver.extraJavaOptions": "-Dmy.password={secret}",
}})
jvm = spark._jvm
assert spark._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == "{secret}"
assert jvm.java.lang.System.getProperty("my.password") == "{secret}"
print("READY", flush=True)
import time; time.sleep(600)
"""


def test_a_secret_setting_is_on_no_command_line_in_no_environment_and_in_no_file_that_stays(
    tmp_path: Path, family: list[Family]
) -> None:
    script = tmp_path / "session.py"
    script.write_text(SESSION.format(secret="sesame-4711"))
    started = Family("secret", [str(script)], tmp_path)
    family.append(started)
    seen: set[int] = set()
    ends = time.monotonic() + 120
    while "READY" not in started.output():
        assert started.process.poll() is None, started.output()
        assert time.monotonic() < ends, started.output()
        for pid, command in started.members().items():
            seen.add(pid)
            assert b"sesame-4711" not in command
            with suppress(OSError):
                assert b"sesame-4711" not in Path(f"/proc/{pid}/environ").read_bytes()
        time.sleep(0.02)
    assert len(seen) >= 3  # Python, the shell that becomes the JVM, and its launcher
    left = list((tmp_path / "tmp").iterdir())
    assert any(place.name.startswith("headrace-spark-") for place in left)
    assert [place for place in left if place.is_dir() and place.stat().st_mode & 0o077] == []
    assert [place for place in left if place.name.startswith("headrace-start-")] == []


@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        (signal.SIGINT, 0.0),
        (signal.SIGTERM, 1.0),
        (signal.SIGKILL, 0.0),
        *map(as_long, [(signal.SIGINT, 1.0), (signal.SIGTERM, 0.0), (signal.SIGKILL, 1.0)]),
    ],
)
def test_a_stop_while_the_jvm_starts_leaves_no_process(
    tmp_path: Path, family: list[Family], number: signal.Signals, seconds: float
) -> None:
    script = tmp_path / "session.py"
    script.write_text(SESSION.format(secret="sesame-4711"))
    started = Family("start", [str(script)], tmp_path)
    family.append(started)
    until("JVM", lambda: len(started.members()) >= 2 or started.process.poll() is not None, pause=0.01)
    assert started.process.poll() is None, started.output()
    time.sleep(seconds)
    started.process.send_signal(number)
    assert started.gone(), started.stacks()
    if number != signal.SIGKILL:
        assert list((tmp_path / "tmp").glob("headrace-start-*")) == []


HANGS = {
    "the user's function": """
        @hr.query(sink=hr.sink.foreach_batch(hang), trigger=hr.every("1 second"))
        def other(events): return events

        @hr.query(sink=hr.sink.foreach_batch(hang), trigger=hr.every("1 second"))
        def q(events): return events
    """,
    "a worker of Spark": """
        @hr.query(sink=hr.sink.sqlite("out.db", table="t"), trigger=hr.every("1 second"))
        def q(events): return events.mapInPandas(hang_worker, "name STRING, amount BIGINT")
    """,
    "a call into the JVM": """
        @hr.query(sink=hr.sink.sqlite("out.db", table="t"), trigger=hr.every("1 second"))
        def q(events):
            hung.touch()
            events.sparkSession._jvm.java.lang.Thread.sleep(600000)
            return events
    """,
}
HEAD = """
import time
from pathlib import Path

hung = Path({hung!r})
hanging = []


def hang(frame, batch):
    hanging.append(batch)
    if len(hanging) == 2:
        hung.touch()
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass


def hang_worker(frames):
    Path({hung!r}).touch()
    time.sleep(600)
    yield from frames
"""


@pytest.mark.parametrize("body", rounds(HANGS))
def test_the_second_signal_ends_a_run_that_hangs_with_all_its_processes_and_its_result(
    tmp_path: Path, family: list[Family], body: str
) -> None:
    hung = tmp_path / "hung"
    root = write_project(
        tmp_path / "p",
        HEAD.format(hung=str(hung)) + dedent(HANGS[body]),
        batches=[[{"name": "apple", "amount": 1}]],
    )
    run = Family("hang", ["-m", "headrace", "run", "-C", str(root), "--json"], tmp_path)
    family.append(run)
    until("hanging call", lambda: hung.exists() or run.process.poll() is not None)
    assert run.process.poll() is None, run.output()
    run.process.send_signal(signal.SIGINT)
    run.await_word('"stopping"')
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=FEW_SECONDS) == 0, run.output()
    assert run.gone(5.0), run.members()
    queries = ["other", "q"] if body == "the user's function" else ["q"]
    assert run.result() == {"exit_code": 0, **dict.fromkeys(queries, "stopped")}
    hanging = re.findall(r"HR894.*(?:batch|start) of query '(\w+)' hangs", run.output())
    assert hanging == ["q"] if body == "a call into the JVM" else set(hanging) <= set(queries)


def test_stop_waits_for_a_sink_that_hangs_and_stop_now_loses_nothing(
    tmp_path: Path, family: list[Family], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(
        tmp_path / "p",
        """
        @hr.query(sink=hr.sink.sqlite("out.db", table="t", key=["name"], retry_seconds=600), mode="update")
        def q(events): return events.groupBy("name").agg(F.sum("amount").alias("amount"))
        """,
        batches=[[{"name": "apple", "amount": 1}]],
    )
    run = Family("now", ["-m", "headrace", "run", "-C", str(root), "--json"], tmp_path)
    family.append(run)
    run.await_word('"batch": 0')
    project = load(root)
    with closing(sqlite3.connect(root / "out.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        land(root, 1, [{"name": "apple", "amount": 3}, {"name": "pear", "amount": 2}])
        offsets = layout_in(project.storage, "q").checkpoint / "offsets" / "1"
        until("batch that waits for the lock", offsets.exists)
        draining = Family("drain", ["-m", "headrace", "stop", "-C", str(root)], tmp_path)
        family.append(draining)
        run.await_word('"stopping"', asked_by=draining)
        with pytest.raises(subprocess.TimeoutExpired):
            draining.process.wait(3.0)
        begun = time.monotonic()
        assert main(["stop", "--now", "-C", str(root)]) == 0
        assert time.monotonic() - begun < FEW_SECONDS
        assert capsys.readouterr().out == f"process {run.process.pid} has ended\n"
        assert (run.process.wait(FEW_SECONDS), draining.process.wait(FEW_SECONDS)) == (0, 0)
        assert run.result() == {"exit_code": 0, "q": "stopped"}
        other.execute("ROLLBACK")
    (status_of,) = status(project)
    assert (status_of.state, ledger(root / "out.db")) == ("stopped", [0])
    assert run_project(project, trigger=AvailableNow(), spark=spark).exit_code == 0
    assert ledger(root / "out.db") == [0, 1]
    assert verify(project, "q", spark=spark).state == "equal"


def test_the_first_signal_ends_a_start_that_waits_for_a_lock(tmp_path: Path, family: list[Family]) -> None:
    root = write_project(
        tmp_path / "p",
        """
        @hr.query(sink=hr.sink.sqlite("out.db", table="t"), trigger=hr.every("1 second"))
        def q(events): return events
        """,
        batches=[[{"name": "apple", "amount": 1}]],
    )
    with closing(sqlite3.connect(root / "out.db", isolation_level=None)) as other:
        other.execute("CREATE TABLE mine (id INTEGER)")
        other.execute("BEGIN EXCLUSIVE")
        run = Family("lock", ["-m", "headrace", "run", "-C", str(root)], tmp_path)
        family.append(run)
        # The sink asks for the lock once it has the file open.
        until("sink that asks for the lock", lambda: run.has_open(root / "out.db") or run.process.poll() is not None)
        assert run.process.poll() is None, run.output()
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(timeout=FEW_SECONDS) == 0, run.output()
        assert run.gone(5.0), run.members()
        other.execute("COMMIT")
        assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 't'").fetchone() == (0,)
