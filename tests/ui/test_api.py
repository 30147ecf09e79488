"""What the dashboard answers, over a made history, without Spark and without a socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from starlette.testclient import TestClient

from headrace.api import load
from headrace.cli.entry import main
from headrace.errors import HeadraceError
from headrace.generations.log import history_file
from headrace.history import History
from headrace.history.lag import SourceLags
from headrace.history.pages import SCANNED
from headrace.model import Project
from headrace.ui import server
from headrace.ui.answers import Answers
from headrace.ui.app import application
from headrace.ui.server import ServedAddress
from headrace.ui.standing import standings
from tests.ui import made

pytestmark = pytest.mark.plain
MANY = 100_000
HERE = "http://127.0.0.1"
TOKEN = "a-token-that-is-long-enough"
PATHS = ("/", "/queries/counts", "/api/project", "/api/queries/counts", "/api/events", "/static/style.css", "/nothing")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = made.project(tmp_path_factory.mktemp("phones"))
    made.fill(project, MANY)
    return project


def client(project: Project, base: str = HERE, **more: Any) -> TestClient:
    app = application(project, hosts=ServedAddress().hosts(), token=TOKEN, **more)
    return TestClient(app, base_url=base, follow_redirects=False)


def with_token(project: Project) -> TestClient:
    session = client(project)
    session.headers["Authorization"] = f"Bearer {TOKEN}"
    return session


@pytest.fixture
def ask(project: Project) -> TestClient:
    return with_token(project)


def test_the_project_is_shown_with_its_graph_and_the_state_of_each_query(ask: TestClient) -> None:
    answer = ask.get("/api/project").json()
    assert {node["id"] for node in answer["graph"]["nodes"]} == {
        *("source:events", "view:taps", "query:counts", "query:copied", "sink:counts", "sink:copied")
    }
    assert {"from": "view:taps", "to": "query:copied"} in answer["graph"]["edges"]
    nodes = {node["id"] for node in answer["graph"]["nodes"]}
    assert {end for edge in answer["graph"]["edges"] for end in edge.values()} <= nodes
    counts, copied = answer["queries"]["counts"], answer["queries"]["copied"]
    assert (counts["state"], counts["restarts"], counts["batch"]) == ("running", 1, MANY - 1)
    assert (copied["state"], copied["level"], copied["findings"][0]["code"]) == ("failed", "bad", "HR601")


def test_the_node_of_a_kafka_sink_shows_its_topic(tmp_path: Path) -> None:
    sink = "sink: {kafka: {bootstrap_servers: 'localhost:9092', topic: alerts}}"
    text = made.YAML.replace("sink: {files: {path: out, format: json}}", sink)
    (tmp_path / "headrace.yml").write_text(text)
    project = load(tmp_path, environ={"DATABASE_URL": "unused"})
    nodes = {node["id"]: node for node in with_token(project).get("/api/project").json()["graph"]["nodes"]}
    assert (nodes["sink:copied"]["about"], nodes["sink:copied"]["more"]) == ("kafka", "alerts")


def test_a_query_is_shown_with_its_guarantee_its_text_its_runs_and_its_verdicts(ask: TestClient) -> None:
    answer = ask.get("/api/queries/counts").json()
    assert answer["definition"]["guarantee"]["level"] == "exactly once"
    assert answer["definition"]["code"]["text"].startswith("SELECT action, count(*)")
    assert [(run["state"], run["error"] and run["error"]["what"]) for run in answer["runs"]] == [
        *(("running", None), ("failed", "the database was away"))
    ]
    assert [verdict["verdict"] for verdict in answer["verdicts"]] == ["equal"]
    assert [view["name"] for view in ask.get("/api/queries/copied").json()["definition"]["views"]] == ["taps"]


def test_rates_and_lags_are_of_the_last_batches_and_end_with_them(project: Project) -> None:
    newest = made.record(MANY - 1)
    with History.open(history_file(project.storage), read_only=True) as history:
        now = standings(project, history, SourceLags(project), newest.at)["counts"]
        later = standings(project, history, SourceLags(project), newest.at.replace(year=2027))["counts"]
    assert 80 < now["rates"]["input"] < 150
    assert now["sources"]["events"]["lag"]["unit"] == "files"
    assert (later["rates"]["input"], later["sources"]["events"]["rate"]) == (0, 0)
    assert [finding["code"] for finding in now["findings"]] == ["HR682"]


def test_a_query_whose_process_is_gone_needs_attention(tmp_path: Path) -> None:
    project = made.project(tmp_path)
    with History.open(history_file(project.storage)) as history:
        history.begin_run("counts", pid=2**30, mode="update", trigger="once", sink="postgres", generation=1)
    query = with_token(project).get("/api/project").json()["queries"]["counts"]
    assert (query["state"], query["level"], query["findings"][0]["code"]) == ("killed", "bad", "HR893")


def test_batches_come_in_pages_from_the_newest_back(ask: TestClient) -> None:
    first = ask.get("/api/queries/counts/batches?limit=3").json()
    assert [batch["batch"] for batch in first["batches"]] == [MANY - 1, MANY - 2, MANY - 3]
    second = ask.get(f"/api/queries/counts/batches?limit=3&before={first['before']}").json()
    assert [batch["batch"] for batch in second["batches"]] == [MANY - 4, MANY - 5, MANY - 6]
    last = ask.get("/api/queries/counts/batches?before=2").json()
    assert ([batch["batch"] for batch in last["batches"]], last["before"]) == ([1, 0], None)


@pytest.mark.parametrize(
    ("search", "batches"),
    [
        (f"{MANY - 7}", [MANY - 7]),
        (f"{MANY - 9}-{MANY - 8}", [MANY - 8, MANY - 9]),
        ("ms>=5000", [MANY - 1, MANY - 101]),
        ("late>0 rows>=140", [MANY - 10, MANY - 60]),
        (f'"logOffset\\":{MANY - 3}', [MANY - 3, MANY - 4]),
    ],
)
def test_batches_are_found_by_number_figure_and_text(ask: TestClient, search: str, batches: list[int]) -> None:
    page = ask.get("/api/queries/counts/batches", params={"search": search, "limit": 2}).json()
    assert [batch["batch"] for batch in page["batches"]] == batches


def test_a_search_looks_so_far_and_says_where_it_stopped(ask: TestClient) -> None:
    page = ask.get("/api/queries/counts/batches?search=nowhere").json()
    assert (page["batches"], page["before"]) == ([], MANY - SCANNED)
    assert ask.get("/api/queries/counts/batches?search=nowhere&before=100").json() == {"batches": [], "before": None}


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/queries/count", 404, "there is no query 'count'"),
        ("/api/queries/counts/batches?limit=0", 400, "limit is a whole number from 1"),
        ("/api/queries/counts/batches?before=x", 400, "before is a whole number"),
        ("/api/queries/counts/batches?search=rows>many", 400, "compares with no number"),
        ("/api/queries/counts/batches?search=colour>3", 400, "batches have no 'colour'"),
        ("/api/queries/counts/series?points=9999999", 400, "points is a whole number"),
        ("/api/other", 404, "nothing at this address"),
        ("/static/%2e%2e/app.py", 404, "nothing at this address"),
    ],
)
def test_the_answer_to_a_wrong_request_says_what_is_wrong(ask: TestClient, path: str, status: int, words: str) -> None:
    answer = ask.get(path)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True)


def test_a_series_has_as_many_points_as_a_chart_shows_and_reaches_over_all_batches(ask: TestClient) -> None:
    series = ask.get("/api/queries/counts/series?points=200").json()
    assert 150 <= len(series["at"]) <= 200
    assert (series["batch"][-1], series["step"], series["batches"]) == (MANY - 1, 50, 2_000)
    assert series["at"][0] < made.STARTED.timestamp() + 1_000
    lengths = {len(series[name]) for name in ("at", "rows", "watermark", "late")}
    assert lengths == {len(column) for column in series["phases"].values()} == {len(series["lags"]["events"])}


def test_a_series_of_the_last_minutes_is_exact(ask: TestClient) -> None:
    series = ask.get("/api/queries/counts/series?points=1000&seconds=150").json()
    assert (len(series["at"]), series["step"], series["per_point"]) == (151, 1, 1)
    assert (series["batch"][0], series["late"][-10:]) == (MANY - 151, [3, *[0] * 9])
    assert series["phases"]["other"][-1] == 5_000 - 350
    # Of `addBatch`, the sink's own time is shown apart.
    assert (series["phases"]["addBatch"][-1], series["phases"]["write"][-1]) == (180, 120)
    assert series["watermark"][-1] == series["at"][-1] - 7_200


def test_events_come_newest_first_and_of_one_query_if_asked(ask: TestClient) -> None:
    assert [event["kind"] for event in ask.get("/api/events").json()["events"]] == ["failed", "started"]
    assert [event["kind"] for event in ask.get("/api/events?query=counts").json()["events"]] == ["started"]


def test_before_the_first_run_the_pages_say_so(tmp_path: Path) -> None:
    ask = with_token(made.project(tmp_path))
    assert ask.get("/api/project").json()["queries"]["counts"]["state"] == "never started"
    assert ask.get("/api/queries/counts").json()["runs"] == []
    assert ask.get("/api/queries/counts/batches").json()["batches"] == []
    assert ask.get("/api/queries/counts/series").json()["at"] == []
    assert ask.get("/api/events").json() == {"events": []}


def test_a_damaged_history_is_a_sentence(tmp_path: Path) -> None:
    project = made.project(tmp_path)
    history_file(project.storage).parent.mkdir(parents=True)
    history_file(project.storage).write_text("no database, but long enough to be looked at as one" * 20)
    answer = with_token(project).get("/api/project")
    assert (answer.status_code, answer.json()["findings"][0]["code"]) == (503, "HR531")
    assert Answers(project).look(again=True) == {"findings": [answer.json()["findings"][0]]}


def test_no_answer_holds_a_secret(ask: TestClient, project: Project) -> None:
    for path in ("/api/project", "/api/queries/counts", "/api/events", "/api/queries/counts/batches"):
        assert made.PASSWORD not in ask.get(path).text
    assert made.PASSWORD not in json.dumps(Answers(project).look(again=True))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8470", ""])
def test_another_name_for_this_machine_is_refused(ask: TestClient, path: str, host: str) -> None:
    assert ask.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8470", "localhost", "LOCALHOST:1", "[::1]:8470"])
def test_the_names_of_this_machine_are_served(ask: TestClient, host: str) -> None:
    assert ask.get("/api/project", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers_that_keep_others_out(ask: TestClient, path: str) -> None:
    headers = ask.get(path, headers={"Origin": "https://evil.example"}).headers
    assert "access-control-allow-origin" not in headers
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(ask: TestClient, method: str) -> None:
    assert ask.request(method, "/api/project").status_code == 405


def test_with_a_token_only_who_shows_it_reads(project: Project) -> None:
    ask = client(project)
    assert ask.get("/api/project").status_code == 401
    assert ask.get("/api/project", headers={"Authorization": "Bearer other"}).status_code == 401
    assert ask.get("/api/project", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert ask.get("/").headers["location"] == "/login"
    assert ask.get("/login").status_code == 200
    refused = ask.post("/login", data={"token": "wrong"})
    assert (refused.status_code, "the token is wrong" in refused.text) == (401, True)
    assert ask.get("/api/project").status_code == 401


def test_a_browser_that_has_shown_the_token_keeps_a_cookie_that_is_not_the_token(project: Project) -> None:
    ask = client(project, base="https://127.0.0.1", secure=True)
    cookie = ask.post("/login", data={"token": TOKEN}).headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Secure"))
    assert TOKEN not in cookie
    assert ask.get("/api/project").status_code == 200


@pytest.mark.parametrize(
    ("address", "words", "fix"),
    [
        (ServedAddress(host="0.0.0.0"), "could be read by others at 0.0.0.0", "leave --address out"),
        (
            ServedAddress(names=("board.example",)),
            "could be read by others by the name board.example",
            "leave --name out",
        ),
        (
            ServedAddress(host="0.0.0.0", token="short"),
            "short enough to be guessed",
            "characters or more, or leave it out",
        ),
        (ServedAddress(host="0.0.0.0", token=TOKEN), "would pass the network unencrypted", "--certificate and --key"),
        (ServedAddress(certificate=Path("c.pem")), "TLS needs a certificate and its key", "give both"),
    ],
)
def test_where_others_could_read_it_is_not_served(
    project: Project, address: ServedAddress, words: str, fix: str
) -> None:
    with pytest.raises(HeadraceError) as raised:
        server.serve(project, address, print)
    (finding,) = raised.value.findings
    assert (finding.code, words in finding.what, fix in finding.fix) == ("HR891", True, True)


def test_a_port_that_is_taken_is_a_sentence(project: Project) -> None:
    with server._bind(ServedAddress(port=0)) as taken:
        taken.listen()
        with pytest.raises(HeadraceError) as raised:
            server.serve(project, ServedAddress(port=taken.getsockname()[1]), print)
    assert raised.value.findings[0].code == "HR892"


def test_within_a_run_it_ends_with_it_and_is_served_by_the_same_rules(project: Project) -> None:
    with server.serve_in_background(project, ServedAddress(port=0, token=TOKEN)) as url:
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{url}api/project", timeout=10)
        asked = Request(f"{url}api/project", headers={"Authorization": f"Bearer {TOKEN}"})
        assert json.load(urlopen(asked, timeout=10))["name"] == "phones"
        with pytest.raises(HTTPError, match="421"):
            urlopen(Request(f"{url}api/project", headers={"Host": "evil.example"}), timeout=10)
    with pytest.raises(URLError, match="refused"):
        urlopen(f"{url}api/project", timeout=10)


def test_without_a_token_of_its_own_one_is_made_and_is_in_the_link(project: Project) -> None:
    made_tokens = set()
    for _ in range(2):
        with server.serve_in_background(project, ServedAddress(port=0)) as link:
            url, _, made_token = link.partition("?open=")
            made_tokens.add(made_token)
            with pytest.raises(HTTPError, match="401"):
                urlopen(f"{url}api/project", timeout=10)
            asked = Request(f"{url}api/project", headers={"Authorization": f"Bearer {made_token}"})
            assert json.load(urlopen(asked, timeout=10))["name"] == "phones"
    assert min(map(len, made_tokens)) >= 32
    assert len(made_tokens) == 2


def test_without_its_packages_the_command_says_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    monkeypatch.setenv("DATABASE_URL", "postgresql://user@localhost/phones")
    assert main(["ui", "-C", str(project.root)]) == 2
    errors = capsys.readouterr().err
    assert "HR011" in errors
    assert "pip install 'headrace[ui]'" in errors


def test_open_pages_receive_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.ui.live.LOOK_SECONDS", 0.02)
    project = made.project(tmp_path)
    made.fill(project, 3)

    async def listen() -> list[int]:
        stream = Answers(project).live.stream()
        seen: list[int] = []
        async for text in stream:
            if text.startswith("event: standing"):
                seen.append(json.loads(text.partition("data: ")[2])["queries"]["counts"]["batch"])
                if len(seen) == 2:
                    break
                with History.open(history_file(project.storage)) as history:
                    history.record(2, made.record(3))
        await stream.aclose()  # type: ignore[attr-defined]
        return seen

    assert asyncio.run(asyncio.wait_for(listen(), 20)) == [2, 3]
