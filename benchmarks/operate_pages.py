"""The page of a query in Chromium: how soon it is drawn over a long history, and whether it grows while it is open."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import patch

from benchmarks.figures import Figure, Side, Unit

# An hour has so many events, one a second.
HOUR = 3_600
FASTER = 30
SAMPLES = 18


def measure(*, runs: int, quick: bool) -> list[Figure]:
    batches = 2_000 if quick else 100_000
    return [
        _paint(runs, batches, kept=batches),
        # What a history keeps of so many; the rest is in the archive, which the pages do not read.
        _paint(runs, batches, kept=batches // 10),
        *_open_page(240 if quick else HOUR),
    ]


def _paint(runs: int, batches: int, *, kept: int) -> Figure:
    """From the address to the drawn charts of the page of a query whose history holds the newest `kept` batches."""
    from headrace.ui.server import ServedAddress, serve_in_background
    from tests.ui import made
    from tests.ui.chromium import chromium

    with _scratch() as home, chromium(home / "browser") as browser:
        project = made.project(home / "project")
        made.fill(
            project, batches, first=batches - kept, started=datetime.now(timezone.utc) - timedelta(seconds=batches)
        )
        painted, drawn = [], []
        with serve_in_background(project, ServedAddress(port=0)) as link:
            browser.get(link)
            for _ in range(runs):
                browser.get(_page(link))
                drawn.append(float(browser.execute_async_script(_DRAWN)) / 1000)
                painted.append(float(browser.execute_script(_PAINTED)) / 1000)
    archived = "" if kept == batches else f", of which the history keeps {kept:,}"
    return Figure(
        name=f"the page of a query with {batches:,} batches{archived}: drawn",
        ours=Side.of(drawn),
        theirs=Side.of(painted),
        against="its first paint",
        unit="s",
        target=1.0,
        target_of="ours",
    )


def _page(link: str) -> str:
    """The page of the query, for a browser that was given its token by the link."""
    return f"{link.partition('?')[0]}queries/counts"


_DRAWN = """
const done = arguments[0];
const ready = () => document.querySelector('.charts canvas');
const wait = () => (ready() ? requestAnimationFrame(() => done(performance.now())) : setTimeout(wait, 5));
wait();
"""
_PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
# The page's own pauses between two requests are shorter by the same factor, and its requests are counted.
_HURRIED = """
const later = window.setTimeout, ask = window.fetch;
window.setTimeout = (work, pause, ...more) => later(work, pause / FASTER, ...more);
window.asked = 0;
window.fetch = (...given) => { window.asked += 1; return ask(...given); };
"""


def _open_page(events: int) -> list[Figure]:
    """A page that is open for an hour, whose seconds are shorter: a batch and an event each."""
    from headrace.generations.log import history_file
    from headrace.history import History
    from headrace.ui import live
    from headrace.ui.server import ServedAddress, serve_in_background
    from tests.ui import made
    from tests.ui.chromium import PageMemory, chromium

    held: list[PageMemory] = []
    with _scratch() as home, chromium(home / "browser") as browser:
        project = made.project(home / "project")
        started = datetime.now(timezone.utc) - timedelta(seconds=2 * events)
        made.fill(project, events, started=started)
        hurried = _HURRIED.replace("FASTER", str(FASTER))
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": hurried})
        with (
            patch.multiple(live, LOOK_SECONDS=live.LOOK_SECONDS / FASTER, REREAD_SECONDS=live.REREAD_SECONDS / FASTER),
            serve_in_background(project, ServedAddress(port=0)) as link,
            History.open(history_file(project.storage)) as history,
        ):
            browser.get(link)
            browser.get(_page(link))
            browser.execute_async_script(_DRAWN)
            begun = time.monotonic()
            for number in range(1, events + 1):
                history.record(2, made.record(events + number - 1, started=started))
                time.sleep(max(0.0, begun + number / FASTER - time.monotonic()))
                if number % (events // SAMPLES) == 0:
                    held.append(PageMemory.of(browser))
            took = time.monotonic() - begun
            asked = browser.execute_script("return window.asked")
    held, third = held[-SAMPLES:], SAMPLES // 3
    note = f"{events:,} events and {asked:,} requests of the page in {took:.0f} s, {FASTER} times as fast as an hour"
    held_of: tuple[tuple[str, str, Unit], ...] = (
        ("heap_mb", "its JavaScript heap after a collection", "MB"),
        ("nodes", "its DOM nodes", "nodes"),
        ("listeners", "its event listeners", "listeners"),
    )
    return [
        Figure(
            name=f"a page that is open for {events:,} seconds: {title}",
            ours=Side.of([getattr(sample, key) for sample in held[-third:]]),
            theirs=Side.of([getattr(sample, key) for sample in held[third:-third]]),
            against="the same page a third of this time earlier",
            unit=unit,
            target=1.05,
            note=note,
        )
        for key, title, unit in held_of
    ]


@contextmanager
def _scratch() -> Iterator[Path]:
    # Below the working directory: a temporary one may be in memory.
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as scratch:
        yield Path(scratch)
