"""History, metrics and open pages next to a small batch: on and off by turns within one run, block by block.

Two runs of one project differ by more than what is asked for here. So one run switches between both sides every few
batches, in the order on, off, off, on; a block is compared with its neighbour, by the medians of their batches.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_until

PAGES = 20
WARM_UP = 40
SCRAPE_SECONDS = 15.0

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


def measure(*, runs: int, quick: bool) -> list[Figure]:
    """`runs` pairs of blocks for history and metrics, a quarter of them for pages."""
    size = 4 if quick else 20
    return [*_history_and_metrics(Blocks(first=WARM_UP, size=size, pairs=runs)), _pages(runs, quick=quick)]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Which batches are on and which off: from `first` on, in blocks of `size`."""

    first: int
    size: int
    pairs: int

    @property
    def last(self) -> int:
        return self.first + 2 * self.pairs * self.size

    def is_on(self, batch: int) -> bool:
        return batch >= self.first and (batch - self.first) // self.size % 4 in (0, 3)

    def sides(self, at: dict[int, datetime]) -> tuple[list[float], list[float]]:
        """The median of each block that is on, and of its neighbour that is off, in milliseconds.

        A batch is noted while the next one runs, so each block begins with a batch of the block before: two are left
        out.
        """
        sides: dict[bool, list[float]] = {True: [], False: []}
        for begin in range(self.first, self.last, self.size):
            batches = range(begin + 2, begin + self.size)
            gaps = [(at[n + 1] - at[n]).total_seconds() * 1000 for n in batches if n in at and n + 1 in at]
            sides[self.is_on(begin)].append(statistics.median(gaps))
        return sides[True], sides[False]


def _history_and_metrics(blocks: Blocks) -> list[Figure]:
    by_turns = Path(__file__).with_name("operate_by_turns.py")
    script = (sys.executable, str(by_turns), str(blocks.first), str(blocks.size))
    with _project() as home:
        at = _batches([*script, "run", "--json", "--metrics", "0"], home, blocks, _Scraper(blocks))
        spent: dict[int, float] = {}
        for line in (home / "spent").read_text().splitlines():
            batch, seconds = line.split()
            spent[int(batch)] = spent.get(int(batch), 0.0) + 1000 * float(seconds)
    on, off = blocks.sides(at)
    direct = [
        statistics.mean(spent[n] for n in range(begin, begin + blocks.size) if n in spent)
        for begin in range(blocks.first, blocks.last, blocks.size)
        if blocks.is_on(begin)
    ]
    return [
        Figure(
            name="history and metrics in a small stateful batch",
            ours=Side.of(on),
            theirs=Side.of(off),
            against="nothing noted, no metrics",
            unit="ms",
            target=1.01,
            note=f"from one batch to the next, medians of blocks of {blocks.size} batches of one run, by turns; "
            f"scraped every {SCRAPE_SECONDS:g} s; {_noise(on, off)}",
        ),
        Figure(
            name="what the driver does for history and metrics of a batch, most of it while the next one runs",
            ours=Side.of(direct),
            theirs=Side.of(on),
            against="the batch itself",
            unit="ms",
            target=0.01,
            note="the time between the begin and the end of its calls, their waits included",
        ),
    ]


