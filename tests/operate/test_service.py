"""The unit of a service is one that systemd takes, and the files for Prometheus are those that it can read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from headrace.api import load
from headrace.cli import main
from headrace.operate.service import unit, unit_name
from headrace.run.result import EXIT_FENCED
from services.process import program
from tests.docs.blocks import ROOT
from tests.servers import unavailable

pytestmark = pytest.mark.plain

PROJECT = """
name: NAME
sources: {e: {rate: {}}}
queries: {q: {select: SELECT * FROM e, sink: console}}
targets: {dev: {}, prod: {metrics: {port: 9108}}}
"""
# An hour of one query that is well and one that is not in anything, in steps of a minute.
_OF = 'app="p", query='
_SERIES = """
  - {series: 'headrace_query_up{OF"well"}', values: '1x60'}
  - {series: 'headrace_query_up{OF"ill"}', values: '1x10 0x50'}
  - {series: 'headrace_query_up{OF"rests"}', values: '0x60'}
  - {series: 'headrace_query_paused{OF"rests"}', values: '1x60'}
  - {series: 'headrace_query_paused{OF"ill"}', values: '0x60'}
  - {series: 'headrace_query_paused{OF"well"}', values: '0x60'}
  - {series: 'headrace_restarts_total{OF"ill"}', values: '0+1x60'}
  - {series: 'headrace_restarts_total{OF"well"}', values: '1x60'}
  - {series: 'headrace_last_batch_timestamp_seconds{OF"ill"}', values: '0x60'}
  - {series: 'headrace_last_batch_timestamp_seconds{OF"well"}', values: '0+60x60'}
  - {series: 'headrace_source_lag_rows{OF"ill", source="s"}', values: '0+100x60'}
  - {series: 'headrace_source_lag_rows{OF"well", source="s"}', values: '5x60'}
  - {series: 'headrace_source_lag_seconds{OF"ill", source="s"}', values: '400x60'}
  - {series: 'headrace_source_lag_seconds{OF"well", source="s"}', values: '2x60'}
  - {series: 'headrace_watermark_lag_seconds{OF"ill"}', values: '0+60x60'}
  - {series: 'headrace_watermark_lag_seconds{OF"well"}', values: '7200x60'}
  - {series: 'headrace_input_rows_total{OF"ill", source="s"}', values: '0+1000x60'}
  - {series: 'headrace_input_rows_total{OF"well", source="s"}', values: '0+1000x60'}
  - {series: 'headrace_late_rows_total{OF"ill", operator="o"}', values: '0+50x60'}
  - {series: 'headrace_late_rows_total{OF"well", operator="o"}', values: '0+5x60'}
  - {series: 'headrace_verify_mismatched_rows{OF"ill"}', values: '3x60'}
  - {series: 'headrace_verify_mismatched_rows{OF"well"}', values: '0x60'}
"""
FIRING = ("QueryDown", "Restarts", "NoCommit", "FallsBehind", "WatermarkStands", "LateRows", "VerifyMismatch")
FIRES = (
    "rule_files: [alerts.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:"
    + _SERIES.replace("OF", _OF)
    + "  promql_expr_test:\n"
    + "".join(
        f'  - {{expr: \'count by (query) (ALERTS{{alertname="Headrace{name}", alertstate="firing"}})\', eval_time: 1h, '
        "exp_samples: [{labels: '{query=\"ill\"}', value: 1}]}\n"
        for name in FIRING
    )
)


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
    assert settings["RestartPreventExitStatus"].split() == ["2", str(EXIT_FENCED)]
    assert (settings["UMask"], settings["KillMode"], settings["TimeoutStopSec"]) == ("0077", "mixed", "300")
    assert unit_name(load(root, target="prod")) == "headrace-my-phones-prod"


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("systemd-analyze") is None:
        unavailable("systemd-analyze is not installed: `sudo apt-get install systemd`")
    root = project(tmp_path / "it's 100% mine", "phones")
    out = tmp_path / "headrace-phones.service"
    arguments = ["service", "-C", str(root), "--user", "games", "--out", str(out), "--stop-timeout", "10 minutes"]
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert (told.err, "systemctl enable --now headrace-phones" in told.out) == ("", True)
    assert "TimeoutStopSec=600" in out.read_text()
    out.write_text(out.read_text().replace("KillMode=mixed", "KillMode=gently"))
    done = subprocess.run(["systemd-analyze", "verify", str(out)], capture_output=True, text=True, check=False)
    assert "kill mode" in done.stderr, "systemd-analyze does look at it"


@pytest.mark.parametrize("arguments", [["--user", "root"], ["--stop-timeout", "soon", "--user", "a"]])
def test_what_makes_no_service_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["service", "-C", str(project(tmp_path / "p")), *arguments]) == 2
    assert re.search("HR877|HR090", capsys.readouterr().err)


def test_promtool_takes_the_rules_and_the_dashboard_asks_for_metrics_that_there_are(tmp_path: Path) -> None:
    root, out = project(tmp_path / "p"), tmp_path / "monitoring"
    assert main(["service", "-C", str(root), "--target", "prod", "--monitoring", str(out)]) == 0
    source = (ROOT / "src/headrace/operate/metrics.py").read_text()
    known = {name.removesuffix("_total") for name in re.findall(r'"(headrace_\w+)"', source)}
    texts = [json.dumps(json.loads((out / "dashboard.json").read_text())), (out / "alerts.yml").read_text()]
    used = {re.sub(r"_(total|bucket)$", "", name) for text in texts for name in re.findall(r"headrace_\w+", text)}
    assert used <= known
    assert yaml.safe_load((out / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"] == [
        {"targets": ["127.0.0.1:9108"]}
    ]
    promtool = program("promtool")
    if promtool is None:
        unavailable("Prometheus is not installed: `python -m services install`, or `sudo apt-get install prometheus`")
    (out / "fires.yml").write_text(FIRES)
    for arguments in (
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "fires.yml"],
    ):
        done = subprocess.run([promtool, *arguments], cwd=out, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
