"""A result that several forms of a query made is judged range by range where it can be, and else left undecided."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.generations.manifest import QueryForm, QueryRevision
from headrace.model import PythonTransform
from headrace.verifier.batch_ranges import Range, ranges_of
from tests.registered import layout_in
from tests.rounds import rounds
from tests.verifier.kit import Row, Scene, scene, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def form(fingerprint: str, from_batch: int, *, spark: str = "4.2.0", shape: str | None = "s") -> QueryRevision:
    return QueryRevision(
        fingerprint=fingerprint, from_batch=from_batch, at="2026-01-01", headrace="0.2", spark=spark, shape=shape
    )


def revision_of(column: str, from_batch: int) -> QueryRevision:
    """A line of today, which holds what the query is."""
    return replace(form(column, from_batch), form=QueryForm(columns=(("a", column),)).as_dict())


# The forms of a manifest, and the ranges of the batches 0 to 9; `+` marks the newest form.
MANIFESTS: dict[str, tuple[list[QueryRevision], str]] = {
    "none": ([], "+batches 0 to 9"),
    "one": ([form("a", 0)], "+batches 0 to 9"),
    "begun later": ([form("a", 3)], "+batches 0 to 9"),
    "two": ([form("a", 0), form("b", 4)], "batches 0 to 3, +batches 4 to 9"),
    "there and back": ([form("a", 0), form("b", 4), form("a", 5)], "+batches 0 to 3, batch 4, +batches 5 to 9"),
    "known": ([revision_of("a", 0), revision_of("b", 4), revision_of("b", 6)], "batches 0 to 3, +batches 4 to 9"),
    "never ran": ([form("a", 0), form("b", 4), form("c", 4)], "batches 0 to 3, +batches 4 to 9"),
    "to come": ([form("a", 0), form("b", 10)], "+batches 0 to 9"),
    "another Spark": ([form("a", 0), form("b", 4, spark="4.3.0")], "+batches 0 to 9"),
    "another Spark and shape": (
        [form("a", 0), form("b", 4, spark="4.3.0", shape="t")],
        "batches 0 to 3, +batches 4 to 9",
    ),
    "three": ([form("a", 0), form("b", 4), form("c", 6)], "batches 0 to 3, batches 4 to 5, +batches 6 to 9"),
}


@pytest.mark.plain
@pytest.mark.parametrize(("revisions", "expected"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_shows_which_batches_the_newest_form_made(
    tmp_path: Path, revisions: list[QueryRevision], expected: str
) -> None:
    layout = layout_in(tmp_path, "q")
    layout.home.mkdir(parents=True)
    layout.manifest.write_text("".join(json.dumps(asdict(revision)) + "\n" for revision in revisions))
    ranges: tuple[Range, ...] = ranges_of(layout, 9)
    assert ", ".join(f"{'+' if range_.newest else ''}{range_}" for range_ in ranges) == expected


def small(events: DataFrame) -> DataFrame:
    return events.where("value < 2").select("who", "value")


def large(events: DataFrame) -> DataFrame:
    return events.where("value < 9").select("who", "value")


def other(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.where("value < 2").select("who", (F.col("value") + 100).alias("value"))


def sums(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.sum("value").alias("value"))


def with_name(events: DataFrame) -> DataFrame:
    return large(events).where("who IS NOT NULL")


def largest(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.max("value").alias("value"))


FIRST: list[list[Row]] = [[("12:00", "a", 1.0)], [("12:01", "b", 3.0), ("12:02", "c", 1.0)]]
TWICE: list[list[Row]] = [[("12:00", "a", 1.0), ("12:01", "a", 2.0)]]
THEN: list[list[Row]] = [[("12:03", "d", 1.0)], [("12:04", "e", 3.0)]]


def changed(
    spark: SparkSession, home: Path, before: Any, after: Any, *, first: list[list[Row]] = FIRST, **more: Any
) -> Scene:
    """The query ran over the first batches, in a form that could not be read, was changed, and ran on."""
    made = scene(spark, home, first, before, delay=None, **more)
    lines = [json.loads(line) for line in made.layout.manifest.read_text().splitlines()]
    unread = QueryForm(unreadable="as this test wants it").as_dict()
    made.layout.manifest.write_text("".join(json.dumps({**line, "form": unread}) + "\n" for line in lines))
    query = made.project.queries["q"]
    write(home / "landing", THEN)
    query = replace(query, transform=PythonTransform(function=after, inputs=("events",)))
    again = Scene(spark, replace(made.project, queries={"q": query}), made.table)
    again.run()
    return again


@pytest.mark.spark
@pytest.mark.parametrize(("mode", "key"), rounds([("update", ("who",)), ("append", ())]), ids=["update", "append"])
def test_a_stateless_result_of_two_meanings_is_judged_range_by_range(
    tmp_path: Path, spark: SparkSession, mode: str, key: tuple[str, ...]
) -> None:
    made = changed(spark, tmp_path, other, large, mode=mode, key=key)
    verdict = made.verify()
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR650"])
    assert verdict.findings[0].what == (
        "batches 0 to 1 of query 'q' were made by another form of it, which cannot be computed again; what batches "
        "2 to 3 gave is all there"
    )
    assert (verdict.rows_expected, verdict.missing, verdict.different) == (2, 0, 0)
    assert made.table.edit("DELETE FROM record WHERE json LIKE '%\"d\"%'") == 1
    verdict = made.verify()
    assert (verdict.state, verdict.missing) == ("mismatch", 1)
    assert "of what batches 2 to 3 gave, 1 rows are missing" in verdict.findings[0].what


@pytest.mark.spark
def test_a_change_that_gives_the_same_rows_is_proved_and_one_with_state_is_left_open(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "same").mkdir()
    same = changed(spark, tmp_path / "same", large, with_name, mode="append")
    assert same.verify().state == "equal"
    (tmp_path / "state").mkdir()
    # The sum 3 goes on as the largest value so far.
    verdict = changed(spark, tmp_path / "state", sums, largest, mode="complete", key=("who",), first=TWICE).verify()
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR650"])
    assert "its state carries from batch to batch" in verdict.why
