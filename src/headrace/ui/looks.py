"""What is asked of the sinks' systems: rows, answers to SQL, and the lines of a ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from headrace.errors import HeadraceError
from headrace.model import Project, Query

ROWS_MOST, ANSWER_MOST = 100, 200
SECONDS = 5.0
# Pages that are open ask for the ledger after each batch; a database that is away is left alone for a while.
LEDGER_SECONDS, AWAY_SECONDS = 2.0, 30.0
LINES_KEPT = 5_000
_AT_ONCE = 2


class Refused(Exception):
    """A look that was not taken; its text says why."""


class Looks:
    """Looks into the systems of the sinks, a few at once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
        self._next: dict[tuple[str, int], float] = {}

    def rows(self, query: Query, limit: int) -> dict[str, Any]:
        """Return the newest rows of the result; raises HeadraceError."""
        if (answers := query.sink.answers) is None:
            return {"columns": [], "rows": [], "why": f"the rows of a sink '{query.sink_kind}' are read by Spark alone"}
        with self._one():
            return asdict(answers.newest_rows(limit=limit, seconds=SECONDS))

    def ask(self, query: Query, statement: str) -> dict[str, Any]:
        """Return what the system of the query's sink answers; raises HeadraceError."""
        if (answers := query.sink.answers) is None:
            problem = f"the sink '{query.sink_kind}' of query '{query.name}' answers no SQL"
            raise HeadraceError(code="HR889", what=problem, fix="ask a query whose sink is a database")
        with self._one():
            return asdict(answers.ask(statement, limit=ANSWER_MOST, seconds=SECONDS))

    def ledger(self, query: Query, generation: int, first: int, last: int) -> dict[str, Any]:
        """Return the ledger's lines of these batches, as far as known; the ledger itself is asked only now and then."""
        key = (query.name, generation)
        with self._lock:
            lines = self._lines.setdefault(key, {})
            missing = [batch for batch in range(first, last + 1) if batch not in lines]
            if missing and time.monotonic() >= self._next.get(key, 0.0):
                self._next[key] = time.monotonic() + AWAY_SECONDS
            else:
                missing = []
        if missing:
            try:
                newer = None
                if query.sink.answers is not None:
                    newer = query.sink.answers.ledger_lines(generation, missing[0], missing[-1])
            except HeadraceError:
                return {"lines": {}, "readable": False}
            if newer is None:
                return {"lines": {}, "readable": False}
            with self._lock:
                self._next[key] = time.monotonic() + LEDGER_SECONDS
                lines.update({batch: vars(line) for batch, line in newer.items()})
                for old in sorted(lines)[:-LINES_KEPT]:
                    del lines[old]
        with self._lock:
            return {"lines": {b: lines[b] for b in range(first, last + 1) if b in lines}, "readable": True}

    @contextmanager
    def _one(self) -> Iterator[None]:
        if not self._free.acquire(timeout=SECONDS):
            raise Refused("other questions are being answered; ask again in a moment")
        try:
            yield
        finally:
            self._free.release()
