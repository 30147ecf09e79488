"""Take the pictures of the dashboard for the docs: `python -m scripts.screenshots`, in half a minute and without Spark.

The pages show the history of a shop, which is made here: orders, of which some come late, and payments, which fell
silent. Chromium takes the pages and the cards, in the dark and in the light theme.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

import headrace as hr
from headrace.contract import BatchRecord, Lag, OperatorProgress, SourceProgress
from headrace.contract.observer import QueryState
from headrace.generations.log import history_file
from headrace.history import History
from headrace.model import Project
from headrace.ui.server import ServedAddress, serve_in_background
from tests.registered import layout_in
from tests.ui import made
from tests.ui.chromium import chromium

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
TOKEN = "a-token-for-the-pictures"
PROJECT = """
name: shop
sources:
  orders:
    files: {path: orders, format: json, schema: "id BIGINT, ordered TIMESTAMP, item STRING, amount INT"}
    watermark: {column: ordered, delay: 30 seconds}
  payments:
    files: {path: payments, format: json, schema: "order_id BIGINT, paid TIMESTAMP"}
    watermark: {column: paid, delay: 30 seconds}
views:
  large_orders: {select: "SELECT * FROM orders WHERE amount >= 80"}
queries:
  order_counts:
    select: >
      SELECT item, window(ordered, '1 minute').start AS minute, count(*) AS orders, sum(amount) AS amount
      FROM orders GROUP BY item, window(ordered, '1 minute')
    mode: update
    trigger: {every: 2 seconds}
    sink: {sqlite: {path: shop.db, table: order_counts, key: [item, minute]}}
  paid_orders:
    select: >
      SELECT o.id, o.item, o.amount, p.paid FROM orders o JOIN payments p
      ON o.id = p.order_id AND p.paid BETWEEN o.ordered AND o.ordered + INTERVAL 2 MINUTES
    trigger: {every: 2 seconds}
    sink: {sqlite: {path: paid.db, table: paid_orders, key: [id]}}
  large:
    select: SELECT id, ordered, item, amount FROM large_orders
    trigger: {every: 2 seconds}
    sink: {sqlite: {path: large.db, table: large, key: [id]}}
"""
ITEMS = ("apples", "bread", "coffee", "dates", "eggs", "flour")
BATCHES = 900
PLAN = """== Physical Plan ==
StateStoreSave [item, window], Append, 1 minute
+- StateStoreRestore [item, window]
   +- Exchange hashpartitioning(item, window, 4)
      +- HashAggregate(keys=[item, window], functions=[partial_count(1), partial_sum(amount)])
         +- EventTimeWatermark ordered, 30 seconds
