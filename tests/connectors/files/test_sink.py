"""The file sink takes every format, partitions, keeps types, and refuses a checkpoint that would lose batches."""

from __future__ import annotations

import shutil
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.files.sink import FileSink
from headrace.connectors.spark_files import formats as file_form
from headrace.contract import SinkContext
from headrace.errors import CheckpointError, SinkError
from headrace.testing.conformance import NAME, forget_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    (1, 'a,"b"', datetime(2024, 1, 1, 0, 0, 0, 123456), date(2024, 1, 1)),
    (2, "é", None, date(2024, 1, 2)),
]
SCHEMA = "id INT, name STRING, at TIMESTAMP, day DATE"


def write(spark: SparkSession, tmp_path: Path, sink: FileSink, columns: list[str]) -> tuple[SinkContext, DataFrame]:
    """Run a stream of ROWS into the sink; a second start after a crash before the commit is part of it."""
    run = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.mode("append").parquet(str(tmp_path / "input"))
    frame = spark.readStream.name(NAME).schema(SCHEMA).parquet(str(tmp_path / "input")).select(*columns)
    for start in range(2):
        opened = sink.open(frame, run)
        writer = frame.writeStream.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
        opened.attach(writer).start().awaitTermination()
        if start == 0:
            forget_commit(run.checkpoint)
    return run, spark.createDataFrame(ROWS, SCHEMA).select(*columns)


