"""The unit of a service is one that systemd takes, and the files for Prometheus are those that it can read."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.api import load
from headrace.cli import main
from headrace.contract import BatchWork, QueryState
from headrace.control.board import Board
from headrace.errors import EXIT_BROKEN, EXIT_FENCED, EXIT_REFUSED, HeadraceError
from headrace.export import service
from headrace.export.service import Notifier, systemd_version, unit, unit_name
from tests.docs.blocks import ROOT
from tests.export.prometheus import require_program
from tests.servers import unavailable

pytestmark = pytest.mark.plain

PROJECT = """
name: NAME
sources: {e: {rate: {}}}
queries: {q: {select: SELECT * FROM e, sink: console}}
targets: {dev: {}, prod: {metrics: {port: 9108}}}
"""
# Two hours of a query that is ill in everything, of one that is well, and of one that was ill for a moment, in minutes.
SERIES = """
query_down            ill 0x10 1x110        well 0x120       soon 0x10 1x4 0x106
restarts_total        ill 0+1x120           well 2x120       soon 0x60 3x60
overdue_seconds       ill 0+60x120          well 890x120     soon 0x60 1000x4 0x56
source_lag_rows       ill 0+100x120         well 500-1x120   soon 0+100x120
source_lag_seconds    ill 400x120           well 400x120     soon 2x120
source_lag_files      ill 5+1x120           well 500-1x120   soon 0x60 40x4 0x56
watermark_standing_seconds ill 0+60x120     well 0x120       soon 0x60 900x4 0x56
sink_retrying         ill 0x110 1x10        well 0x120       soon 0x60 1x1 0x59
sink_retries_total    ill 0x60 0+2x60       well 2x120       soon 0x60 2x60
input_rows_total      ill 0+1000x120        well 0+1000x120  soon 0+1000x120
quarantined_rows_total ill 0+1x120          well 7x120       soon 0x60 7x60
late_rows_total       ill 0+50x120          well 0+5x120     soon 0x100 500x20
state_bytes           ill 2e9+1e8x120       well 2e9x120     soon 1e4+1e3x120
verify_mismatched_rows ill 3x120            well 0x120       soon 2x60 0x60
"""
GONE = ("up{job='headrace', instance='a:1'} 1x120", "up{job='headrace', instance='b:1'} 1x10 0x110")
RUNS = "headrace_query_up{app='p', query='q'} 1x120"


def rule_tests(alerts: Collection[str]) -> dict[str, Any]:
    """What promtool is to try: each alert fires for the ill query alone, and that of no query for what is gone."""
    series = {}
    for line in SERIES.strip().splitlines():
        metric, *rest = re.split(r"\s+(?=(?:ill|well|soon)\b)", line.strip())
        source = ", source='s'" if metric.startswith(("source_", "input_", "quarantined_")) else ""
        for query, values in (line.split(maxsplit=1) for line in rest):
            series[f"headrace_{metric}{{app='p', query='{query}'{source}}}"] = values
    expression = "count by (query) (ALERTS{{alertname='{}', alertstate='firing'}})"
    ill = [
        {"expr": expression.format(name), "eval_time": "2h", "exp_samples": [{"labels": "{query='ill'}", "value": 1}]}
        for name in alerts
        if name != "HeadraceApplicationGone"
    ]
    return {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {"interval": "1m", "input_series": [{"series": k, "values": v} for k, v in series.items()]}
            | {"promql_expr_test": ill},
            gone(*GONE, RUNS, labels={"instance": "b:1", "job": "headrace"}, where=" from b:1"),
            gone(GONE[1], labels={"instance": "b:1", "job": "headrace"}, where=" from b:1"),
            gone(labels={}),
            gone(GONE[0], RUNS),
        ],
    }


def gone(*series: str, labels: dict[str, str] | None = None, where: str = "") -> dict[str, Any]:
    """A test of the alerts where no metrics come in."""
    alert = {
        "exp_labels": {"severity": "critical", **(labels or {})},
        "exp_annotations": {
            "summary": f"no metrics of Headrace come in{where}",
            "description": "see whether the service runs: `systemctl status`",
        },
    }
    expected = [] if labels is None else [alert]
    return {
        "interval": "1m",
        "input_series": [{"series": f"{line.rsplit('} ')[0]}}}", "values": line.rsplit("} ")[1]} for line in series],
        "alert_rule_test": [{"eval_time": "1h", "alertname": "HeadraceApplicationGone", "exp_alerts": expected}],
    }


def project(root: Path, name: str = "phones") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(PROJECT.replace("NAME", name))
    return root


def test_a_unit_says_who_runs_what_and_when_it_is_not_started_again(tmp_path: Path) -> None:
    root = project(tmp_path / "it's 100% mine", "'my phones'")
    text = unit(load(root, target="prod"), user="phones")
    settings = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    assert settings["User"] == "phones"
    assert settings["WorkingDirectory"] == str(root).replace("%", "%%")
    assert settings["ExecStart"].endswith(" run")
    # What only a change of the project corrects is not tried again. What is away, as of a machine that boots before
    # its cluster, is tried again without a limit, and with pauses.
    assert settings["RestartPreventExitStatus"].split() == ["2", "3", "78"]
    assert [EXIT_BROKEN, EXIT_FENCED, EXIT_REFUSED] == [2, 3, 78]
    assert (settings["Restart"], settings["StartLimitIntervalSec"], settings["RestartSec"]) == ("on-failure", "0", "60")
    assert "RestartSteps" not in unit(load(root), user="phones", systemd=253)
    assert "RestartSec=10\nRestartSteps=8\nRestartMaxDelaySec=300\n" in unit(load(root), user="phones", systemd=254)
    assert (settings["Type"], settings["WatchdogSec"], settings["TimeoutStartSec"]) == ("notify", "1800", "900")
    assert (settings["MemoryMax"], settings["LimitNOFILE"]) == ("90%", "65536")
    assert (settings["UMask"], settings["KillMode"], settings["TimeoutStopSec"]) == ("0077", "mixed", "300")
    assert unit_name(load(root, target="prod")) == "headrace-my-phones-prod"


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that other users reach, as none below pytest's own is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_systemd_finds_nothing_wrong_with_it(
    open_to_all: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("systemd-analyze") is None:
        unavailable("systemd-analyze is not installed: `sudo apt-get install systemd`")
    root = project(open_to_all / "it's 100% mine", "phones")
    (root / ".headrace").mkdir(mode=0o700)
    out = tmp_path / "headrace-phones.service"
    arguments = ["service", "-C", str(root), "--user", "games", "--out", str(out), "--stop-timeout", "10 minutes"]
    assert main(arguments) == 2
    refused = capsys.readouterr().err
    assert f"HR877: the user games may not write into {root / '.headrace'}" in refused
    assert "chown -R games" in refused
    (root / ".headrace").chmod(0o777)
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert (printed.err, "systemctl enable --now headrace-phones" in printed.out) == ("", True)
    assert "TimeoutStopSec=600" in out.read_text()
    assert ("RestartSteps=8" in out.read_text()) == ((systemd_version() or 0) >= 254)
    out.write_text(out.read_text().replace("KillMode=mixed", "KillMode=gently"))
    done = subprocess.run(["systemd-analyze", "verify", str(out)], capture_output=True, text=True, check=False)
    assert "kill mode" in done.stderr, "systemd-analyze does look at it"


def dump(file: Path, place: Path) -> dict[str, list[str]]:
    """What systemd itself has read in the unit of a file, by the names of its own dump."""
    if (systemd := shutil.which("systemd", path="/lib/systemd:/usr/lib/systemd")) is None:
        unavailable("systemd is not installed: `sudo apt-get install systemd`")
    runtime = place / "runtime"
    runtime.mkdir(exist_ok=True)
    runtime.chmod(0o777)
    environ = {"HOME": "/tmp", "XDG_RUNTIME_DIR": str(runtime), "SYSTEMD_UNIT_PATH": f"{file.parent}:"}
    command = [systemd, "--test", "--user", f"--unit={file.name}"]
    # It refuses to be a user's as root.
    whose: dict[str, Any] = {"user": "games", "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, **whose)
    _, _, text = (done.stdout + done.stderr).partition(f"-> Unit {file.name}:")
    settings: dict[str, list[str]] = {}
    for line in text.partition("\t-> Unit ")[0].splitlines():
        key, _, value = line.strip().partition(": ")
        settings.setdefault(key, []).append(value)
    return settings


HARD = ("100% $HOME ${HOME} %h", "a \\ b", 'it\'s "mine"', "c:\\d\\n\\x41", "äö €", "; # =", "-x", "~")


@pytest.mark.parametrize("word", HARD)
def test_systemd_reads_each_value_as_it_was_given(
    open_to_all: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    root, bin_ = project(open_to_all / word), open_to_all / word.translate(str.maketrans("", "", "\"'\\"))
    bin_.mkdir(exist_ok=True)
    (bin_ / "headrace").symlink_to("/bin/true")
    monkeypatch.setattr(sys, "executable", str(bin_ / "python"))
    monkeypatch.setenv("JAVA_HOME", f"/opt/{word}")
    root.chmod(0o777)
    loaded = load(root)
    loaded = replace(loaded, name=word, target=replace(loaded.target, name=word))
    file = open_to_all / "headrace-x.service"
    file.write_text(unit(loaded, user="games"))
    read = dump(file, open_to_all)
    assert read["Description"] == [f"Headrace project '{word}'"]
    assert read["WorkingDirectory"] == [str(root)]
    assert read["Environment"] == [f"HEADRACE_TARGET={word}", f"JAVA_HOME=/opt/{word}"]
    assert re.fullmatch(r"-/etc/headrace-[A-Za-z0-9_.-]+\.env", read["EnvironmentFile"][0])
    assert shlex.split(read["Command Line"][0].replace("\\$", "$")) == [str(bin_ / "headrace"), "run"]
    assert read["User"] == ["games"]


BREAKS = ("a\nExecStartPre=+/bin/sh", "a\rb", "a\0b", "a\x1bb", "a\x7fb", "a\udcffb")
SUFFIXES = ("a\\", "a ")
USERS = ("", "a b", "%u", "+0", "-", "a:b", "a/b", "root", "0", "00")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", value) for value in BREAKS),
        *(("java", value) for value in BREAKS),
        *(("directory", value) for value in (*BREAKS, *SUFFIXES) if "\0" not in value),
        *(("program", value) for value in (*BREAKS, "a'b", 'a"b', "a\\b")),
        *(
            ("user", value)
            for value in (*BREAKS, *SUFFIXES, "", "a b", "%u", "+0", "-", "a:b", "a/b", "root", "0", "00")
        ),
    ],
    ids=ascii,
)
def test_no_value_of_a_unit_brings_a_line_of_its_own_or_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: str
) -> None:
    loaded = load(project(tmp_path / "p"))
    assert unit(loaded, user="phones")
    user = value if field == "user" else "phones"
    if field == "name":
        loaded = replace(loaded, name=value)
    elif field == "java":
        monkeypatch.setenv("JAVA_HOME", value) if "\0" not in value else monkeypatch.setattr(
            "os.environ", {"JAVA_HOME": value}
        )
    elif field == "directory":
        loaded = replace(loaded, root=tmp_path / value)
    elif field == "program":
        monkeypatch.setattr(service, "command", lambda: [f"/opt/{value}/headrace"])
    with pytest.raises(HeadraceError) as refused:
        unit(loaded, user=user)
    assert re.search("HR877: .*(not a valid name of a user|as root|cannot hold|no UTF-8)", str(refused.value))


def test_another_name_of_root_is_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toor = pwd.struct_passwd(("toor", "x", 0, 0, "", "/root", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", {"toor": toor}.__getitem__)
    with pytest.raises(HeadraceError, match="would run as root"):
        unit(load(project(tmp_path / "p")), user="toor")


class Systemd:
    """The socket on which systemd listens."""

    def __init__(self, place: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(place))
        self.environ = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "200000"}

    def hears(self, text: str, seconds: float = 20.0) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if text in self.socket.recv(1000).decode():
                    return True
            except TimeoutError:
                break
        return False

    def is_silent(self) -> bool:
        """After what is on its way, for five rounds."""
        self.hears("nothing", 0.1)
        return not self.hears("WATCHDOG=1", 0.25)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(tmp_path / "notify")
    yield systemd
    systemd.socket.close()


def test_systemd_hears_of_the_start_of_batches_and_of_the_end(systemd: Systemd) -> None:
    board = Board()
    notifier = Notifier(board, systemd.environ)
    assert systemd.environ == {}, "neither the JVM nor its workers speak for this process"
    assert systemd.hears("WATCHDOG=1"), "while Spark starts"
    board.post(QueryState(query="q", state="starting"))
    assert systemd.hears("READY=1")
    board.post(QueryState(query="q", state="running"))
    board.beat({"q": time.monotonic()})
    assert systemd.is_silent(), "the supervisor lives, and no batch moves"
    for moved in (
        lambda: notifier.working("q", BatchWork(tasks_done=3, tasks=10, rows=0, seconds=1.0)),
        lambda: notifier.working("q", BatchWork(tasks_done=4, tasks=10, rows=0, seconds=2.0)),
        lambda: board.beat({"q": time.monotonic()}),
        lambda: board.post(QueryState(query="q", state="restarting")),
    ):
        moved()
        assert systemd.hears("WATCHDOG=1")
    notifier.close()
    assert systemd.hears("STOPPING=1")


def test_systemd_hears_that_an_application_begins_again_which_must_not_end_the_unit(systemd: Systemd) -> None:
    Notifier(Board(), systemd.environ, begins_again=lambda: True).close()
    assert systemd.hears("RELOADING=1\nMONOTONIC_USEC=")


@pytest.mark.parametrize("state", ["starting", "paused", "running, and waits for its next trigger"])
def test_the_watchdog_of_what_has_nothing_to_do_is_fed_while_the_supervisor_lives(systemd: Systemd, state: str) -> None:
    board = Board()
    board.post(QueryState(query="q", state=state.partition(",")[0]))  # type: ignore[arg-type]
    due_at = {"q": time.monotonic() + 3600} if "," in state else {}
    notifier = Notifier(board, systemd.environ)
    for _ in range(3):
        board.beat(due_at)
        assert systemd.hears("WATCHDOG=1")
    assert systemd.is_silent(), "the supervisor hangs"
    notifier.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--user", "root"],
        ["--stop-timeout", "soon", "--user", "a"],
        ["--watchdog", "soon", "--user", "a"],
        ["--memory", "much", "--user", "a"],
        ["--memory", "0", "--user", "a"],
        ["--memory", "\u0663G", "--user", "a"],
        ["--watchdog", "1 ms", "--user", "a"],
        ["--stop-timeout", "1 ms", "--user", "a"],
        ["--user", ""],
    ],
)
def test_what_makes_no_service_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["service", "-C", str(project(tmp_path / "p")), *arguments]) == 2
    assert re.search("HR877|HR090", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("metrics", "target"),
    [
        ("", "127.0.0.1:9108"),
        ("metrics: {port: 9200, address: 10.1.2.3, token: sesame}", "10.1.2.3:9200"),
        ("metrics: {port: 9200, address: 0.0.0.0, token: sesame}", f"{socket.gethostname()}:9200"),
        ("metrics: {port: 9200, address: '::', token: sesame}", f"{socket.gethostname()}:9200"),
        ("metrics: {port: 9200, address: '::1'}", "[::1]:9200"),
    ],
    ids=["not declared", "one address", "every address", "every address of IPv6", "an address of IPv6"],
)
def test_prometheus_gets_an_address_that_it_can_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metrics: str, target: str
) -> None:
    root, out = project(tmp_path / "p"), tmp_path / "monitoring"
    with (root / "headrace.yml").open("a") as settings:
        settings.write(metrics)
    assert main(["service", "-C", str(root), "--monitoring", str(out)]) == 0
    assert ("the service serves no metrics" in capsys.readouterr().out) == (not metrics)
    (job,) = yaml.safe_load((out / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [target]}]


def test_prometheus_gets_no_port_that_each_start_chooses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = project(tmp_path / "p"), tmp_path / "monitoring"
    with (root / "headrace.yml").open("a") as settings:
        settings.write("metrics: {port: 0}")
    assert main(["service", "-C", str(root), "--monitoring", str(out)]) == 2
    assert "HR877" in (errors := capsys.readouterr().err)
    assert "name one that stays: metrics: {port: 9108}" in errors
    assert not out.exists()


def test_promtool_takes_the_rules_and_the_dashboard_asks_for_metrics_that_there_are(tmp_path: Path) -> None:
    root, out = project(tmp_path / "p"), tmp_path / "monitoring"
    assert main(["service", "-C", str(root), "--target", "prod", "--monitoring", str(out)]) == 0
    source = (ROOT / "src/headrace/export/metrics.py").read_text()
    metrics = {name.removesuffix("_total") for name in re.findall(r'"(headrace_\w+)"', source)}
    texts = [json.dumps(json.loads((out / "dashboard.json").read_text())), (out / "alerts.yml").read_text()]
    used = {re.sub(r"_(total|bucket)$", "", name) for text in texts for name in re.findall(r"headrace_\w+", text)}
    assert used <= metrics
    assert yaml.safe_load((out / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"] == [
        {"targets": ["127.0.0.1:9108"]}
    ]
    promtool = require_program("promtool")
    alerts = [rule["alert"] for rule in yaml.safe_load(texts[1])["groups"][0]["rules"]]
    (out / "fires.yml").write_text(yaml.safe_dump(rule_tests(alerts)))
    for arguments in (
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "fires.yml"],
    ):
        done = subprocess.run([promtool, *arguments], cwd=out, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
