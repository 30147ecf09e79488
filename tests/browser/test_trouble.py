"""One application in trouble, described in the same words by its terminal, `status`, its pages and its metrics."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from selenium import webdriver
from selenium.webdriver.common.by import By

import headrace as hr
from headrace.api import load
from headrace.cli import main
from headrace.ui.server import ServedAddress, serve_in_background
from tests.control.test_application import get
from tests.runner.projects import land, land_text, write_project
from tests.runner.test_run import FRUIT
from tests.ui.chromium import click, faults, look, texts, wait, words
from tests.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

QUERIES = """
import os
from pathlib import Path

times = hr.source.files("times", format="json", max_files_per_trigger=1, schema="at TIMESTAMP, n INT",
                        watermark=("at", "1 second"))

@hr.query(sink=hr.sink.sqlite("away/out.db", table="totals", key=["name"]), mode="update",
          trigger=hr.every("1 second"), restart={"pause": "4 seconds", "longest_pause": "6 seconds"})
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("out.db", table="copied"), trigger=hr.every("1 second"))
def copied(events):
    return events

@hr.query(sink=hr.sink.sqlite("still.db", table="stands"), trigger=hr.every("100 milliseconds"))
def stands(times):
    return times

mark = str(Path(__file__).with_name("worker-has-died"))

@F.udf("int")
def once(amount):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(1)
    return amount

@hr.query(sink=hr.sink.sqlite("shaky.db", table="shaky"), trigger=hr.every("1 second"))
def shaky(events):
    return events.select(once("amount").alias("amount"))
"""
SLOW = """
import time
from pathlib import Path

import headrace

mark = Path(__file__).with_name("was-loaded")
if not mark.exists():
    mark.touch()
    time.sleep(7)
"""
WIDE, HIGH = 250, 60
NEXT = re.compile(r"restart (\d+), next attempt \d\d:\d\d:\d\d UTC, because HR\d{3}: ")
# Colours, moves of the cursor, and what else a terminal takes for itself.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>][0-9A-Z]?|\r")


class Places:
    """An application that runs in a terminal of its own, and what each place says of its queries."""

    def __init__(self, root: Path, browser: webdriver.Chrome, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.browser, self.capsys, self._read = root, browser, capsys, ""
        command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--metrics", "0", "--ui-port", "0"]
        self._screen, keyboard = pty.openpty()
        fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", HIGH, WIDE, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDE), "LINES": str(HIGH)}
        self.process = subprocess.Popen(
            command, stdin=keyboard, stdout=keyboard, stderr=keyboard, start_new_session=True, env=environ
        )
        os.close(keyboard)
        Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        with suppress(OSError):  # The terminal ends with its last process.
            while some := os.read(self._screen, 65_536):
                self._read += some.decode("utf-8", "replace")

    @property
    def terminal(self) -> str:
        """Everything that the terminal has shown, as one line."""
        return " ".join(_CONTROL.sub("", self._read).split())

    def await_text(self, pattern: str) -> str:
        """What the first group of the pattern is, as soon as the terminal shows it."""

        def shown() -> re.Match[str] | None:
            match = re.search(pattern, self.terminal)
            assert match or self.process.poll() is None, self.terminal[-3_000:]
            return match

        return str(eventually(shown)[1])

    def open(self) -> None:
        """Take the addresses that the terminal shows, and open the page."""
        self.page, _, self.token = self.await_text(r"the dashboard is at (\S+) until").partition("?open=")
        self.served = self.await_text(r"metrics are served at (\S+)/metrics")
        self.project = load(self.root)
        self.browser.get(f"{self.page}?open={self.token}")
        look(self.browser, self.page)

    def status(self, query: str) -> dict[str, Any]:
        self.capsys.readouterr()
        exit_code = main(["status", "-C", str(self.root), "--json"])
        queries = {entry["query"]: entry for entry in json.loads(self.capsys.readouterr().out)["queries"]}
        assert exit_code == int(any(entry["in_trouble"] for entry in queries.values()))
        return dict(queries.get(query) or {})

    def metric(self, name: str, query: str) -> float:
        families = text_string_to_metric_families(get(f"{self.served}/metrics"))
        samples = (sample for family in families for sample in family.samples)
        wanted = f"headrace_{name}"
        return sum(sample.value for sample in samples if sample.name == wanted and sample.labels.get("query") == query)

    def ready(self) -> str:
        """The query's state by /readyz, which is 503 while one is down."""
        try:
            answer = get(f"{self.served}/readyz")
        except urllib.error.HTTPError as error:
            answer = error.read().decode()
        return str(json.loads(answer)["queries"]["totals"])

    def all_of(self, query: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]] | None:
        """What status, dashboard and metrics say, if the query did not change its state meanwhile."""
        before = self.status(query)
        asked = Request(f"{self.page}api/project", headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(asked, timeout=30) as answer:
            page = json.loads(answer.read())["queries"][query]
        names = ("query_up", "query_down", "query_healthy", "restarts_total")
        metrics = {name: self.metric(name, query) for name in names}
        same = ("state", "since", "healthy", "restarts")
        after = self.status(query)
        return (before, page, metrics) if [before[key] for key in same] == [after[key] for key in same] else None

    def attempt(self, query: str) -> int:
        """Which restart the project's page shows of the query; 0: none."""
        rows = [row for row in texts(self.browser, "tr") if row.startswith(query)]
        match = re.search(r"restart (\d+)", rows[0]) if rows else None
        return int(match[1]) if match else 0

    def tile(self, label: str) -> list[str]:
        """The lines of one figure of the page."""
        tiles = [[line for line in tile.splitlines() if line] for tile in texts(self.browser, ".tile")]
        return next((lines for lines in tiles if lines[:1] == [label]), [])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


@contextmanager
def places(root: Path, browser: webdriver.Chrome, capsys: pytest.CaptureFixture[str]) -> Iterator[Places]:
    running = Places(root, browser, capsys)
    try:
        yield running
    finally:
        running.close()


def write_in_trouble(root: Path) -> None:
    """A database that is away, a row that does not fit, event times that stand, a worker that dies, a slow module."""
    bad = '{"name": "apple", "amount": "many"}\n'
    write_project(root, QUERIES, batches=FRUIT)
    land_text(root, 7, bad)
    pipeline = root / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace('schema="name', 'on_bad_row="quarantine", schema="name', 1))
    (root / "slow.py").write_text(SLOW)
    (root / "away").write_text("no directory, as where a disk is not mounted")
    (root / "times").mkdir()
    for number in range(14):
        (root / "times" / f"{number:02d}.json").write_text('{"at": "2026-01-01T00:00:00Z", "n": 1}\n')


