"""Basic operations of the guide: selection, projection, aggregation, SQL, and Python functions over rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run
from tests.runner.projects import rows

from .scenes import land, play, project, query, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DEVICES = source("devices", "device STRING, deviceType STRING, signal DOUBLE, time DATE")
READINGS = [
    [("d1", "phone", 11.0), ("d2", "phone", 9.5), ("d3", "watch", 10.0)],
    [("d1", "phone", 10.5), ("d3", "watch", 30.0)],
]
SIGNALS = [("d1",), ("d1",), ("d3",)]


def land_devices(root: Path) -> None:
    for batch in READINGS:
        names = ("device", "deviceType", "signal")
        land(root, "devices", [dict(zip(names, reading, strict=True)) | {"time": "2024-01-01"} for reading in batch])


@pytest.mark.capability("OP-BASIC-01")
def test_the_guides_devices_are_selected_and_counted(tmp_path: Path, spark: SparkSession) -> None:
    signals = query('devices.select("device").where("signal > 10")', inputs="devices", name="signals")
    counts = query(
        'devices.groupBy("deviceType").count()', inputs="devices", mode="update", key=["deviceType"], name="counts"
    )
    root = project(tmp_path, DEVICES, signals, counts)
    land_devices(root)
    selected = play(root, spark, "SELECT device FROM signals ORDER BY 1", name="signals")
    assert [trigger.table for trigger in selected.triggers] == [[("d1",)], SIGNALS]
    counted = play(root, spark, "SELECT * FROM counts ORDER BY 1", name="counts")
    assert [trigger.table for trigger in counted.triggers] == [
        [("phone", 2), ("watch", 1)],
        [("phone", 3), ("watch", 2)],
    ]


@pytest.mark.capability("OP-BASIC-02")
def test_sql_over_a_view_of_a_stream_is_a_stream(tmp_path: Path, spark: SparkSession) -> None:
    """The guide's `select count(*) from updates`, declared without Python, with a warning about its state."""
    text = {
        "name": "guide",
        "sources": {
            "devices": {
                "files": {
                    "path": "devices",
                    "format": "json",
                    "schema": "device STRING, deviceType STRING, signal DOUBLE",
                    "max_files_per_trigger": 1,
                }
            }
        },
        "views": {"updates": "SELECT deviceType AS type, signal FROM devices WHERE signal > 9.5"},
        "queries": {
            "total": {
                "select": "SELECT count(*) AS total FROM updates",
                "mode": "complete",
                "trigger": "available-now",
                "sink": {"sqlite": {"path": "out.db", "table": "total"}},
            },
            "types": {
                "select": "SELECT type, max(signal) AS signal FROM updates GROUP BY type",
                "mode": "update",
                "trigger": "available-now",
                "sink": {"sqlite": {"path": "out.db", "table": "types", "key": ["type"]}},
            },
        },
    }
    (tmp_path / "headrace.yml").write_text(json.dumps(text))
    land_devices(tmp_path)
    total = play(tmp_path, spark, "SELECT total FROM total", name="total")
    assert [trigger.table for trigger in total.triggers] == [[(2,)], [(4,)]]
    types = play(tmp_path, spark, "SELECT * FROM types ORDER BY 1", name="types")
    assert types.triggers[-1].table == [("phone", 11.0), ("watch", 30.0)]
    findings = check(load(tmp_path), spark=spark).findings
    assert [(finding.code, "aggregation by type" in finding.what) for finding in findings] == [("HR240", True)]


LINES = source("lines", "line STRING")
FUNCTIONS = """
import pandas as pd
import pyarrow as pa

@F.udf("string")
def loud(line):
    return line.upper()

@F.pandas_udf("string")
def loud_pandas(line: pd.Series) -> pd.Series:
    return line.str.upper()

@F.arrow_udf("string")
def loud_arrow(line: pa.Array) -> pa.Array:
    return pa.compute.utf8_upper(line)

def frames(batches):
    for frame in batches:
        yield pd.DataFrame({"line": frame["line"].str.upper()})

def tables(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.compute.utf8_upper(batch.column("line"))], ["line"])

@F.udf("boolean")
def short(line):
    return len(line) < 6

@F.udf("array<string>")
def words(line):
    return line.split()

@F.udtf(returnType="word STRING")
class Words:
    def eval(self, line: str):
        for word in line.split():
            yield word,

def words_pandas(batches):
    for frame in batches:
        yield pd.DataFrame({"word": [word for line in frame["line"] for word in line.split()]})
"""
MAPPED = [("A B C",), ("DD",), ("LONG LINE",)]
FLAT = [("a",), ("b",), ("c",), ("dd",), ("line",), ("long",)]
FORMS = {
    "map by a Python function": ('lines.select(loud("line"))', MAPPED),
    "map by pandas": ('lines.select(loud_pandas("line"))', MAPPED),
    "map by arrow": ('lines.select(loud_arrow("line"))', MAPPED),
    "map of frames": ('lines.mapInPandas(frames, "line STRING")', MAPPED),
    "map of record batches": ('lines.mapInArrow(tables, "line STRING")', MAPPED),
    "filter": ('lines.where(short("line"))', [("a b c",), ("dd",)]),
    "flatMap by explode": ('lines.select(F.explode(words("line")))', FLAT),
    "flatMap by a table function": ('lines.lateralJoin(Words(F.col("line").outer())).select("word")', FLAT),
    "flatMap of frames": ('lines.mapInPandas(words_pandas, "word STRING")', FLAT),
}


@pytest.mark.capability("OP-BASIC-03")
def test_python_functions_map_filter_and_flatten_rows(tmp_path: Path, spark: SparkSession) -> None:
    names = {f"q{number}": form for number, form in enumerate(FORMS)}
    queries = [query(f"{FORMS[form][0]}.toDF('x')", inputs="lines", name=name) for name, form in names.items()]
    root = project(tmp_path, FUNCTIONS, LINES, *queries)
    land(root, "lines", [{"line": "a b c"}, {"line": "dd"}], [{"line": "long line"}])
    outcomes = run(load(root), spark=spark).outcomes
    assert {outcome.query: outcome.finding for outcome in outcomes} == dict.fromkeys(names)
    answers = {form: rows(root / "out.db", f"SELECT x FROM {name} ORDER BY 1") for name, form in names.items()}
    assert answers == {form: expected for form, (_, expected) in FORMS.items()}
