"""Pools of batches: numbers that come again, so that what Spark keeps of them is bounded, and never while in use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.spark.stream import listener
from headrace.spark.stream.listener import KEPT, POOL, SWEPT_AT, Turns

pytestmark = pytest.mark.plain


class Pool:
    """A pool of Spark's scheduler; `tasks` are in it."""

    def __init__(self, pools: dict[str, Pool], name: str) -> None:
        self.pools, self.name, self.tasks = pools, name, 0

    def schedulableQueue(self) -> Any:  # noqa: N802
        return SimpleNamespace(isEmpty=lambda: self.tasks == 0)

    def parent(self) -> Any:
        return SimpleNamespace(removeSchedulable=lambda pool: self.pools.pop(pool.name))


class Properties(dict[str, str]):
    getProperty = dict.get  # noqa: N815
    setProperty = dict.__setitem__  # noqa: N815


class Session:
    """A session with a fair scheduler, whose threads make a pool at their first job in it."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.names: set[str] = set()
        self.thread = Properties()
        self.sparkContext = self
        self._jsc = SimpleNamespace(sc=lambda: self)

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {"spark.scheduler.mode": "FAIR"}

    def getLocalProperty(self, key: str) -> None:  # noqa: N802
        return None

    def getLocalProperties(self) -> Properties:  # noqa: N802
        return self.thread

    def getPoolForName(self, name: str) -> Any:  # noqa: N802
        pool = self.pools.get(name)
        return SimpleNamespace(isDefined=lambda: pool is not None, get=lambda: pool)

    def runs(self, properties: Properties) -> Pool:
        name = properties[POOL]
        self.names.add(name)
        return self.pools.setdefault(name, Pool(self.pools, name))


def test_numbers_come_again_but_not_while_they_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "NUMBERS", 100)
    monkeypatch.setattr(listener, "_NUMBERS", listener._Numbers())
    session = Session()
    threads = {}
    # Of two runs in one session, which know nothing of each other.
    other, turns = Turns(session), Turns(session)  # type: ignore[arg-type]
    for query, run in (("slow", other), ("quick", turns)):
        session.thread = threads[query] = Properties({"spark.jobGroup.id": query})
        run.begin(query, query)
    held = session.runs(threads["slow"])
    held.tasks = 1
    for _ in range(1_000):
        assert session.runs(threads["quick"]) is not held
        turns.next("quick")
    assert len(session.names) <= 100
    assert session.pools[held.name] is held
    assert len(session.pools) <= SWEPT_AT + KEPT + 1
    held.tasks = 0
    other.close()
    turns.close()
    assert session.pools == {}
