"""The pages in a real browser: no fault, nothing that does not fit, and what a reader has to find."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from headrace.api import load, run
from headrace.contract import Lag
from headrace.contract.observer import QueryState
from headrace.errors import Finding
from headrace.generations.log import history_file
from headrace.history import History
from headrace.ui.guard import LINK
from headrace.ui.server import ServedAddress, serve_in_background
from tests.registered import layout_in
from tests.rounds import only_usual, rounds
from tests.runner.projects import write_project
from tests.servers import unavailable
from tests.ui import made
from tests.ui.chromium import click, faults, look, program, texts, wait, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.browser
BATCHES = 400
TOKEN = "a-token-that-is-long-enough"
THEMES = ("dark", "light")
WIDTHS = (390, 1000, 1600)
# What is wider than the page, what lies over something else, and figures that are cut off.
MISPLACED = """
const found = [], name = (each) => each.getAttribute('aria-label') || each.textContent.slice(0, 40);
if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
const boxes = [...document.querySelectorAll('.card, .tile, .tools, .title, .bar > *')].map((each) => [each, each.getBoundingClientRect()]);
boxes.forEach(([a, one], at) => boxes.slice(at + 1).forEach(([b, other]) => {
  const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
  const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
  if (!a.contains(b) && !b.contains(a) && a.closest('.bar') === b.closest('.bar') && wide > 1 && high > 1) found.push(`${name(a)} over ${name(b)}`);
}));
document.querySelectorAll('.tile dd:not(.under)').forEach((each) => { if (each.scrollWidth > each.clientWidth) found.push(`cut off: ${name(each)}`); });
document.querySelectorAll('.card').forEach((card) => { const right = card.getBoundingClientRect().right; card.querySelectorAll('p, h2, button, input, canvas, dd').forEach((each) => {
  if (!each.closest('.scroll, pre') && each.getBoundingClientRect().right > right + 1) found.push(`out of ${name(card)}: ${name(each)}`); }); });
return found;
"""  # noqa: E501
STILL = f"const done = arguments[0]; setTimeout(() => done((() => {{ {MISPLACED} }})()), 300);"
AXE = "axe.run(document, {resultTypes: ['violations']}).then(arguments[arguments.length - 1])"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phones")


@pytest.fixture(scope="module")
def link(root: Path) -> Iterator[str]:
    """The link that is printed, of a project with a query that runs and has many batches, and one that has failed."""
    project = made.project(root)
    started = datetime.now(timezone.utc) - timedelta(seconds=BATCHES)
    made.fill(project, BATCHES, started=started)
    child = subprocess.Popen(
        [sys.executable, "-m", "headrace", "ui", "-C", str(root), "--port", "0", "--json"],
        env={**os.environ, "DATABASE_URL": f"postgresql://user:{made.PASSWORD}@localhost/phones"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        yield json.loads(child.stdout.readline())["url"]
    finally:
        child.terminate()
        child.wait(20)


@pytest.fixture(scope="module")
def address(window: webdriver.Chrome, link: str) -> str:
    """The dashboard's address, once its link was opened."""
    window.get(link)
    return link.partition("/?")[0]


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of axe-core, by npm."""
    npm, home = program("npm"), tmp_path_factory.mktemp("axe")
    asked = subprocess.run(
        [npm, "pack", "--silent", "axe-core@4.10.2"], cwd=home, capture_output=True, text=True, timeout=120, check=False
    )
    packed = next(home.glob("*.tgz"), None)
    if packed is None:
        unavailable(f"npm cannot fetch axe-core: {asked.stderr.strip()[:200]}")
    shutil.unpack_archive(packed, home, "gztar")
    return (home / "package" / "axe.min.js").read_text(encoding="utf-8")


PAGES = {"project": ("/", ".graph svg .node"), "query": ("/queries/counts", ".charts canvas")}


@pytest.mark.parametrize(("page", "theme"), only_usual(product(PAGES, THEMES), *zip(PAGES, THEMES, strict=True)))
def test_each_page_fits_every_width_without_a_fault(
    browser: webdriver.Chrome, address: str, axe: str, page: str, theme: str
) -> None:
    path, until = PAGES[page]
    for width in WIDTHS:
        look(browser, address + path, width=width, theme=theme, until=until)
        # The database of this project is away.
        assert [fault for fault in faults(browser) if "/rows?" not in fault] == []
        assert find_misplaced(browser) == [], width
        assert browser.execute_script("return document.documentElement.dataset.theme") == theme
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
        report: dict[str, Any] = browser.execute_async_script(AXE)
        wrong = {
            violation["id"]: [node["html"][:120] for node in violation["nodes"][:3]]
            for violation in report["violations"]
        }
        assert wrong == {}, width


# A page that is wider than the window, a table whose last columns are cut off, texts out of their node.
WIDER = """
const page = document.documentElement, found = page.scrollWidth > innerWidth ? [`page of ${page.scrollWidth}`] : [];
if (innerWidth > 1200) document.querySelectorAll(['Queries', 'Sources', 'Batches'].map((each) => `.scroll[aria-label=${each}]`)).forEach((each) => {
  if (each.scrollWidth > each.clientWidth + 1) found.push(`${each.getAttribute('aria-label')} is cut off`); });
