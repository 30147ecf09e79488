"""A soak of an application as it is operated: `python -m tests.crash.soak --minutes N`.

Three queries run by a timer over files that keep landing: every event as it is and a count per window with a watermark
into PostgreSQL, and a join of two streams into SQLite. A dashboard and a page of it in Chromium are open all the time.
In each round something ends: the driver by SIGKILL or SIGTERM, or PostgreSQL by SIGKILL or its own restart; or the
driver stands still. At the end each table holds what was landed, `verify` says equal of each query, and the page had no
fault and did not grow.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from selenium import webdriver

from headrace.spark.jvm.gateway import kill_all
from services import PostgresServer
from services.process import new_home
from tests.connectors.sql.databases import Database
from tests.ui.chromium import PageMemory, chromium, faults

QUERIES = ("every_order", "order_counts", "paid_orders")
PAGE = "order_counts"
LONGEST_SECONDS = 600.0
PROJECT = """
name: shop
sources:
  orders:
    files: {path: orders, format: json, schema: "id BIGINT, ordered TIMESTAMP, item STRING"}
    watermark: {column: ordered, delay: 5 minutes}
  payments:
    files: {path: payments, format: json, schema: "order_id BIGINT, paid TIMESTAMP"}
    watermark: {column: paid, delay: 5 minutes}
queries:
  every_order:
    select: SELECT id, ordered, item FROM orders
    trigger: {every: 1 second}
    sink: {postgres: {url: "${SOAK_DATABASE_URL}", table: every_order, key: [id]}}
  order_counts:
    select: >
      SELECT item, window(ordered, '1 minute').start AS minute, count(*) AS orders
      FROM orders GROUP BY item, window(ordered, '1 minute')
    mode: update
    trigger: {every: 1 second}
    sink: {postgres: {url: "${SOAK_DATABASE_URL}", table: order_counts, key: [item, minute]}}
  paid_orders:
    select: >
      SELECT o.id, o.item, p.paid FROM orders o JOIN payments p
      ON o.id = p.order_id AND p.paid BETWEEN o.ordered AND o.ordered + INTERVAL 2 MINUTES
    trigger: {every: 1 second}
    sink: {sqlite: {path: paid.db, table: paid_orders, key: [id]}}
