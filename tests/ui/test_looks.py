"""What the dashboard shows beside the history: rows, answers, ledger, late rows, plan; and who may ask and verify."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace.history import History
from headrace.model import Project
from headrace.model.layout import QueryLayout, history_file
from headrace.ui.app import application
from headrace.ui.guard import ACTIONS, NO_TOKEN
from headrace.ui.server import Address
from headrace.ui.verifying import Verifying
from tests.ui import made

pytestmark = pytest.mark.plain
HERE = "http://127.0.0.1:8470"
TOKEN = "a-token-that-is-long-enough"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SQL = """
queries:
  totals:
    select: SELECT window(time, '1 hour') AS hour, count(*) AS n FROM events GROUP BY 1
    mode: update
    sink: {sqlite: {path: out.db, table: totals, key: [hour]}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("p")
    (root / "headrace.yml").write_text(made.YAML.partition("queries:")[0] + SQL.lstrip())
    with sqlite3.connect(root / "out.db") as db:
        db.execute("CREATE TABLE totals (hour TEXT, n INT)")
        db.executemany("INSERT INTO totals VALUES (?, ?)", [(f"2026-01-01T{n:02}", n) for n in range(24)])
        db.execute("CREATE TABLE _headrace_tables (table_name, application, spark_schema)")
        schema = '{"fields": [{"name": "hour", "type": "timestamp"}]}'
        db.execute("INSERT INTO _headrace_tables VALUES ('totals', 'ours', ?)", (schema,))
        db.execute(
            "CREATE TABLE _headrace_ledger (application, query, generation, table_name, batch, row_count, committed_at)"
        )
        db.executemany(
            "INSERT INTO _headrace_ledger VALUES ('ours', 'totals', 1, 'totals', ?, ?, 'then')", [(0, 5), (1, 6)]
        )
    db.close()
    found = hr.load(root, environ={"DATABASE_URL": "unused"})
    with History.open(history_file(found.storage)) as history:
        run = history.begin_run("totals", pid=1, mode="update", trigger="t", sink="sqlite", generation=1)
        for batch in range(12):
            each = replace(made.record(batch, query="totals"), dropped_by_watermark=0)
            # Batch 5 has a row of 2 seconds behind the watermark of batch 4, batch 7 one of 3 hours.
            for number, seconds in ((5, 2), (7, 3 * 3600)):
                if batch == number:
                    mark = made.record(batch - 1).watermark
                    assert mark is not None
                    each = replace(each, dropped_by_watermark=batch, event_min=mark - timedelta(seconds=seconds))
            history.record(run, each)
    plan = QueryLayout(found.storage, "totals").plan
    plan.parent.mkdir(parents=True)
    plan.write_text("== Physical Plan ==")
    return found


def client(project: Project, token: str = TOKEN, **more: Any) -> TestClient:
    app = application(project, hosts=Address().hosts(), token=token, **more)
    return TestClient(app, base_url=HERE, follow_redirects=False)


@pytest.fixture
def ask(project: Project) -> TestClient:
    found = client(project)
    found.headers.update(BEARER)
    return found


def test_the_newest_rows_of_the_result_come_from_its_database(ask: TestClient) -> None:
    found = ask.get("/api/queries/totals/rows?limit=2").json()
    assert found["rows"] == [["2026-01-01T23", 23], ["2026-01-01T22", 22]]
    assert (found["more"], found["order"]) == (True, "the greatest hour first")


def test_the_ledger_tells_which_batches_are_in(ask: TestClient, project: Project) -> None:
    found = ask.get("/api/queries/totals/ledger?first=0&last=5").json()
    assert found == {
        "lines": {"0": {"rows": 5, "committed_at": "then"}, "1": {"rows": 6, "committed_at": "then"}},
        "readable": True,
    }


def test_the_plan_that_was_noted_is_shown(ask: TestClient) -> None:
    assert ask.get("/api/queries/totals").json()["plan"] == "== Physical Plan =="


def test_late_rows_are_told_by_how_late_and_by_window(ask: TestClient) -> None:
    found = ask.get("/api/queries/totals/late").json()
    assert (found["rows"], found["batches"], found["of_unknown_lateness"]) == (12, 2, 0)
    assert {part["up_to_seconds"]: part["rows"] for part in found["histogram"] if part["rows"]} == {10: 5, 21600: 7}
    assert [(each["begins"][:16], each["ends"][:16], each["rows"]) for each in found["windows"]] == [
        ("2025-12-31T19:00", "2025-12-31T20:00", 7)
    ], "the window of the other row was still open"


def test_a_question_is_answered_and_a_wrong_one_in_a_sentence(ask: TestClient) -> None:
    found = ask.post("/api/ask", json={"query": "totals", "sql": "SELECT max(n) AS most FROM totals"}).json()
    assert (found["columns"], found["rows"]) == (["most"], [[23]])
    for body, status, said in (
        ({"query": "totals", "sql": "DROP TABLE totals"}, 400, "only a statement that reads"),
        ({"query": "totals", "sql": "SELECT x FROM totals"}, 400, "no such column: x"),
        ({"query": "totals"}, 400, "sql is a text"),
        ({"query": "none", "sql": ""}, 404, "no query 'none'"),
        ([], 400, "a JSON object"),
    ):
        answer = ask.post("/api/ask", json=body)
        assert (answer.status_code, said in answer.json()["error"]) == (status, True)
    assert ask.post("/api/ask", content=b"x" * 30_000).status_code == 400


SAME = {"Origin": HERE, "X-Headrace": "1"}


@pytest.mark.parametrize("path", ACTIONS)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Cookie": True}, 403),
        ({"Cookie": True, **SAME, "Origin": "https://evil.example"}, 403),
        ({"Cookie": True, "Origin": HERE}, 403),
        ({"Cookie": True, **SAME, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Cookie": True, **SAME}, 400),
        (BEARER, 400),
    ],
)
def test_an_action_needs_the_token_and_a_page_of_our_own(
    project: Project, path: str, headers: dict[str, Any], status: int
) -> None:
    asked = client(project)
    if headers.get("Cookie"):
        asked.post("/login", data={"token": TOKEN})
    sent = {name: value for name, value in headers.items() if name != "Cookie"}
    # The wrong body shows that it was let through.
    assert asked.post(path, content=b"none", headers=sent).status_code == status


def test_without_a_token_rows_and_actions_say_what_to_do(project: Project) -> None:
    asked = client(project, token="")
    for answer in (asked.get("/api/queries/totals/rows"), asked.post("/api/ask", json={}, headers=SAME)):
        assert (answer.status_code, answer.json()["error"]) == (403, NO_TOKEN)


def eventually(look: Callable[[], dict[str, Any]], state: str) -> dict[str, Any]:
    until = time.monotonic() + 20
    while (found := look())["state"] != state:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found


FAKE = """
import json, os, pathlib, sys, time
assert "HEADRACE_UI_TOKEN" not in os.environ and os.nice(0) == 19
while not pathlib.Path(sys.argv[0]).with_suffix(".go").exists():
    time.sleep(0.01)
said = pathlib.Path(sys.argv[0]).with_suffix(".go").read_text()
print(said) if said.startswith("{") else sys.exit(said)
"""


def test_one_verify_runs_at_low_priority_and_its_end_is_told(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_UI_TOKEN", TOKEN)
    (tmp_path / "fake.py").write_text(FAKE)
    verifying = Verifying(project, [sys.executable, str(tmp_path / "fake.py")])
    asked = client(project, verifying=verifying)
    asked.headers.update(BEARER)
    for said, state in (('{"verdict": "equal"}', "ended"), ("headrace HR123: it is broken", "failed")):
        (tmp_path / "fake.go").unlink(missing_ok=True)
        first = asked.post("/api/verify", json={"query": "totals"})
        assert (first.status_code, first.json()["state"]) == (202, "running")
        second = asked.post("/api/verify", json={"query": "totals"})
        assert (second.status_code, "is being verified" in second.json()["error"]) == (409, True)
        (tmp_path / "fake.said").write_text(said)
        (tmp_path / "fake.said").rename(tmp_path / "fake.go")
        told = eventually(lambda: dict(asked.get("/api/verify").json()), state)
        assert told["said"] in said
    (tmp_path / "fake.go").unlink()
    asked.post("/api/verify", json={"query": "totals"})
    verifying.close()
    eventually(lambda: dict(asked.get("/api/verify").json()), "failed")
