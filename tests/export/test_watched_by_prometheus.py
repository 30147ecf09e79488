"""A running application is watched by Prometheus with the files that Headrace writes: alerts fire for what is ill."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.generations.log import history_file
from headrace.history import History
from services.process import free_port
from tests.export.prometheus import RATE_INTERVAL, Prometheus, require_program, watching
from tests.runner.projects import write_project
from tests.waiting import eventually

pytestmark = pytest.mark.services

QUERIES = """
import time


def source(place):
    return hr.source.files(place, format="json", max_files_per_trigger=1, schema="at TIMESTAMP, n INT")


clicks, standing, quiet = source("clicks"), source("standing"), source("quiet")


@hr.table(refresh=hr.every("1 hour"))
def known(spark):
    return spark.createDataFrame([(1, "one")], "n INT, name STRING")


def per_second(rows):
    counts = rows.withWatermark("at", "1 second").groupBy(F.window("at", "1 second")).count()
    return counts.select(F.col("window.start").alias("start"), "count")


@hr.query(sink=hr.sink.sqlite("out.db", table="piles_up", key=["start"]), mode="update", trigger=hr.every("2 seconds"))
def piles_up(clicks):
    return per_second(clicks)


@hr.query(sink=hr.sink.sqlite("out.db", table="stands", key=["start"]), mode="update", trigger=hr.every("1 second"))
def stands(standing):
    return per_second(standing)


@hr.query(sink=hr.sink.sqlite("out.db", table="calm", key=["start"]), mode="update", trigger=hr.every("1 second"))
def calm(quiet):
    return per_second(quiet)


@hr.query(sink=hr.sink.sqlite("out.db", table="joined"), mode="append", trigger=hr.every("1 second"))
def joined(quiet, known):
    return quiet.join(known, "n")


def fails(rows, batch):
    raise ValueError("not today")


def hangs(rows, batch):
    time.sleep(600)


@hr.query(sink=hr.sink.foreach_batch(fails), mode="append", trigger=hr.every("1 second"))
def broken(quiet):
    return quiet


@hr.query(sink=hr.sink.foreach_batch(hangs), mode="append", trigger=hr.every("1 second"))
def hanging(quiet):
    return quiet
"""
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Feed:
    """Lets files land until it is stopped."""

    def __init__(self, root: Path) -> None:
        self.root, self._over = root, threading.Event()
        self._thread = threading.Thread(target=self._land, daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def land(self, place: str, number: int, times: list[datetime]) -> None:
        """One file, whole."""
        draft = self.root / place / f".{number:05d}.json"
        draft.write_text("".join(json.dumps({"at": at.isoformat(), "n": 1}) + "\n" for at in times))
        draft.rename(draft.with_name(f"{number:05d}.json"))

    def _land(self) -> None:
        number = 0
        while not self._over.wait(0.4):
            number += 1
            now = BEGIN + timedelta(seconds=10 * number)
            # Each file has a row for a window that has ended; more of them land than are read.
            self.land("clicks", number, [now, now - timedelta(seconds=25)])
            self.land("standing", number, [BEGIN])


def expressions() -> list[str]:
    """What the dashboard asks for, as Grafana fills it in when all is chosen."""
    board = json.loads(files("headrace.export.monitoring").joinpath("dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    filled = [re.sub(r"\$(app|query)\b", ".*", expression) for expression in queries]
    return [expression.replace("$__rate_interval", RATE_INTERVAL) for expression in filled]


def wrong(root: Path, query: str) -> None:
    """A verdict of this query in the history, as `verify` writes it."""
    with History.open(history_file(root / ".headrace")) as history:
        history.record_verdict(
            query, json.dumps({"verdict": "mismatch", "missing": 2, "unexpected": 1, "different": 0})
        )


def test_alerts_fire_for_what_is_ill_and_every_panel_has_its_figures(tmp_path: Path) -> None:
    require_program("prometheus")
    root, port = write_project(tmp_path / "p", QUERIES), free_port()
    (root / "headrace.yml").write_text(f"name: shop\nmetrics: {{port: {port}}}\n")
    for place in ("clicks", "standing", "quiet"):
        (root / place).mkdir()
    assert main(["service", "-C", str(root), "--monitoring", str(tmp_path / "monitoring")]) == 0
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root)]
    with (tmp_path / "run.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with Feed(root) as feed, watching(tmp_path / "monitoring", seconds=2) as prometheus:
            feed.land("quiet", 0, [BEGIN])
            watch(prometheus, root, running, tmp_path / "run.log")
            assert main(["stop", "--now", "-C", str(root)]) == 0
            running.wait(60)
            eventually(lambda: set(prometheus.alerts()) == {"HeadraceApplicationGone"})
    finally:
        running.kill()
        running.wait()


def watch(prometheus: Prometheus, root: Path, running: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the expected alerts, with no other at that moment, and for the figures of every panel."""

    def alive(series: Any) -> Any:
        assert running.poll() is None, log.read_text()
        return series

    eventually(lambda: alive(prometheus.series("headrace_input_rows_total{query='calm'} > 0")), 240)
    wrong(root, "calm")
    expected = {
        "HeadraceQueryDown": {"broken"},
        "HeadraceNoCommit": {"hanging"},
        "HeadraceFilesPileUp": {"piles_up", "stands"},
        "HeadraceLateRows": {"piles_up"},
        "HeadraceWatermarkStands": {"stands"},
        "HeadraceVerifyMismatch": {"calm"},
    }
    # While they start, and for the short times of this test, others are overdue as well.
    seen: list[dict[str, set[str]]] = []

    def is_expected() -> bool:
        seen.append(alive(prometheus.alerts()))
        return seen[-1] == expected

    try:
        eventually(is_expected, 180)
    except AssertionError:
        pytest.fail(f"in place of {expected} Prometheus shows {seen[-1]}; {log.read_text()[-3000:]}")
    # Rows wait for a source that counts rows alone, as Kafka's.
    shown = [
        expression
        for expression in expressions()
        if "source_lag_rows" not in expression and "source_lag_seconds" not in expression
    ]
    assert len(shown) > 10
    for expression in shown:
        # A rate needs two scrapes that came in time, and a batch between them.
        eventually(lambda expression=expression: alive(prometheus.series(expression)))
