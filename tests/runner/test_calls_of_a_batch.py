"""How often Python asks the JVM for each batch: a call of py4j has its price, and a tiny batch has no time for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql.utils import ForeachBatchFunction

from headrace.api import load, run
from headrace.spark.stream.listener import _JavaListener

from .projects import rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BATCHES = 30
# By Spark 4.2: 3 of each batch are PySpark's to make its frame, and 22 to bring it as Arrow; ours are 8 to bound what
# comes through the driver, and 32 to look at the plan and its files.
MOST_OF_A_BATCH = 65
# 4 of each event are to read it, and 7 to take the pool of a batch away, which is done for several at once.
MOST_OF_AN_EVENT = 13
COUNTS = """
@hr.query(
    sink=hr.sink.sqlite("out.db", table="counts", key=["name"]), mode="update", trigger=hr.available_now
)
def counts(events):
    return events.groupBy("name").count()
"""


class Calls:
    """The calls of each thread into the JVM, except the message that Python has dropped an object."""

    def __init__(self) -> None:
        self.by_thread: dict[int, list[str]] = {}

    def count(self, send: Callable[..., str]) -> Callable[..., str]:
        def sent(client: Any, command: str, *args: Any, **options: Any) -> str:
            if not command.startswith("m\n"):
                self.mine.append(command)
            return send(client, command, *args, **options)

        return sent

    def within(self, function: Callable[..., Any], turns: list[list[str]]) -> Callable[..., Any]:
        """Wrap `function`: each time that it ends, `turns` gets the calls of its own thread; py4j has several."""

        def called(*args: Any) -> Any:
            start = len(self.mine)
            try:
                return function(*args)
            finally:
                turns.append(self.mine[start:])

        return called

    @property
    def mine(self) -> list[str]:
        return self.by_thread.setdefault(threading.get_ident(), [])


def test_a_tiny_batch_asks_the_jvm_no_more_often_than_it_did(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    batches: list[list[str]] = []
    progress: list[list[str]] = []
    root = write_project(tmp_path / "p", COUNTS, batches=[[{"name": "apple", "amount": 1}]] * BATCHES)
    monkeypatch.setattr(GatewayClient, "send_command", calls.count(GatewayClient.send_command))
    monkeypatch.setattr(ForeachBatchFunction, "call", calls.within(ForeachBatchFunction.call, batches))
    monkeypatch.setattr(_JavaListener, "onQueryProgress", calls.within(_JavaListener.onQueryProgress, progress))
    assert run(load(root), spark=spark).exit_code == 0
    assert rows(root / "out.db", "SELECT name, count FROM counts") == [("apple", BATCHES)]
    assert len(batches) == BATCHES
    # The first batch also finds what Python keeps from then on.
    most = max(batches[1:], key=len)
    assert len(most) <= MOST_OF_A_BATCH, "".join(most)
    assert progress
    assert sum(map(len, progress)) <= MOST_OF_AN_EVENT * BATCHES, "".join(progress[-1])
