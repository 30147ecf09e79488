"""The table that changes leave, as a batch, against the same fold written down in Python."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.contract import CHANGE_COLUMN, ChangeOptions, change_type
from headrace.verifier.changed_table import apply_changes
from tests.rounds import rounds

pytestmark = pytest.mark.spark

Change = tuple[Any, ...]


def frame_of(spark: SparkSession, given: list[Change]) -> DataFrame:
    """Changes as (id, name, city, operation, sequence, offset, columns that were not sent)."""
    rows = [(key, name, city, (op, at, (0, offset), lacks, None)) for key, name, city, op, at, offset, lacks in given]
    return spark.createDataFrame(rows, f"id BIGINT, name STRING, city STRING, {CHANGE_COLUMN} {change_type('BIGINT')}")


def fold(given: list[Change], options: ChangeOptions) -> list[tuple[Any, ...]]:
    """Apply changes one by one in their order, as a person would."""
    current: dict[int, dict[str, Any]] = {}
    history: dict[int, list[dict[str, Any]]] = {}
    since: dict[int, int] = {}
    ordered = sorted((change for change in given if change[3] != "none"), key=lambda change: change[4:6])
    newest = {(key, at): offset for key, _, _, op, at, offset, _ in ordered if op != "truncate"}
    tracked = options.tracked_columns(["id", "name", "city"])

    def end(key: int, at: int) -> None:
        if current.pop(key, None) is not None:
            history[key][-1]["to"] = at

    for key, name, city, op, at, offset, lacks in ordered:
        if op == "truncate":
            for there in list(current):
                end(there, at)
            continue
        if op == "delete":
            end(key, at)
            continue
        before = current.get(key)
        row = {"name": name, "city": city}
        for column, value in list(row.items()):
            if column in lacks or (options.ignore_null_updates and value is None):
                row[column] = None if before is None else before[column]
        same = before is not None and all(before[column] == row[column] for column in tracked)
        current[key] = row
        if same:
            history[key][-1].update(row)
        else:
            if before is not None:
                history[key][-1]["to"] = at
            history.setdefault(key, []).append({**row, "from": at, "to": None})
        since[key] = offset
    assert newest is not None
    if options.scd_type == 1:
        return sorted((key, row["name"], row["city"]) for key, row in current.items())
    whole = [(key, row) for key, rows in history.items() for row in rows]
    return sorted(
        ((key, row["name"], row["city"], row["from"], row["to"]) for key, row in whole if row["from"] != row["to"]),
        key=repr,
    )


def made_by_chance(seed: int) -> list[Change]:
    """Changes of few keys, whose sequences differ, in a random order."""
    chance = random.Random(seed)
    given = []
    for at in range(60):
        op = chance.choices(["upsert", "delete", "truncate", "none"], [12, 3, 0.5, 1])[0]
        name, city = chance.choice(["a", "b", None]), chance.choice(["Paris", "Rome", None])
        lacks = chance.choice([[], [], [], ["city"]]) if op == "upsert" else []
        key = chance.randrange(4) if op != "truncate" else None
        given.append((key, name, None if lacks else city, op, at, at, lacks))
    chance.shuffle(given)
    return given


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(ChangeOptions(keys=("id",), sequence_type="BIGINT"), id="newest"),
        pytest.param(ChangeOptions(keys=("id",), sequence_type="BIGINT", ignore_null_updates=True), id="without NULL"),
        pytest.param(ChangeOptions(keys=("id",), sequence_type="BIGINT", scd_type=2), id="history"),
        pytest.param(
            ChangeOptions(keys=("id",), sequence_type="BIGINT", scd_type=2, tracked=("city",)), id="history of a column"
        ),
    ],
)
@pytest.mark.parametrize("seed", rounds([1, 2]))
def test_the_table_is_the_fold_of_all_changes_in_their_order(
    spark: SparkSession, options: ChangeOptions, seed: int
) -> None:
    given = made_by_chance(seed)
    rows = [tuple(row) for row in apply_changes(frame_of(spark, given), options).collect()]
    assert sorted(rows, key=repr) == sorted(fold(given, options), key=repr)


def test_of_equal_sequences_the_later_offset_holds(spark: SparkSession) -> None:
    options = ChangeOptions(keys=("id",), sequence_type="BIGINT")
    history = ChangeOptions(keys=("id",), sequence_type="BIGINT", scd_type=2)
    given = [(1, "late", None, "upsert", 7, 20, []), (1, "early", None, "upsert", 7, 3, [])]
    frame = frame_of(spark, given)
    assert [row.name for row in apply_changes(frame, options).collect()] == ["late"]
    assert [(row.name, row["__START_AT"], row["__END_AT"]) for row in apply_changes(frame, history).collect()] == [
        ("late", 7, None)
    ]
