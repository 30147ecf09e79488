"""Values of partition columns come back as they were, read by pyarrow or from Delta's own log, or end the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import dataset

import headrace as hr
from headrace.connectors.delta import batches
from headrace.connectors.spark_files import formats as file_form
from headrace.errors import Finding
from headrace.spark.jvm.session_conf import apply_settings
from tests.runner.projects import land, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    *("a", "A", " ", "a ", " a", "\t", "\n", "\x01", "\x7f", "\x80", "a/b", "a=b", "a%b", "a%20b", "a:b", "%", "."),
    *("..", "_x", ".x", "01", "1.0", "null", "NULL", "{a}", "[x]", "*", "?", "\\", '"', "'", "#", "+", "a+b", "&"),
    *("2024-01-01", "true", "\u00e4", "e\u0301", "\U0001f600", "\u00a0", "\u2028", "x" * 200, "a;b"),
    "__hive_default_partition__",
]  # fmt: skip
KEEP = """
@hr.query(sink={sink}, mode="{mode}", trigger=hr.available_now)
def kept(events):
    return events.groupBy("name").agg(F.max("amount").alias("amount")) if "{mode}" == "update" else events
"""
SINKS = {
    "files": ('hr.sink.files("out", format="{format}", partition_by=["name"])', "append"),
    "table": ('hr.sink.table("{table}", partition_by=["name"])', "append"),
    "delta": ('hr.sink.delta("out", partition_by=["name"])', "append"),
    "delta-update": ('hr.sink.delta("out", key=["name"], partition_by=["name"])', "update"),
}
delta = [pytest.mark.services, pytest.mark.connectors]
# A table of files has the partitions of files, and one that is updated those of one that is appended to.
FURTHER = ("table", "delta-update")
EACH = [
    pytest.param(
        name,
        marks=[
            *(delta if "delta" in name else [pytest.mark.spark]),
            *([pytest.mark.long] if name in FURTHER else []),
        ],
    )
    for name in SINKS
]


def project(root: Path, which: str, texts: list[str], **words: str) -> Path:
    sink, mode = SINKS[which]
    words = {"format": "parquet", "table": f"parts_{uuid4().hex}", **words}
    write_project(root, KEEP.format(sink=sink.format(**words), mode=mode))
    land(root, 0, [{"name": text, "amount": number} for number, text in enumerate(texts)])
    return root


def run(root: Path, spark: SparkSession) -> Finding | None:
    [end] = hr.run(hr.load(root), spark=spark).outcomes
    return end.finding


@pytest.mark.spark
def test_every_text_comes_back_from_the_name_of_its_directory(spark: SparkSession, tmp_path: Path) -> None:
    root = project(tmp_path / "p", "files", TEXTS)
    assert run(root, spark) is None
    schema = pa.schema([("name", pa.string()), ("amount", pa.int32())])
    parts = dataset.partitioning(pa.schema([("name", pa.string())]), flavor="hive")
    files = [str(file) for file in (root / "out").glob("*/part-*.parquet")]
    rows = (
        dataset.dataset(files, schema, partitioning=parts, partition_base_dir=str(root / "out")).to_table().to_pylist()
    )
    assert {row["amount"]: row["name"] for row in rows} == dict(enumerate(TEXTS))
    assert hr.verify(hr.load(root), "kept", spark=spark).state == "equal"


@pytest.mark.services
@pytest.mark.connectors
def test_every_text_comes_back_from_the_log_of_delta(spark: SparkSession, tmp_path: Path) -> None:
    root = project(tmp_path / "p", "delta", TEXTS)
    assert run(root, spark) is None
    lines = [line for file in (root / "out" / "_delta_log").glob("*.json") for line in file.read_text().split("\n")]
    adds = [json.loads(line)["add"]["partitionValues"]["name"] for line in lines if line.startswith('{"add"')]
    assert sorted(adds) == sorted(TEXTS)
    assert hr.verify(hr.load(root), "kept", spark=spark).state == "equal"


# One text for each sink; REFUSED has all of them, for the function that the sinks share.
NULLS = {"files": "", "table": "", "delta": "__HIVE_DEFAULT_PARTITION__", "delta-update": ""}


@pytest.mark.parametrize("which", EACH)
def test_a_text_that_would_come_back_as_null_ends_the_batch_until_the_query_gives_another(
    spark: SparkSession, tmp_path: Path, which: str
) -> None:
    root = project(tmp_path / "p", which, [NULLS[which], "b"])
    result = run(root, spark)
    assert result is not None
    assert (result.code, "a value of column 'name'" in result.what) == ("HR440", True), result
    assert not list((root / "out").rglob("part-*"))
    pipeline = root / "pipeline.py"
    body = pipeline.read_text().replace("@hr.query(", '@hr.query(on_change="forward", ')
    pipeline.write_text(body.replace("    return ", "    events = events.where(\"name = 'b'\")\n    return "))
    assert run(root, spark) is None
    assert hr.verify(hr.load(root), "kept", spark=spark).rows_actual == 1


@pytest.mark.parametrize("which", [param for param in EACH if param.values[0] in ("files", "delta-update")])
def test_a_result_that_holds_null_in_place_of_a_text_is_not_to_be_reset_before_the_query_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Former versions, which refused nothing, wrote it."""
    root = project(tmp_path / "p", which, ["", "b"])
    with monkeypatch.context() as patch:
        patch.setattr(file_form, "refuse_values", lambda frame, _: frame)
        patch.setattr(batches, "refuse_values", lambda frame, _: frame)
        assert run(root, spark) is None
    verdict = hr.verify(hr.load(root), "kept", spark=spark)
    [finding] = verdict.findings
    assert (verdict.state, finding.code) == ("mismatch", "HR712")
    assert finding.fix.startswith("filter such rows out or change the value in the query's last select")