"""
# The cards by the label of their section, and what they are called in docs/images.
CARDS = {
    "Event time": "event-time",
    "Batch duration by phase": "phases",
    "Late rows, how late": "late-rows",
    "Definition": "plan",
    "Newest rows": "newest-rows",
    "Ask": "ask",
    "Verified": "verify",
    "Batches": "ledger",
}


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch, chromium(Path(scratch) / "profile") as browser:
        root = Path(scratch) / "shop"
        root.mkdir()
        (root / "headrace.yml").write_text(PROJECT)
        project = hr.load(root)
        _fill(project)
        with serve_in_background(project, ServedAddress(port=0, token=TOKEN)) as url:
            _take(browser, url)
    return 0


def _fill(project: Project) -> None:
    """A history of half an hour, with the results and the ledger of one of its queries."""
    chance, started = random.Random(4), datetime.now(timezone.utc) - timedelta(seconds=2 * BATCHES)
    with History.open(history_file(project.storage)) as history:
        for query in project.queries:
            run = history.begin_run(query, pid=os.getpid(), mode="update", trigger="t", sink="sqlite", generation=1)
            history.state(QueryState(query=query, state="running", healthy=True), run)
            history.note("started", query, run, {"trigger": "every 2 seconds"})
            for batch in range(BATCHES):
                history.record(run, _batch(query, batch, started, chance))
        for state in ("equal", "equal", "late", "late", "mismatch", "late", "late"):
            counts = {"rows_read": 45_210, "rows_expected": 186, "rows_late": 37 * (state != "equal")}
            wrong = {"missing": 0, "unexpected": 0, "different": int(state == "mismatch")}
            history.record_verdict("order_counts", json.dumps({"verdict": state, "batch": 890, **counts, **wrong}))
    plan = layout_in(project.storage, "order_counts").plan
    plan.parent.mkdir(parents=True)
    plan.write_text(PLAN)
    with closing(sqlite3.connect(project.root / "shop.db")) as db, db:
        db.execute("CREATE TABLE order_counts (item TEXT, minute TEXT, orders INT, amount INT)")
        for minute in range(30):
            at = (started + timedelta(minutes=minute)).strftime("%Y-%m-%d %H:%M:00")
            rows = [(item, at, chance.randrange(180, 320), chance.randrange(9_000, 15_000)) for item in ITEMS]
            db.executemany("INSERT INTO order_counts VALUES (?, ?, ?, ?)", rows)
        db.execute("CREATE TABLE _headrace_tables (table_name, query_id, spark_schema)")
        schema = json.dumps({"fields": [{"name": "minute", "type": "timestamp"}]})
        db.execute("INSERT INTO _headrace_tables VALUES ('order_counts', 'shop', ?)", (schema,))
        columns = "query_id, query, generation, table_name, batch, row_count, committed_at"
        db.execute(f"CREATE TABLE _headrace_ledger ({columns})")
        lines = [("shop", "order_counts", 1, "order_counts", batch, 12, "now") for batch in range(BATCHES)]
        db.executemany("INSERT INTO _headrace_ledger VALUES (?, ?, ?, ?, ?, ?, ?)", lines)


def _batch(query: str, batch: int, started: datetime, chance: random.Random) -> BatchRecord:
    at = started + timedelta(seconds=2 * batch)
    silent = query == "paid_orders" and batch > BATCHES - 120
    late = chance.randrange(1, 5) if query == "order_counts" and chance.random() < 0.06 else 0
    wave = 50 + 18 * math.sin(batch / 40) + chance.uniform(-8, 8)
    busy = round(260 + wave + (chance.uniform(200, 700) if chance.random() < 0.03 else 0))
    behind = timedelta(seconds=30 + (2 * (batch - BATCHES + 120) if silent else 0))
    phases = {"latestOffset": 14, "queryPlanning": 31, "walCommit": 18, "commitOffsets": 16}
    lag = Lag(count=chance.randrange(0, 3), unit="files", bytes=chance.randrange(0, 9_000))
    sources = [SourceProgress(name="orders", rows=round(wave), start=f'{{"logOffset":{batch}}}', end="", lag=lag)]
    if query == "paid_orders":
        rows = 0 if silent else round(wave * 0.7)
        sources.append(replace(sources[0], name="payments", rows=rows))
    states = {"order_counts": "stateStoreSave", "paid_orders": "symmetricHashJoin"}
    operators = [
        OperatorProgress(
            name=name, rows=round(9 * wave), bytes=round(61_000 * wave), updated=12, late=late, commit_ms=24
        )
        for name in filter(None, [states.get(query)])
    ]
    oldest = at - timedelta(seconds=chance.uniform(60, 300) if late else chance.uniform(12, 26))
    return replace(
        made.record(batch, query=query),
        at=at,
        rows=sum(source.rows for source in sources),
        input_rate=sum(source.rows for source in sources) / 2,
        processed_rate=1000 * wave / busy,
        duration_ms=busy + 95,
        durations={**phases, "addBatch": busy, "triggerExecution": busy + 95},
        watermark=at - behind - timedelta(seconds=2),
        sources=tuple(replace(source, end=f'{{"logOffset":{batch + 1}}}') for source in sources),
        backlog=lag,
        operators=tuple(operators),
        state_rows=sum(operator.rows or 0 for operator in operators) or None,
        state_bytes=sum(operator.bytes for operator in operators) or None,
        dropped_by_watermark=late,
        event_min=oldest,
        event_mean=at - timedelta(seconds=chance.uniform(8, 11)),
        event_max=at - timedelta(seconds=chance.uniform(0, 2)),
    )


def _take(browser: webdriver.Chrome, url: str) -> None:
    browser.get(f"{url}login")
    browser.find_element(By.NAME, "token").send_keys(TOKEN, Keys.ENTER)
    for theme in ("dark", "light"):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        _resize(browser, 1600, 1000)
        _open(browser, url, ".graph svg .node")
        browser.save_screenshot(str(IMAGES / f"ui-project{_suffix(theme)}.png"))
        _open(browser, f"{url}queries/order_counts", ".charts canvas")
        WebDriverWait(browser, 20).until(
            lambda page: page.find_elements(By.CSS_SELECTOR, "[aria-label='Newest rows'] td")
        )
        _resize(browser, 1600, 1180)
        browser.save_screenshot(str(IMAGES / f"ui-query{_suffix(theme)}.png"))
        for card in _cards(browser):
            label = card.get_attribute("aria-label") or ""
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", card)
            time.sleep(0.5)
            _save(browser, card, IMAGES / f"ui-{CARDS[label]}{_suffix(theme)}.webp")


def _save(browser: webdriver.Chrome, card: WebElement, file: Path) -> None:
    """A picture of the card, with some space around it; a third as large as a PNG."""
    script = "const b = arguments[0].getBoundingClientRect(); return [b.x + scrollX, b.y + scrollY, b.width, b.height]"
    left, top, width, height = browser.execute_script(script, card)
    clip = {"x": left - 8, "y": top - 8, "width": width + 16, "height": min(height + 16, 640), "scale": 1}
    asked = {"format": "webp", "quality": 90, "clip": clip, "captureBeyondViewport": True}
    file.write_bytes(base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]))


def _suffix(theme: str) -> str:
    return "" if theme == "dark" else "-light"


def _cards(browser: webdriver.Chrome) -> Iterator[WebElement]:
    box = browser.find_element(By.TAG_NAME, "textarea")
    box.send_keys(
        "SELECT item, sum(orders) AS orders, sum(amount) AS amount\nFROM order_counts GROUP BY item ORDER BY 3 DESC"
    )
    box.send_keys(Keys.CONTROL, Keys.ENTER)
    WebDriverWait(browser, 10).until(lambda page: page.find_elements(By.CSS_SELECTOR, "[aria-label='Answer'] td"))
    browser.find_element(By.TAG_NAME, "summary").click()
    for label in CARDS:
        yield browser.find_element(By.CSS_SELECTOR, f"section[aria-label='{label}']")


def _open(browser: webdriver.Chrome, url: str, until: str) -> None:
    browser.get(url)
    WebDriverWait(browser, 20).until(lambda page: page.find_elements(By.CSS_SELECTOR, until))
    WebDriverWait(browser, 20).until(lambda page: page.find_elements(By.CSS_SELECTOR, ".live.on"))
    time.sleep(2.5)


def _resize(browser: webdriver.Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


if __name__ == "__main__":
    raise SystemExit(main())