document.querySelectorAll('.node').forEach((node) => { const box = node.querySelector('.box').getBoundingClientRect();
  node.querySelectorAll('text').forEach((text) => { if (text.getBoundingClientRect().right > box.right) found.push(`out of its node: ${text.textContent}`); }); });
const signs = [...document.querySelectorAll('.node')].map((node) => [node.querySelector('.kind').getBoundingClientRect(), node.querySelector('.sign').getBoundingClientRect()]);
if (signs.some(([kind, sign]) => sign.width && kind.right > sign.left)) found.push('a sign over a text');
return found;
"""  # noqa: E501


@pytest.mark.parametrize("width", rounds([400, 1400]))
def test_no_page_is_wider_than_the_window_however_long_its_names_and_rows_are(
    browser: webdriver.Chrome, tmp_path: Path, width: int
) -> None:
    project = made.wide(tmp_path)
    with serve_in_background(project, ServedAddress(port=0)) as link:
        browser.get(link)
        address = link.partition("/?")[0]
        rows = f"/queries/{made.LONG['order_counts']}"
        pages = {"/": ".graph svg .node .figure", rows: "[aria-label='Newest rows'] td"}
        for path, until in (pages | {f"/queries/{query}": ".tiles .tile" for query in project.queries} | pages).items():
            look(browser, address + path, width=width, until=until)
            assert wait(browser, lambda page: page.execute_script(WIDER) == [], 20) or path
        look(browser, f"{address}/", width=width, until=".graph svg .node")
        assert "mismatch" in words(browser, "Queries")
        assert any(text.endswith("…") for text in texts_of_nodes(browser))
        faults(browser)


def texts_of_nodes(browser: webdriver.Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('.node text')].map((each) => each.textContent)"
    return list(browser.execute_script(script))


def find_misplaced(browser: webdriver.Chrome) -> list[str]:
    """What is misplaced once the page stands still: on a loaded machine charts follow the width of the window late."""
    ends = time.monotonic() + 20
    while (elements := browser.execute_async_script(STILL)) and time.monotonic() < ends:
        pass
    return list(elements)


TOP = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
SCROLLS = "const box = document.querySelector(arguments[0]); return box.scrollWidth > box.clientWidth;"
HINT = "return getComputedStyle(document.querySelector(arguments[0]), '::before').content"


def test_on_a_telephone_what_needs_attention_is_first_and_what_is_wide_scrolls(
    browser: webdriver.Chrome, address: str
) -> None:
    look(browser, address + "/", width=400, until=".graph svg .node")
    order = [".attention", ".tiles", ".graph", "[aria-label='Queries'] table", ".events"]
    tops = [browser.execute_script(TOP, part) for part in order]
    assert tops == sorted(tops)
    assert browser.execute_script(SCROLLS, ".graph")
    assert browser.execute_script(SCROLLS, ".scroll[aria-label='Queries']")
    assert "Scroll sideways" in browser.execute_script(HINT, ".scroll[aria-label='Queries']")
    look(browser, address + "/", until=".graph svg .node")
    assert browser.execute_script(HINT, ".scroll[aria-label='Queries']") == "none"


def test_on_a_small_screen_what_needs_attention_is_above_the_graph(browser: webdriver.Chrome, address: str) -> None:
    look(browser, address + "/", width=1400, until=".graph svg .node")
    tops = [browser.execute_script(TOP, part) for part in (".tiles", ".attention", ".graph", ".events")]
    assert tops == sorted(tops)


FORMATS = {
    "compact": {0.5: "0.5", 99.97: "100", 9_999: "9,999", 12_345: "12.3k", 999_600: "1M", 1.25e12: "1,250G"},
    "seconds": {5.24: "5.2 s", 90: "1 min 30 s", -3600: "−1 h", 172_800: "2 days"},
    "moment": {"2026-01-01T12:59:54Z": "2026-01-01 12:59:54"},
}
FORMAT = """
const [name, values, done] = arguments;
import("/static/format.js").then((format) => done(values.map(format[name])));
"""


@pytest.mark.parametrize("name", FORMATS)
def test_figures_and_times_are_short_and_say_what_they_are(browser: webdriver.Chrome, address: str, name: str) -> None:
    look(browser, address + "/")
    values = list(FORMATS[name])
    assert dict(zip(values, browser.execute_async_script(FORMAT, name, values), strict=True)) == FORMATS[name]


def test_a_project_without_a_query_says_so(browser: webdriver.Chrome, tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text("name: nothing")
    with serve_in_background(load(tmp_path), ServedAddress(port=0)) as link:
        browser.get(link)
        for width in (400, 1400):
            look(browser, f"{link.partition('/?')[0]}/", width=width, until=".card")
            assert "declares no query" in "".join(texts(browser, ".card"))
            assert (find_misplaced(browser), faults(browser)) == ([], [])


def test_a_query_that_has_not_run_shows_no_error_and_no_number_of_nothing(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    with serve_in_background(made.project(tmp_path), ServedAddress(port=0)) as link:
        browser.get(link)
        look(browser, f"{link.partition('/?')[0]}/queries/counts", until=".tiles .tile")
        assert "has not run yet" in words(browser, "Newest rows")
        assert [tile for tile in texts(browser, ".tile") if "of the last 0" in tile or "– in all" in tile] == []
        assert faults(browser) == []


def test_the_page_of_a_query_has_sections_and_its_verdicts_have_words(browser: webdriver.Chrome, address: str) -> None:
    look(browser, address + "/queries/counts", width=400, until=".charts canvas")
    assert texts(browser, "nav.sections a") == [
        *("Charts", "Runs and verdicts", "Late rows", "What changed", "Definition", "Rows", "Batches")
    ]
    assert browser.execute_script(TOP, ".attention") < browser.execute_script(TOP, ".tiles")
    browser.find_elements(By.CSS_SELECTOR, "nav.sections a")[1].click()
    wait(browser, lambda page: 0 <= page.execute_script(TOP, "#runs") < 300)
    assert words(browser, "Verdicts, the oldest first").split() == ["✓", "equal"]


def test_a_small_run_has_no_empty_charts(browser: webdriver.Chrome, tmp_path: Path) -> None:
    project = made.project(tmp_path)
    made.fill(project, 2, started=datetime.now(timezone.utc) - timedelta(seconds=2))
    with serve_in_background(project, ServedAddress(port=0)) as link:
        browser.get(link)
        look(browser, f"{link.partition('?')[0]}queries/counts", until=".charts > *")
        assert texts(browser, ".charts")[0] == (
            "Charts begin with batch number 3 of the time that is shown; the table of batches has 2 batches."
        )
        assert not browser.find_elements(By.CSS_SELECTOR, "canvas")
        faults(browser)


def test_what_waits_while_nothing_runs_is_never_shown_as_no_lag(browser: webdriver.Chrome, tmp_path: Path) -> None:
    project = made.project(tmp_path)
    made.fill(project, 5, started=datetime.now(timezone.utc) - timedelta(seconds=60))
    with History.open(history_file(project.storage)) as history:
        history.end_run(2, "finished")
    (tmp_path / "landing" / "events").mkdir(parents=True)
    for number in range(40):
        (tmp_path / "landing" / "events" / f"{number}.json").write_text("{}")
    with serve_in_background(project, ServedAddress(port=0)) as link:
        browser.get(link)
        address = link.partition("/?")[0]
        for page, label in (("/", "Largest lag"), ("/queries/counts", "Lag")):
            look(browser, address + page, until=".tiles .tile")
            (tile,) = [tile.split() for tile in texts(browser, ".tile") if tile.startswith(f"{label}\n")]
            assert tile[len(label.split())] != "0", tile
        faults(browser)


def test_nothing_on_a_page_moves_while_it_loads_and_lives(browser: webdriver.Chrome, address: str) -> None:
    for path, until in PAGES.values():
        look(browser, address + path, until=until)
        shifts = browser.execute_async_script(
            "const done = arguments[0]; let sum = 0;"
            "new PerformanceObserver((list) => list.getEntries().forEach((each) => { sum += each.value; }))"
            ".observe({type: 'layout-shift', buffered: true}); setTimeout(() => done(sum), 1500);"
        )
        assert shifts < 0.02, path


def test_from_the_project_a_reader_finds_why_a_query_failed(browser: webdriver.Chrome, address: str) -> None:
    look(browser, address + "/", until=".graph svg .node")
    (needs,) = texts(browser, ".attention")
    assert "HR601" in needs
    assert "Fix: mend it" in needs
    click(browser, ".attention a")
    wait(browser, lambda page: page.find_elements(By.CSS_SELECTOR, "h1 + span .badge.bad"))
    assert browser.title.startswith("copied")
    assert "it broke" in words(browser, "Runs")


def test_batches_are_searched_and_opened(browser: webdriver.Chrome, address: str) -> None:
    look(browser, address + "/queries/counts", until=".charts canvas")
    table = "[aria-label='Batches'] tbody tr"
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Search the batches']").send_keys("390")
    wait(browser, lambda page: len(page.find_elements(By.CSS_SELECTOR, table)) == 1)
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Details of batch 390']").send_keys(Keys.ENTER)
    assert '{"logOffset":390} to {"logOffset":391}' in texts(browser, ".detail")[0]
    assert browser.switch_to.active_element.get_attribute("aria-expanded") == "true"


def test_the_keyboard_reaches_the_content_and_reads_a_chart(browser: webdriver.Chrome, address: str) -> None:
    look(browser, address + "/queries/counts", until=".charts canvas")
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    chart = browser.find_element(By.CSS_SELECTOR, ".chart")
    before = chart.text
    chart.send_keys(Keys.HOME)
    assert chart.text != before


def test_what_is_written_appears_on_an_open_page(browser: webdriver.Chrome, address: str, root: Path) -> None:
    look(browser, address + "/queries/counts", until=".charts canvas")
    newest = made.record(BATCHES, started=datetime.now(timezone.utc) - timedelta(seconds=BATCHES))
    lag, (events,), (state,) = Lag(count=1, unit="files", bytes=1), newest.sources, newest.operators
    one = {"backlog": lag, "sources": (replace(events, rows=1, lag=lag),), "operators": (replace(state, rows=1),)}
    with History.open(history_file(made.project(root).storage)) as history:
        history.record(2, replace(newest, state_rows=1, **one))  # type: ignore[arg-type]
    first = "[aria-label='Batches'] tbody td.num"
    wait(browser, lambda page: texts(page, first)[:1] == [str(BATCHES)])
    browser.find_element(By.CSS_SELECTOR, f"[aria-label='Details of batch {BATCHES}']").send_keys(Keys.ENTER)
    (text,) = texts(browser, "main")
    assert (
        {"1 file", "1 row"}
        <= set(re.findall(r"(?<![\d.,])1 (?:file|row|batch)(?:e?s)?\b(?!/)", text))
        <= {"1 file", "1 row", "1 batch"}
    )


def test_the_theme_that_is_chosen_stays(browser: webdriver.Chrome, address: str) -> None:
    look(browser, address + "/", theme="light")
    browser.find_element(By.ID, "theme").click()
    look(browser, address + "/queries/counts", theme="light")
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    browser.execute_script("localStorage.clear()")


def test_a_newcomer_finds_what_is_wrong_with_three_queries_and_asks_for_rows(
    browser: webdriver.Chrome, tmp_path: Path, axe: str
) -> None:
    project = made.newcomer(tmp_path)
    with serve_in_background(project, ServedAddress(port=0, token=TOKEN)) as url:
        address = url.rstrip("/")
        browser.get(address)
        browser.find_element(By.NAME, "token").send_keys(TOKEN)
        click(browser, "form button")
        findings = wait(browser, lambda page: texts(page, ".attention .finding"))
        facts = {
            "paid_orders": ("held back by 'payments'", "see why 'payments' gives nothing"),
            "order_counts": ("its lag grew over the last", "give the query more cores"),
            "archived": ("the disk is full", "make room"),
        }
        for query, (sentence, fix) in facts.items():
            (own,) = [text for text in findings if query in text and sentence in text]
            assert fix in own
        for query, (sentence, _) in facts.items():
            look(browser, f"{address}/")
            click(browser, f".attention a[href='/queries/{query}']")
            # The page before this one has the same words.
            wait(browser, lambda page, query=query: page.title.startswith(query))
            wait(browser, lambda page, sentence=sentence: sentence in words(page, "What needs attention"))
        look(browser, f"{address}/queries/order_counts", until="[aria-label='Newest rows'] td")
        assert "b" in words(browser, "Newest rows")
        box = browser.find_element(By.TAG_NAME, "textarea")
        box.send_keys("SELECT sum(n) FROM order_counts", Keys.CONTROL, Keys.ENTER)
        wait(browser, lambda page: page.find_elements(By.CSS_SELECTOR, "[aria-label='Answer'] td"))
        assert words(browser, "Answer").split() == ["sum(n)", "8"]
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            assert find_misplaced(browser) == [], width
        assert browser.find_element(By.XPATH, "//button[text()='Verify now']").is_enabled()
        assert faults(browser) == []
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
        assert browser.execute_async_script(AXE)["violations"] == []


def test_a_query_that_fails_again_and_again_is_in_trouble_with_its_next_attempt(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    project = made.newcomer(tmp_path)
    away = Finding(code="HR405", what="the disk is away", fix="bring it back")
    now = QueryState(query="order_counts", attempt=7, restarts=7, cause=away)
    at = datetime(2026, 1, 1, 15, 48, 10, tzinfo=timezone.utc)
    with History.open(history_file(project.storage)) as history:
        for _ in range(7):
            history.note("started", "order_counts", None, {"trigger": "t"})
            history.note("restarting", "order_counts", None, {"finding": away.as_dict()})
        history.note("killed", "paid_orders", None, {"pid": 4711})
        with serve_in_background(project, ServedAddress(port=0, token=TOKEN)) as url:
            browser.get(f"{url}?{LINK}={TOKEN}")
            moments = {"restarting": "restart 7, next 15:48:10", "starting": "restart 7", "running": "restart 7"}
            for state, which in moments.items():
                history.state(replace(now, state=state, next_attempt=at if state == "restarting" else None))  # type: ignore[arg-type]
                look(browser, url)
                wait(browser, lambda page, which=which: which in words(page, "Queries"))
                row = "//tr[td/a[text()='order_counts']]"
                assert browser.find_elements(By.XPATH, f"{row}//*[contains(@class, 'badge bad')]"), state
                assert browser.find_elements(By.XPATH, "//*[contains(@class, 'finding error')][.//a='order_counts']")
                assert "2 in trouble" in words(browser, "The project in figures")
                assert "because HR405: the disk is away" in (needs := words(browser, "What needs attention")) or (
                    "no batch committed yet since HR405: the disk is away" in needs
                ), state
            shown = words(browser, "Events")
            assert "started × 7" in shown
            assert "restarting × 7" in shown
            assert "process 4711 is gone without a word" in shown
            assert not browser.find_elements(By.CSS_SELECTOR, ".events .good")


VERIFIED = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger=hr.available_now)
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


def test_the_button_starts_a_verify_whose_verdict_appears(
    browser: webdriver.Chrome, tmp_path: Path, spark: SparkSession
) -> None:
    root = write_project(tmp_path / "p", VERIFIED, batches=[[{"name": "apple", "amount": 5}]])
    assert run(load(root), spark=spark).exit_code == 0
    with closing(sqlite3.connect(root / "out.db", isolation_level=None)) as db:
        db.execute("UPDATE totals SET total = 6")
    (version,) = map(json.loads, layout_in(root / ".headrace", "totals").versions.read_text().splitlines())
    assert "events.groupBy" in version["code"]["totals"]
    assert (version["from_batch"], "sum" in version["plan"], version["settings"]["mode"]) == (0, True, "update")
    with serve_in_background(load(root), ServedAddress(port=0, token=TOKEN)) as url:
        browser.get(f"{url}?{LINK}={TOKEN}")
        look(browser, f"{url}queries/totals", until="[aria-label='Newest rows'] td")
        assert "name total apple 6" in " ".join(words(browser, "Newest rows").split())
        button = browser.find_element(By.XPATH, "//button[text()='Verify now']")
        button.click()
        wait(browser, lambda page: "runs since" in words(page, "Verified"))
        assert not button.is_enabled()
        wait(browser, seconds=150, condition=lambda page: "ended: mismatch" in words(page, "Verified"))
        wait(browser, lambda page: page.find_elements(By.CSS_SELECTOR, "[aria-label='Verdicts'] td"))
        # Batch, rows read, expected; missing, unexpected, different, late.
        assert words(browser, "Verdicts").split()[-8:] == ["mismatch", *"0110010"]
        assert faults(browser) == []
