"""What each address of the API answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from headrace.checks.state_bounds import window_lengths
from headrace.errors import HeadraceError
from headrace.generations.log import history_file
from headrace.generations.register import layout_of
from headrace.history import History, pages
from headrace.history.lag import SourceLags
from headrace.model import Project, Query
from headrace.ui.graph import definition, graph, versions
from headrace.ui.live import Live, Shared
from headrace.ui.looks import ROWS_MOST, Looks, Refused
from headrace.ui.running import NoMetrics, application_health, scrape_metrics
from headrace.ui.series import late, series
from headrace.ui.shown import ShownProject
from headrace.ui.standing import standings
from headrace.ui.verifying import AlreadyRunning, Verifying, Work

PAGE_MOST, POINTS_MOST, EVENTS_MOST = 500, 2_000, 1_000
_LARGEST = 2**53
BODY_BYTES = 20_000


class Answers:
    """What each address of one project answers; every call reads the history again and keeps nothing."""

    def __init__(self, shown: ShownProject | Project, *, verifying: Verifying | None = None) -> None:
        self._shown = shown if isinstance(shown, ShownProject) else ShownProject(shown)
        self._parts = _Parts.of(self._shown.project)
        self._verifying = verifying or Verifying(self._project)
        self._file = history_file(self._project.local_storage)
        self._watched: History | None = None
        self._mark: tuple[int, int] | None = None
        self.live = Live(self.look)
        self._shared = Shared(lambda: (since, self._mark) if (since := self.live.followed_since) else None)

    @property
    def _now(self) -> _Parts:
        """The project as it is shown now, with what is made of it."""
        project = self._shown.project
        if self._parts.project is not project:
            self._parts = _Parts.of(project, number=self._parts.number + 1)
        return self._parts

    @property
    def _project(self) -> Project:
        return self._now.project

    def project(self, request: Request) -> Response:
        """Return the whole project at a glance."""
        with self._history() as history:
            self._shown.refresh(history)
            return self._json({**self._about(), "graph": graph(self._project), **self._standings(history)})

    def query(self, request: Request) -> Response:
        """One query: what it is, how it stands, its runs and verdicts."""
        with self._history() as history:
            self._shown.refresh(history)
            query = self._query_of(request)
            return self._json(
                {
                    **self._about(),
                    "definition": definition(self._project, query),
                    **self._standings(history, query.name),
                    "runs": self._runs(history, query),
                    "verdicts": pages.verdicts_of(history, query.name) if history else [],
                    "plan": self._plan(query, history),
                    "spark_page": self._spark_page(query, history),
                    "answers_sql": query.sink.answers is not None,
                }
            )

    def has_query(self, name: str) -> bool:
        """Whether the project has a query of this name."""
        return name in self._project.queries

    def health(self, request: Request) -> Response:
        """Return whether the project's application runs, and its queries do their work."""
        state = application_health(self._project)
        return self._json(state, 200 if state["ok"] else 503)

    def metrics(self, request: Request) -> Response:
        """Return the metrics of the project's application, for Prometheus."""
        try:
            return PlainTextResponse(scrape_metrics(self._project))
        except NoMetrics as error:
            return self._json({"error": str(error)}, 503)

    def batches(self, request: Request) -> Response:
        """Return a page of batches, the newest first."""
        query = self._query_of(request)
        limit = whole_number(request, "limit", 50, least=1, most=PAGE_MOST)
        before = whole_number(request, "before", _LARGEST, least=0, most=_LARGEST)
        search = request.query_params.get("search", "")[:200]

        def page() -> Mapping[str, Any]:
            with self._history() as history:
                if history is None:
                    return {"batches": [], "before": None}
                generation = self._generation(request, history, query)
                of_query = (history, query.name, generation)
                batches, following = pages.batch_page(*of_query, before=before, limit=limit, search=search)
            return {"batches": [batch.as_dict() for batch in batches], "before": following}

        return self._for_all(request, page) if before == _LARGEST and not search else self._json(page())

    def series(self, request: Request) -> Response:
        """Batches as columns for charts."""
        query = self._query_of(request)
        points = whole_number(request, "points", 300, least=10, most=POINTS_MOST)
        seconds = whole_number(request, "seconds", 0, least=0, most=_LARGEST) or None

        def columns() -> Mapping[str, Any]:
            with self._history() as history:
                if history is None:
                    return series([], points)
                generation = self._generation(request, history, query)
                batches, step = pages.sample_batches(history, query.name, generation, seconds=seconds)
            return series(batches, points, step)

        return self._for_all(request, columns)

    def late(self, request: Request) -> Response:
        """Return how many rows were late, how late, and of which windows."""
        query = self._query_of(request)
        with self._history() as history:
            batches = (
                pages.late_batches(history, query.name, self._generation(request, history, query)) if history else []
            )
        return self._json(late(batches, window_lengths(self._project, query)))

    def versions(self, request: Request) -> Response:
        """Return what changed: the versions of its code, settings and plan that ran, the newest first."""
        query = self._query_of(request)
        with self._history() as history:
            newest = _newest_generation(history, query)
        return self._json({"versions": versions(layout_of(self._project, query), newest)})

    def ledger(self, request: Request) -> Response:
        """Return the ledger's lines of the batches `first` to `last`, at most one page of them."""
        query = self._query_of(request)
        first = whole_number(request, "first", 0, least=0, most=_LARGEST)
        last = min(whole_number(request, "last", first, least=0, most=_LARGEST), first + PAGE_MOST)
        with self._history() as history:
            generation = self._generation(request, history, query) if history else 1
        return self._json(self._now.looks.ledger(query, generation, first, last))

    def rows(self, request: Request) -> Response:
        """Return the newest rows of the result."""
        query = self._query_of(request)
        limit = whole_number(request, "limit", 20, least=1, most=ROWS_MOST)
        return self._answer_look(lambda: self._now.looks.rows(query, limit))

    async def ask(self, request: Request) -> Response:
        """Return what the database of a query's sink answers to one statement that reads."""
        given = await json_body(request)
        query, statement = self._find_query(given.get("query")), given.get("sql")
        if not isinstance(statement, str):
            raise WrongRequest("sql is a text")
        return await run_in_threadpool(self._answer_look, lambda: self._now.looks.ask(query, statement))

    def work_state(self, request: Request) -> Response:
        """Return which verify or search for late rows runs, or how the last one that was started here ended."""
        return self._json(self._verifying.state())

    async def verify(self, request: Request) -> Response:
        """Start a verify."""
        return await self._start(request, "verify")

    async def late_rows(self, request: Request) -> Response:
        """Start to read the late rows themselves."""
        return await self._start(request, "late")

    async def _start(self, request: Request, work: Work) -> Response:
        query = self._find_query((await json_body(request)).get("query"))
        try:
            return self._json(await run_in_threadpool(self._verifying.start, query.name, work), 202)
        except AlreadyRunning as error:
            return self._json({"error": str(error)}, 409)
        except OSError as error:
            return self._json({"error": f"{work} cannot be started: {error.strerror or error}"}, 503)

    def _answer_look(self, look: Callable[[], Mapping[str, Any]]) -> Response:
        try:
            return self._json(look())
        except HeadraceError as error:
            (finding, *_) = error.findings
            return self._json({"error": finding.what, "fix": finding.fix, "code": finding.code}, 400)
        except Refused as error:
            return self._json({"error": str(error)}, 503)

    def _plan(self, query: Query, history: History | None) -> str | None:
        """Return the plans that the newest start has noted."""
        newest = _newest_generation(history, query)
        try:
            return replace(layout_of(self._project, query), generation=newest).plan.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def _spark_page(self, query: Query, history: History | None) -> str | None:
        """Where Spark's own page of the newest run is, while that run lasts."""
        newest = next(iter(pages.runs_of(history, query.name, 1)), None) if history else None
        if history is None or newest is None or newest["ended"]:
            return None
        page = pages.spark_page(history, query.name, newest["id"])
        return page if page and page.startswith(("http://", "https://")) else None

    def events(self, request: Request) -> Response:
        """Return the newest events, the newest first."""
        count = whole_number(request, "count", 200, least=1, most=EVENTS_MOST)
        query = request.query_params.get("query") or None
        with self._history() as history:
            events = history.events(count, query=query) if history else []
        return self._json({"events": [event.as_dict() for event in reversed(events)]})

    async def follow(self, request: Request) -> Response:
        """Server-sent events: how all queries stand, each time that it changes."""
        return StreamingResponse(self.live.stream(), media_type="text/event-stream")

    def look(self, again: bool) -> dict[str, Any] | None:
        """Return how all queries stand, if anything was written since the last look, or in any case; never raises."""
        try:
            with self._open_history() as history:
                mark = (id(history), pages.change_mark(history)) if history else None
                if mark == self._mark and not again:
                    return None
                self._mark = mark
                self._shown.refresh(history)
                if history is not None:
                    history.note_killed()
                standings: dict[str, Any] = self._clean(self._standings(history))
                return standings
        except HeadraceError as error:
            return {"findings": [self._project.redacted_finding(finding).as_dict() for finding in error.findings]}

    def _standings(self, history: History | None, query: str | None = None) -> dict[str, Any]:
        project = self._project if query is None else self._project.only([query])
        newest = history.events(1) if history else []
        return {
            "queries": standings(project, history, self._now.lags),
            "newest_event": newest[-1].id if newest else 0,
            "declared": self._now.number,
        }

    def _runs(self, history: History | None, query: Query) -> list[dict[str, Any]]:
        """Its newest runs; one that did not say how it ended, and is not the newest, was killed."""
        runs = pages.runs_of(history, query.name) if history else []
        return [{**run, "state": run["state"] if run["ended"] or at == 0 else "killed"} for at, run in enumerate(runs)]

    def _about(self) -> dict[str, Any]:
        return {"name": self._project.name, "target": self._project.target.name, "version": version("headrace")}

    def _query_of(self, request: Request) -> Query:
        return self._find_query(request.path_params["name"])

    def _find_query(self, name: object) -> Query:
        if not isinstance(name, str) or name not in self._project.queries:
            raise UnknownQuery(f"there is no query '{name}' in the project '{self._project.name}'")
        return self._project.queries[name]

    def _generation(self, request: Request, history: History, query: Query) -> int:
        return whole_number(request, "generation", _newest_generation(history, query), least=1, most=_LARGEST)

    @contextmanager
    def _history(self) -> Iterator[History | None]:
        """Open the history for one answer; None before the first run."""
        if not self._file.exists():
            yield None
            return
        with History.open(self._file, read_only=True) as history:
            yield history

    @contextmanager
    def _open_history(self) -> Iterator[History | None]:
        """Use the history that stays open, as SQLite then reports writes of others; open it again after a fault.

        A file that was moved away is closed.
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

    def _for_all(self, request: Request, make: Callable[[], Mapping[str, Any]]) -> Response:
        """One answer for all pages that ask this after the same event."""
        key = f"{request.url.path}?{request.url.query}"
        body = self._shared.get(key, lambda: bytes(self._json(make()).body))
        return Response(body, media_type="application/json")

    def _json(self, facts: Mapping[str, Any], status: int = 200) -> Response:
        return JSONResponse(self._clean(facts), status)

    def _clean(self, value: Any) -> Any:
        """Plain data without a secret in any text, and without numbers that JSON does not have."""
        if isinstance(value, str):
            return self._project.redacted(value)
        if isinstance(value, Mapping):
            return {str(key): self._clean(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._clean(part) for part in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value


def _newest_generation(history: History | None, query: Query) -> int:
    return next((int(run["generation"]) for run in pages.runs_of(history, query.name, 1)), 1) if history else 1


@dataclass(frozen=True)
class _Parts:
    """What is made of a project; number: how many were shown before it."""

    project: Project
    looks: Looks
    lags: SourceLags
    number: int

    @classmethod
    def of(cls, project: Project, *, number: int = 0) -> _Parts:
        return cls(project=project, looks=Looks(project), lags=SourceLags(project), number=number)


class WrongRequest(ValueError):
    """A request that cannot be answered as it is; its text says why."""


class UnknownQuery(WrongRequest):
    """A request for a query that the project does not have."""


async def json_body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object that was sent."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise WrongRequest(f"more than {BODY_BYTES} bytes were sent")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise WrongRequest("a JSON object is sent")
    return document


def whole_number(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number of the address, `default` without it; raises WrongRequest."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise WrongRequest(f"{name} is a whole number from {least} to {most}")
    return int(text)
