"""The dashboard's addresses: pages, the API, and what answers where something is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headrace.errors import HeadraceError
from headrace.history.pages import SearchError
from headrace.model import Project
from headrace.ui.answers import Answers, UnknownQuery, WrongRequest
from headrace.ui.guard import STATIC, Guard, login_page
from headrace.ui.verifying import Verifying

Page: TypeAlias = Callable[[Request], Response]


def application(
    project: Project,
    *,
    hosts: Collection[str],
    token: str,
    secure: bool = False,
    verifying: Verifying | None = None,
) -> ASGIApp:
    """Return the application behind its guard; `secure`: served by TLS; `verifying`: starts its verifies."""
    answers = Answers(project, verifying=verifying)

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

    def page(name: str) -> Page:
        return lambda request: FileResponse(STATIC / name)

    def query_page(request: Request) -> Response:
        is_known = request.path_params["name"] in project.queries
        return FileResponse(STATIC / ("query.html" if is_known else "missing.html"), 200 if is_known else 404)

    inner = Starlette(
        routes=[
            Route("/", page("project.html")),
            Route("/queries/{name}", query_page),
            Route("/login", login, methods=["GET", "POST"]),
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
            Route("/api/openapi.json", lambda request: JSONResponse(openapi())),
            Route("/api/live", answers.follow),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={WrongRequest: _wrong, SearchError: _wrong, HeadraceError: _fault, 404: _missing},
    )
    guard = Guard(inner, hosts=hosts, token=token, secure=secure)
    return guard


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
    if request.url.path.startswith(("/api/", "/static/")):
        return JSONResponse({"error": "there is nothing at this address"}, 404)
    return FileResponse(STATIC / "missing.html", 404)
