"""The foreach_batch sink: whole batches, computed once, and marked when they come again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import check, load, run
from headrace.connectors.foreach.batch_sink import ForeachBatch
from headrace.contract import OutputMode
from headrace.spark.jvm.gateway import working_directory
from headrace.testing.conformance import forget_commit
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FRUIT = [[{"name": "apple", "amount": 1}, {"name": "pear", "amount": 2}], [{"name": "apple", "amount": 3}]]

TWO_PLACES = """
counter = None


@F.udf("int")
def counted(amount):
    counter.add(1)
    return amount


def write(frame, batch):
    frame.write.mode("overwrite").parquet(f"ROOT/one/batch={batch}")
    frame.write.mode("overwrite").json(f"ROOT/two/batch={batch}")


@hr.query(sink=hr.sink.foreach_batch(write, OPTIONS), trigger=hr.available_now)
def q(events, spark):
    global counter
    counter = counter or spark.sparkContext.accumulator(0)
    return events.select("name", counted("amount").alias("amount"))
"""


@pytest.mark.capability("SINK-BATCH-01")
@pytest.mark.parametrize(("options", "times"), [("cache=True", 1), ("cache=False", 2)])
def test_a_batch_goes_to_two_places_and_is_computed_once_if_cached(
    tmp_path: Path, spark: SparkSession, options: str, times: int
) -> None:
    root = tmp_path / "p"
    write_project(root, TWO_PLACES.replace("ROOT", str(root)).replace("OPTIONS", options), batches=FRUIT)
    loaded = load(root)
    assert run(loaded, spark=spark).exit_code == 0
    expected = [("apple", 1, 0), ("apple", 3, 1), ("pear", 2, 0)]
    for kind in ("one", "two"):
        read = spark.read.schema("name STRING, amount INT, batch INT").format("parquet" if kind == "one" else "json")
        assert sorted(map(tuple, read.load(str(root / kind)).collect())) == expected
    counter = loaded.queries["q"].transform.function.__globals__["counter"]  # type: ignore[union-attr]
    assert counter.value == 3 * times
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()  # type: ignore[union-attr]


SEEN = """
import json


def write(frame, batch, again):
    with open("LOG", "a") as file:
        file.write(json.dumps([batch, again, sorted(map(list, frame.collect()))]) + "\\n")


@hr.query(sink=hr.sink.foreach_batch(write), mode="MODE", trigger=hr.available_now)
def q(events):
    return RESULT
