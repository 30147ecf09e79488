"""Chromium without a window, and what of its inside shows that a page is well."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.remote_connection import RemoteConnection
from selenium.webdriver.support.ui import WebDriverWait

from tests.servers import unavailable

Found = TypeVar("Found")
# A page of ours is drawn in a tenth of a second; three tests at a time, each with a JVM, leave little of a machine.
PATIENCE_SECONDS = 120.0
SETTLED = """
const done = arguments[arguments.length - 1];
const drawn = () => document.querySelector(arguments[0]) && document.querySelector('.live.on');
const wait = () => setTimeout(drawn() ? done : wait, drawn() ? 300 : 50);
wait();
"""

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
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(program("chromedriver")))
    browser.set_script_timeout(PATIENCE_SECONDS)
    browser.set_page_load_timeout(PATIENCE_SECONDS)
    # A driver that does not answer fails its test, in place of the whole run.
    assert isinstance(browser.command_executor, RemoteConnection)
    browser.command_executor.client_config.timeout = 2 * PATIENCE_SECONDS
    try:
        yield browser
    finally:
        browser.quit()


def program(*names: str) -> str:
    """The path of the first of these programs that there is."""
    file = next((path for name in names if (path := shutil.which(name))), None)
    if file is None:
        unavailable(
            f"{names[0]} is missing: make servers installs it, as does apt-get install chromium chromium-driver"
        )
    return file


def faults(browser: webdriver.Chrome) -> list[str]:
    """What the console holds; asked for, it is empty again."""
    entries: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def look(
    browser: webdriver.Chrome, url: str, *, width: int = 1600, theme: str = "light", until: str = "main > *"
) -> None:
    """Open a page of the dashboard, and wait until it is drawn and lives."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(url)
    browser.execute_async_script(SETTLED, until)


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    """What each element of the selector shows, asked for at once: a live page draws its parts again."""
    script = "return [...document.querySelectorAll(arguments[0])].map(element => element.innerText)"
    return list(browser.execute_script(script, selector))


def words(browser: webdriver.Chrome, label: str) -> str:
    """What the part of the page with this label shows. Raises NoSuchElementException."""
    shown = texts(browser, f"[aria-label='{label}']")
    if not shown:
        raise NoSuchElementException(f"nothing is labelled {label!r}")
    return shown[0]


def wait(
    browser: webdriver.Chrome, condition: Callable[[webdriver.Chrome], Found], seconds: float = PATIENCE_SECONDS
) -> Found:
    """What `condition` gives as soon as that is something; its elements may be drawn again meanwhile, or lack."""
    waiting = WebDriverWait(browser, seconds, 0.1, ignored_exceptions=[StaleElementReferenceException])
    return waiting.until(condition)


def click(browser: webdriver.Chrome, selector: str) -> None:
    """Click what the selector finds, also where the page draws it again at that moment."""

    def clicked(page: webdriver.Chrome) -> bool:
        page.find_element(By.CSS_SELECTOR, selector).click()
        return True

    wait(browser, clicked)


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
