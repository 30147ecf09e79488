"""Threads of one session have the settings that they agree on together; one that needs others waits for its turn."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headrace.spark.jvm.session_conf import share_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
KEY = "spark.sql.session.ofThisTest"


def test_threads_share_settings_that_are_equal_and_take_turns_with_others(spark: SparkSession) -> None:
    entered = {value: threading.Event() for value in ("same", "other")}
    leave, seen = threading.Event(), list[str | None]()

    def enter(name: str, value: str) -> None:
        with share_settings(spark, {KEY: value}):
            entered[name].set()
            assert leave.wait(60)
            seen.append(spark.conf.get(KEY, None))

    threads = [threading.Thread(target=enter, args=pair) for pair in (("same", "1"), ("other", "2"))]
    with share_settings(spark, {KEY: "1"}):
        for thread in threads:
            thread.start()
        assert entered["same"].wait(60)
        assert not entered["other"].wait(0.5)
    assert spark.conf.get(KEY, None) == "1", "one that shares it is still inside"
    leave.set()
    for thread in threads:
        thread.join(60)
    assert (seen, spark.conf.get(KEY, None)) == (["1", "2"], None)