"""


@dataclass
class LiveSoak:
    """The application, its database, its dashboard and the page that is open."""

    root: Path
    server: PostgresServer
    orders: Database
    url: str
    browser: webdriver.Chrome
    chance: random.Random
    driver: subprocess.Popen[bytes] | None = None
    files: int = 0
    times: list[datetime] = field(default_factory=list)
    paid: int = 0
    page: list[PageMemory] = field(default_factory=list)

    def land(self) -> None:
        """Let a file of orders land, and one of payments of the file before; out of order, but none is late."""
        now = datetime.now(timezone.utc)
        for name, rows in (("payments", list(self._payments())), ("orders", list(self._orders(now)))):
            if rows:
                draft = self.root / name / f".{self.files:06d}"
                draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
                draft.rename(self.root / name / f"{self.files:06d}.json")
        self.files += 1

    def _orders(self, now: datetime) -> Iterator[dict[str, Any]]:
        for _ in range(self.chance.randrange(20, 60)):
            at = now - timedelta(seconds=self.chance.uniform(0, 60))
            yield {"id": len(self.times), "ordered": at.isoformat(), "item": f"item {self.chance.randrange(8)}"}
            self.times.append(at)

    def _payments(self) -> Iterator[dict[str, Any]]:
        for number, ordered in enumerate(self.times[self.paid :], self.paid):
            paid = ordered + timedelta(seconds=self.chance.uniform(0, 90))
            yield {"order_id": number, "paid": paid.isoformat()}
        self.paid = len(self.times)

    # ------------------------------------------------------------------------------------------------- faults

    def faults(self) -> dict[str, Callable[[], None]]:
        """What may go wrong, by its name."""
        return {
            "driver killed": self.kill_driver,
            "driver asked to end": self.end_driver,
            "database killed": self.kill_database,
            "database restarted": self.server.restart,
            "driver stands still": self.hold_driver,
        }

    def kill_driver(self) -> None:
        assert self.driver
        # Its JVM ends with it, or is in the way of the next one.
        self.driver.send_signal(signal.SIGKILL)
        self.driver.wait(30)
        self.start()

    def end_driver(self) -> None:
        self.stop()
        self.start()

    def kill_database(self) -> None:
        self.server.kill()
        self.land_for(self.chance.uniform(0, 6))
        self.server.start()

    def hold_driver(self) -> None:
        assert self.driver
        os.kill(self.driver.pid, signal.SIGSTOP)
        self.land_for(12)
        os.kill(self.driver.pid, signal.SIGCONT)

    # -------------------------------------------------------------------------------------------------- rounds

    def start(self) -> None:
        with (self.root / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", "headrace", "run", "-C", str(self.root)]
            self.driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def stop(self) -> None:
        """SIGTERM drains: the driver ends by itself, with 0."""
        assert self.driver
        self.driver.send_signal(signal.SIGTERM)
        code = self.driver.wait(LONGEST_SECONDS)
        assert code == 0, f"the driver ended with {code}: {self.end_of_log()}"

    def end_of_log(self) -> str:
        return (self.root / "driver.log").read_text(errors="replace")[-3000:]

    def land_for(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.land()
            time.sleep(1.5)

    def batches(self) -> dict[str, int]:
        """The newest batch of each query, as the dashboard shows; -1 before the first."""
        with urllib.request.urlopen(f"{self.url}api/project", timeout=60) as answer:
            queries = json.load(answer)["queries"]
        return {name: -1 if queries[name].get("batch") is None else queries[name]["batch"] for name in QUERIES}

    def await_batches(self) -> None:
        """Wait until each query runs and has made a batch more."""
        before = self.batches()
        ends = time.monotonic() + LONGEST_SECONDS
        while True:
            self.land()
            now = self.batches()
            if all(now[name] > before[name] for name in QUERIES):
                return
            assert self.driver
            assert self.driver.poll() is None, self.end_of_log()
            assert time.monotonic() < ends, f"no batch more: {now}; {self.end_of_log()}"
            time.sleep(1.5)

    def round(self, fault: str) -> str:
        """Let it run, let one thing go wrong, and wait until all continue; says how the page is."""
        self.land_for(self.chance.uniform(8, 20))
        begun = time.monotonic()
        self.faults()[fault]()
        self.await_batches()
        return f"{fault}, all continue after {time.monotonic() - begun:.0f} s; {self.look()}"

    def look(self) -> str:
        """The page lives, shows the newest batch, and its console is empty."""
        assert (problems := faults(self.browser)) == [], problems
        shown = self.browser.execute_script("return document.querySelector('.live').className")
        assert shown == "live on", shown
        self.page.append(PageMemory.of(self.browser))
        return f"the page: {self.page[-1]}"

    # ------------------------------------------------------------------------------------------------- the end

    def finish(self) -> str:
        """Everything that landed is in, once, and each query is proved right."""
        self.land()
        wanted = {"every_order": len(self.times), "order_counts": len(self.times), "paid_orders": self.paid}
        ends = time.monotonic() + LONGEST_SECONDS
        while (stored := self.stored_counts()) != wanted:
            assert time.monotonic() < ends, f"{stored}, not {wanted}; {self.end_of_log()}"
            time.sleep(2)
        self.stop()
        command = [sys.executable, "-m", "headrace", "verify", *QUERIES, "-C", str(self.root), "--json"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        verdicts = {line["query"]: line["verdict"] for line in map(json.loads, asked.stdout.splitlines())}
        assert verdicts == dict.fromkeys(QUERIES, "equal"), f"{asked.stdout} {asked.stderr[-2000:]}"
        self.look()
        self.hold_still()
        return f"{self.files} files, {wanted}, verdicts {verdicts}"

    def stored_counts(self) -> dict[str, int]:
        counts = self.orders.query(
            "SELECT count(*), (SELECT coalesce(sum(orders), 0) FROM order_counts) FROM every_order"
        )
        paid = Database("sqlite", str(self.root / "paid.db")).query("SELECT count(*) FROM paid_orders")
        return {"every_order": int(counts[0][0]), "order_counts": int(counts[0][1]), "paid_orders": int(paid[0][0])}

    def hold_still(self) -> None:
        """The page holds no more in the last third than in the second one, but for what its table holds by chance."""
        third = len(self.page) // 3
        if third >= 2:
            for figure, slack in (("heap_mb", 1.10), ("nodes", 1.25), ("listeners", 1.25)):
                middle, late = (
                    [getattr(sample, figure) for sample in part]
                    for part in (self.page[third:-third], self.page[-third:])
                )
                assert min(late) <= max(middle) * slack, (
                    f"{figure} grew: {[getattr(sample, figure) for sample in self.page]}"
                )


@contextmanager
def live_soaking(root: Path, seed: int) -> Iterator[LiveSoak]:
    """A running application with its database, its dashboard and an open page."""
    for name in ("orders", "payments"):
        (root / name).mkdir(parents=True)
    (root / "headrace.yml").write_text(PROJECT)
    server = PostgresServer(new_home("postgres"))
    with ExitStack() as stack:
        stack.callback(server.remove)
        server.create()
        place = os.environ["SOAK_DATABASE_URL"] = server.create_database("soak")
        command = [sys.executable, "-m", "headrace", "ui", "-C", str(root), "--port", "0", "--json"]
        ui = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(ui.terminate)
        assert ui.stdout
        url = json.loads(ui.stdout.readline())["url"]
        browser = stack.enter_context(chromium(root / "profile"))
        soak = LiveSoak(root, server, Database("postgres", place), url, browser, random.Random(seed))
        stack.callback(lambda: kill_all(soak.driver.pid) if soak.driver else None)
        soak.land()
        soak.start()
        soak.await_batches()
        browser.get(f"{url}queries/{PAGE}")
        yield soak


def run_live(root: Path, seed: int, minutes: float, say: Callable[[str], object]) -> None:
    """Go on for so many minutes, each fault in turn, and finish."""
    ends = time.monotonic() + 60 * minutes
    with live_soaking(root, seed) as soak:
        names: list[str] = []
        number = 0
        while time.monotonic() < ends:
            names = names or soak.chance.sample(sorted(soak.faults()), len(soak.faults()))
            number += 1
            say(f"live {number}: {soak.round(names.pop())}")
        say(f"live: {number} rounds in {minutes:g} minutes: {soak.finish()}")
