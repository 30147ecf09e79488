"""An application in a process of its own is watched and stopped from other terminals."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.cli import main
from services.process import program
from tests.export.test_service import Systemd
from tests.runner.projects import land, write_project
from tests.runner.test_run import FRUIT
from tests.waiting import eventually

pytestmark = pytest.mark.spark

QUERY = """
@F.udf("int")
def same(amount):
    print(f"a worker says {amount}", flush=True)
    return amount

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger=hr.every("1 second"))
def totals(events):
    print("this is how it is built")
    return events.groupBy("name").agg(F.sum(same("amount")).alias("amount"))
"""
SETTINGS = """
name: p
log: {format: json}
spark:
  spark.ui.enabled: "true"
  spark.ui.port: "0"
  spark.sql.streaming.metricsEnabled: "true"
  spark.metrics.conf.driver.sink.csv.class: org.apache.spark.metrics.sink.CsvSink
  spark.metrics.conf.driver.sink.csv.period: "1"
  spark.metrics.conf.driver.sink.csv.directory: DIRECTORY
"""


def next_line(running: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of `--json`; what the query's function prints is none."""
    assert running.stdout is not None
    while not (line := running.stdout.readline()).startswith("{"):
        assert line, "the run has ended"
    return dict(json.loads(line))


def get(url: str | urllib.request.Request) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.capability("MON-01")
@pytest.mark.capability("MON-03")
@pytest.mark.capability("MANAGE-04")
def test_a_running_application_is_seen_and_stopped_from_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", QUERY, batches=FRUIT)
    (tmp_path / "csv").mkdir()
    (root / "headrace.yml").write_text(SETTINGS.replace("DIRECTORY", str(tmp_path / "csv")))
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--json", "--metrics", "0", "--ui-port", "0"]
    systemd = Systemd(tmp_path / "notify")
    environ = {**os.environ, "NOTIFY_SOCKET": systemd.environ["NOTIFY_SOCKET"]}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        finding = next_line(running)["finding"]
        page = finding["what"].removeprefix("the dashboard is at ").partition(" ")[0]
        page, _, token = page.partition("?open=")

        def asked(path: str) -> Any:
            request = urllib.request.Request(f"{page}api/{path}", headers={"Authorization": f"Bearer {token}"})
            return json.loads(get(request))

        assert (finding["code"], asked("project")["name"]) == ("HR886", "p")
        event = next_line(running)
        url = event["finding"]["what"].removeprefix("metrics are served at ").removesuffix("/metrics")
        assert (event["finding"]["code"], json.loads(get(f"{url}/healthz"))["ok"]) == ("HR886", True)
        while next_line(running).get("batch") != 1:
            assert running.poll() is None
        assert systemd.hears("READY=1")
        assert main(["status", "-C", str(root), "--json"]) == 0
        (status,) = json.loads(capsys.readouterr().out)["queries"]
        assert (status["query"], status["state"], status["pid"]) == ("totals", "running", running.pid)
        assert (status["batch"], status["rows_total"], status["state_rows"]) == (1, 3, 2)

        assert json.loads(get(f"{url}/readyz")) == {"ok": True, "queries": {"totals": "running"}}
        text = get(f"{url}/metrics")
        samples = {
            sample.name: (sample.value, sample.labels)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        labels = {"app": "p", "query": "totals"}
        assert samples["headrace_query_up"] == (1, labels)
        assert samples["headrace_batch_duration_seconds_count"] == (2, labels)
        assert samples["headrace_input_rows_total"] == (3, {**labels, "source": "events"})
        assert samples["headrace_source_lag_files"] == (0, {**labels, "source": "events"})
        assert samples["headrace_state_rows"] == (2, {**labels, "operator": "stateStoreSave"})
        monitoring = files("headrace.export.monitoring")
        watched = "".join(monitoring.joinpath(name).read_text() for name in ("alerts.yml", "dashboard.json"))
        served = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
        assert {re.sub(r"_bucket$", "", name) for name in re.findall(r"headrace_\w+", watched)} <= served
        if promtool := program("promtool"):
            done = subprocess.run(
                [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stdout + done.stderr) == (0, "")

        def measured(name: str) -> float:
            values = [line.split()[-1] for line in get(f"{url}/metrics").splitlines() if line.startswith(f"{name}{{")]
            return float(*values)

        assert (measured("headrace_sink_retrying"), measured("headrace_sink_retries_total")) == (0, 0)
        with sqlite3.connect(root / "out.db", isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")
            land(root, 9, FRUIT[0])
            eventually(lambda: measured("headrace_sink_retrying") == 1)
            other.execute("ROLLBACK")
        other.close()
        eventually(lambda: measured("headrace_sink_retrying") == 0)
        assert measured("headrace_sink_retries_total") > 0
        eventually(lambda: [file for file in (tmp_path / "csv").iterdir() if "streaming.totals.inputRate" in file.name])
        standing = asked("queries/totals")["queries"]["totals"]
        assert (standing["state"], standing["pid"]) == ("running", running.pid)
        assert "== Physical Plan ==" in asked("queries/totals")["plan"]
        assert "headrace p" in get(f"{asked('queries/totals')['spark_page']}/jobs/")
        assert asked("queries/totals/ledger?first=0&last=1")["lines"]["1"]["rows"] > 0
        phases = asked("queries/totals/series")["phases"]
        assert all(written > 0 for written in phases["write"])
        assert all(processed >= 0 for processed in phases["addBatch"])
        assert main(["stop", "-C", str(root)]) == 0
        assert capsys.readouterr().out == f"process {running.pid} has ended\n"
        assert running.wait(10) == 0
        assert systemd.hears("STOPPING=1")
    finally:
        systemd.socket.close()
        running.kill()
        running.communicate()
    assert main(["stop", "-C", str(root)]) == 1
    log = [json.loads(line) for line in (root / ".headrace" / "logs" / "headrace.log").read_text().splitlines()]
    entries = {(line["query"], line["batch"], line["message"]) for line in log}
    assert ("totals", None, "this is how it is built") in entries
    assert {("totals", 0, f"a worker says {amount}") for amount in (1, 2)} <= entries
    assert ("totals", 1, "a worker says 3") in entries
    assert [line["batch"] for line in log if " rows in " in line["message"]][:2] == [0, 1]
