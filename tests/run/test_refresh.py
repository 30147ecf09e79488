"""A table that is computed anew while a query runs: the next batches see it, and nothing else changes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import load, run, status, verify
from headrace.errors import Finding
from headrace.model.layout import QueryLayout
from headrace.progress import BatchRecord
from headrace.run.result import RunResult
from headrace.run.stop import StopRequest
from headrace.run.table_record import TableRecord

from .projects import land, rows, write_project
from .test_run import Told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DEADLINE = 90.0
PRICES = """
from pathlib import Path

HOME = Path(__file__).parent

@hr.table(refresh=hr.every("1 second"))
def prices(spark):
    with (HOME / "computed.log").open("a") as log:
        log.write("x")
    if (HOME / "down").exists():
        raise ConnectionError("the shop does not answer")
    return spark.read.json(str(HOME / "prices"))

@hr.query(sink=hr.sink.sqlite("out.db", table="bills"), trigger=hr.every("200 milliseconds"))
def bills(events, prices):
    return events.join(prices, "name").select("name", (F.col("amount") * F.col("price")).alias("cost"))
"""
BILLS = "SELECT name, cost FROM bills ORDER BY rowid"


@dataclass
class Scene:
    """A project that runs in a thread of its own, and what it told."""

    root: Path
    spark: SparkSession
    told: Told
    stop: StopRequest
    result: RunResult | None = None

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + DEADLINE
        while not condition():
            assert self.result is None, f"ended before {what}: {self.result}"
            assert time.monotonic() < until, f"no {what}; told: {self.told.lines}"
            time.sleep(0.02)

    def wait_for_batch(self, number: int) -> None:
        self.wait(f"batch {number}", lambda: any(each.batch == number for each in self.batches))

    def wait_for_findings(self, code: str, count: int = 1) -> list[Finding]:
        self.wait(f"{count} of {code}", lambda: len(self.findings(code)) >= count)
        return self.findings(code)

    def computed(self) -> int:
        log = self.root / "computed.log"
        return len(log.read_text()) if log.exists() else 0

    def wait_for_two_refreshes(self) -> None:
        """One of the two began after this was asked for."""
        before = self.computed()
        self.wait("two more refreshes", lambda: self.computed() >= before + 2)

    def findings(self, code: str) -> list[Finding]:
        return [each for each in self.told.all(Finding) if each.code == code]

    @property
    def batches(self) -> list[BatchRecord]:
        return self.told.all(BatchRecord)

    def sold(self) -> list[tuple[Any, ...]]:
        return rows(self.root / "out.db", BILLS)


@contextmanager
def running(root: Path, spark: SparkSession, **options: Any) -> Iterator[Scene]:
    scene = Scene(root, spark, Told(), StopRequest())

    def work() -> None:
        scene.result = run(load(root), spark=spark, reporter=scene.told, stop=scene.stop, **options)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield scene
    finally:
        scene.stop.ask()
        thread.join(DEADLINE)
        if thread.is_alive():
            scene.stop.ask()
            thread.join(DEADLINE)
    assert not thread.is_alive()


def set_prices(root: Path, **prices: Any) -> None:
    """Replace the whole table in one step."""
    folder, draft = root / "prices", root / ".prices"
    folder.mkdir(exist_ok=True)
    draft.write_text("".join(json.dumps({"name": name, "price": price}) + "\n" for name, price in prices.items()))
    os.replace(draft, folder / "all.json")


def sale(amount: int) -> list[dict[str, Any]]:
    return [{"name": "apple", "amount": amount}]


def shop(root: Path, body: str = PRICES, **prices: Any) -> Path:
    write_project(root, body, batches=[sale(1)])
    set_prices(root, **(prices or {"apple": 10}))
    return root


def uses(root: Path) -> list[tuple[int, int]]:
    record = TableRecord(QueryLayout(load(root).storage, "bills").table_record)
    return [(use.from_batch, use.versions["prices"]) for use in record.uses()]


@pytest.mark.capability("JOIN-ST-03")
def test_the_next_batches_see_the_refreshed_table_and_nobody_sees_a_restart(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = shop(tmp_path / "p")
    with running(root, spark) as scene:
        scene.wait_for_batch(0)
        scene.wait_for_two_refreshes()
        assert scene.findings("HR560") == []
        set_prices(root, apple=20)
        (note,) = scene.wait_for_findings("HR560")
        assert note.what == "table 'prices' of query 'bills' has changed: from batch 1 on its version 2 counts"
        land(root, 1, sale(2))
        scene.wait_for_batch(1)
        land(root, 2, sale(3))
        scene.wait_for_batch(2)
        set_prices(root, apple=30)
        scene.wait_for_findings("HR560", 2)
        land(root, 3, sale(4))
        scene.wait_for_batch(3)
        (seen,) = status(load(root))
        assert (seen.state, seen.restarts, seen.batch, seen.rows_total, seen.error) == ("running", 0, 3, 4, None)
    assert scene.sold() == [("apple", 10), ("apple", 40), ("apple", 60), ("apple", 120)]
    assert [each.batch for each in scene.batches] == [0, 1, 2, 3]
    assert rows(root / "out.db", "SELECT batch FROM _headrace_ledger ORDER BY 1") == [(0,), (1,), (2,), (3,)]
    assert uses(root) == [(0, 1), (1, 2), (3, 3)]
    assert scene.result is not None
    ((end,),) = (scene.result.outcomes,)
    assert (end.state, end.batches, end.rows, end.last_batch) == ("stopped", 4, 4, 3)
    assert scene.told.lines.count("started bills") == 1
    verdict = verify(load(root), "bills", spark=spark)
    assert (verdict.state, verdict.rows_read, verdict.rows_expected) == ("equal", 4, 4)