"""
ROWS = "events.select('name', 'amount')"
TOTALS = "events.groupBy('name').agg(F.sum('amount').alias('amount'))"


def logged_calls(root: Path) -> list[Any]:
    return [json.loads(line) for line in (root / "log").read_text().splitlines()]


def project(root: Path, mode: str = "append", result: str = ROWS, text: str = SEEN) -> Path:
    text = text.replace("LOG", str(root / "log")).replace("MODE", mode).replace("RESULT", result)
    return write_project(root, text, batches=FRUIT)


@pytest.mark.capability("SINK-BATCH-01")
@pytest.mark.parametrize(
    ("mode", "result", "second"),
    rounds(
        [
            ("update", TOTALS, [["apple", 4]]),
            ("append", ROWS, [["apple", 3]]),
            ("complete", TOTALS, [["apple", 4], ["pear", 2]]),
        ]
    ),
)
def test_the_function_learns_that_a_batch_comes_again(
    tmp_path: Path, spark: SparkSession, mode: OutputMode, result: str, second: list[Any]
) -> None:
    root = project(tmp_path / "p", mode, result)
    loaded = load(root)
    assert run(loaded, spark=spark).exit_code == 0
    assert logged_calls(root) == [[0, False, [["apple", 1], ["pear", 2]]], [1, False, second]]
    guarantee = check(loaded, spark=False).guarantees["q"]
    assert (guarantee.level, "takes a batch again" in guarantee.sentence) == ("at least once", True)
    forget_commit(layout_in(loaded.storage, "q").checkpoint)
    land(root, 2, [{"name": "fig", "amount": 9}])
    assert run(loaded, spark=spark).exit_code == 0
    again, after = logged_calls(root)[2:]
    assert again == [1, True, second]
    assert after[:2] == [2, False]


@pytest.mark.capability("SINK-BATCH-01")
@pytest.mark.parametrize("cache", rounds([False, True]))
def test_state_is_whole_though_the_function_looks_at_one_row_only(
    tmp_path: Path, spark: SparkSession, cache: bool
) -> None:
    """Spark keeps the state of a batch only if every partition is computed."""
    root = project(tmp_path / "p", "update", TOTALS, SEEN.replace("frame.collect()", "frame.limit(1).collect()"))
    many = [{"name": f"n{number}", "amount": number} for number in range(20)]  # some in every partition
    land(root, 0, many)
    file = root / "pipeline.py"
    file.write_text(file.read_text().replace("foreach_batch(write)", f"foreach_batch(write, cache={cache})"))
    assert [end.finding for end in run(load(root), spark=spark).outcomes] == [None]
    file.write_text(file.read_text().replace(".limit(1)", ""))
    land(root, 2, many)
    assert [end.finding for end in run(load(root), spark=spark).outcomes] == [None]
    assert logged_calls(root)[-1] == [2, False, sorted([f"n{number}", 2 * number] for number in range(20))]


@pytest.mark.capability("SINK-BATCH-01")
@pytest.mark.parametrize(
    ("raises", "code", "says"),
    [
        pytest.param(
            'raise ValueError("no room\\nat all")',
            "HR417",
            "query 'q': the function write failed at batch 1 with ValueError: no room",
            id="its own",
        ),
        pytest.param("raise SystemExit(3)", "HR417", "failed at batch 1 with SystemExit: 3", id="exit"),
        pytest.param('frame.select("price").collect()', "HR601", "`price`", id="spark's"),
    ],
)
def test_a_fault_of_the_function_is_one_sentence_with_its_line_and_the_batch_comes_again(
    tmp_path: Path, spark: SparkSession, raises: str, code: str, says: str
) -> None:
    faulty = SEEN.replace("    with open", f"    if batch == 1 and not again:\n        {raises}\n    with open")
    root = project(tmp_path / "p", text=faulty)
    (end,) = run(load(root), spark=spark).outcomes
    assert end.finding is not None
    assert (end.state, end.finding.code) == ("failed", code)
    assert says in end.finding.what
    assert "\n" not in end.finding.what
    assert end.finding.where.line is not None
    assert raises.partition("\\n")[0] in (root / "pipeline.py").read_text().splitlines()[end.finding.where.line - 1]
    assert run(load(root), spark=spark).exit_code == 0
    assert [line[:2] for line in logged_calls(root)] == [[0, False], [1, True]]
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()  # type: ignore[union-attr]


@pytest.mark.capability("SINK-BATCH-01")
def test_yaml_names_the_function_by_its_module(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(
        tmp_path / "p", SEEN.partition("@hr.query")[0].replace("LOG", str(tmp_path / "p/log")), batches=FRUIT
    )
    (root / "headrace.yml").write_text(
        "name: p\nqueries:\n  q:\n    select: SELECT name, amount FROM events\n    trigger: available-now\n"
        "    sink: {foreach_batch: {function: pipeline:write, idempotent: true}}\n"
    )
    loaded = load(root)
    assert run(loaded, spark=spark).exit_code == 0
    assert [line[:2] for line in logged_calls(root)] == [[0, False], [1, False]]
    assert check(loaded, spark=False).guarantees["q"].level == "exactly once"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("pipeline:missing", "'pipeline:missing' names no function"),
        (dict, "dict is not a function"),
        (lambda frame: None, "cannot be called with a DataFrame and a number"),
        (lambda frame, batch, more: None, "cannot be called with a DataFrame and a number"),
    ],
    ids=["text", "class", "one parameter", "three parameters"],
)
def test_what_cannot_be_called_is_reported_without_spark(given: Any, says: str) -> None:
    (problem,) = ForeachBatch(function=given).problems("append")
    assert problem.code == "HR415"
    assert says in problem.what
    assert problem.fix


MISSING = """
from pathlib import Path


def write(frame, batch):
    {body}


@hr.query(sink=hr.sink.foreach_batch(write), trigger=hr.available_now)
def q(events):
    return events
"""


@pytest.mark.parametrize(
    "body",
    ["Path('nowhere/rates.json').read_text()", "frame.sparkSession.read.schema('a INT').json('nowhere/rates.json')"],
    ids=["Python", "Spark"],
)
def test_a_path_that_is_not_there_is_reported_with_where_relative_paths_start_from(
    tmp_path: Path, spark: SparkSession, body: str
) -> None:
    root = write_project(tmp_path / "p", MISSING.format(body=body), batches=FRUIT)
    [outcome] = run(load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, "nowhere/rates.json" in outcome.finding.what) == ("HR417", True), outcome.finding
    here = working_directory(spark) if "sparkSession" in body else Path.cwd()
    assert f"a relative path here starts from '{here}', one of a source or a sink from '{root}'" in outcome.finding.fix
