"""What is known of a cluster, and what is said where there is none or it cannot be used."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace.api import load
from headrace.checks.locations import check_cluster_paths, check_speculation, check_state_partitions
from headrace.cli import submit
from headrace.cli.entry import main
from headrace.cluster import connection, control, daemons
from headrace.cluster.daemons import Cluster, Daemon, executors_of, last_message
from headrace.errors import CheckpointError, PlatformError
from headrace.generations.driver_lock import birth
from headrace.spark.jvm.session_conf import WAITING_TIME
from tests.runner.projects import write_project
from tests.waiting import until

pytestmark = pytest.mark.plain

QUERY = "q = hr.query(sink=hr.sink.files('out'), name='q')(lambda events: events)"
KNOWN = Cluster(
    host="127.0.0.1", masters=((7077, 8080),), zookeeper=None, workers=1, cores=1, memory="1g", secret="s3cr3t"
)


def code_of(caught: pytest.ExceptionInfo[Any]) -> str:
    return str(caught.value.findings[0].code)


def test_the_record_is_the_users_alone_and_read_again(tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    mine = str(birth(os.getpid()))
    record = KNOWN.with_daemon(Daemon(name="master-1", pid=os.getpid(), birth=mine, port=7077))
    gone = record.with_daemon(Daemon(name="worker-1", pid=os.getpid(), birth="another"))
    daemons.write(home, gone)
    assert daemons.read(home) == gone
    assert [gone.daemon(name) is not None for name in ("master-1", "worker-1", "worker-2")] == [True, False, False]
    assert [stat.S_IMODE(place.stat().st_mode) for place in (home, home / "cluster.json")] == [0o700, 0o600]
    assert "s3cr3t" not in repr(gone)
    assert (record.url, replace(record, masters=((1, 2), (3, 4))).url) == (
        "spark://127.0.0.1:7077",
        "spark://127.0.0.1:1,127.0.0.1:3",
    )


def test_a_driver_of_this_machine_finds_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(daemons.HOME_VARIABLE, str(tmp_path))
    assert connection.settings("spark://127.0.0.1:7077", {}) == {}
    daemons.write(tmp_path, KNOWN)
    settings = connection.settings("spark://127.0.0.1:7077", {"spark.driver.host": "mine"})
    assert settings["spark.authenticate.secret"] == "s3cr3t"
    assert "spark.driver.host" not in settings
    assert connection.settings("spark://127.0.0.1:7078", {}) == connection.settings("local[2]", {}) == {}
    (tmp_path / "cluster.json").write_text("{")
    assert connection.settings("spark://127.0.0.1:7077", {}) == {}


def test_local_paths_are_refused_where_executors_do_not_see_them(tmp_path: Path) -> None:
    """What it says of each option stands with an example in the reference."""
    root = write_project(tmp_path / "p", QUERY)
    codes = {}
    for name, more in {"here": "", "shared": f", shared_paths: ['{root}']", "elsewhere": ""}.items():
        master = "spark://127.0.0.1:7077" if name == "here" else "spark://spark-1:7077"
        (root / "headrace.yml").write_text(f"targets: {{dev: {{master: '{master}'{more}}}}}\n")
        codes[name] = [finding.code for finding in check_cluster_paths(load(root))]
    assert codes == {"here": [], "shared": [], "elsewhere": ["HR829"] * 3}


@pytest.mark.parametrize(
    ("master", "elsewhere"),
    [
        *(("local", False), ("local[4]", False), ("spark://127.0.0.1:7077,127.0.0.1:7078", False)),
        *(("spark://[::1]:7077", False), ("spark://localhost:7077", False), ("spark://10.0.0.1:7077", True)),
        *(("spark://127.0.0.1:7077,spark-2:7077", True), ("yarn", True)),
    ],
)
def test_a_cluster_on_loopback_sees_the_drivers_files(master: str, elsewhere: bool) -> None:
    assert connection.is_elsewhere(master) is elsewhere


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["start", "--memory", "much"], "HR090"),
        (["status"], "HR822"),
        (["logs", "worker-1"], "HR822"),
    ],
)
def test_what_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    assert main(["cluster", *words, "--home", str(tmp_path)]) == 2
    assert code in capsys.readouterr().err
    assert main(["cluster", "stop", "--home", str(tmp_path)]) == 0


def test_a_log_of_another_name_is_reported_with_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = daemons.log_file(tmp_path, "worker-1")
    file.parent.mkdir(parents=True)
    file.write_text("started\n")
    assert main(["cluster", "logs", "worker-2", "--home", str(tmp_path)]) == 2
    errors = capsys.readouterr().err
    assert ("HR091" in errors, "did you mean 'worker-1'?" in errors) == (True, True)


def test_a_port_that_is_taken_and_a_damaged_record_are_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PlatformError) as caught:
            control.start(tmp_path, port=taken.getsockname()[1], web_port=0)
    assert code_of(caught) == "HR892"
    (tmp_path / "cluster.json").write_text("[]")
    with pytest.raises(CheckpointError) as damaged:
        control.status(tmp_path)
    assert code_of(damaged) == "HR820"


def test_a_master_that_ends_at_once_is_said_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "require_java", lambda: SimpleNamespace(path=Path("/bin/false")))
    with pytest.raises(PlatformError) as caught:
        control.start(tmp_path, port=0, web_port=0)
    assert code_of(caught) == "HR821"
    assert str(tmp_path / "logs") in str(caught.value)


def test_logs_are_found_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "master-1.log").write_text("leads\n")
    for worker, application in ((1, "app-2-0000"), (2, "app-1-0000")):
        place = tmp_path / "work" / f"worker-{worker}" / application / "0"
        place.mkdir(parents=True)
        (place / "stderr").write_text(f"of {application}\n")
    assert main(["cluster", "logs", "--home", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == ["master-1", "app-1-0000/0", "app-2-0000/0"]
    for name, text in {"master-1": "leads\n", "app-1-0000/0": "of app-1-0000\n", "0": "of app-2-0000\n"}.items():
        assert main(["cluster", "logs", name, "--home", str(tmp_path)]) == 0
        assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("master", "words", "code", "ends"),
    [
        ("local[2]", [], "HR827", 2),
        ("spark://127.0.0.1:7077", ["--deploy-mode", "cluster"], "HR828", 2),
        ("spark://127.0.0.1:9", [], "HR126", 75),
    ],
)
@pytest.mark.capability("CLUSTER-03")
def test_what_cannot_be_submitted_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str, words: list[str], code: str, ends: int
) -> None:
    root = write_project(tmp_path / "p", QUERY)
    (root / "headrace.yml").write_text(f"targets: {{dev: {{master: '{master}'}}}}\n")
    assert main(["submit", "-C", str(root), *words]) == ends
    assert code in capsys.readouterr().err


def test_an_executor_is_waited_for_as_long_as_it_comes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "work" / "worker-1" / "app-1" / "0" / "stderr"
    looks: list[int] = []
    lines = 12

    def has_executor(*_: object) -> bool:
        looks.append(len(looks))
        if len(looks) <= lines:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("x" * len(looks))
        return comes and len(looks) > lines

    stopped: list[bool] = []
    conf = {WAITING_TIME: "400"}
    context = SimpleNamespace(applicationId="app-1", getConf=lambda: conf)
    spark: Any = SimpleNamespace(sparkContext=context, stop=lambda: stopped.append(True))
    monkeypatch.setattr(connection, "_has_executor", has_executor)
    monkeypatch.setattr(connection, "_local_cluster", lambda _: KNOWN)
    monkeypatch.setattr(connection, "default_home", lambda: tmp_path)
    comes = True
    connection._require_executors(spark, KNOWN.url)  # It takes 1.2 seconds, three times the limit.
    assert stopped == []
    comes, began = False, time.monotonic()
    looks.clear()
    with pytest.raises(PlatformError, match=r"HR825.* for 0\.4 s: 1 were begun and have not come up"):
        connection._require_executors(spark, KNOWN.url)
    assert (stopped, time.monotonic() - began > 1.2) == ([True], True)
    monkeypatch.setattr(connection, "_local_cluster", lambda _: None)
    with pytest.raises(PlatformError, match=r"HR825.*: no worker has all cores and 1g of memory free"):
        connection._require_executors(spark, "spark://elsewhere:7077")


@pytest.mark.parametrize(
    ("logs", "conf", "there", "rounds"),
    [
        (2, {}, [1, 1, 1, 2], 4),
        (0, {"spark.cores.max": "4", "spark.executor.cores": "2"}, [1, 1, 2], 3),
        # Nothing says how many there will be, or more are wanted than the cluster has: none comes any more.
        (0, {"spark.cores.max": "4"}, [1, 2], None),
        (0, {"spark.cores.max": "8", "spark.executor.cores": "2"}, [1, 3], None),
    ],
    ids=["as many as were begun", "as many as are asked for", "no number", "more than there are"],
)
@pytest.mark.capability("CLUSTER-03")
def test_all_executors_are_waited_for_so_that_each_has_state(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logs: int,
    conf: dict[str, str],
    there: list[int],
    rounds: int | None,
) -> None:
    for number in range(logs):
        log = tmp_path / "work" / f"worker-{number}" / "app-1" / str(number) / "stderr"
        log.parent.mkdir(parents=True)
        log.write_text("begins")
    asked: list[int] = []

    def executors(_: object) -> int:
        asked.append(1)
        return there[min(len(asked), len(there)) - 1]

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1", getConf=lambda: conf))
    monkeypatch.setattr(connection, "executors", executors)
    monkeypatch.setattr(connection, "_has_executor", lambda *_: True)
    monkeypatch.setattr(connection, "_local_cluster", lambda _: KNOWN if logs else None)
    monkeypatch.setattr(connection, "default_home", lambda: tmp_path)
    monkeypatch.setattr(connection, "_SETTLED_SECONDS", 0.5)
    began = time.monotonic()
    connection._await_others(spark, KNOWN.url)
    if rounds is None:
        assert time.monotonic() - began >= 0.5
        assert len(asked) > len(there)
    else:
        assert len(asked) == rounds


def test_a_cluster_that_gives_up_while_executors_are_waited_for_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[int] = [1, 1]

    def executors(_: object) -> int:
        if there:
            return there.pop()
        raise PySparkException("SparkContext was shut down")

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1", getConf=dict))
    monkeypatch.setattr(connection, "executors", executors)
    monkeypatch.setattr(connection, "is_stopped", lambda _: not there)
    monkeypatch.setattr(connection, "_local_cluster", lambda _: None)
    with pytest.raises(PlatformError, match=r"HR821.*it gave them up"):
        connection._await_others(spark, KNOWN.url)


def test_why_executors_have_ended_is_read_from_their_logs(tmp_path: Path) -> None:
    logs = {
        "0": "Spark Executor Command: java\n====\n\nUnrecognized VM option 'No'\nError: no Machine was made.\n",
        "1": "INFO begins\nException in thread 'main' java.io.IOException: no\n\tat x\n"
        "Caused by: java.io.InvalidClassException: a.B; local class incompatible\n\tat y\n",
        "2": "killed\n",
    }
    for number, text in logs.items():
        place = tmp_path / "work" / "worker-1" / "app-1" / number
        place.mkdir(parents=True)
        (place / "stderr").write_text(text)
    executors = executors_of(tmp_path, "app-1")
    assert [last_message(executor).partition(";")[0] for executor in executors] == [
        "Unrecognized VM option 'No'",
        "Caused by: java.io.InvalidClassException: a.B",
        "killed",
    ]
    assert executors_of(tmp_path, "app-2") == ()
    finding = connection._executors_lost(
        "spark://127.0.0.1:7077", "9 executors, ", last_message(executors[0])
    ).findings[0]
    assert finding.code == "HR821"
    assert finding.what.endswith("(9 executors, Unrecognized VM option 'No')")


LIVES = """
import sys, time
from pathlib import Path

