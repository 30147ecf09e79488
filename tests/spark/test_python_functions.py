"""The Python functions of a plan come back from the JVM, of each kind, in the plan's order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

from headrace.planner.code.meaning import compare_meanings, read_meaning
from headrace.spark.plans.analysed import analysed_plan
from headrace.spark.plans.python_functions import PythonFunction, functions

pytestmark = pytest.mark.spark
SCHEMA = "k STRING, v LONG"


def plus(number: Any) -> Any:
    return number + 1


def plus_all(numbers: pd.Series) -> pd.Series:
    return numbers + 1


def frames(parts: Iterator[Any]) -> Iterator[Any]:
    yield from parts


def group(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.head(1)


def two_groups(left: Any, right: Any) -> Any:
    return left


def with_state(key: Any, parts: Iterator[Any], state: Any) -> Iterator[Any]:
    yield from parts


def mean(numbers: pd.Series) -> float:
    return float(numbers.mean())


class Rows:
    def eval(self, number: int) -> Iterator[tuple[int]]:
        yield (number,)


@pytest.fixture
def things(spark: Any, tmp_path: Path) -> dict[str, Any]:
    return {
        "batch": spark.createDataFrame([("a", 1)], SCHEMA),
        "stream": spark.readStream.schema(SCHEMA).name("events").json(str(tmp_path)),
        "spark": spark,
    }


def processor(batch: Any, stream: Any, spark: Any) -> Any:
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.step = 2

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Iterator[Any]:  # noqa: N802
            yield from rows

        def close(self) -> None:
            pass

    grouped = stream.groupBy("k")
    return grouped.transformWithStateInPandas(Counter(), SCHEMA, "update", "none")


def register_plus_one(batch: Any, stream: Any, spark: Any) -> Any:
    spark.udf.register("plus_one", plus, "long")
    return batch.selectExpr("plus_one(v)")


def table_function(batch: Any, stream: Any, spark: Any) -> Any:
    return F.udtf(Rows, returnType="n: long")(F.lit(1))


def in_a_subquery(batch: Any, stream: Any, spark: Any) -> Any:
    spark.udf.register("plus_one", plus, "long")
    batch.createOrReplaceTempView("numbers")
    return spark.sql("SELECT v, (SELECT max(plus_one(v)) FROM numbers) FROM numbers")


CASES: dict[str, tuple[Any, Any]] = {
    "a function of a row": (lambda batch, stream, spark: batch.select(F.udf(plus, "long")("v")), plus),
    "a function of a stream's row": (lambda batch, stream, spark: stream.select(F.udf(plus, "long")("v")), plus),
    "a function in a condition": (lambda batch, stream, spark: batch.where(F.udf(plus, "long")("v") > 1), plus),
    "a function of series": (lambda batch, stream, spark: batch.select(F.pandas_udf(plus_all, "long")("v")), plus_all),
    "a function of a group's series": (
        lambda batch, stream, spark: batch.groupBy("k").agg(F.pandas_udf(mean, "double")("v")),
        mean,
    ),
    "a function that SQL calls": (register_plus_one, plus),
    "a function in a subquery": (in_a_subquery, plus),
    "a table function": (table_function, Rows),
    "mapInPandas": (lambda batch, stream, spark: batch.mapInPandas(frames, SCHEMA), frames),
    "mapInArrow": (lambda batch, stream, spark: batch.mapInArrow(frames, SCHEMA), frames),
    "applyInPandas": (lambda batch, stream, spark: batch.groupBy("k").applyInPandas(group, SCHEMA), group),
    "applyInArrow": (lambda batch, stream, spark: batch.groupBy("k").applyInArrow(group, SCHEMA), group),
    "cogroup": (
        lambda batch, stream, spark: batch.groupBy("k").cogroup(batch.groupBy("k")).applyInPandas(two_groups, SCHEMA),
        two_groups,
    ),
    "applyInPandasWithState": (
        lambda batch, stream, spark: stream.groupBy("k").applyInPandasWithState(
            with_state, SCHEMA, "n LONG", "update", "NoTimeout"
        ),
        with_state,
    ),
}


def functions_in(frame: Any) -> list[PythonFunction]:
    return list(functions(analysed_plan(frame)).values())


def same(function: Any, other: Any) -> list[str]:
    return compare_meanings(
        *(read_meaning(side, owned=lambda module: module.__name__ == __name__, salt="") for side in (function, other))
    )


@pytest.mark.parametrize(("build", "function"), CASES.values(), ids=CASES)
def test_a_function_of_a_plan_comes_back(build: Any, function: Any, things: dict[str, Any]) -> None:
    frame = build(**things)
    ((number, udf),) = functions(analysed_plan(frame)).items()
    assert same(udf.function, function) == []
    assert json.loads(udf.return_type)
    assert udf.eval_type > 0
    assert f'"id":{number},' in str(analysed_plan(frame).toJSON())


def test_a_stateful_processor_comes_back_with_its_methods(things: dict[str, Any]) -> None:
    (udf,) = functions_in(processor(**things))
    meaning = json.dumps(read_meaning(udf.function, owned=lambda module: module.__name__ == __name__, salt=""))
    assert "handleInputRows" in meaning
    assert '"int": 2' in meaning


def test_functions_stand_in_the_plans_order(things: dict[str, Any]) -> None:
    first, second = (F.udf(lambda value, k=k: value * k, "long") for k in (2, 3))
    frame = things["batch"].select(first("v").alias("w")).where(second("w") > 1)
    udfs = functions_in(frame)
    assert [udf.function(1) for udf in udfs] == [3, 2]


def test_a_function_of_more_than_a_megabyte_comes_back(things: dict[str, Any]) -> None:
    table = {number: str(number) * 3 for number in range(100_000)}
    shared = things["spark"].sparkContext.broadcast({"a": 7})
    (udf,) = functions_in(things["batch"].select(F.udf(lambda value: table[value] + str(shared.value["a"]))("v")))
    assert udf.function(5) == "5557"


def test_a_plan_without_python_costs_one_look(things: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.spark.plans import python_functions

    monkeypatch.setattr(python_functions, "sequence", None)
    assert functions(analysed_plan(things["batch"].where("v > 1"))) == {}
