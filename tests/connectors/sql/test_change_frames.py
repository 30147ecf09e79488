"""Spark's change frames: their order as text, and what comes of them in a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.contract import CHANGE_COLUMN, ChangeOptions, SinkContext, change_type
from headrace.spark.change_order import sequence_text

from .databases import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
UTC = timezone.utc
# In their order.
SEQUENCES: dict[str, Sequence[Any]] = {
    "BIGINT": [-(2**63), -17, -1, 0, 1, 9, 10, 255, 256, 2**63 - 1],
    "DECIMAL(38,0)": [Decimal(f"{value}") for value in (-(10**38) + 1, -10, -9, -1, 0, 1, 9, 10, 10**38 - 1)],
    "TIMESTAMP": [
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 3), date(9999, 12, 31)],
    "STRING": ["", "!", "0", "A", "AB", "a", "aa", "ab", "b", "é", "ﬀ", "🎈"],
}


def changes(spark: SparkSession, rows: Sequence[tuple[Any, ...]], sequence_type: str) -> DataFrame:
    """Rows of id, note, and what `CHANGE_COLUMN` has."""
    return spark.createDataFrame(
        [(id_, note, change) for id_, note, *change in rows],
        f"id BIGINT, note STRING, {CHANGE_COLUMN} {change_type(sequence_type)}",
    )


def write(spark: SparkSession, home: Path, frame: DataFrame, options: ChangeOptions, table: str) -> Database:
    """The database after one batch."""
    database = Database("sqlite", str(home / "result.db"))
    sink = database.sink(table=table).changes.bind(options)
    context = SinkContext(query=table, generation=1, mode="update", checkpoint=home / table)
    assert list(sink.check_result(frame, context)) == list(sink.check_connection(frame, context)) == []
    writer: Any = sink.open(frame, context)
    writer(frame, 0)
    back = sink.read_back(spark, context)
    assert CHANGE_COLUMN not in back.rows.columns
    assert not {options.order_column, options.older_column} & set(back.rows.columns)
    return database


@pytest.mark.parametrize("sequence_type", SEQUENCES)
def test_sequences_of_every_type_are_in_their_order(spark: SparkSession, tmp_path: Path, sequence_type: str) -> None:
    sequences = SEQUENCES[sequence_type]
    at = {sequence: place for place, sequence in enumerate(sequences)}
    shuffled = sorted(sequences, key=lambda sequence: hash(str(at[sequence])))
    rows = [(1, str(at[sequence]), "upsert", sequence, (0, 0), [], None) for sequence in shuffled]
    options = ChangeOptions(keys=("id",), sequence_type=sequence_type, scd_type=2)
    database = write(spark, tmp_path, changes(spark, rows, sequence_type), options, "intervals")
    notes = database.query("SELECT note FROM intervals ORDER BY CAST(note AS INTEGER)")
    assert [note for (note,) in notes] == [str(place) for place in range(len(sequences))]
    followed = "SELECT n.note FROM intervals n JOIN intervals f ON n.__END_AT IS f.__START_AT "
    followed += "WHERE CAST(f.note AS INTEGER) = CAST(n.note AS INTEGER) + 1"
    assert len(database.query(followed)) == len(sequences) - 1
    assert database.query("SELECT note FROM intervals WHERE __END_AT IS NULL") == [(str(len(sequences) - 1),)]


def test_several_values_are_compared_one_after_the_other(spark: SparkSession) -> None:
    names = [(f"c{at}", kind) for at, kind in enumerate(SEQUENCES)]
    middle = [values[len(values) // 2] for values in SEQUENCES.values()]
    # Each type in front of others, and behind them: rows that differ in one value, and in two.
    rows = {
        tuple(
            next((value for place, value in ((one, first), (other, second)) if place == at), was)
            for at, was in enumerate(middle)
        )
        for one, other in pairwise([*range(len(names)), 0])
        for first in list(SEQUENCES.values())[one]
        for second in list(SEQUENCES.values())[other]
    }
    frame = spark.createDataFrame(list(rows), ", ".join(f"{name} {kind}" for name, kind in names))
    text = sequence_text([(frame[name], kind) for name, kind in names])
    as_texts = [tuple(row)[:-1] for row in sorted(frame.withColumn("text", text).collect(), key=lambda row: row.text)]
    assert as_texts == sorted(as_texts, key=lambda row: [v.encode() if isinstance(v, str) else v for v in row])


def test_of_equal_sequences_the_later_position_wins_and_without_one_each_order_gives_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = [
        (1, "later offset", "upsert", 5, (0, 11), [], None),
        (1, "earlier offset", "upsert", 5, (3, 2), [], None),
        (1, "no offset", "upsert", 5, None, [], None),
        (2, "greater partition", "upsert", 5, (2, 7), [], None),
        (2, "smaller partition", "upsert", 5, (1, 7), [], None),
        (3, "was", "upsert", 4, (0, 20), [], None),
        (3, None, "upsert", 5, (0, 1), ["note"], None),
        (None, None, "truncate", 1, (0, 0), [], None),
        (4, "older than the truncate", "upsert", 0, (0, 99), [], None),
        *[(5, f"by chance {number}", "upsert", 5, None, [], None) for number in range(9)],
    ]
    options, answers = ChangeOptions(keys=("id",), sequence_type="BIGINT"), []
    for table, rows in (("one", at), ("other", at[::-1])):
        database = write(spark, tmp_path, changes(spark, rows, "BIGINT"), options, table)
        answers.append(database.query(f"SELECT id, note FROM {table} ORDER BY id"))
    assert answers[0] == answers[1]
    assert answers[0][:3] == [(1, "later offset"), (2, "greater partition"), (3, "was")]
    assert answers[0][3][1].startswith("by chance")


def test_many_changes_are_folded_by_the_tasks_that_stage_them(spark: SparkSession, tmp_path: Path) -> None:
    span = 60_000
    frame = spark.range(4 * span, numPartitions=4).selectExpr(
        f"id % {span} AS id",
        "CAST(id AS STRING) AS note",
        f"named_struct('operation', 'upsert', 'sequence', (id * 7919) % {4 * span}, 'position', "
        "named_struct('partition', 0, 'offset', id), 'unavailable', CAST(array() AS ARRAY<STRING>), "
        f"'source_time', CAST(NULL AS TIMESTAMP)) AS {CHANGE_COLUMN}",
    )
    options = ChangeOptions(keys=("id",), sequence_type="BIGINT")
    database = write(spark, tmp_path, frame, options, "many")
    wanted = {}
    for number in range(4 * span):
        key, order = number % span, ((number * 7919) % (4 * span), number)
        wanted[key] = max(wanted.get(key, order), order)
    assert dict(database.query("SELECT id, CAST(note AS INTEGER) FROM many")) == {
        key: number for key, (_, number) in wanted.items()
    }
    assert database.query("SELECT inserts, ignored FROM _headrace_changes") == [(span, 3 * span)]
    assert database.left_over() == []
