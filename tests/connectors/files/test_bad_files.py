"""Files that break the schema or are corrupt: each format, fault and policy, with what comes of it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

import headrace as hr
from headrace.connectors.files.check import incompatibilities
from headrace.errors import Finding
from headrace.verifier.proof import verify
from tests.rounds import only_usual, rounds
from tests.runner.projects import rows
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "name STRING, amount INT"
PROJECT = """
import headrace as hr

events = hr.source.files("landing", format={format!r}, schema={schema!r}, max_files_per_trigger=1, {more})


@hr.query(sink=hr.sink.sqlite("out.db", table="taken"), trigger="available-now")
def taken(events):
    return events.select("name", "amount")
"""


# By format, header and SELECT.
_made: dict[tuple[str, str, str], bytes] = {}


@dataclass(frozen=True)
class Project:
    """A project over files of one format, of which one lands a second."""

    root: Path
    spark: SparkSession
    format: str
    more: str = ""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        (self.root / "landing").mkdir(parents=True)
        (self.root / "headrace.yml").write_text("name: p\n")
        text = PROJECT.format(format=self.format, schema=self.schema, more=self.more)
        (self.root / "pipeline.py").write_text(text)

    def land(self, number: int, content: bytes, name: str = "", ending: str = "") -> Path:
        file = self.root / "landing" / (name or f"{number}.{self.format}{ending}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, (1_700_000_000 + number,) * 2)
        return file

    def good(self, *pairs: tuple[str, int]) -> bytes:
        values = ", ".join(f"('{name}', {amount})" for name, amount in pairs)
        return self.file_of(f"SELECT * FROM VALUES {values} AS v(name, amount)")

    def file_of(self, select: str) -> bytes:
        """The bytes of the one file that Spark writes of a SELECT."""
        header = "true" if "header" in self.more else "false"
        if (project := _made.get((self.format, header, select))) is not None:
            return project
        place = self.root / "made"
        frame = self.spark.sql(select).coalesce(1)
        frame.write.format(self.format).option("header", header).save(str(place), mode="overwrite")
        (part,) = place.glob("part-*")
        return _made.setdefault((self.format, header, select), part.read_bytes())

    def run(self) -> tuple[Finding | None, list[Finding]]:
        recorder = Recorder()
        [end] = hr.run(hr.load(self.root), spark=self.spark, reporter=recorder).outcomes
        return end.finding, recorder.all(Finding)

    def rows_taken(self) -> list[tuple[Any, ...]]:
        return rows(self.root / "out.db", "SELECT name, amount FROM taken ORDER BY name, amount")

    def verdict_state(self) -> str:
        return verify(hr.load(self.root), "taken", spark=self.spark).state


Make = Callable[[Project], bytes]


def sql(select: str) -> Make:
    return lambda project: project.file_of(select)


def cut(share: float) -> Make:
    def make(project: Project) -> bytes:
        whole = project.good(("cut", 1), ("cut", 2))
        return whole[: int(len(whole) * share)]

    return make


def damaged_file(project: Project) -> bytes:
    """A file whose footer is whole and whose rows are not."""
    whole = bytearray(project.file_of("SELECT uuid() AS name, 1 AS amount FROM range(1000)"))
    whole[len(whole) // 3 : len(whole) // 3 + 200] = bytes(200)
    return bytes(whole)


def text(content: str, encoding: str = "utf-8") -> Make:
    return lambda project: content.encode(encoding)


def half_zipped(project: Project) -> bytes:
    line = '{"name": "x%d", "amount": 1}\n' if project.format == "json" else "x%d,1\n"
    whole = gzip.compress("".join(line % (number * 7919) for number in range(5_000)).encode())
    return whole[: len(whole) // 2]


SHAPED = {
    "a text for a number": (
        sql("SELECT 'a' AS name, 'x' AS amount"), "HR308", "'amount' is STRING, and the schema says INT"
    ),
    "a number that is too long": (sql("SELECT 'a' AS name, 5000000000 AS amount"), "HR308", "'amount' is BIGINT"),
    "a number for a text": (sql("SELECT 7 AS name, 1 AS amount"), "HR308", "'name' is INT, and the schema says STRING"),
    "a fraction": (sql("SELECT 'a' AS name, 1.5D AS amount"), "HR308", "'amount' is DOUBLE"),
    "a struct": (sql("SELECT 'a' AS name, struct(1 AS x) AS amount"), "HR308", "'amount' is struct<x:int>"),
    "none of the columns": (sql("SELECT 1 AS other"), "HR308", "has none of the columns of the schema but other"),
    "cut in the middle": (cut(0.5), "HR304", "not a whole one"),
    "without a byte": (cut(0), "HR304", "not a whole one"),
    "damaged rows": (damaged_file, "HR304", "a file cannot be read in"),
    "another format": (text("a,1\n"), "HR304", "not a whole one"),
}  # fmt: skip
LINES = {
    ("json", "cut in the middle"): (text('{"name": "b", "amount": 1}\n{"name": "c", "am'), "HR302", [("b", 1)], 1),
    ("json", "another type"): (
        text('{"name": "b", "amount": "many"}\n{"name": "c", "amount": 2}\n'), "HR302", [("c", 2)], 1
    ),
    ("json", "a number that is too long"): (text('{"name": "b", "amount": 5000000000}\n'), "HR302", [], 1),
    ("json", "another encoding"): (
        text('{"name": "bé", "amount": 1}\n{"name": "c", "amount": 2}\n', "latin-1"), "HR302", [("c", 2)], 1
    ),
    ("json", "half a zip"): (half_zipped, "HR304", None, 0),
    ("csv", "too few columns"): (text("b\nc,2\n"), "HR302", [("c", 2)], 1),
    ("csv", "too many columns"): (text("b,1,more\nc,2\n"), "HR302", [("c", 2)], 1),
    ("csv", "another type"): (text("b,many\nc,2\n"), "HR302", [("c", 2)], 1),
    ("csv", "another encoding"): (text("bé,1\nc,2\n", "latin-1"), "HR325", [("c", 2)], 1),
    ("csv", "half a zip"): (half_zipped, "HR304", None, 0),
    ("csv with header", "another column"): (text("name,price\nb,1\n"), "HR308", None, 0),
    ("csv with header", "another order"): (text("amount,name\n1,b\n"), "HR308", None, 0),
    ("csv with header", "a column less"): (text("name\nb\n"), "HR308", None, 0),
    ("csv with header", "a column more"): (text("name,amount,more\nb,1,x\n"), "HR308", None, 0),
    ("text", "another encoding"): (text("bé\n", "latin-1"), "HR325", None, 0),
}  # fmt: skip


def project_of(root: Path, spark: SparkSession, kind: str, policy: str = "fail") -> Project:
    format_, _, header = kind.partition(" with ")
    more = 'options={"header": "true"}, ' if header else ""
    schema = SCHEMA if format_ != "text" else "name STRING"
    made = Project(root, spark, format_, f"{more}on_bad_row={policy!r}", schema)
    if format_ == "text":
        pipeline = root / "pipeline.py"
        pipeline.write_text(pipeline.read_text().replace('select("name", "amount")', 'selectExpr("name", "1 amount")'))
    return made


def good(project: Project, number: int, name: str) -> None:
    project.land(number, f"{name}\n".encode() if project.format == "text" else project.good((name, 1)))


KINDS = ("parquet", "orc", *dict.fromkeys(kind for kind, _ in LINES))


def faults_of(kind: str) -> list[tuple[str, Make, str, str]]:
    """Each fault of a kind of file: its name, what makes it, the code, and words of the sentence."""
    if kind in ("parquet", "orc"):
        return [(fault, *rest) for fault, rest in SHAPED.items()]
    return [(fault, make, code, "") for (other_kind, fault), (make, code, _, _) in LINES.items() if other_kind == kind]


COLUMNS = {
    "a text for a number": "name STRING, amount STRING",
    "a number that is too long": "name STRING, amount BIGINT",
    "a number for a text": "name INT, amount INT",
    "a fraction": "name STRING, amount DOUBLE",
    "a struct": "name STRING, amount STRUCT<x: INT>",
    "none of the columns": "other INT",
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("format_", ["parquet", "orc"])
@pytest.mark.parametrize(("fault", "columns"), COLUMNS.items(), ids=COLUMNS)
def test_columns_that_do_not_fit_the_schema_are_named(fault: str, columns: str, format_: str) -> None:
    declared, in_file = StructType.fromDDL(SCHEMA), StructType.fromDDL(columns)
    [problem] = incompatibilities(declared, in_file, frozenset(), format_, case_sensitive=False)
    assert (problem.code, SHAPED[fault][2] in problem.what, bool(problem.fix)) == ("HR308", True, True), problem


# As pyarrow and pandas write them: the type, and those of a schema that take it in UTC and elsewhere.
TIMES = {
    "a local time": (pa.timestamp("us"), ("TIMESTAMP", "TIMESTAMP_NTZ"), ("TIMESTAMP_NTZ",)),
    "an instant": (pa.timestamp("us", "UTC"), ("TIMESTAMP", "TIMESTAMP_NTZ"), ("TIMESTAMP",)),
    "nanoseconds": (pa.timestamp("ns"), (), ()),
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_time_of_parquet_is_never_shifted(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for name, (kind, in_utc, elsewhere) in TIMES.items():
            for declared in ("TIMESTAMP", "TIMESTAMP_NTZ"):
                project = Project(tmp_path / name / declared, spark, "parquet", schema=f"name {declared}, amount INT")
                table = pa.table(
                    {"name": pa.array([datetime(2024, 7, 1, 12)], kind), "amount": pa.array([1], pa.int32())}
                )
                file = project.land(0, b"")
                pq.write_table(table, file)
                finding, _ = project.run()
                if declared in (in_utc if zone == "UTC" else elsewhere):
                    assert finding is None
                    [(time, _)] = project.rows_taken()
                    assert time.startswith("2024-07-01T12:00:00")
                else:
                    assert finding is not None
                    assert (finding.code, file.name in finding.what) == ("HR308", True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_column_of_parquet_that_spark_has_no_type_for_may_be_left_out(spark: SparkSession, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", spark, "parquet", schema="amount INT, name STRING")
    table = pa.table({"amount": pa.array([1], pa.int32()), "at": pa.array([datetime(2024, 7, 1)], pa.timestamp("ns"))})
    pq.write_table(table, project.land(0, b""))
    assert project.run()[0] is None
    assert project.rows_taken() == [(None, 1)]


def test_bytes_of_parquet_that_are_no_text_end_the_batch_by_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", spark, "parquet")
    table = pa.table({"name": pa.array([b"\xff\xfea"]), "amount": pa.array([1], pa.int32())})
    pq.write_table(table, project.land(0, b""))
    finding, _ = project.run()
    assert finding is not None
    assert (finding.code, "bytes that are no UTF-8" in finding.what) == ("HR325", True)
    pipeline = project.root / "pipeline.py"
    mended = pipeline.read_text().replace('"name", "amount"', '"make_valid_utf8(name) AS name", "amount"')
    pipeline.write_text(mended.replace("events.select(", "events.selectExpr("))
    assert project.run()[0] is None
    assert project.rows_taken() == [("\ufffd\ufffda", 1)]


# A fault for each way on which one is seen. The test above has the other columns, and the one of rows that are set
# aside the other rows.
USUAL = {
    "parquet": ("a text for a number", "cut in the middle", "damaged rows"),
    "json": ("another type", "half a zip"),
    "text": ("another encoding",),
}
EVERY = {f"every fault of {kind}": (kind, ()) for kind in KINDS}


@pytest.mark.capability("SRC-FILE-09")
@pytest.mark.parametrize(
    ("kind", "usual"), rounds([*USUAL.items(), *EVERY.values()], first=len(USUAL)), ids=[*USUAL, *EVERY]
)
def test_a_bad_file_stops_the_query_by_its_name_until_it_is_mended(
    spark: SparkSession, tmp_path: Path, kind: str, usual: tuple[str, ...]
) -> None:
    project = project_of(tmp_path / "p", spark, kind)
    good(project, 0, "a")
    wanted = [("a", 1)]
    faults = [fault for fault in faults_of(kind) if not usual or fault[0] in usual]
    assert len(faults) >= len(usual)
    for number, (fault, make, code, words) in enumerate(faults, 1):
        ending = ".gz" if "zip" in fault else ""
        bad = project.land(number, make(project), ending=ending)
        finding, _ = project.run()
        assert finding is not None, fault
        assert (finding.code, "\n" in finding.what, bool(finding.fix)) == (code, False, True), (fault, finding)
        assert bad.name in finding.what
        assert words in finding.what
        assert project.rows_taken() == wanted, fault
        mended = b"m\n" if project.format == "text" else project.good(("m", 1))
        bad.write_bytes(gzip.compress(mended) if ending else mended)
        wanted.append(("m", 1))
    assert project.run()[0] is None
    assert project.rows_taken() == wanted
    assert project.verdict_state() == "equal"


@pytest.mark.capability("SRC-FILE-09")
@pytest.mark.parametrize("kind", rounds(["json", "csv"]))
def test_bad_rows_are_set_aside_and_the_good_ones_of_their_file_taken(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    project = project_of(tmp_path / "p", spark, kind, "quarantine")
    good(project, 0, "a")
    cases = [case for (case_kind, _), case in LINES.items() if case_kind == kind and case[2] is not None]
    files = [project.land(number, make(project)) for number, (make, *_) in enumerate(cases, 1)]
    good(project, len(cases) + 1, "z")
    finding, notes = project.run()
    assert finding is None
    kept = [row for _, _, rows_, _ in cases for row in rows_ or []]
    assert project.rows_taken() == sorted([("a", 1), *kept, ("z", 1)])
    notes_of_rows = [note.what for note in notes if note.code == "HR305"]
    listed = []
    for batch, (_, _, _, aside) in enumerate(cases, 1):
        assert any(f"{aside} rows of source 'events' in batch {batch} " in text for text in notes_of_rows)
        [file] = (project.root / ".headrace").glob(f"queries/taken-*/g1.1/quarantine/events/{batch}.jsonl")
        listed += [(line["file"], line["batch"]) for line in map(json.loads, file.read_text().splitlines())]
    assert listed == [(str(file), batch) for batch, file in enumerate(files, 1)]
    assert project.verdict_state() == "equal"


@pytest.mark.capability("SRC-FILE-09")
@pytest.mark.parametrize("kind", ["json", "csv with header"])
def test_a_file_that_is_bad_as_a_whole_stops_a_query_that_sets_rows_aside_too(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    project = project_of(tmp_path / "p", spark, kind, "quarantine")
    make, code, _, _ = LINES[(kind, "half a zip") if kind == "json" else (kind, "another order")]
    bad = project.land(0, make(project), ending=".gz" if kind == "json" else "")
    finding, _ = project.run()
    assert finding is not None
    assert (finding.code, bad.name in finding.what) == (code, True)
    assert project.rows_taken() == []


@pytest.mark.capability("SRC-FILE-09")
@pytest.mark.parametrize("kind", rounds(["parquet", "orc"]))
def test_a_file_may_have_other_columns_narrower_types_and_another_case(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    project = Project(tmp_path / "p", spark, kind, schema="name STRING, amount BIGINT, gone STRING")
    project.land(0, project.file_of("SELECT 'a' AS NAME, 1 AS Amount, X'00' AS more"))
    project.land(1, project.file_of("SELECT CAST(2 AS TINYINT) AS amount"))
    assert project.run()[0] is None
    assert project.rows_taken() == [(None, 2), ("a", 1)]


@pytest.mark.capability("SRC-FILE-09")
@pytest.mark.parametrize("kind", only_usual(["parquet", "orc", "json", "csv"], "parquet", "json"))
def test_what_is_declared_not_null_is_never_null(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    schema = "name STRING, amount INT NOT NULL"
    project = Project(tmp_path / "p", spark, kind, schema=schema)
    project.land(0, project.file_of("SELECT 'a' AS name, 1 AS amount"))
    bad = project.land(1, project.file_of("SELECT * FROM VALUES ('b', 2), ('c', NULL) AS v(name, amount)"))
    finding, _ = project.run()
    assert finding is not None
    assert (finding.code, bad.name in finding.what, "'amount'" in finding.what) == ("HR302", True, True), finding
    assert project.rows_taken() == [("a", 1)]
    if kind in ("parquet", "orc"):
        bad.write_bytes(project.file_of("SELECT 'b' AS name"))
        finding, _ = project.run()
        assert finding is not None
        assert finding.code == "HR308"
        assert "lacks 'amount', which the schema says is NOT NULL" in finding.what
        return
    pipeline = project.root / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("max_files", 'on_bad_row="quarantine", max_files'))
    assert project.run()[0] is None
    assert project.rows_taken() == [("a", 1), ("b", 2)]
    [listed] = (project.root / ".headrace").glob("queries/taken-*/g1.1/quarantine/events/1.jsonl")
    record = json.loads(listed.read_text())["record"]
    assert (json.loads(record)["name"] if kind == "json" else record.partition(",")[0]) == "c"
    assert project.verdict_state() == "equal"
