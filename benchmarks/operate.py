"""What watching costs: history and metrics in a small batch, open pages, and the first paint of a long history."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_until

TITLE = "watching: history, metrics and open pages beside a batch of 0.2 s, and the first paint of a long history"
RUNS = 5
PAGES = 20

_PROJECT = """name: tiny
sources:
  numbers:
    rate_micro_batch: {rows_per_batch: 1000}
queries:
  counts:
    select: SELECT value % 100 AS key, count(*) AS count FROM numbers GROUP BY value % 100
    mode: update
    sink: {sqlite: {path: result.db, table: counts, key: [key]}}
targets:
  dev: {master: "local[2]"}
"""
# There is no switch for the history: the other side is the same run, in which nothing of a batch is noted.
_UNWATCHED = """
import sys
from headrace.history import History
History.record = History.heartbeat = History.note = lambda *_, **__: None
from headrace.cli.entry import main
sys.exit(main(sys.argv[1:]))
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    first, last = (3, 8) if quick else (20, 220)
    unwatched = (sys.executable, "-c", _UNWATCHED)
    return [
        _pairs(
            "history and metrics in a small stateful batch",
            lambda: _median([*HEADRACE, "run", "--json", "--metrics", "0"], first, last),
            lambda: _median([*unwatched, "run", "--json"], first, last),
            runs,
            against="nothing noted, no metrics",
            target=1.01,
        ),
        _pairs(
            f"{PAGES} open pages beside it",
            lambda: _median([*HEADRACE, "run", "--json", "--ui-port", "0"], first, last, pages=PAGES),
            lambda: _median([*HEADRACE, "run", "--json", "--ui-port", "0"], first, last),
            runs,
            against="no page open",
            target=None,
        ),
        _paint(runs, 2_000 if quick else 100_000),
    ]


def _pairs(
    name: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    runs: int,
    *,
    against: str,
    target: float | None,
) -> Figure:
    took: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(runs):
        # What runs second finds a warmer machine, or a busier one.
        for side, run in sorted({"ours": ours, "theirs": theirs}.items(), reverse=turn % 2 == 1):
            took[side].append(run())
    note = "triggerExecution and what follows it: from one batch to the next, median"
    sides = {side: Side.of(found) for side, found in took.items()}
    return Figure(name=name, against=against, unit="ms", target=target, note=note, **sides)


def _median(command: list[str], first: int, last: int, pages: int = 0) -> float:
    """The median time from one batch to the next, as they follow at once; so it has what comes after a batch, too."""
    at: dict[int, datetime] = {}
    readers: list[_Reader] = []

    def last_batch(line: str) -> bool:
        said = json.loads(line)
        told = said.get("finding", {})
        if pages and told.get("code") == "HR886":
            url = told["what"].removeprefix("the dashboard is at ").partition(" ")[0]
            readers.extend(_Reader(url) for _ in range(pages))
        if said["event"] == "batch":
            at[said["batch"]] = datetime.fromisoformat(said["at"].replace("Z", "+00:00"))
        return bool(said["event"] == "batch" and said["batch"] >= last)

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        (Path(scratch) / "headrace.yml").write_text(_PROJECT, encoding="utf-8")
        lines_until(command, last_batch, cwd=Path(scratch))
    for reader in readers:
        reader.join(10)
    found = [(at[n + 1] - at[n]).total_seconds() * 1000 for n in range(first, last) if n in at and n + 1 in at]
    return statistics.median(found)


class _Reader(threading.Thread):
    """An open page of a query as the server sees it: the live events, and what is asked after each of them."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.start()

    def run(self) -> None:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}api/live", timeout=30) as stream:
            for line in stream:
                if line.startswith(b"data:"):
                    for part in ("series?points=300&seconds=3600", "batches?limit=25"):
                        urllib.request.urlopen(f"{self.url}api/queries/counts/{part}", timeout=30).read()


def _paint(runs: int, batches: int) -> Figure:
    """From the address to the drawn charts of a query's page, in Chromium."""
    from headrace.ui.server import Address, beside
    from tests.ui import made

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch, _chromium(Path(scratch)) as browser:
        project = made.project(Path(scratch) / "project")
        made.fill(project, batches, started=datetime.now(timezone.utc) - timedelta(seconds=batches))
        painted, drawn = [], []
        with beside(project, Address(port=0)) as url:
            for _ in range(runs):
                browser.get(f"{url}queries/counts")
                drawn.append(float(browser.execute_async_script(_DRAWN)) / 1000)
                painted.append(float(browser.execute_script(_PAINTED)) / 1000)
    return Figure(
        name=f"the page of a query with {batches:,} batches, drawn",
        ours=Side.of(drawn),
        theirs=Side.of(painted),
        against="its first paint",
        unit="s",
        target=1.0,
        target_of="ours",
    )


_DRAWN = """
const done = arguments[0];
const ready = () => document.querySelector('.charts canvas');
const wait = () => (ready() ? requestAnimationFrame(() => done(performance.now())) : setTimeout(wait, 5));
wait();
"""
_PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"


@contextmanager
def _chromium(scratch: Path) -> Iterator[Any]:
    import shutil

    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    for switch in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{switch}")
    options.add_argument(f"--user-data-dir={scratch / 'browser'}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    browser.set_script_timeout(60)
    try:
        yield browser
    finally:
        browser.quit()