REFUSED = {
    "binary": ("X'FF'", True),
    "no UTF-8": ("CAST(X'FF' AS STRING)", True),
    "an hour that comes twice, its second time": ("timestamp_seconds(1729992600)", True),
    "its first time": ("timestamp_seconds(1729989000)", False),
    "a time that is reported": ("TIMESTAMP'1582-10-10 12:00:00.000001'", False),
    "a local time": ("TIMESTAMP_NTZ'2024-03-31 02:30:00'", False),
    "a day before the first year": ("DATE'-0044-03-15'", False),
    "no number": ("double('NaN')", False),
    "less than nothing": ("double('-0.0')", False),
    "NULL": ("CAST(NULL AS STRING)", False),
    "an empty text": ("''", True),
    "the name of NULL": ("'__HIVE_DEFAULT_PARTITION__'", True),
    "a zero character": ("concat('a', char(0))", True),
}


@pytest.mark.spark
@pytest.mark.parametrize(("value", "is_refused"), REFUSED.values(), ids=REFUSED)
def test_a_value_comes_back_from_a_partition_or_is_refused(
    spark: SparkSession, tmp_path: Path, value: str, is_refused: bool
) -> None:
    with apply_settings(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        rows = spark.sql(f"SELECT id, {value} AS p FROM range(1)")
        checked = file_form.refuse_values(rows, file_form.find_refused_values("parquet", rows, ["P"], {}))
        if is_refused:
            with pytest.raises(Exception, match=r"headrace\.errors\.SinkError: headrace HR440: a value of column 'p' "):
                checked.collect()
            return
        checked.write.partitionBy("p").parquet(str(tmp_path / "out"))
        back = spark.read.schema(rows.schema).parquet(str(tmp_path / "out"))
        text = "CAST(p AS STRING) AS text"
        assert back.selectExpr(text).collect() == rows.selectExpr(text).collect()


@pytest.mark.spark
def test_times_that_files_hold_in_utc_are_not_refused(spark: SparkSession) -> None:
    with apply_settings(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        rows = spark.sql("SELECT id, timestamp_seconds(1729992600) AS p FROM range(1)")
        checked = file_form.refuse_values(rows, file_form.find_refused_values("json", rows, ["p"], {"timeZone": "UTC"}))
        assert len(checked.collect()) == 1


@pytest.mark.services
@pytest.mark.connectors
def test_delta_takes_no_time_before_the_first_year_into_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    """It reads 44 BC back as the year 45."""
    root = write_project(tmp_path / "p", KEEP.format(sink='hr.sink.delta("out", partition_by=["p"])', mode="append"))
    text = (root / "pipeline.py").read_text()
    land(root, 0, [{"name": "a", "amount": 1}])
    times = {"TIMESTAMP'-0044-03-15 00:00:00'": "HR440", "TIMESTAMP'0001-01-01 00:00:00'": None}
    for time, code in times.items():
        (root / "pipeline.py").write_text(text.replace("else events", f'else events.withColumn("p", F.expr("{time}"))'))
        result = run(root, spark)
        assert (result and result.code) == code
