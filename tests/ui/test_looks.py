"""What the dashboard shows besides history: rows, answers, ledger, late rows, plan; and who may ask and verify."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace.generations.log import history_file
from headrace.generations.manifest import QueryForm, note_version, revision
from headrace.history import History
from headrace.model import Project
from headrace.ui.app import application
from headrace.ui.graph import versions
from headrace.ui.guard import ACTIONS, Guard, Tries
from headrace.ui.server import ServedAddress
from headrace.ui.verifying import Verifying
from tests.registered import layout_in
from tests.ui import made
from tests.waiting import until

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
        db.execute("CREATE TABLE _headrace_tables (table_name, query_id, spark_schema)")
        schema = '{"fields": [{"name": "hour", "type": "timestamp"}]}'
        db.execute("INSERT INTO _headrace_tables VALUES ('totals', 'ours', ?)", (schema,))
        db.execute(
            "CREATE TABLE _headrace_ledger (query_id, query, generation, table_name, batch, row_count, committed_at)"
        )
        db.executemany(
            "INSERT INTO _headrace_ledger VALUES ('ours', 'totals', 1, 'totals', ?, ?, 'then')", [(0, 5), (1, 6)]
        )
    db.close()
    project = hr.load(root, environ={"DATABASE_URL": "unused"})
    with History.open(history_file(project.storage)) as history:
        run = history.begin_run("totals", pid=1, mode="update", trigger="t", sink="sqlite", generation=1)
        for batch in range(12):
            entry = replace(made.record(batch, query="totals"), dropped_by_watermark=0)
            # Batch 5 has a row of 2 seconds behind the watermark of batch 4, batch 7 one of 3 hours.
            for number, seconds in ((5, 2), (7, 3 * 3600)):
                if batch == number:
                    mark = made.record(batch - 1).watermark
                    assert mark is not None
                    entry = replace(entry, dropped_by_watermark=batch, event_min=mark - timedelta(seconds=seconds))
            history.record(run, entry)
    plan = layout_in(project.storage, "totals").plan
    plan.parent.mkdir(parents=True)
    plan.write_text("== Physical Plan ==")
    return project


def client(project: Project, **more: Any) -> TestClient:
    app = application(project, hosts=ServedAddress().hosts(), token=TOKEN, **more)
    return TestClient(app, base_url=HERE, follow_redirects=False)


@pytest.fixture
def ask(project: Project) -> TestClient:
    session = client(project)
    session.headers.update(BEARER)
    return session


def test_the_newest_rows_of_the_result_come_from_its_database(ask: TestClient) -> None:
    answer = ask.get("/api/queries/totals/rows?limit=2").json()
    assert answer["rows"] == [["2026-01-01T23", 23], ["2026-01-01T22", 22]]
    assert (answer["more"], answer["order"]) == (True, "the greatest hour first")


@pytest.mark.parametrize("last", [5, 2**53])
def test_the_ledger_shows_which_batches_are_in(ask: TestClient, last: int) -> None:
    answer = ask.get(f"/api/queries/totals/ledger?first=0&last={last}").json()
    assert answer == {
        "lines": {"0": {"rows": 5, "committed_at": "then"}, "1": {"rows": 6, "committed_at": "then"}},
        "readable": True,
    }


def test_the_plan_that_was_noted_is_shown(ask: TestClient) -> None:
    assert ask.get("/api/queries/totals").json()["plan"] == "== Physical Plan =="


def test_late_rows_are_shown_by_how_late_and_by_window(ask: TestClient) -> None:
    answer = ask.get("/api/queries/totals/late").json()
    assert (answer["rows"], answer["batches"], answer["of_unknown_lateness"]) == (12, 2, 0)
    assert {part["up_to_seconds"]: part["rows"] for part in answer["histogram"] if part["rows"]} == {10: 5, 21600: 7}
    assert [(window["begins"][:16], window["ends"][:16], window["rows"]) for window in answer["windows"]] == [
        ("2025-12-31T19:00", "2025-12-31T20:00", 7)
    ], "the window of the other row was still open"


def version(batch: int, text: str, plan: str) -> str:
    facts = {"code": {"totals": text}, "settings": {"mode": "update"}, "plan": plan}
    return json.dumps({"at": f"2026-01-0{batch + 1}T00:00:00+00:00", "from_batch": batch, **facts}) + "\n"


def test_what_changed_is_shown_from_when_to_when_with_the_difference(ask: TestClient, project: Project) -> None:
    file = layout_in(project.storage, "totals").versions
    file.write_text(version(0, "SELECT 1\nFROM a", "sum(n)") + version(4, "SELECT 2\nFROM a", "max(n)") + '{"cut')
    new, old = ask.get("/api/queries/totals/versions").json()["versions"]
    assert (new["from_batch"], new["at"][:10], new["until"]) == (4, "2026-01-05", None)
    assert new["changes"] == {"code of totals": "-SELECT 1\n+SELECT 2\n FROM a", "plan": "-sum(n)\n+max(n)"}
    assert (old["changes"], old["until"], old["plan"]) == ({}, new["at"], "sum(n)")


def test_a_start_notes_its_version_once_and_without_a_secret(tmp_path: Path) -> None:
    project = made.project(tmp_path)
    query = project.queries["counts"]
    layout = layout_in(project.storage, "counts")
    layout.home.mkdir(parents=True)
    form = QueryForm(feed=f"events '{made.PASSWORD}'", columns=(("n", "count(*)"),), spark="4.2.0")
    for batch in (0, 3):
        note_version(project, query, layout, revision(query, form, "f", columns="", next_batch=batch))
    other = replace(form, columns=(("n", "sum(1)"),))
    note_version(project, query, layout, revision(query, other, "f", columns="", next_batch=5))
    new, old = versions(layout, 1)
    assert (old["from_batch"], new["from_batch"], new["until"]) == (0, 5, None)
    assert new["changes"] == {"plan": " from events '***'\n-n = count(*)\n+n = sum(1)"}
    assert made.PASSWORD not in layout.versions.read_text()
    assert new["code"]["counts"].startswith("SELECT action")


def test_a_question_is_answered_and_a_wrong_one_in_a_sentence(ask: TestClient) -> None:
    result = ask.post("/api/ask", json={"query": "totals", "sql": "SELECT max(n) AS most FROM totals"}).json()
    assert (result["columns"], result["rows"]) == (["most"], [[23]])
    for body, status, words in (
        ({"query": "totals", "sql": "DROP TABLE totals"}, 400, "only a statement that reads"),
        ({"query": "totals", "sql": "SELECT x FROM totals"}, 400, "no such column: x"),
        ({"query": "totals"}, 400, "sql is a text"),
        ({"query": "none", "sql": ""}, 404, "no query 'none'"),
        ([], 400, "a JSON object"),
    ):
        answer = ask.post("/api/ask", json=body)
        assert (answer.status_code, words in answer.json()["error"]) == (status, True)
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


@pytest.mark.parametrize("header", ["Basic dXNlcjpzZWNyZXQ=", "Bearer", "Bearer wrong", "none"])
@pytest.mark.parametrize("path", ACTIONS)
def test_periodic_a_cookie_no_header_of_another_site_lets_an_action_through(
    project: Project, path: str, header: str
) -> None:
    asked = client(project)
    asked.post("/login", data={"token": TOKEN})
    sent = {"Authorization": header, "Origin": "https://evil.example", "X-Headrace": "1"}
    assert asked.post(path, content=b"none", headers=sent).status_code in (401, 403)
    assert asked.post(path, content=b"none", headers={"Authorization": "Basic x", **SAME}).status_code == 400


def test_a_link_with_the_token_opens_any_page_and_leaves_it_behind(project: Project) -> None:
    asked = client(project)
    opened = asked.get(f"/queries/totals?open={TOKEN}")
    assert (opened.status_code, opened.headers["location"], TOKEN in opened.headers["set-cookie"]) == (
        *(303, "/queries/totals"),
        False,
    )
    assert asked.get("/api/queries/totals/rows").status_code == 200
    assert client(project).get("/?open=wrong").status_code == 401
    other = TestClient(asked.app, base_url="http://127.0.0.1:8471", cookies=dict(asked.cookies), follow_redirects=False)
    assert other.get("/api/project").status_code == 401, "that of another dashboard is another cookie"


def test_wrong_tokens_make_their_address_wait_longer_and_longer_but_not_the_right_one(project: Project) -> None:
    now = 1_000.0
    inner = application(project, hosts=ServedAddress().hosts(), token=TOKEN)
    assert isinstance(inner, Guard)
    inner._tries = Tries(lambda: now)
    kept = TestClient(inner, base_url=HERE, follow_redirects=False)
    kept.post("/login", data={"token": TOKEN})
    asked, other = (TestClient(inner, base_url=HERE, client=(ip, 1)) for ip in ("10.0.0.1", "10.0.0.2"))
    tries = {
        "form": lambda token: asked.post("/login", data={"token": token}, follow_redirects=False),
        "link": lambda token: asked.get(f"/?open={token}", follow_redirects=False),
        "header": lambda token: asked.get("/api/project", headers={"Authorization": f"Bearer {token}"}),
    }
    waits = []
    for at in range(15):
        answer = [attempt("wrong") for attempt in tries.values()][at % 3]
        waits.append(int(answer.headers.get("Retry-After", 0)))
        now += waits[-1]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert 200 < waits[-1] <= 300
    answer = tries["form"]("wrong")
    assert "too many wrong tokens" in answer.text
    for way, attempt in tries.items():
        for token in ("wrong",) * 30:
            refused = attempt(token)
            now += int(refused.headers.get("Retry-After", 0)) if len(waits) < 40 else 0
            waits.append(0)
        assert (refused.status_code, "Retry-After" in refused.headers) == (429, True), way
        assert attempt(TOKEN).status_code in (200, 303), f"{way}: the right token of the same address is taken"
    assert other.get("/api/project", headers=BEARER).status_code == 200
    assert kept.get("/api/project").status_code == 200, "who has shown the token before is not asked again"
    assert tries["form"]("wrong").status_code == 401, "a right one begins again"


def test_pages_of_other_sites_use_up_no_tries(project: Project) -> None:
    asked = client(project)
    for _ in range(20):
        foreign = asked.post("/login", data={"token": "wrong"}, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        picture = asked.get("/?open=wrong", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"})
        assert picture.status_code == 403
    assert asked.post("/login", data={"token": TOKEN}, headers={"Origin": HERE}).status_code == 303


def test_senders_are_counted_without_filling_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.ui.guard.ADDRESSES_MOST", 10)
    tries = Tries()
    for number in range(100):
        tries.count(f"10.0.0.{number}", is_right=False)
    assert len(tries._wrong) == 10
    for host in range(20):
        tries.count(f"2001:db8::{host:x}", is_right=False)
    assert tries.wait("2001:db8::ffff") > 0, "one sender has a whole network"


def eventually(look: Callable[[], dict[str, Any]], state: str) -> dict[str, Any]:
    until(f"look that is {state}", lambda: look()["state"] == state, pause=0.02)
    return look()


FAKE = """
import json, os, pathlib, sys, time
assert "HEADRACE_UI_TOKEN" not in os.environ and os.nice(0) == 19
while not pathlib.Path(sys.argv[0]).with_suffix(".go").exists():
    time.sleep(0.01)
