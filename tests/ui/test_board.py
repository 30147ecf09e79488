"""Several projects on one board, and a project that a deploy has changed, by HTTP."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace.cli import main
from headrace.contract import QueryState
from headrace.control.board import Board, Orders
from headrace.control.server import ControlServer
from headrace.errors import HeadraceError
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import Project
from headrace.ui.app import application
from headrace.ui.listed import Listed, list_projects
from headrace.ui.server import ServedAddress
from headrace.ui.shown import ShownProject
from tests.ui import made

pytestmark = pytest.mark.plain
HERE, TOKEN = "http://127.0.0.1", "a-token-that-is-long-enough"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SHOP = "name: phones\nsources: {clicks: {rate: {rows_per_second: 1}}}\n"
QUERY = "queries: {%s: {select: SELECT * FROM clicks, sink: {console: {}}}}\n"


def write_shop(root: Path, *, query: str = "shown", more: str = "") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(SHOP + QUERY % query + more)
    return root


def client(shown: Project | ShownProject | list[Listed], *, has_token: bool = True) -> TestClient:
    app = application(shown, hosts=ServedAddress().hosts(), token=TOKEN)
    return TestClient(app, base_url=HERE, follow_redirects=False, headers=BEARER if has_token else {})


@pytest.fixture
def projects(tmp_path: Path) -> list[Listed]:
    """A project with a history, one of the same name that has never run, and one that cannot be loaded."""
    phones, other, broken = tmp_path / "phones", write_shop(tmp_path / "other" / "phones"), tmp_path / "broken"
    first = made.project(phones)
    made.fill(first, 100)
    broken.mkdir()
    (broken / "headrace.yml").write_text("name: [")
    with pytest.raises(HeadraceError) as error:
        hr.load(broken)
    return list_projects([(phones, first), (other, hr.load(other)), (broken, error.value)])


def test_the_list_shows_each_project_and_how_it_stands(projects: list[Listed]) -> None:
    asked = client(projects)
    shown = {one["key"]: one for one in asked.get("/api/projects").json()["projects"]}
    assert {key: (one["level"], one["state"]) for key, one in shown.items()} == {
        "phones": ("bad", "in trouble"),
        "phones-2": ("idle", "not running"),
        "broken": ("bad", "cannot be shown"),
    }
    assert (shown["phones"]["running"], shown["phones"]["queries"], shown["phones-2"]["running"]) == (1, 2, 0)
    assert [finding["code"] for finding in shown["broken"]["findings"]] == ["HR101"]
    assert [Path(one["directory"]).parent.name for one in shown.values()][1] == "other"
    assert made.PASSWORD not in json.dumps(shown)


def test_each_project_has_its_pages_and_its_api_below_its_key(projects: list[Listed]) -> None:
    asked = client(projects)
    assert asked.get("/projects/phones-2/api/project").json()["queries"].keys() == {"shown"}
    assert asked.get("/projects/phones/api/queries/counts/batches").json()["batches"]
    answers = {
        path: asked.get(path).status_code
        for path in (
            *("/", "/projects/phones/", "/projects/phones/queries/counts", "/projects/phones-2/queries/shown"),
            *("/projects/phones-2/queries/counts", "/projects/broken/", "/projects/none/api/project", "/api/project"),
            "/projects/phones-2/api/queries/counts",
        )
    }
    assert list(answers.values()) == [200, 200, 200, 200, 404, 404, 404, 404, 404]
    assert 'href="/projects/phones-2/"' in asked.get("/projects/phones-2/queries/counts").text
    assert "error" in asked.get("/projects/none/api/project").json()
    assert asked.get("/projects/phones-2").headers["location"] == f"{HERE}/projects/phones-2/"


def test_one_token_guards_all_of_them(projects: list[Listed]) -> None:
    asked = client(projects, has_token=False)
    assert asked.get("/projects/phones/").headers["location"] == "/login"
    assert asked.get("/projects/phones/api/project").status_code == 401
    assert asked.post("/projects/phones/api/verify", json={"query": "counts"}).status_code == 401
    assert asked.post("/projects/phones/api/project").status_code == 405
    opened = asked.get(f"/projects/phones/?open={TOKEN}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/projects/phones/")
    assert asked.get("/projects/phones-2/api/project").status_code == 200
    assert asked.post("/projects/phones/api/ask", json={"query": "copied", "sql": "SELECT 1"}).status_code == 403


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Project, Board]]:
    """A project whose application answers, as this process: one query runs."""
    project, board = hr.load(write_shop(tmp_path / "p")), Board()
    board.post(QueryState(query="shown", state="running", healthy=True))
    storage = project.local_storage
    server = ControlServer(
        storage, project="phones", board=board, orders=Orders(), stop=lambda now: False, owns_process=False
    )
    try:
        yield project, board
    finally:
        server.close()


def test_health_is_that_of_the_running_application(running: tuple[Project, Board], projects: list[Listed]) -> None:
    project, board = running
    answer = client(project).get("/api/health")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ok": True, "processes": [os.getpid()], "queries": {"shown": "running"}},
    )
    board.post(QueryState(query="shown", state="failed"))
    assert client(project).get("/api/health").status_code == 503
    answer = client(projects).get("/projects/phones-2/api/health")
    assert (answer.status_code, answer.json()["queries"]) == (503, {"shown": "not running"})


class Metrics(BaseHTTPRequestHandler):
    """Answers as the metrics of an application do, to who has its token."""

    def do_GET(self) -> None:
        is_right = (self.path, self.headers["Authorization"]) == ("/metrics", f"Bearer {TOKEN}")
        self.send_response(200 if is_right else 401)
        self.end_headers()
        self.wfile.write(b"headrace_up 1\n" if is_right else b"no token\n")

    def log_message(self, *_: object) -> None:
        pass


def test_metrics_are_passed_on_from_where_the_application_serves_them(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        metrics = f"metrics: {{port: {served.server_port}, token: '${{TOKEN}}'}}\n"
        project = hr.load(write_shop(tmp_path / "p", more=metrics), environ={"TOKEN": TOKEN})
        answer = client(project).get("/api/metrics")
        assert (answer.status_code, answer.text) == (200, "headrace_up 1\n")
        other = hr.load(tmp_path / "p", environ={"TOKEN": "another-token-of-a-length"})
        assert "answers 401" in client(other).get("/api/metrics").json()["error"]
        served.shutdown()
    assert client(project).get("/api/metrics").status_code == 503
    unnamed = client(hr.load(write_shop(tmp_path / "q"))).get("/api/metrics")
    assert (unnamed.status_code, "names: metrics" in unnamed.json()["error"]) == (503, True)


def test_a_deploy_or_another_process_shows_the_files_as_they_are_then(tmp_path: Path) -> None:
    root = write_shop(tmp_path / "p")
    project = hr.load(root)
    asked = client(ShownProject(project))

    def queries() -> tuple[list[str], int]:
        answer = asked.get("/api/project").json()
        assert [node["name"] for node in answer["graph"]["nodes"] if node["kind"] == "query"] == list(answer["queries"])
        return list(answer["queries"]), answer["declared"]

    with History.open(history_file(project.local_storage)) as history:
        begin = {"mode": "append", "trigger": "", "sink": "console", "generation": 1}
        history.begin_run("shown", pid=1, **begin)
        assert queries() == (["shown"], 0)
        write_shop(root, query="added")
        history.note("started", "shown", None, {})
        assert queries() == (["shown"], 0)
        history.note("deployed", None, None, {"by": "x", "steps": []})
        assert queries() == (["added"], 1)
        assert asked.get("/queries/added").status_code == 200
        assert asked.get("/api/queries/shown").status_code == 404
        (root / "headrace.yml").write_text("name: [")
        history.note("deployed", None, None, {"by": "x", "steps": []})
        assert queries() == (["added"], 1)
        write_shop(root, query="another")
        assert queries() == (["added"], 1)
        history.begin_run("added", pid=2, **begin)
        assert queries() == (["another"], 2)


def test_the_dashboard_of_a_run_shows_what_was_deployed_to_it(tmp_path: Path) -> None:
    board, project = Board(), hr.load(write_shop(tmp_path / "p"))
    asked = client(ShownProject(project, deployed=lambda: board.project))
    assert list(asked.get("/api/project").json()["queries"]) == ["shown"]
    board.project = hr.load(write_shop(tmp_path / "p", query="added"))
    assert list(asked.get("/api/project").json()["queries"]) == ["added"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["-C", "a", "a"], "two places"), (["b"], "does not exist"), (["a", "--port", "no"], "port")],
    ids=["-C and a directory", "none that can be loaded", "a wrong port"],
)
def test_directories_that_make_no_board_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "a")
    assert main(["ui", *arguments]) != 0
    assert problem in capsys.readouterr().err