def _pages(pairs: int, *, quick: bool) -> Figure:
    blocks = Blocks(first=WARM_UP, size=8 if quick else 40, pairs=max(3, pairs // 4))
    with _project() as home:
        at = _batches([*HEADRACE, "run", "--json", "--ui-port", "0"], home, blocks, _Opener(blocks))
    on, off = blocks.sides(at)
    return Figure(
        name=f"{PAGES} open pages next to a small stateful batch",
        ours=Side.of(on),
        theirs=Side.of(off),
        against="no page open",
        unit="ms",
        note="served from the driver's own process; what a page asks for, without the browser; medians of blocks of "
        f"{blocks.size} batches of one run, by turns; {_noise(on, off)}",
    )


def _noise(on: Sequence[float], off: Sequence[float]) -> str:
    """Between which ratios the median of pairs lies in nine of ten draws from the pairs."""
    pairs = [a / b for a, b in zip(on, off, strict=True)]
    chance = random.Random(1)
    drawn = sorted(statistics.median(chance.choices(pairs, k=len(pairs))) for _ in range(2_000))
    return f"the ratio of {len(pairs)} pairs is known to lie between {drawn[100]:.3f} and {drawn[1899]:.3f} (90 %)"


@contextmanager
def _project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as home:
        (Path(home) / "headrace.yml").write_text(_PROJECT, encoding="utf-8")
        yield Path(home)


def _batches(
    command: list[str], home: Path, blocks: Blocks, react: Callable[[dict[str, Any]], None]
) -> dict[int, datetime]:
    """When each batch was triggered; they follow each other at once, so that shows what comes after a batch, too."""
    at: dict[int, datetime] = {}

    def last_batch(line: str) -> bool:
        event = json.loads(line)
        if event["event"] == "batch":
            at[event["batch"]] = datetime.fromisoformat(event["at"].replace("Z", "+00:00"))
        react(event)
        return bool(event["event"] == "batch" and event["batch"] > blocks.last)

    lines_until(command, last_batch, cwd=home)
    return at


@dataclass
class _Scraper:
    """Asks for the metrics as Prometheus does, in the blocks that are on."""

    blocks: Blocks
    url: str = ""
    asked_at: float = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        text = event.get("finding", {}).get("what", "")
        if text.startswith("metrics are served at "):
            self.url = text.removeprefix("metrics are served at ").split()[0]
        # Half of the time is on, and that half is to be as it is with a scrape every so often.
        due = time.monotonic() - self.asked_at > SCRAPE_SECONDS / 2
        if self.url and due and event["event"] == "batch" and self.blocks.is_on(event["batch"]):
            self.asked_at = time.monotonic()
            urllib.request.urlopen(self.url, timeout=30).read()


@dataclass
class _Opener:
    """Opens the pages at the begin of each block that is on, and closes them at its end."""

    blocks: Blocks
    url: str = ""
    readers: list[_Reader] = field(default_factory=list)

    def __call__(self, event: dict[str, Any]) -> None:
        text = event.get("finding", {}).get("what", "")
        if text.startswith("the dashboard is at "):
            self.url = text.removeprefix("the dashboard is at ").partition(" ")[0]
        if event["event"] != "batch":
            return
        wanted = self.blocks.is_on(event["batch"]) and event["batch"] < self.blocks.last
        if wanted and not self.readers:
            self.readers = [_Reader(self.url) for _ in range(PAGES)]
        elif not wanted and self.readers:
            for reader in self.readers:
                reader.is_open = False
                assert reader.asked, "a page was shown nothing"
            self.readers = []


class _Reader(threading.Thread):
    """An open page of a query as the server sees it: the live events, and what query.js asks for after them."""

    # As in query.js and batches.js: at most once in so many seconds.
    ASKS = (("series?points=300&seconds=3600", 1.5), ("batches?limit=25&search=", 2.5))

    def __init__(self, link: str) -> None:
        super().__init__(daemon=True)
        self.link = link
        self.is_open = True
        self.asked = 0
        self.start()

    def run(self) -> None:
        asked_at = dict.fromkeys(self.ASKS, 0.0)
        # The link has the token, which the pages keep as a cookie.
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        place = self.link.partition("?")[0]
        with (
            suppress(ConnectionError),
            browser.open(self.link, timeout=30),
            browser.open(f"{place}api/live", timeout=30) as stream,
        ):
            for line in stream:
                if not self.is_open:
                    return
                if not line.startswith(b"data:"):
                    continue
                for ask in self.ASKS:
                    if time.monotonic() - asked_at[ask] >= ask[1]:
                        asked_at[ask] = time.monotonic()
                        browser.open(f"{place}api/queries/counts/{ask[0]}", timeout=30).read()
                        self.asked += 1
