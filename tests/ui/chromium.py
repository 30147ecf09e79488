"""Chromium without a window, and what of its inside shows that a page is well."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from selenium import webdriver

from tests.servers import unavailable

_SWITCHES = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"),
    *("disable-component-update", "disable-sync", "disable-dev-shm-usage"),
)


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium", "google-chrome")
    for switch in _SWITCHES:
        options.add_argument(f"--{switch}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(program("chromedriver")))
    found.set_script_timeout(60)
    try:
        yield found
    finally:
        found.quit()


def program(*names: str) -> str:
    """The path of the first of these programs that there is."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        unavailable(
            f"{names[0]} is missing: make servers installs it, as does apt-get install chromium chromium-driver"
        )
    return found


def faults(browser: webdriver.Chrome) -> list[str]:
    """What the console holds; asked for, it is empty again."""
    entries: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


@dataclass(frozen=True, kw_only=True)
class PageMemory:
    """What a page holds after a collection: the heap of its JavaScript, its nodes and its listeners."""

    heap_mb: float
    nodes: int
    listeners: int

    @classmethod
    def of(cls, browser: webdriver.Chrome) -> PageMemory:
        """Of the page that is open."""
        # What the first collection sets free may hold more, as DOM nodes do.
        for _ in range(2):
            browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        heap = browser.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]
        counted = browser.execute_cdp_cmd("Memory.getDOMCounters", {})
        return cls(heap_mb=round(heap / 2**20, 3), nodes=counted["nodes"], listeners=counted["jsEventListeners"])
