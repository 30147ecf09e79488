"""Connections that fall silent, and drivers that sleep in their transaction: nothing hangs, and the result is exact."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.sql.dialect import run
from headrace.errors import Fenced
from services.proxy import Proxy
from tests.rounds import rounds

from .databases import Database, Life, database

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["database"]
pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True),
]


@pytest.fixture
def proxy(database: Database, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with Proxy(request.getfixturevalue(f"{database.kind}_server").port) as proxy:
        yield proxy


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, database: Database, proxy: Proxy) -> Life:
    """A query whose connections go through the proxy, with short time-outs."""
    through = Database(database.kind, f"{proxy.url(database.place)}&connect_timeout=2")
    return Life(spark, tmp_path, through, options={"retry_seconds": 20, "silence_seconds": 1.0})


def once(action: Any) -> Any:
    done: list[bool] = []

    def act() -> None:
        if not done:
            done.append(True)
            action()

    return act


def at(context: Life, wanted: str, action: Any) -> Any:
    act = once(action)
    return replace(context.run, on_boundary=lambda boundary, batch: act() if boundary == wanted else None)


@pytest.mark.parametrize("boundary", rounds(["inside-transaction", "before-transaction"]))
def test_a_half_open_connection_is_cut_and_the_batch_comes_in_by_a_new_one(
    context: Life, proxy: Proxy, boundary: str
) -> None:
    writer = context.begin()
    writer(context.frame([("a", 1), ("b", 1)]), 0)
    writer.store.context = at(context, boundary, proxy.stall_open)
    writer(context.frame([("b", 2), ("c", 2)]), 1)
    assert context.rows() == [("a", 1), ("b", 2), ("c", 2)]
    assert [batch for batch, _, _ in context.database.batches()] == [0, 1]
    [finding] = context.noted
    assert (finding.code, "has not answered for 1 s" in finding.what) == ("HR411", True)


def test_a_server_that_falls_silent_for_everybody_is_waited_for(context: Life, proxy: Proxy) -> None:
    writer = context.begin(staged=True)
    writer(context.frame([("a", 1)]), 0)

    def silent() -> None:
        proxy.stall()
        threading.Timer(2.5, proxy.serve).start()

    writer.store.context = at(context, "inside-transaction", silent)
    writer(context.frame([("a", 2)]), 1)
    assert context.rows() == [("a", 2)]
    assert {finding.code for finding in context.noted} == {"HR411"}


def test_a_commit_whose_answer_never_comes_is_not_done_twice(context: Life, proxy: Proxy) -> None:
    context.key, context.mode = (), "append"
    writer = context.begin()
    writer.store.context = at(context, "inside-transaction", lambda: proxy.swallow_commit_answer(then="stall"))
    writer(context.frame([("a", 1), ("b", 2)]), 0)
    assert context.rows() == [("a", 1), ("b", 2)]


def test_a_long_statement_that_the_server_works_on_is_not_cut(context: Life) -> None:
    sleep = "SELECT pg_sleep(2)" if context.database.kind == "postgres" else "SELECT SLEEP(2)"
    with closing(context.sink.dialect().connect()) as connection:
        run(connection, sleep)
        run(connection, "SELECT 1")


def with_timeouts(context: Life) -> Life:
    """The same with a server that ends a sleeping transaction after 3 s, and gives up waiting for a lock after 1 s."""
    options = (
        "options=-c%20idle_in_transaction_session_timeout%3D3s%20-c%20lock_timeout%3D1s"
        if context.database.kind == "postgres"
        else "idle_timeout=3&lock_timeout=1"
    )
    context.database = Database(context.database.kind, f"{context.database.place}&{options}")
    return context


def test_a_driver_that_sleeps_in_its_transaction_keeps_no_newer_one_out_for_long(context: Life) -> None:
    old = with_timeouts(context).begin()
    newer: list[Any] = []

    def sleeps() -> None:
        began = time.monotonic()
        newer.append(context.begin())
        assert time.monotonic() - began > 1

    old.store.context = at(context, "inside-transaction", sleeps)
    with pytest.raises(Fenced) as raised:
        old(context.frame([("a", 1)]), 0)
    assert raised.value.findings[0].code == "HR409"
    newer[0](context.frame([("a", 2)]), 0)
    assert context.rows() == [("a", 2)]
    [waited] = [finding for finding in context.noted if finding.code == "HR480"]
    assert "holds the lock since" in waited.what
    assert "session" in waited.what


def test_a_session_has_time_outs_where_the_url_gives_none(context: Life, database: Database) -> None:
    names = {
        "postgres": "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')",
        "mariadb": "SELECT @@idle_transaction_timeout, @@lock_wait_timeout",
    }[database.kind]
    settings = []
    for place in (database, with_timeouts(context).database):
        with closing(place.sink().dialect().connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(names)
            settings.append(tuple(map(str, cursor.fetchone())))
    expected = {"postgres": [("1min", "20s"), ("3s", "1s")], "mariadb": [("60", "20"), ("3", "1")]}
    assert [tuple(text.removesuffix(".000000") for text in row) for row in settings] == expected[database.kind]
