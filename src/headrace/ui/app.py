"""The JSON API, the pages, and where each is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headrace.errors import HeadraceError
from headrace.history import History
from headrace.history.pages import SearchError, batch_page, change_mark, runs_of, sampled, verdicts_of
from headrace.model import Project, Query
from headrace.model.layout import history_file
from headrace.ui.graph import definition, graph
from headrace.ui.guard import COOKIE, Guard
from headrace.ui.live import Live
from headrace.ui.series import series
from headrace.ui.standing import standings

STATIC = Path(__file__).parent / "static"
PAGE_MOST, POINTS_MOST, EVENTS_MOST = 500, 2_000, 1_000
_LARGEST = 2**53
Answer: TypeAlias = Callable[[Request], Response]


class WrongRequest(ValueError):
    """A request that cannot be answered as it is; its text says why."""


class UnknownQuery(WrongRequest):
    """A request for a query that the project does not have."""


class Pages:
    """What each address answers; every call looks at the history anew and keeps nothing."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._file = history_file(project.storage)
        self._graph = graph(project)
        self._watched: History | None = None
        self._mark: tuple[int, int] | None = None
        self.live = Live(self.look)

    def project(self, request: Request) -> Response:
        """The whole project at a glance."""
        with self._history() as history:
            return self._json({**self._about(), "graph": self._graph, **self._standings(history)})

    def query(self, request: Request) -> Response:
        """One query: what it is, how it stands, its runs and verdicts."""
        query = self._asked(request)
        with self._history() as history:
            return self._json(
                {
                    **self._about(),
                    "definition": definition(self._project, query),
                    **self._standings(history, query.name),
                    "runs": self._runs(history, query),
                    "verdicts": verdicts_of(history, query.name) if history else [],
                }
            )

    def batches(self, request: Request) -> Response:
        """A page of batches, the newest first."""
        query = self._asked(request)
        limit = _whole(request, "limit", 50, least=1, most=PAGE_MOST)
        before = _whole(request, "before", _LARGEST, least=0, most=_LARGEST)
        with self._history() as history:
            if history is None:
                return self._json({"batches": [], "before": None})
            generation = self._generation(request, history, query)
            search = request.query_params.get("search", "")[:200]
            found = batch_page(history, query.name, generation, before=before, limit=limit, search=search)
        return self._json({"batches": [each.as_dict() for each in found.batches], "before": found.before})

    def series(self, request: Request) -> Response:
        """Batches as columns for charts."""
        query = self._asked(request)
        points = _whole(request, "points", 300, least=10, most=POINTS_MOST)
        seconds = _whole(request, "seconds", 0, least=0, most=_LARGEST) or None
        with self._history() as history:
            if history is None:
                return self._json(series([], points))
            found = sampled(history, query.name, self._generation(request, history, query), seconds=seconds)
        return self._json(series(found.batches, points, found.step))

    def events(self, request: Request) -> Response:
        """The newest events, the newest first."""
        count = _whole(request, "count", 200, least=1, most=EVENTS_MOST)
        query = request.query_params.get("query") or None
        with self._history() as history:
            found = history.events(count, query=query) if history else []
        return self._json({"events": [event.as_dict() for event in reversed(found)]})

    async def follow(self, request: Request) -> Response:
        """Server-sent events: how all queries stand, each time that it changes."""
        return StreamingResponse(self.live.stream(), media_type="text/event-stream")

    def look(self, anew: bool) -> dict[str, Any] | None:
        """How all queries stand, if anything was written since the last look, or in any case; never raises."""
        try:
            with self._opened() as history:
                mark = (id(history), change_mark(history)) if history else None
                if mark == self._mark and not anew:
                    return None
                self._mark = mark
                found: dict[str, Any] = self._clean(self._standings(history))
                return found
        except HeadraceError as error:
            return {"findings": [self._project.redacted_finding(finding).as_dict() for finding in error.findings]}

    def _standings(self, history: History | None, query: str | None = None) -> dict[str, Any]:
        project = self._project if query is None else self._project.only([query])
        newest = history.events(1) if history else []
        return {
            "queries": standings(project, history),
            "newest_event": newest[-1].id if newest else 0,
        }

    def _runs(self, history: History | None, query: Query) -> list[dict[str, Any]]:
        """Its newest runs; one that did not say how it ended, and is not the newest, was killed."""
        found = runs_of(history, query.name) if history else []
        return [{**run, "state": run["state"] if run["ended"] or at == 0 else "killed"} for at, run in enumerate(found)]

    def _about(self) -> dict[str, Any]:
        return {"name": self._project.name, "target": self._project.target.name, "version": version("headrace")}

    def _asked(self, request: Request) -> Query:
        name = request.path_params["name"]
        if name not in self._project.queries:
            raise UnknownQuery(f"there is no query '{name}' in the project '{self._project.name}'")
        return self._project.queries[name]

    def _generation(self, request: Request, history: History, query: Query) -> int:
        newest = next((run["generation"] for run in runs_of(history, query.name, 1)), 1)
        return _whole(request, "generation", newest, least=1, most=_LARGEST)

    @contextmanager
    def _history(self) -> Iterator[History | None]:
        """The history for one answer; None before the first run."""
        if not self._file.exists():
            yield None
            return
        with History.open(self._file, read_only=True) as history:
            yield history

    @contextmanager
    def _opened(self) -> Iterator[History | None]:
        """The history that is kept open, since only so it tells whether others have written; opened anew after a fault.

        A file that was moved away is another one.
        """
        there = self._file.exists()
        if self._watched is not None and not there:
            self._watched.close()
            self._watched = None
        if self._watched is None and there:
            self._watched = History.open(self._file, read_only=True)
        try:
            yield self._watched
        except HeadraceError:
            if self._watched is not None:
                self._watched.close()
            self._watched = None
            raise

    def _json(self, found: Mapping[str, Any]) -> Response:
        return JSONResponse(self._clean(found))

    def _clean(self, value: Any) -> Any:
        """Plain data without a secret in any text, and without numbers that JSON does not have."""
        if isinstance(value, str):
            return self._project.redacted(value)
        if isinstance(value, Mapping):
            return {key: self._clean(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value


def application(project: Project, *, hosts: Collection[str], token: str = "", secure: bool = False) -> ASGIApp:
    """The application, behind its guard; `secure`: it is served by TLS."""
    pages = Pages(project)

    async def login(request: Request) -> Response:
        if request.method != "POST":
            return FileResponse(STATIC / "login.html")
        # A form of one field; more than that is none of ours.
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > 4_096:
                return RedirectResponse("/login?wrong", 303)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        session = guard.session_for(given)
        if session is None:
            return RedirectResponse("/login?wrong", 303)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=secure)
        return answer

    def page(name: str) -> Answer:
        return lambda request: FileResponse(STATIC / name)

    def query_page(request: Request) -> Response:
        known = request.path_params["name"] in project.queries
        return FileResponse(STATIC / ("query.html" if known else "missing.html"), 200 if known else 404)

    inner = Starlette(
        routes=[
            Route("/", page("project.html")),
            Route("/queries/{name}", query_page),
            Route("/login", login, methods=["GET", "POST"]),
            Route("/api/project", pages.project),
            Route("/api/queries/{name}", pages.query),
            Route("/api/queries/{name}/batches", pages.batches),
            Route("/api/queries/{name}/series", pages.series),
            Route("/api/events", pages.events),
            Route("/api/live", pages.follow),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={WrongRequest: _wrong, SearchError: _wrong, HeadraceError: _fault, 404: _missing},
    )
    guard = Guard(inner, hosts=hosts, token=token)
    return guard


def _wrong(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownQuery) else 400)


def _fault(request: Request, error: Exception) -> Response:
    findings = error.findings if isinstance(error, HeadraceError) else []
    return JSONResponse({"error": "the history cannot be read", "findings": [f.as_dict() for f in findings]}, 503)


def _missing(request: Request, error: Exception) -> Response:
    if request.url.path.startswith(("/api/", "/static/")):
        return JSONResponse({"error": "there is nothing at this address"}, 404)
    return FileResponse(STATIC / "missing.html", 404)


def _whole(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise WrongRequest(f"{name} is a whole number from {least} to {most}")
    return int(text)