def test_one_application_in_trouble_is_described_in_the_same_words_everywhere(
    tmp_path: Path, browser: webdriver.Chrome, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "p"
    write_in_trouble(root)
    with places(root, browser, capsys) as scene:
        assert scene.await_text(r"(slow\.py:\d+) HR114 .* still being loaded after 5 seconds") == "slow.py:10"
        scene.open()
        scene.await_text(r"(starting Spark) \(")
        scene.await_text(r"starting \w+: (making its plan)")
        fails_again_and_again(scene)
        rows_are_counted_once(scene)
        a_sink_tries_again_and_a_watermark_stands(scene)
        works_again(scene)
        is_killed(scene)


def fails_again_and_again(scene: Places) -> None:
    """The first start and those after it meet a database that is away: one state, count, next attempt and cause."""
    eventually(lambda: scene.status("totals").get("restarts"))
    seen, pauses = set[int](), list[float]()
    while len(seen) < 3:
        standing = eventually(lambda: scene.all_of("totals"))
        status, page, metrics = standing
        assert (status["in_trouble"], page["in_trouble"], page["level"]) == (True, True, "bad"), standing
        assert (metrics["query_up"], metrics["query_down"], metrics["query_healthy"]) == (0, 1, 0), standing
        assert status["restarts"] == page["restarts"] == metrics["restarts_total"] >= 1, standing
        assert page["state"] == status["state"] in ("restarting", "starting", "running"), standing
        assert (page["attempt"], page["next_attempt"]) == (status["attempt"], status["next_attempt"]), standing
        assert "HR861" in [finding["code"] for finding in page["findings"]], standing
        assert scene.ready() in ("restarting", "starting", "running")
        if status["state"] == "restarting" and status["restarts"] not in seen:
            begins, ends = (datetime.fromisoformat(status[name]) for name in ("since", "next_attempt"))
            pauses.append(round((ends - begins).total_seconds()))
            seen.add(status["restarts"])
            if len(seen) > 2:
                continue
            # By eye: the page follows within some seconds, in which the next attempt may begin.
            which, code = f"restart {status['attempt']}", status["cause"]["code"]
            phrase = f"{which}, next attempt {ends:%H:%M:%S} UTC, because {code}"
            assert eventually(lambda phrase=phrase: phrase in scene.terminal)
            wait(scene.browser, lambda _, least=status["attempt"]: scene.attempt("totals") >= least)
            assert scene.browser.find_elements(By.CSS_SELECTOR, "tr .badge.bad")
            assert f"{code}: " in words(scene.browser, "What needs attention")
            last = scene.tile("Queries running")[-1]
            assert ("in trouble" in last, "none" in last) == (True, False)
    assert pauses == sorted(pauses)
    assert pauses[-1] == 6
    numbers = sorted({int(number) for number in NEXT.findall(scene.terminal)})
    assert numbers[:3] == [1, 2, 3]
    # Each is reported once.
    log = (scene.root / ".headrace" / "logs" / "headrace.log").read_text()
    restarts = [int(match[1]) for line in log.splitlines() if "HR861" in line and (match := NEXT.search(line))]
    assert restarts == list(range(1, len(restarts) + 1))
    assert len(restarts) >= 3
    eventually(lambda: scene.status("copied")["healthy"])
    status, page, metrics = eventually(lambda: scene.all_of("copied"))
    assert (status["healthy"], page["level"]) == (True, "good")
    assert (metrics["query_up"], metrics["restarts_total"]) == (1, 0)
    # A worker that died is a fault that passes: the batch is tried again, and the query goes on.
    eventually(lambda: scene.metric("sink_retries_total", "shaky") >= 1)
    eventually(lambda: scene.status("shaky")["healthy"])


def rows_are_counted_once(scene: Places) -> None:
    """Three rows and one that does not fit: four were read, and one of them is in quarantine."""
    eventually(lambda: scene.status("copied")["rows_total"] == 4)
    assert scene.status("copied")["rows_quarantined"] == 1
    assert (scene.metric("input_rows_total", "copied"), scene.metric("quarantined_rows_total", "copied")) == (4, 1)
    scene.await_text(r"(4 \(1 quarantined\))")
    click(scene.browser, "a[href='/queries/copied']")
    wait(scene.browser, lambda _: scene.tile("Rows in")[-1:] == ["4 in all, 1 of them quarantined"])


def a_sink_tries_again_and_a_watermark_stands(scene: Places) -> None:
    with sqlite3.connect(scene.root / "out.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        land(scene.root, 8, FRUIT[1])
        eventually(lambda: scene.metric("sink_retrying", "copied") == 1)
        look(scene.browser, scene.page, until=".events b")
        wait(scene.browser, lambda page: "HR411" in words(page, "Events"))
        assert scene.await_text(r"(HR411) .* batch \d+ is tried again in") == "HR411"
        other.execute("ROLLBACK")
    other.close()
    eventually(lambda: scene.metric("sink_retrying", "copied") == 0)
    assert scene.metric("sink_retries_total", "copied") > 0
    eventually(lambda: scene.status("copied")["rows_total"] == 5)
    eventually(lambda: scene.metric("watermark_standing_seconds", "stands") > 0)
    assert scene.await_text(r"(HR883) .* watermark stands at 2025-12-31 23:59:59 UTC although rows come") == "HR883"
    look(scene.browser, f"{scene.page}queries/stands")
    wait(scene.browser, lambda page: "its watermark stands at" in words(page, "What needs attention"))


def works_again(scene: Places) -> None:
    """Once the database is there, what it failed of is past, everywhere."""
    (scene.root / "away").unlink()
    eventually(lambda: scene.status("totals")["healthy"])
    status, page, metrics = eventually(lambda: scene.all_of("totals"))
    assert (status["in_trouble"], status["cause"], status["error"], page["level"]) == (False, None, None, "good")
    assert (metrics["query_up"], metrics["query_down"], metrics["query_healthy"]) == (1, 0, 1)
    kinds = [event.kind for event in hr.events(scene.project, query="totals")]
    assert (kinds[0], kinds.count("recovered")) == ("restarting", 1)
    for query in ("totals", "copied", "shaky"):
        eventually(lambda query=query: scene.status(query)["backlog"]["count"] == 0)
    look(scene.browser, scene.page)
    wait(scene.browser, lambda _: scene.tile("Queries running")[1:] == ["4 of 4", "none in trouble"])
    assert faults(scene.browser) == []


def is_killed(scene: Places) -> None:
    """Nothing runs, and what lands meanwhile waits: no place says that nothing does."""
    scene.process.send_signal(signal.SIGKILL)
    scene.process.wait()
    for _ in range(2):
        assert (scene.status("totals")["state"], scene.status("copied")["in_trouble"]) == ("killed", True)
    killed = [event for event in hr.events(scene.project) if event.kind == "killed"]
    assert sorted((event.query, event.detail["pid"]) for event in killed) == [
        (name, scene.process.pid) for name in ("copied", "shaky", "stands", "totals")
    ]
    for number in range(20, 60):
        land(scene.root, number, FRUIT[1])
    eventually(lambda: scene.status("copied")["backlog"]["count"] == 40)
    with serve_in_background(scene.project, ServedAddress(port=0)) as link:
        scene.browser.get(link)
        address = link.partition("/?")[0]
        for page, label in (("/", "Largest lag"), ("/queries/copied", "Lag")):
            look(scene.browser, address + page, until=".tiles .tile")
            assert wait(scene.browser, lambda _, label=label: scene.tile(label))[1].split() == ["40", "files"]
        assert "is gone and did not say how it ended" in words(scene.browser, "What needs attention")
        scene.browser.get("about:blank")
