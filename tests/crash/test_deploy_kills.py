"""Deploys in a row under load, into a database and files, while the driver is killed at moments drawn by a seed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from headrace.api import events, load, running, status
from headrace.control.client import NotRunning
from headrace.model import Project
from headrace.spark.jvm.gateway import descendants, kill_all, wait_until_gone
from tests.crash.test_deploy import Load
from tests.runner.projects import write_project
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.crash, pytest.mark.services, pytest.mark.long, pytest.mark.timeout(2400)]
DEPLOYS = int(os.environ.get("HEADRACE_DEPLOYS", "10"))
# It repeats a failed run, as far as the machine does the same.
SEED = int(os.environ.get("HEADRACE_DEPLOY_SEED") or random.randrange(1_000_000))
LONGEST_LIFE = 9.0

PIPELINE = """
import code_version

events = hr.source.files("landing", format="json", schema="name STRING, amount INT")
often = hr.every("300 ms")

@F.udf("int")
def written_by(amount):
    return {version}

@F.udf("int")
def imported(amount):
    return code_version.VERSION

@hr.query(sink=hr.sink.postgres("${{PLACE}}", table="totals", key=["name"]), mode="update", trigger=often)
def steady(events):
    return events.groupBy("name").agg(F.{aggregate}("amount").alias("amount"))

@hr.query(sink=hr.sink.files("lines", format="json"), trigger=often)
def lines(events):
    return events.select("amount")

@hr.query(sink=hr.sink.postgres("${{PLACE}}", table="edited"), trigger=often, on_change="forward")
def edited(events):
    return events.select("amount", written_by("amount").alias("written_by"), imported("amount").alias("imported"))
"""
EXTRA = """
@hr.query(sink=hr.sink.postgres("${PLACE}", table="extra"), trigger=often)
def extra(events):
    return events.select("amount")
"""
UNTOUCHED = ("steady", "lines")
REFUSED: Mapping[str, tuple[str, str]] = {
    "an aggregate that would mix meanings": ("F.sum", "F.max"),
    "a module that is not Python": ("import code_version", "import code_version code_version"),
    "a query of an unknown source": ("def lines(events)", "def lines(unknown)"),
}


class Scene:
    """A project with its database, and the application that is started again after each kill."""

    def __init__(self, root: Path, url: str, chance: random.Random) -> None:
        self.root, self.url, self.chance = root, url, chance
        self.starts = self.kills = 0
        self.version = 0
        self.has_extra = False
        self.orphans: list[int] = []
        self.write()
        self.start()

    @property
    def project(self) -> Project:
        return load(self.root)

    def write(self, *, refused: tuple[str, str] = ("", "")) -> None:
        code = PIPELINE.format(version=self.version, aggregate="sum") + (EXTRA if self.has_extra else "")
        (self.root / "code_version.py").write_text(f"VERSION = {self.version}\n")
        write_project(self.root, code.replace(*refused) if refused[0] else code)

    def start(self) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "headrace", "run", "-C", str(self.root)]
        with (self.root / ".run.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kill the driver, alone or with its JVM; a JVM that is left alone must end by itself."""
        self.kills += 1
        if self.chance.random() < 0.5:
            self.orphans += descendants(self.process.pid)
            self.process.send_signal(signal.SIGKILL)
        else:
            kill_all(self.process.pid)
        self.process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        kill_all(self.process.pid)
        self.process.wait(PATIENCE_SECONDS)

    def until_all_work(self) -> None:
        project = self.project

        def work() -> bool:
            assert self.process.poll() is None, (self.root / ".run.log").read_text()[-3000:]
            return {now.query for now in status(project) if now.state == "running"} == set(project.queries)

        until("start of all queries", work, pause=0.5)

    def deploy_and_kill(self, after: float) -> None:
        """Deploy while a kill comes; it may come before, in the middle or after."""
        killer = threading.Timer(after, self.kill)
        killer.start()
        with suppress(NotRunning):
            running(self.project).deploy()
        killer.join()
        while True:
            self.start()
            if self.chance.random() < 0.6:
                break
            # Another kill in the middle of the start.
            with_life = threading.Timer(self.chance.uniform(0.0, LONGEST_LIFE), self.kill)
            with_life.start()
            with_life.join()

    def read(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, sslmode="disable") as connection:
            return connection.execute(statement).fetchall()

    def exists(self, table: str) -> bool:
        return bool(self.read(f"SELECT 1 FROM information_schema.tables WHERE table_name = '{table}'"))

    def amounts(self, table: str) -> list[int]:
        return [amount for (amount,) in self.read(f"SELECT amount FROM {table} ORDER BY amount")]

    def lines(self) -> list[int]:
        """The amounts in the files that count, by the sink's log."""
        entries = [
            json.loads(entry)
            for log in (self.root / "lines" / "_spark_metadata").glob("[0-9]*")
            if "." not in log.name or log.suffix == ".compact"
            for entry in log.read_text().splitlines()[1:]
        ]
        paths = {str(entry["path"]).removeprefix("file://") for entry in entries}
        texts = [Path(path).read_text() for path in paths]
        return sorted(json.loads(line)["amount"] for text in texts for line in text.splitlines())

    def versions(self) -> dict[int, int]:
        """Which version has written each amount; a row that is there twice, or of two versions, fails."""
        if not self.exists("edited"):
            return {}
        rows = self.read("SELECT amount, written_by, imported FROM edited")
        assert len({amount for amount, _, _ in rows}) == len(rows), "no row is there twice"
        assert [row for row in rows if row[1] != row[2]] == [], "the imported module is of the same version"
        return {amount: version for amount, version, _ in rows}

    def started(self) -> dict[str, int]:
        rows = [event.query for event in events(self.project, limit=10_000) if event.kind == "started"]
        return {query: rows.count(query) for query in UNTOUCHED}