log = Path(sys.argv[1])
lives = len(log.read_text()) if log.exists() else 0
log.write_text("x" * (lives + 1))
if lives == 0:
    sys.exit(1)
if lives == 1:
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
if lives == 2:  # As where the cluster is away for a moment.
    sys.exit(2)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.capability("CLUSTER-03")
def test_a_driver_that_fails_is_started_again_until_it_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submit, "_FIRST_PAUSE", 0.05)
    log = tmp_path / "log"
    command = [sys.executable, "-c", LIVES, str(log)]
    assert submit._supervise([*command, "0"]) == 0
    assert log.read_text() == "xxxx"
    errors = capsys.readouterr().err
    assert "ended with exit code 1" in errors
    assert "was killed by signal 9" in errors

    # Asked to end, it ends what it started, and starts nothing again.
    def end() -> None:
        until("driver", lambda: log.read_text() == "xxxxx")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end).start()
    assert submit._supervise([*command, "60"]) == -signal.SIGTERM
    assert log.read_text() == "xxxxx"
    for final in (2, 3):
        assert submit._supervise([sys.executable, "-c", f"raise SystemExit({final})"]) == final


def test_a_first_driver_that_finds_the_cluster_away_is_started_again_and_one_that_is_fenced_off_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "_FIRST_PAUSE", 0.05)
    away = "import sys; from pathlib import Path; log = Path(sys.argv[1]); log.open('a').write('x'); "
    away += "raise SystemExit(75 if len(log.read_text()) < 3 else 3)"
    assert submit._supervise([sys.executable, "-c", away, str(tmp_path / "log")]) == 3
    assert (tmp_path / "log").read_text() == "xxx"


def test_cores_without_a_part_of_the_state_are_reported(tmp_path: Path) -> None:
    query = load(write_project(tmp_path / "p", QUERY)).queries["q"]

    def codes(**given: Any) -> list[str]:
        return [finding.code for finding in check_state_partitions(query, **given)]

    assert codes(partitions=2, cores=4, keeps_state=True) == ["HR830"]
    assert codes(partitions=4, cores=4, keeps_state=True) == codes(partitions=2, cores=4, keeps_state=False) == []


def test_second_attempts_of_tasks_that_keep_state_are_warned_of(tmp_path: Path) -> None:
    query = load(write_project(tmp_path / "p", QUERY)).queries["q"]

    def codes(**given: bool) -> list[str]:
        return [finding.code for finding in check_speculation(query, **given)]

    assert codes(speculative=True, keeps_state=True) == ["HR841"]
    assert codes(speculative=False, keeps_state=True) == codes(speculative=True, keeps_state=False) == []


def test_the_code_that_workers_get_can_be_imported() -> None:
    code = connection._code()
    program = "import headrace, headrace.spark.stream.counting; print(headrace.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(code)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(str(code))
