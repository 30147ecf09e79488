"""What plain Spark does with a changed query over an old checkpoint: the reason for the verdicts of `headrace plan`.

Source: guide, "Recovery Semantics after Changes in a Streaming Query". Each change is run: two files before it, two
after it, and the result is compared with the batch query over all four.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id INT, a STRING, b STRING, x INT, y INT"
FILES = [
    [(1, "k", "l", 1, 10), (2, "l", "k", 2, 20), (9, "z", "z", 9, 90)],
    [(3, "k", "k", 3, 30), (1, "m", "l", 4, 40)],
    [(2, "l", "l", 5, 50), (4, "k", "m", 6, 60)],
    [(5, "k", "l", 7, 70), (6, "m", "m", 8, 80)],
]
COUNTS = "SELECT a, sum(x) AS s FROM rows WHERE x > 0 GROUP BY a"
EXTREMES = "SELECT a, max(x) AS high, min(x) AS low FROM rows GROUP BY a"
PAIRS = "SELECT a, b, sum(x) AS s FROM rows GROUP BY a, b"
DISTINCT = "SELECT DISTINCT a, b FROM rows"
PLAIN = "SELECT id, x FROM rows WHERE x > 1"

# The query before and after, and what Spark does: it answers wrongly without a word, rightly, or fails.
CHANGES = {
    "another spelling": (COUNTS, COUNTS.replace("x > 0", "NOT x <= 0"), "right"),
    "a filter before an aggregation": (COUNTS, COUNTS.replace("x > 0", "x > 2"), "wrong"),
    "the aggregated column": (COUNTS, COUNTS.replace("sum(x)", "sum(y)"), "wrong"),
    "another group key of one type": (
        COUNTS, COUNTS.replace("SELECT a", "SELECT b AS a").replace("BY a", "BY b"), "wrong",
    ),
    "group keys in another order": (PAIRS, PAIRS.replace("BY a, b", "BY b, a"), "wrong"),
    "max and min in another order": (EXTREMES, "SELECT a, min(x) AS low, max(x) AS high FROM rows GROUP BY a", "wrong"),
    "an aggregate more": (COUNTS, COUNTS.replace(" FROM", ", avg(y) AS m FROM"), "fails"),
    "another key of a deduplication": (DISTINCT, DISTINCT.replace("a, b", "b AS a, a AS b"), "wrong"),
    "a stateful operation more": (PLAIN, "SELECT DISTINCT id, x FROM rows", "fails"),
    "a filter of a query without state": (PLAIN, PLAIN.replace("x > 1", "x > 5"), "wrong"),
    "an expression above an aggregation": (COUNTS, COUNTS.replace("sum(x)", "sum(x) * 2"), "wrong"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "does"), CHANGES.values(), ids=CHANGES)
def test_spark_takes_most_changes_silently(
    tmp_path: Path, spark: SparkSession, before: str, after: str, does: str
) -> None:
    landing, result = tmp_path / "in", dict[Any, tuple[Any, ...]]()
    landing.mkdir()
    _land(landing, 0, 1)
    _run(spark, landing, before, result)
    _land(landing, 2, 3)
    try:
        _run(spark, landing, after, result)
    except Exception:
        assert does == "fails"
        return
    spark.read.schema(SCHEMA).json(str(landing)).createOrReplaceTempView("rows")
    answer = sorted(map(tuple, spark.sql(after).collect()), key=repr)
    assert ("right" if sorted(result.values(), key=repr) == answer else "wrong") == does


def _run(spark: SparkSession, landing: Path, query: str, result: dict[Any, tuple[Any, ...]]) -> None:
    """Run `query` to the end of the input; what it gives replaces what has the same key in `result`."""
    keys = ("a", "b") if "GROUP BY" in query else ("id", "a", "b", "x")

    def write(frame: DataFrame, batch: int) -> None:
        for row in frame.collect():
            result[tuple(row[name] for name in keys if name in frame.columns)] = tuple(row)

    spark.readStream.name("rows").schema(SCHEMA).json(str(landing)).createOrReplaceTempView("rows")
    handle = (
        spark.sql(query)
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(landing.parent / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    handle.awaitTermination()


def _land(landing: Path, *numbers: int) -> None:
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    for number in numbers:
        rows = [json.dumps(dict(zip(names, row, strict=True))) for row in FILES[number]]
        (landing / f"{number}.json").write_text("\n".join(rows) + "\n")