said = pathlib.Path(sys.argv[0]).with_suffix(".go").read_text()
print(said) if said.startswith("{") else sys.exit(said)
"""


def test_one_verify_runs_at_low_priority_and_its_end_is_shown(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_UI_TOKEN", TOKEN)
    (tmp_path / "fake.py").write_text(FAKE)
    verifying = Verifying(project, [sys.executable, str(tmp_path / "fake.py")])
    asked = client(project, verifying=lambda _: verifying)
    asked.headers.update(BEARER)
    for output, state in (('{"verdict": "equal"}', "ended"), ("headrace HR123: it is broken", "failed")):
        (tmp_path / "fake.go").unlink(missing_ok=True)
        first = asked.post("/api/verify", json={"query": "totals"})
        assert (first.status_code, first.json()["state"]) == (202, "running")
        second = asked.post("/api/verify", json={"query": "totals"})
        assert (second.status_code, "is being verified" in second.json()["error"]) == (409, True)
        (tmp_path / "fake.said").write_text(output)
        (tmp_path / "fake.said").rename(tmp_path / "fake.go")
        report = eventually(lambda: dict(asked.get("/api/verify").json()), state)
        assert report["said"] in output
    (tmp_path / "fake.go").unlink()
    assert asked.post("/api/late", json={"query": "totals"}).status_code == 202
    refused = asked.post("/api/verify", json={"query": "totals"})
    assert (refused.status_code, "is being searched for late rows" in refused.json()["error"]) == (409, True)
    late = [{"event": "late row", "batch": 3, "row": {"n": 1}}, {"event": "result", "sentence": "1 row was late"}]
    (tmp_path / "fake.said").write_text("\n".join(map(json.dumps, late)))
    (tmp_path / "fake.said").rename(tmp_path / "fake.go")
    report = eventually(lambda: dict(asked.get("/api/late").json()), "ended")
    assert (report["work"], report["said"], report["rows"]) == ("late", "1 row was late", late[:1])
    (tmp_path / "fake.go").unlink()
    asked.post("/api/verify", json={"query": "totals"})
    verifying.close()
    eventually(lambda: dict(asked.get("/api/verify").json()), "failed")
