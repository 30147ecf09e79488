"""The dashboard's addresses: pages, the API, and what answers where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, ExceptionHandler

from headrace.errors import HeadraceError
from headrace.history.pages import SearchError
from headrace.model import Project
from headrace.ui.answers import Answers, UnknownQuery, WrongRequest
from headrace.ui.guard import BOARD, STATIC, Guard, login_page, own_path
from headrace.ui.listed import Listed
from headrace.ui.overview import Overview
from headrace.ui.shown import ShownProject
from headrace.ui.verifying import Verifying

Page: TypeAlias = Callable[[Request], Response]


def application(
    project: Project | ShownProject | Sequence[Listed],
    *,
    hosts: Collection[str],
    token: str,
    secure: bool = False,
    verifying: Callable[[Project], Verifying] = Verifying,
) -> ASGIApp:
    """Return the application behind its guard: of one project, or of a board of several.

    secure: served by TLS. verifying: makes what starts the verifies of a project.
    """

    async def login(request: Request) -> Response:
        if request.method != "POST":
            return login_page()
        # A form of one field; more than that is none of ours.
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > 4_096:
                return login_page("more was sent than a token", 413)
        return guard.enter(request.scope, parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0], "/")

    routes: list[BaseRoute] = []
    if isinstance(project, Sequence):
        overview = Overview(project)
        routes += [
            Route("/", _page("projects.html")),
            Route("/api/projects", overview.projects),
            Route("/api/live", overview.follow),
        ]
        for one in project:
            if one.project is not None:
                answers = Answers(one.project, verifying=verifying(one.project))
                routes.append(Mount(f"{BOARD}{one.key}", routes=_project_routes(answers)))
    else:
        shown = project if isinstance(project, ShownProject) else ShownProject(project)
        routes += _project_routes(Answers(shown, verifying=verifying(shown.project)))
    routes += [
        Route("/login", login, methods=["GET", "POST"]),
        Route("/api/openapi.json", lambda request: JSONResponse(openapi())),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    handlers: Mapping[Any, ExceptionHandler] = {
        WrongRequest: _wrong,
        SearchError: _wrong,
        HeadraceError: _fault,
        404: _missing,
    }
    guard = Guard(Starlette(routes=routes, exception_handlers=handlers), hosts=hosts, token=token, secure=secure)
    return guard


def _project_routes(answers: Answers) -> list[BaseRoute]:
    """Return the addresses of one project, from its own first page on."""

    def query_page(request: Request) -> Response:
        is_known = answers.has_query(request.path_params["name"])
        return FileResponse(STATIC / "query.html") if is_known else missing_page(request)

    return [
        Route("/", _page("project.html")),
        Route("/queries/{name}", query_page),
        Route("/api/project", answers.project),
        Route("/api/queries/{name}", answers.query),
        Route("/api/queries/{name}/batches", answers.batches),
        Route("/api/queries/{name}/series", answers.series),
        Route("/api/queries/{name}/late", answers.late),
        Route("/api/queries/{name}/ledger", answers.ledger),
        Route("/api/queries/{name}/rows", answers.rows),
        Route("/api/ask", answers.ask, methods=["POST"]),
        Route("/api/verify", answers.verify, methods=["POST"]),
        Route("/api/verify", answers.work_state),
        Route("/api/late", answers.late_rows, methods=["POST"]),
        Route("/api/late", answers.work_state),
        Route("/api/queries/{name}/versions", answers.versions),
        Route("/api/events", answers.events),
        Route("/api/health", answers.health),
        Route("/api/metrics", answers.metrics),
        Route("/api/live", answers.follow),
    ]


def _page(name: str) -> Page:
    return lambda request: FileResponse(STATIC / name)


def openapi() -> dict[str, Any]:
    """Read what the API takes and answers."""
    document: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("openapi.yml").read_text(encoding="utf-8"))
    del document["x-shared"]
    document["info"]["version"] = version("headrace")
    return document


def _wrong(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownQuery) else 400)


def _fault(request: Request, error: Exception) -> Response:
    findings = error.findings if isinstance(error, HeadraceError) else []
    return JSONResponse({"error": "the history cannot be read", "findings": [f.as_dict() for f in findings]}, 503)


def _missing(request: Request, error: Exception) -> Response:
    if own_path(request.url.path).startswith(("/api/", "/static/")):
        return JSONResponse({"error": "there is nothing at this address"}, 404)
    return missing_page(request)


def missing_page(request: Request) -> Response:
    """Return the page that leads back to the project, or to the list of the board."""
    text = (STATIC / "missing.html").read_text(encoding="utf-8")
    return HTMLResponse(text.replace('href="/"', f'href="{request.scope.get("root_path", "")}/"'), 404)
