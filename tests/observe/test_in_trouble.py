"""A query that fails again and again is in trouble in every place at every moment, until it works again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headrace as hr
from headrace.api import load
from headrace.cli import main
from tests.observe.test_application import get
from tests.run.projects import write_project
from tests.run.test_run import FRUIT
from tests.waiting import eventually

pytestmark = pytest.mark.spark

QUERIES = """
@hr.query(sink=hr.sink.sqlite("away/out.db", table="totals", key=["name"]), mode="update",
          trigger=hr.every("1 second"), restart={"pause": "3 seconds", "longest_pause": "5 seconds"})
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))

@hr.query(sink=hr.sink.sqlite("out.db", table="copied"), trigger=hr.every("1 second"))
def copied(events):
    return events
"""


class Places:
    """What each place says of the queries of an application in a process of its own."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.project, self.lines, self.capsys = load(root), list[str](), capsys
        command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--metrics", "0", "--ui-port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        Thread(target=self._read, daemon=True).start()
        link = eventually(lambda: self._told(r"the dashboard is at (\S+) until"))
        self.page, _, self.token = link.partition("?open=")
        self.served = eventually(lambda: self._told(r"metrics are served at (\S+)/metrics"))

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def _told(self, pattern: str) -> str | None:
        return next((found[1] for line in list(self.lines) if (found := re.search(pattern, line))), None)

    def status(self, query: str) -> dict[str, Any]:
        self.capsys.readouterr()
        exit_code = main(["status", "-C", str(self.project.root), "--json"])
        found = {each["query"]: each for each in json.loads(self.capsys.readouterr().out)["queries"]}
        assert exit_code == int(any(each["in_trouble"] for each in found.values()))
        return dict(found.get(query) or {})

    def metric(self, name: str, query: str) -> float:
        families = text_string_to_metric_families(get(f"{self.served}/metrics"))
        samples = (sample for family in families for sample in family.samples)
        return next(each.value for each in samples if each.name == name and each.labels.get("query") == query)

    def all_of(self, query: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]] | None:
        """What status, dashboard and metrics say, if the query did not change its state meanwhile."""
        before = self.status(query)
        asked = Request(f"{self.page}api/project", headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(asked, timeout=10) as answer:
            page = json.loads(answer.read())["queries"][query]
        names = ("query_up", "query_down", "query_healthy", "restarts_total")
        metrics = {name: self.metric(f"headrace_{name}", query) for name in names}
        same = ("state", "since", "healthy", "restarts")
        after = self.status(query)
        return (before, page, metrics) if [before[key] for key in same] == [after[key] for key in same] else None


def test_every_place_says_the_same_of_a_query_that_fails_again_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", QUERIES, batches=FRUIT)
    (root / "away").write_text("no directory, as where a disk is not mounted")
    places = Places(root, capsys)
    try:
        eventually(lambda: places.status("totals").get("restarts"))
        seen = set()
        while len(seen) < 4:
            found = eventually(lambda: places.all_of("totals"))
            status, page, metrics = found
            assert (status["in_trouble"], page["in_trouble"], page["level"]) == (True, True, "bad"), found
            assert (metrics["query_up"], metrics["query_down"], metrics["query_healthy"]) == (0, 1, 0), found
            assert status["restarts"] == page["restarts"] == metrics["restarts_total"] >= 1, found
            assert page["state"] == status["state"] in ("restarting", "starting", "running"), found
            assert (page["attempt"], page["next_attempt"]) == (status["attempt"], status["next_attempt"]), found
            assert "HR861" in [finding["code"] for finding in page["findings"]], found
            assert json.loads(readiness(places))["queries"]["totals"] in ("restarting", "starting", "running")
            seen.add(status["restarts"])
        said = [line for line in places.lines if "HR861" in line]
        next_at = re.compile(r"restart (\d+), next attempt \d\d:\d\d:\d\d UTC, because HR\d{3}: ")
        numbers = [int(found[1]) for line in said if (found := next_at.search(line))]
        assert numbers == list(range(1, len(said) + 1))
        assert len(said) >= 4

        status, page, metrics = eventually(lambda: places.all_of("copied"))
        assert (status["healthy"], page["level"]) == (True, "good")
        assert (metrics["query_up"], metrics["restarts_total"]) == (1, 0)

        (root / "away").unlink()
        eventually(lambda: places.status("totals")["healthy"])
        status, page, metrics = eventually(lambda: places.all_of("totals"))
        assert (status["in_trouble"], status["cause"], status["error"], page["level"]) == (False, None, None, "good")
        assert (metrics["query_up"], metrics["query_down"], metrics["query_healthy"]) == (1, 0, 1)
        kinds = [event.kind for event in hr.events(places.project, query="totals")]
        assert (kinds[0], kinds.count("recovered")) == ("restarting", 1)

        places.process.send_signal(signal.SIGKILL)
        places.process.wait()
        for _ in range(2):
            assert (places.status("totals")["state"], places.status("copied")["in_trouble"]) == ("killed", True)
        killed = [event for event in hr.events(places.project) if event.kind == "killed"]
        assert sorted((event.query, event.detail["pid"]) for event in killed) == [
            ("copied", places.process.pid),
            ("totals", places.process.pid),
        ]
    finally:
        places.process.kill()
        places.process.wait()


def readiness(places: Places) -> str:
    """The body of /readyz, which is 503 while a query is down."""
    try:
        return get(f"{places.served}/readyz")
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def test_with_exit_on_failure_the_application_ends_with_the_first_query_that_fails(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", QUERIES, batches=FRUIT)
    (root / "away").write_text("no directory")
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root), "--exit-on-failure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, "HR861" in done.stderr) == (1, False), done.stderr
    found = {each.query: each.state for each in hr.status(load(root))}
    assert (found["totals"], found["copied"]) == ("failed", "stopped")