@pytest.mark.capability("SINK-FILE-01")
@pytest.mark.parametrize(
    ("format_", "columns"),
    [
        ("text", ["name"]),
        ("csv", ["id", "name", "at", "day"]),
        ("json", ["id", "name", "at", "day"]),
        ("parquet", ["id", "name", "at", "day"]),
        ("orc", ["id", "name", "at", "day"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_format_comes_back_with_its_types_once(
    spark: SparkSession, tmp_path: Path, format_: Any, columns: list[str]
) -> None:
    partition_by = ["day"] if "day" in columns else []
    sink = FileSink(path=str(tmp_path / "output"), format=format_, partition_by=partition_by, retention="365d")
    assert list(sink.problems("append")) == []
    run, written = write(spark, tmp_path, sink, columns)
    snapshot = sink.read_back(spark, run)
    assert snapshot.batch == 0
    assert snapshot.rows.dtypes == written.dtypes
    assert sorted(snapshot.rows.collect(), key=repr) == sorted(written.collect(), key=repr)
    directories = {place.name for place in (tmp_path / "output").glob("day=*")}
    assert directories == ({"day=2024-01-01", "day=2024-01-02"} if partition_by else set())


TEXTS = (
    *(
        "a",
        " a",
        "a ",
        "\ta\t",
        " ",
        "",
        None,
        'a"b',
        '"a"',
        '"',
        '""',
        'a""b',
        '","',
        "a\\b",
        "a\\",
        'a\\"b',
        '\\"',
        "\\\\",
    ),
    *("a,b", ",", "a\nb", "a\rb", "a\r\nb", "a\n", "a\r", "\n", "\r", "#a", "null", "NULL", "\\N", "NaN", "\x01a\x1f"),
    *("é\U0001f600", "\u00a0a\u00a0", "\u2028\u0085", "\u0000x", "'", "''", "x" * 70_000),
)
VALUES = """
    CAST(v.d AS DOUBLE) AS d, CAST(v.d AS FLOAT) AS f, CAST(v.dec AS DECIMAL(38,18)) AS dec, CAST(v.day AS DATE) AS day,
    CAST(v.at AS TIMESTAMP) AS at, CAST(v.at AS TIMESTAMP_NTZ) AS local
    FROM VALUES
    (1, 'NaN', '99999999999999999999.999999999999999999', '0001-01-01', '0001-01-01 00:00:00'),
    (2, 'Infinity', '-0.000000000000000001', '9999-12-31', '9999-12-31 23:59:59.999999'),
    (3, '-Infinity', '0', '1582-10-04', '1582-10-15 00:00:00.000001'),
    (4, '-0.0', NULL, '1899-12-31', '1899-12-31 23:59:59.999999'),
    (5, '4.9E-324', '1', '+10000-01-01', '+10000-01-01 00:00:00'),
    (6, '1.7976931348623157E308', '1', NULL, '2024-03-31 02:30:00.123456'),
    (7, NULL, '1', '1970-01-01', NULL)
    AS v(id, d, dec, day, at)
"""
NESTED = """
    CASE id WHEN 1 THEN struct(CAST(NULL AS INT) AS a, ' ' AS b) WHEN 2 THEN struct(1 AS a, '' AS b) END AS part,
    CASE id WHEN 1 THEN array('', NULL, 'x\\ny') WHEN 2 THEN array() END AS list,
    CASE id WHEN 1 THEN map('a', CAST(NULL AS STRING), 'b', '') WHEN 2 THEN map() END AS map,
    CASE id WHEN 1 THEN X'00FF80' WHEN 2 THEN X'' END AS bytes,
"""
AS_JSON = {"ignoreNullFields": "false"}


def as_json(frame: DataFrame) -> list[str]:
    """The rows as texts in which NULL differs from empty, and far days."""
    from pyspark.sql import functions as F

    return sorted(row[0] for row in frame.select(F.to_json(F.struct("*"), AS_JSON)).collect())


@pytest.mark.capability("SINK-FILE-01")
@pytest.mark.parametrize(
    ("format_", "zone"),
    [
        ("csv", "UTC"),
        ("csv", "Europe/Berlin"),
        ("json", "UTC"),
        ("json", "Europe/Berlin"),
        ("parquet", "UTC"),
        ("orc", "UTC"),
    ],
)
def test_every_value_comes_back_as_it_was(spark: SparkSession, tmp_path: Path, format_: Any, zone: str) -> None:
    nested = NESTED if format_ != "csv" else ""
    texts = spark.createDataFrame([(number, text) for number, text in enumerate(TEXTS, 1)], "id INT, text STRING")
    values = texts.join(spark.sql(f"SELECT id, {nested} {VALUES}"), "id", "left")
    values.coalesce(1).write.parquet(str(tmp_path / "input"))
    frame = spark.readStream.name(NAME).schema(values.schema).parquet(str(tmp_path / "input"))
    sink = FileSink(path=str(tmp_path / "output"), format=format_)
    run = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        opened = sink.open(frame, run)
        writer = opened.serialize(frame).writeStream.option("checkpointLocation", str(run.checkpoint))
        opened.attach(writer.trigger(availableNow=True)).start().awaitTermination()
        rows = sink.read_back(spark, run).rows
        assert rows.dtypes == values.dtypes
        assert as_json(rows) == as_json(values)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


REFUSED = {
    "binary in csv": ("csv", "SELECT X'00' AS v", "HR404", "'v' of the result of query 'q', a BINARY"),
    "a map's keys in json": (
        "json",
        "SELECT array(map(1, 2)) AS v",
        "HR404",
        "'v[]' of the result of query 'q', a MAP",
    ),
    "a list in csv": ("csv", "SELECT array(1) AS v", "HR404", "array<int>"),
    "nothing but NULL": ("orc", "SELECT NULL AS v", "HR404", "void"),
    "a number in text": ("text", "SELECT 1 AS v", "HR404", "int"),
    "two texts": ("text", "SELECT 'a' AS v, 'b' AS w", "HR404", "v, w"),
    "a variant in orc": ("orc", "SELECT parse_json('1') AS v", "HR404", "variant"),
}


@pytest.mark.parametrize(("format_", "select", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_type_that_would_not_come_back_is_refused_by_its_column(
    spark: SparkSession, tmp_path: Path, format_: Any, select: str, code: str, words: str
) -> None:
    run = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    with pytest.raises(SinkError) as refused:
        FileSink(path=str(tmp_path / "output"), format=format_).open(spark.sql(select), run)
    assert refused.value.findings[0].code == code
    assert words in refused.value.findings[0].what


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        ("text", "'a\\nb'"), ("text", "'a\\rb'"), ("text", "CAST(NULL AS STRING)"), ("csv", "CAST(NULL AS INT)"),
        ("csv", "'\ufeffa'"),
        ("orc", "DATE'1582-10-10'"), ("orc", "TIMESTAMP'1582-10-14 23:59:59'"),
    ],
)  # fmt: skip
def test_a_value_that_would_not_come_back_ends_the_batch_by_its_column(
    spark: SparkSession, format_: Any, value: str
) -> None:
    rows = spark.sql(f"SELECT {value} AS v FROM range(1)")
    with pytest.raises(Exception, match=r"headrace\.errors\.SinkError: headrace HR440: a value of column 'v' "):
        file_form.refuse_values(rows, file_form.find_refused_values(format_, rows, (), {})).collect()


CHARACTERS = ["a", "é", "€", "я", "\x81", "\u2028", "😀", "\xad", "\x00"]


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "us-ascii", "UTF-16LE", "UTF-8"])
@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_character_that_the_encoding_lacks_is_refused_and_all_others_are_written(
    spark: SparkSession, tmp_path: Path, format_: Any, encoding: str
) -> None:
    def has(character: str) -> bool:
        try:
            return bool(character.encode(encoding))
        except UnicodeEncodeError:
            return False

    kind = "STRING" if format_ == "csv" else "ARRAY<STRING>"
    values = [(f"<{text}>" if format_ == "csv" else [f"<{text}>"], number) for number, text in enumerate(CHARACTERS)]
    rows = spark.createDataFrame(values, f"v {kind}, n INT").coalesce(1)
    bad = rows.where("false")
    for refused in file_form.find_refused_values(format_, rows, (), {"encoding": encoding}):
        bad = bad.union(rows.where(refused.condition))
    kept = [number for number, text in enumerate(CHARACTERS) if has(text)]
    assert sorted(row.n for row in bad.collect()) == [n for n in range(len(CHARACTERS)) if n not in kept]
    good = rows.where(rows.n.isin(kept)).write.options(**file_form.write_options(format_, {"encoding": encoding}, 2))
    good.format(format_).save(str(tmp_path / "out"))
    [file] = (tmp_path / "out").glob(f"*.{format_}")
    written = file.read_bytes().decode(encoding).replace("\\u0000", "\x00")
    assert [text for text in CHARACTERS if f"<{text}>" in written] == [CHARACTERS[number] for number in kept]


@pytest.mark.capability("SINK-FILE-01")
def test_spark_forgets_files_older_than_the_retention(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "2")
    sink = FileSink(path=str(tmp_path / "output"), format="json", retention="1ms")
    run = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    (tmp_path / "input").mkdir()
    frame = spark.readStream.name(NAME).schema("a INT").json(str(tmp_path / "input"))
    try:
        for number in range(2):
            (tmp_path / "input" / f"{number}.json").write_text(f'{{"a": {number}}}\n')
            opened = sink.open(frame, run)
            writer = frame.writeStream.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
            opened.attach(writer).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")
    assert (0,) not in [tuple(row) for row in sink.read_back(spark, run).rows.collect()]


def test_a_new_checkpoint_over_old_files_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(path=str(tmp_path / "output"))
    run, written = write(spark, tmp_path, sink, ["id"])
    shutil.rmtree(run.checkpoint)
    with pytest.raises(CheckpointError, match="go up to batch 0, the checkpoint of query 'q' only to none"):
        sink.open(written, run)


def test_what_cannot_be_is_reported_before_start(spark: SparkSession, tmp_path: Path) -> None:
    assert [problem.code for problem in FileSink(path="", retention="x").problems("update")] == [
        "HR113",
        "HR113",
        "HR403",
    ]
    run = SinkContext(query="q", generation=1, mode="append", checkpoint=tmp_path / "checkpoint")
    sink = FileSink(path=str(tmp_path / "output"), partition_by=["dya"])
    with pytest.raises(SinkError, match=r"partition_by names dya.*(?s:.*)did you mean 'day'"):
        sink.open(spark.createDataFrame(ROWS, SCHEMA), run)
    with pytest.raises(SinkError, match="nothing has been written"):
        sink.read_back(spark, run)
