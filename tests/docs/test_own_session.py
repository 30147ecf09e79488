"""The how-to about a session of one's own, really run."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT, of_language

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "how-to" / "use-your-own-session.md"

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
SETTINGS = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
}


def test_a_query_starts_in_a_session_of_ones_own_and_is_a_function_beside(spark: SparkSession, tmp_path: Path) -> None:
    program, test = (block for block in of_language("python") if block.page == PAGE)
    landing = tmp_path / "landing" / "events"
    landing.mkdir(parents=True)
    rows = [{"time": "2026-01-01T00:00:00Z", "action": action} for action in ("open", "open", "buy")]
    names: dict[str, object] = {"__name__": "counts"}
    exec(compile(program.text, str(program), "exec", dont_inherit=True), names)
    own = spark.newSession()
    for key, value in SETTINGS.items():
        own.conf.set(key, value)
    before = own.conf.getAll
    for turn in (1, 2):
        (landing / f"{turn}.json").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        running = names["counts"].start(own, trigger="available-now", root=tmp_path)  # type: ignore[attr-defined]
        assert own.conf.getAll == before, "the session's settings are as they were"
        assert running.awaitTermination(60)
        with sqlite3.connect(tmp_path / "result.db") as database:
            assert set(database.execute("SELECT action, count FROM counts")) == {("open", 2 * turn), ("buy", turn)}
    (checkpoint,) = tmp_path.glob(".headrace/queries/counts/g1/checkpoint")
    assert json.loads((checkpoint / "offsets" / "1").read_text().splitlines()[1])["conf"][PROVIDER].endswith(
        "RocksDBStateStoreProvider"
    ), "the query has what it needs all the same"
    exec(compile(test.text, str(test), "exec", dont_inherit=True), names)
    names["test_counts"](spark)  # type: ignore[operator]
