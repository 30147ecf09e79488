"""The JSON API, the pages, and where each is found."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headrace.check.window_lengths import window_lengths
from headrace.errors import HeadraceError
from headrace.history import History
from headrace.history.pages import SearchError, batch_page, change_mark, late_batches, runs_of, sampled, verdicts_of
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, history_file
from headrace.ui.graph import definition, graph
from headrace.ui.guard import COOKIE, NO_TOKEN, Guard
from headrace.ui.late import late
from headrace.ui.live import Live
from headrace.ui.looks import ROWS_MOST, Looks, Refused
from headrace.ui.openapi import openapi
from headrace.ui.series import series
from headrace.ui.standing import standings
from headrace.ui.verifying import AlreadyRunning, Verifying

STATIC = Path(__file__).parent / "static"
PAGE_MOST, POINTS_MOST, EVENTS_MOST = 500, 2_000, 1_000
BODY_BYTES = 20_000
MOST = {"limit": PAGE_MOST, "points": POINTS_MOST, "count": EVENTS_MOST, "rows": ROWS_MOST}
_LARGEST = 2**53
Answer: TypeAlias = Callable[[Request], Response]


class WrongRequest(ValueError):
    """A request that cannot be answered as it is; its text says why."""


class UnknownQuery(WrongRequest):
    """A request for a query that the project does not have."""


class Pages:
    """What each address answers; every call looks at the history anew and keeps nothing."""

    def __init__(self, project: Project, *, with_token: bool = False, verifying: Verifying | None = None) -> None:
        self._project = project
        self._with_token = with_token
        self._looks = Looks(project)
        self._verifying = verifying or Verifying(project)
        self._file = history_file(project.local_storage)
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
                    "plan": self._plan(query, history),
                    "may": {"act": self._with_token, "ask": query.sink.answers},
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

    def late(self, request: Request) -> Response:
        """How many rows were late, how late, and of which windows."""
        query = self._asked(request)
        with self._history() as history:
            found = late_batches(history, query.name, self._generation(request, history, query)) if history else []
        return self._json(late(found, window_lengths(self._project, query)))

    def ledger(self, request: Request) -> Response:
        """What the sink's ledger has of batches."""
        query = self._asked(request)
        first = _whole(request, "first", 0, least=0, most=_LARGEST)
        last = _whole(request, "last", first, least=first, most=first + PAGE_MOST)
        with self._history() as history:
            generation = self._generation(request, history, query) if history else 1
        return self._json(self._looks.ledger(query, generation, first, last))

    def rows(self, request: Request) -> Response:
        """The newest rows of the result."""
        query = self._asked(request)
        limit = _whole(request, "limit", 20, least=1, most=ROWS_MOST)
        if not self._with_token:
            return self._json({"error": NO_TOKEN}, 403)
        return self._looked(lambda: self._looks.rows(query, limit))

    async def ask(self, request: Request) -> Response:
        """What the database of a query's sink answers to one statement that reads."""
        given = await _body(request)
        query, statement = self._named(given.get("query")), given.get("sql")
        if not isinstance(statement, str):
            raise WrongRequest("sql is a text")
        return await run_in_threadpool(self._looked, lambda: self._looks.ask(query, statement))

    def verified(self, request: Request) -> Response:
        """Which verify runs, or how the last one that was started here ended."""
        return self._json(self._verifying.told())

    async def verify(self, request: Request) -> Response:
        """Start a verify."""
        query = self._named((await _body(request)).get("query"))
        try:
            return self._json(await run_in_threadpool(self._verifying.start, query.name), 202)
        except AlreadyRunning as error:
            return self._json({"error": str(error)}, 409)
        except OSError as error:
            return self._json({"error": f"verify cannot be started: {error.strerror or error}"}, 503)

    def _looked(self, look: Callable[[], Mapping[str, Any]]) -> Response:
        try:
            return self._json(look())
        except HeadraceError as error:
            (finding, *_) = error.findings
            return self._json({"error": finding.what, "fix": finding.fix, "code": finding.code}, 400)
        except Refused as error:
            return self._json({"error": str(error)}, 503)

    def _plan(self, query: Query, history: History | None) -> str | None:
        """The plans that the newest start has noted."""
        newest = next((run["generation"] for run in runs_of(history, query.name, 1)), 1) if history else 1
        try:
            return QueryLayout(self._project.storage, query.name, newest).plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

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
        return self._named(request.path_params["name"])

    def _named(self, name: object) -> Query:
        if not isinstance(name, str) or name not in self._project.queries:
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

    def _json(self, found: Mapping[str, Any], status: int = 200) -> Response:
        return JSONResponse(self._clean(found), status)

    def _clean(self, value: Any) -> Any:
        """Plain data without a secret in any text, and without numbers that JSON does not have."""
        if isinstance(value, str):
            return self._project.redacted(value)
        if isinstance(value, Mapping):
            return {str(key): self._clean(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value


def application(
    project: Project,
    *,
    hosts: Collection[str],
    token: str = "",
    secure: bool = False,
    verifying: Verifying | None = None,
) -> ASGIApp:
    """The application, behind its guard; `secure`: it is served by TLS; `verifying`: what starts its verifies."""
    pages = Pages(project, with_token=bool(token), verifying=verifying)

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
            Route("/api/queries/{name}/late", pages.late),
            Route("/api/queries/{name}/ledger", pages.ledger),
            Route("/api/queries/{name}/rows", pages.rows),
            Route("/api/ask", pages.ask, methods=["POST"]),
            Route("/api/verify", pages.verify, methods=["POST"]),
            Route("/api/verify", pages.verified),
            Route("/api/events", pages.events),
            Route("/api/openapi.json", lambda request: JSONResponse(openapi(MOST))),
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


async def _body(request: Request) -> Mapping[str, Any]:
    """The JSON object that was sent."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise WrongRequest(f"more than {BODY_BYTES} bytes were sent")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WrongRequest("a JSON object is sent")
    return found


def _whole(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise WrongRequest(f"{name} is a whole number from {least} to {most}")
    return int(text)
