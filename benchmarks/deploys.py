"""The batches of a query that a deploy does not touch: while another query is deployed, and just before."""

from __future__ import annotations

import json
import sqlite3
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import headrace as hr
from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_until

TITLE = "the batches of an untouched query during deploys of another one"
RUNS = 10
WARM_UP = 40
BEFORE = 10

_PROJECT = """name: tiny
sources:
  numbers:
    rate_micro_batch: {{rows_per_batch: 1000}}
queries:
  steady:
    select: SELECT value % 100 AS key, count(*) AS count FROM numbers GROUP BY value % 100
    mode: update
    trigger: {{every: 500 ms}}
    sink: {{sqlite: {{path: steady.db, table: counts, key: [key]}}}}
  edited:
    select: SELECT value, {version} AS version FROM numbers
    trigger: {{every: 500 ms}}
    on_change: forward
    sink: {{sqlite: {{path: edited.db, table: copied}}}}
targets:
  dev: {{master: "local[2]"}}
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    """`runs` deploys in a row; the median batch while each is at work against that of the batches before it."""
    with _project() as home:
        watch = _Deploys(home, deploys=max(runs, 2), warm_up=5 if quick else WARM_UP)
        lines_until([*HEADRACE, "run", "--json"], watch, cwd=home)
        _require_whole(home)
    return [
        Figure(
            name="a batch of an untouched query while another one is deployed",
            ours=Side.of(watch.during),
            theirs=Side.of(watch.before),
            against=f"the {BEFORE} batches before that deploy",
            unit="ms",
            target=1.2,
            note=f"{len(watch.during)} deploys in a row; medians of the batches that a deploy overlaps",
        )
    ]


@contextmanager
def _project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as home:
        _write(Path(home), 0)
        yield Path(home)


def _write(home: Path, version: int) -> None:
    (home / "headrace.yml").write_text(_PROJECT.format(version=version), encoding="utf-8")


class _Deploys:
    """Begins a deploy after each `BEFORE` batches of the steady query; true for the line after the last one.

    before, during: the median duration of the batches before each deploy, and of those while it was at work.
    """

    def __init__(self, home: Path, *, deploys: int, warm_up: int) -> None:
        self._home, self._deploys, self._left = home, deploys, warm_up
        self._durations: list[float] = []
        self._deploy: threading.Thread | None = None
        self._failed = ""
        self.before: list[float] = []
        self.during: list[float] = []

    def __call__(self, line: str) -> bool:
        event = json.loads(line)
        if event["event"] == "batch" and event["query"] == "steady":
            self._take(float(event["duration_ms"]))
        if self._failed:
            raise RuntimeError(f"a deploy has failed: {self._failed}")
        return len(self.during) == self._deploys

    def _take(self, milliseconds: float) -> None:
        if self._left:
            self._left -= 1
            return
        self._durations.append(milliseconds)
        if self._deploy is None and len(self._durations) == BEFORE:
            self.before.append(statistics.median(self._durations))
            self._durations = []
            self._deploy = threading.Thread(target=self._bring, args=(len(self.before),))
            self._deploy.start()
        elif self._deploy is not None and not self._deploy.is_alive():
            # The line of a batch comes after the batch: this one has begun while the deploy was at work.
            self.during.append(statistics.median(self._durations))
            self._durations, self._deploy = [], None

    def _bring(self, version: int) -> None:
        _write(self._home, version)
        (result,) = hr.running(hr.load(self._home)).deploy()
        actions = {step.query: step.action for step in result.steps}
        if not result.done or actions != {"steady": "keep", "edited": "restart"}:
            self._failed = str(result)


def _require_whole(home: Path) -> None:
    """Raise if a batch of the steady query is missing or was made twice, or a version was not written."""
    with closing(sqlite3.connect(home / "steady.db")) as db:
        (rows,) = db.execute("SELECT sum(count) FROM counts").fetchone()
        batches, last = db.execute("SELECT count(*), max(batch) FROM _headrace_ledger").fetchone()
    if rows != 1000 * batches or batches != last + 1:
        raise RuntimeError(f"{batches} batches up to {last} have counted {rows} rows")