@contextmanager
def scene(root: Path, url: str, chance: random.Random) -> Iterator[Scene]:
    made = Scene(root, url, chance)
    try:
        yield made
    finally:
        made.end()


def test_ten_deploys_and_kills_at_random_lose_and_double_no_row(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"HEADRACE_DEPLOY_SEED={SEED}")
    chance, root = random.Random(SEED), tmp_path / "p"
    monkeypatch.setenv("PLACE", postgres_url)
    root.mkdir()
    landing = Load(write_project(root, ""), pause=1.0)
    try:
        with scene(root, postgres_url, chance) as there:
            there.until_all_work()
            # Before its first batch a query may become another one.
            until("first batches", lambda: there.exists("totals") and bool(totals(there)) and bool(there.lines()))
            for version in range(1, DEPLOYS + 1):
                deploy_once(there, version, landing)
            landing.stop()
            wanted = list(range(landing.landed))
            until("last row", lambda: len(there.amounts("edited")) >= len(wanted))
            until("last line", lambda: len(there.lines()) >= len(wanted))
            until("last total", lambda: totals(there) == expected_totals(root))
            assert wait_until_gone(there.orphans, within=PATIENCE_SECONDS), "a JVM without its driver ends"
            print(f"{there.kills} kills, {there.starts} starts, {landing.landed} rows")
            assert (there.amounts("edited"), there.lines()) == (wanted, wanted)
            written = there.versions()
            assert [written[amount] for amount in wanted] == sorted(written.values()), "no former code after newer code"
            assert there.has_extra
            until("last row of extra", lambda: there.amounts("extra") == wanted)
    finally:
        landing.stop()


def deploy_once(there: Scene, version: int, landing: Load) -> None:
    """Deploy what is refused, perhaps; then a version, perhaps with kills; and again, until it is deployed."""
    chance = there.chance
    if chance.random() < 0.4:
        assert_refused(there, *chance.choice(list(REFUSED.items())))
    there.version, there.has_extra = version, version % 4 in (2, 3)
    there.write()
    before = there.started()
    kills = there.kills
    if chance.random() < 0.6:
        there.deploy_and_kill(chance.uniform(0.0, 6.0))
        there.until_all_work()
    (result,) = running(there.project).deploy()
    assert result.done, (SEED, result)
    actions = {step.query: step.action for step in result.steps}
    assert {actions[query] for query in UNTOUCHED} == {"keep"}, (SEED, result)
    if there.kills == kills:
        assert actions["edited"] == "restart", (SEED, result)
        assert there.started() == before, "what has not changed is not started again"
    (again,) = running(there.project).deploy()
    assert {step.action for step in again.steps} == {"keep"}, (SEED, again)
    newest = landing.landed
    until("row of the new code", lambda: newest in there.versions())
    assert there.versions()[newest] == version


def assert_refused(there: Scene, fault: str, replaced: tuple[str, str]) -> None:
    application, before = running(there.project), there.started()
    there.write(refused=replaced)
    (result,) = application.deploy()
    there.write()
    assert result.errors, fault
    assert not result.carried_out
    assert there.started() == before
    there.until_all_work()


def totals(there: Scene) -> list[tuple[Any, ...]]:
    return there.read("SELECT name, amount FROM totals ORDER BY name")


def expected_totals(root: Path) -> list[tuple[Any, ...]]:
    """The totals as another program computes them."""
    files = f"read_json('{root}/landing/*.json')"
    return duckdb.sql(f"SELECT name, sum(amount)::BIGINT FROM {files} GROUP BY name ORDER BY name").fetchall()
