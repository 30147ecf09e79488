"""The file source takes every option of the guide, reads prefixes exactly, and loses no row silently."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.connectors.files.options import DEFAULT_MAX_BYTES
from headrace.connectors.files.source import Files
from headrace.contract import bad_rows_metric
from headrace.errors import Finding, PlatformError, SourceError
from headrace.storage.store import StoreEntry
from headrace.testing.conformance import NAME, drain, prefix_of
from headrace.verifier.proof import verify
from tests.registered import layout_in
from tests.rounds import as_long, only_usual, rounds
from tests.runner.projects import rows, write_project
from tests.runner.test_run import FRUIT, TOTALS, Recorder
from tests.storage.stores import memory_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


LEFT_OUT = """
name: p
sources:
  events:
    files: {path: in, format: text, max_file_age: 10s}
queries:
  taken:
    select: SELECT value FROM events
    trigger: available-now
    sink: {files: {path: out, format: parquet}}
"""


def land(home: Path, name: str, text: str, *, at: int | None = None) -> Path:
    """Put a file into place; `at` is its modification time in seconds."""
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if at is not None:
        os.utime(file, (1_700_000_000 + at, 1_700_000_000 + at))
    return file


def values(rows: dict[int, list[tuple[Any, ...]]]) -> list[list[Any]]:
    """The first column of each batch."""
    return [[row[0] for row in rows[batch]] for batch in sorted(rows)]


@pytest.mark.capability("SRC-FILE-01")
@pytest.mark.parametrize("format_", only_usual(["text", "csv", "json", "parquet", "orc"], "json", "parquet"))
def test_every_format_is_read_oldest_file_first(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    home = tmp_path / "input"
    home.mkdir()
    for name, value, at in (("0-new", "new", 20), ("2-old", "old", 0), ("1-middle", "middle", 10)):
        frame = spark.createDataFrame([(value,)], "value STRING").coalesce(1)
        frame.write.format(format_).save(str(tmp_path / name))
        (part,) = (tmp_path / name).glob("part-*")
        os.utime(part.rename(home / name), (1_700_000_000 + at,) * 2)
    source = Files(path=str(home), format=format_, schema="value STRING", max_files_per_trigger=1)
    rows, _ = drain(source.stream(spark, NAME), tmp_path / "checkpoint")
    assert values(rows) == [["old"], ["middle"], ["new"]]


def test_a_batch_over_many_local_files_starts_no_job_that_lists_them(spark: SparkSession, tmp_path: Path) -> None:
    source = Files(path=str(tmp_path / "input"), format="text")
    jobs = []
    for begin, end in ((0, 1), (1, 101)):
        for number in range(begin, end):
            land(tmp_path / "input", f"{number}.txt", "row\n")
        rows, progress = drain(source.stream(spark, NAME), tmp_path / "checkpoint")
        assert sum(map(len, rows.values())) == end - begin
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(progress[-1].runId))))
    assert jobs[0] == jobs[1] > 0


@pytest.mark.capability("SRC-FILE-02")
@pytest.mark.parametrize(
    ("option", "batches"),
    [
        ({"max_files_per_trigger": 2}, [["a", "b"], ["c"]]),
        ({"max_bytes_per_trigger": "4"}, [["a", "b"], ["c"]]),
        as_long(({"max_bytes_per_trigger": 2}, [["a"], ["b"], ["c"]])),
        as_long(({"max_bytes_per_trigger": "unlimited"}, [["a", "b", "c"]])),
        as_long(({}, [["a", "b", "c"]])),
    ],
    ids=str,
)
def test_a_batch_takes_as_much_as_the_limit_allows(
    spark: SparkSession, tmp_path: Path, option: dict[str, Any], batches: list[list[str]]
) -> None:
    for at, name in enumerate("abc"):
        land(tmp_path / "input", name, f"{name}\n", at=at)
    source = Files(path=str(tmp_path / "input"), format="text", **option)
    assert values(drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0]) == batches


def test_a_backlog_is_bounded_unless_that_is_switched_off() -> None:
    def limits(**option: Any) -> dict[str, str]:
        return Files(path="/in", format="text", **option).limits()

    assert limits() == {"maxBytesPerTrigger": str(DEFAULT_MAX_BYTES)}
    assert limits(max_bytes_per_trigger="1g") == {"maxBytesPerTrigger": str(1024**3)}
    assert limits(max_files_per_trigger=3) == {"maxFilesPerTrigger": "3"}
    assert limits(max_bytes_per_trigger="unlimited") == {}


@pytest.mark.capability("SRC-FILE-03")
def test_latest_first_turns_the_order_round(spark: SparkSession, tmp_path: Path) -> None:
    for at, name in enumerate("abc"):
        land(tmp_path / "input", name, f"{name}\n", at=at)
    source = Files(path=str(tmp_path / "input"), format="text", max_files_per_trigger=1, latest_first=True)
    assert values(drain(source.stream(spark, NAME), tmp_path / "checkpoint")[0]) == [["c"], ["b"], ["a"]]


@pytest.mark.capability("SRC-FILE-04")
@pytest.mark.parametrize(("file_name_only", "read"), [(True, ["x"]), (False, ["x", "y"])])
def test_a_file_of_the_same_name_is_new_unless_names_alone_count(
    spark: SparkSession, tmp_path: Path, file_name_only: bool, read: list[str]
) -> None:
    source = Files(path=str(tmp_path / "*"), format="text", file_name_only=file_name_only)
    land(tmp_path / "one", "same.txt", "x\n", at=0)
    checkpoint = tmp_path.with_name(tmp_path.name + "-checkpoint")
    rows = drain(source.stream(spark, NAME), checkpoint)[0]
    land(tmp_path / "two", "same.txt", "y\n", at=1)
    left = source.lag(prefix_of(checkpoint))
    assert left is not None
    assert left.count == len(read) - 1
    rows |= drain(source.stream(spark, NAME), checkpoint)[0]
    assert [value for batch in values(rows) for value in batch] == read


@pytest.mark.capability("SRC-FILE-05")
def test_every_file_is_read_whatever_its_date_and_a_lifted_limit_reads_none_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    home, checkpoint, day = tmp_path / "input", tmp_path / "checkpoint", 86_400
    limited = Files(path=str(home), format="text", max_file_age="7d")
    source = Files(path=str(home), format="text")

    def batch(of: Files) -> list[str]:
        return sorted(row[0] for rows in drain(of.stream(spark, NAME), checkpoint)[0].values() for row in rows)

    land(home, "ahead", "ahead\n", at=10 * day)
    assert batch(limited) == ["ahead"]
    land(home, "today", "today\n", at=0)
    assert batch(limited) == []
    (finding,) = limited.left_out(prefix_of(checkpoint))
    assert (finding.code, f"'{home / 'today'}' are more than max_file_age (7d) older" in finding.what) == (
        "HR360",
        True,
    )
    left = source.lag(prefix_of(checkpoint))
    assert left is not None
    assert (left.count, left.bytes, left.left_out) == (1, 6, 0)
    land(home, "moved in with its old date", "old\n", at=-8 * day)
    land(home, "from the first second", "first\n", at=-1_700_000_000)
    assert batch(source) == ["first", "old", "today"]
    assert batch(source) == []
    assert list(source.left_out(prefix_of(checkpoint))) == []


@pytest.mark.parametrize("path", ["none", "none/*.json", "none/a{b,c}/*", "file/*", "file://HOME/none/*"])
def test_a_path_or_a_pattern_whose_beginning_is_no_directory_is_refused_by_its_name(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    (tmp_path / "file").touch()
    named = path.replace("HOME", str(tmp_path)) if "HOME" in path else str(tmp_path / path)
    with pytest.raises(SourceError) as refused:
        Files(path=named, format="text").stream(spark, NAME)
    [finding] = refused.value.findings
    home = tmp_path / ("file" if path == "file/*" else "none")
    assert (finding.code, f"'{home}'" in finding.what) == ("HR332", True)


def test_a_path_in_a_store_whose_beginning_is_not_there_is_refused_and_the_root_of_one_is_not_asked_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory_store("beginning") as (store, root):
        with pytest.raises(SourceError, match=f"HR332: '{root}/none', where files should land, does not exist"):
            Files(path=f"{root}/none/*.json", format="text").stream(spark, NAME)
        (root / "none" / "a.json").write_text("")
        for pattern in ("none/*.json", "*.json"):
            Files(path=f"{root}/{pattern}", format="text")._require_directory()

        def answer_nothing(path: str) -> StoreEntry:
            raise PlatformError(code="HR831", what="the store does not answer")

        # Spark may reach it all the same.
        monkeypatch.setattr(store, "entry", answer_nothing)
        Files(path=f"{root}/other/*.json", format="text")._require_directory()


@pytest.mark.parametrize(
    ("way_out", "keeps_time"),
    only_usual(product(["brought back", "rewound"], [False, True]), ("brought back", False)),
    ids=lambda value: {False: "of another time", True: "of another size"}.get(value),
)
def test_a_batch_is_not_made_again_over_a_file_that_has_changed(
    spark: SparkSession, tmp_path: Path, way_out: str, keeps_time: bool
) -> None:
    query = TOTALS.replace('key=["name"]', 'key=["name"], rewindable="7 days"')
    root = write_project(tmp_path / "p", query, batches=FRUIT)
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    file = root / "landing" / "0001.json"
    was, text = file.stat(), file.read_text()
    for name in ("1", ".1.crc"):
        (layout_in(hr.load(root).storage, "totals").checkpoint / "commits" / name).unlink()
    file.write_text(text.replace("apple", "pineapple" if keeps_time else "elppa"))
    if keeps_time:
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    (refused,) = hr.run(hr.load(root), spark=spark).outcomes
    assert refused.finding is not None
    assert (refused.finding.code, "bring back what it held; or " in refused.finding.fix) == ("HR326", True)
    if way_out == "rewound":
        assert refused.finding.fix.endswith("headrace rewind totals --to-batch 0")
        hr.rewind(hr.load(root), "totals", to_batch=0, spark=spark).apply()
    else:
        file.write_text(text)
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    assert verify(hr.load(root), "totals", spark=spark).state == "equal"
    if way_out == "rewound":
        return
    file.write_text(text.replace("apple", "leapp"))
    verdict = verify(hr.load(root), "totals", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("mismatch", ["HR712", "HR326"])


@pytest.mark.parametrize(
    ("options", "taken"), [("", [("a", 1)]), ('options={"recursiveFileLookup": "true"}, ', [("a", 1), ("b", 2)])]
)
def test_what_the_lag_counts_is_what_spark_reads_of_subdirectories(
    spark: SparkSession, tmp_path: Path, options: str, taken: list[tuple[str, int]]
) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=[[{"name": "a", "amount": 1}]])
    pipeline = root / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("max_files_per_trigger=1, ", options, 1))
    (root / "landing" / "old").mkdir()
    (root / "landing" / "old" / "b.json").write_text('{"name": "b", "amount": 2}\n')
    reporter = Recorder()
    assert hr.run(hr.load(root), spark=spark, reporter=reporter).exit_code == 0
    assert rows(root / "out.db", "SELECT name, amount FROM totals ORDER BY name") == taken
    (status,) = hr.status(hr.load(root))
    assert status.backlog is not None
    assert (status.backlog.count, status.backlog.left_out) == (0, 2 - len(taken))
    assert {finding.code for finding in reporter.all(Finding) if finding.severity != "note"} == (
        {"HR360"} if len(taken) < 2 else set()
    )


def test_a_file_that_was_mended_before_its_batch_came_in_has_not_changed(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    file = root / "landing" / "0001.json"
    text = file.read_text()
    file.write_text(text.replace("3", '"many"'))
    assert hr.run(hr.load(root), spark=spark).exit_code == 1
    file.write_text(text)
    reporter = Recorder()
    assert hr.run(hr.load(root), spark=spark, reporter=reporter).exit_code == 0
    assert [finding.code for finding in reporter.all(Finding) if finding.code == "HR326"] == []
    (status,) = hr.status(hr.load(root))
    assert status.backlog is not None
    assert (status.backlog.left_out, status.backlog.changed) == (0, 0)
    verdict = verify(hr.load(root), "totals", spark=spark)
    assert (verdict.state, verdict.findings) == ("equal", ())
    file.write_text(text.replace("3", "4"))
    (status,) = hr.status(hr.load(root))
    assert status.backlog is not None
    assert (status.backlog.left_out, status.backlog.changed) == (1, 1)


@pytest.mark.capability("SRC-FILE-05")
def test_an_age_that_is_ignored_is_a_warning() -> None:
    ignored = Files(path="/in", format="text", max_file_age="10s", latest_first=True, max_files_per_trigger=1)
    assert [(problem.code, problem.severity) for problem in ignored.problems()] == [("HR113", "warning")]


@pytest.mark.capability("SRC-FILE-05")
def test_a_run_and_verify_name_the_files_that_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(LEFT_OUT)
    for name, at in (("good.txt", 100), ("_SUCCESS", 100), (".good.txt.crc", 100)):
        land(tmp_path / "in", name, "x\n", at=at)
    project = hr.load(tmp_path)
    hr.run(project, spark=spark)
    land(tmp_path / "in", "old.txt", "x\n", at=50)
    land(tmp_path / "in", "new.txt", "x\n", at=101)
    recorder = Recorder()
    hr.run(project, spark=spark, reporter=recorder)
    verdict = verify(project, "taken", spark=spark)
    assert verdict.state == "equal"
    for findings in (recorder.all(Finding), verdict.findings):
        [finding] = [finding for finding in findings if finding.code == "HR360"]
        assert finding.severity == "warning"
        assert f"'{tmp_path / 'in' / 'old.txt'}' are more than max_file_age (10s) older" in finding.what
        assert "SUCCESS" not in finding.what
        assert "crc" not in finding.what
    [status] = hr.status(project)
    assert status.backlog is not None
    assert (status.backlog.count, status.backlog.left_out) == (0, 1)


@pytest.mark.capability("SRC-FILE-06")
@pytest.mark.parametrize("clean", only_usual(["off", "delete", "archive"], "delete", "archive"))
def test_files_of_committed_batches_are_kept_deleted_or_archived(
    spark: SparkSession, tmp_path: Path, clean: Any
) -> None:
    archive = tmp_path / "archive"
    source = Files(
        path=str(tmp_path / "input"),
        format="text",
        max_files_per_trigger=1,
        clean_source=clean,
        source_archive_dir=str(archive) if clean == "archive" else None,
    )
    assert list(source.problems()) == []
    spark.conf.set("spark.sql.streaming.fileSource.cleaner.numThreads", "0")
    for at, name in enumerate("abc"):
        land(tmp_path / "input", name, f"{name}\n", at=at)
    try:
        drain(source.stream(spark, NAME), tmp_path / "checkpoint")
    finally:
        spark.conf.unset("spark.sql.streaming.fileSource.cleaner.numThreads")
    here = {file.name for file in (tmp_path / "input").iterdir()}
    moved = {file.name for file in archive.rglob("*") if file.is_file()}
    assert (here == {"a", "b", "c"}) is (clean == "off")
    assert moved == ({"a", "b", "c"} - here if clean == "archive" else set())
    if clean == "delete":
        with pytest.raises(SourceError, match=r"of 3 files that were read are no longer there: '.*a'"):
            source.read(spark, prefix_of(tmp_path / "checkpoint"))
    else:
        read = source.read(spark, prefix_of(tmp_path / "checkpoint"), batch_column="batch")
        assert sorted(map(tuple, read.collect())) == [("a", 0), ("b", 1), ("c", 2)]


@pytest.mark.capability("SRC-FILE-06")
@pytest.mark.parametrize(
    ("path", "archive", "clash"),
    [
        ("/hello?/spark/*", "/hello1/spark/archive/dir", True),
        ("/hello?/spark/*", "/hello1/spark", True),
        ("/hello?/spark/*", "/archived/here", False),
        ("/in/{a,b}", "/in/b/old", True),
        ("/in/{a,b}", "/in/c", False),
        ("/in", "/in/archive", True),
        ("/in/deep", "/in", True),
        ("/in", "/archive", False),
        ("/in", "s3a://bucket/archive", True),
    ],
)
def test_an_archive_that_clashes_with_the_source_is_refused_before_start(path: str, archive: str, clash: bool) -> None:
    source = Files(path=path, format="text", clean_source="archive", source_archive_dir=archive)
    assert [problem.code for problem in source.problems()] == (["HR113"] if clash else [])


@pytest.mark.capability("SRC-FILE-07")
def test_a_schema_is_inferred_on_request_only(spark: SparkSession, tmp_path: Path) -> None:
    assert [problem.code for problem in Files(path="/in", format="json").problems()] == ["HR113"]
    assert list(Files(path="/in", format="text").problems()) == []
    land(tmp_path / "input", "a.csv", "id,name\n1,x\n")
    source = Files(path=str(tmp_path / "input"), format="csv", infer_schema=True, options={"header": "true"})
    assert list(source.problems()) == []
    frame = source.stream(spark, NAME)
    assert frame.dtypes == [("id", "int"), ("name", "string")]
    drain(frame, tmp_path / "checkpoint")
    read = source.read(spark, prefix_of(tmp_path / "checkpoint"))
    assert read.schema == frame.schema
    assert read.collect() == [(1, "x")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no schema can be inferred"):
        Files(path=str(tmp_path / "empty"), format="json", infer_schema=True).stream(spark, NAME)


@pytest.mark.capability("SRC-FILE-08")
@pytest.mark.parametrize("pattern", rounds(["", "day=*"]), ids=["directory", "glob"])
def test_key_value_directories_become_columns(spark: SparkSession, tmp_path: Path, pattern: str) -> None:
    home = tmp_path / "input"
    land(home, "day=2024-01-01/city=Köln/a.json", '{"v": 1}\n', at=0)
    source = Files(
        path=str(home / pattern) if pattern else str(home),
        format="json",
        schema="v INT, day DATE, city STRING",
        max_files_per_trigger=1,
        on_bad_row="quarantine",
    )
    checkpoint = tmp_path / "checkpoint"
    frame = source.stream(spark, NAME)
    streamed = drain(frame, checkpoint)[0]
    land(home, "day=2024-01-02/city=x y/b.json", '{"v": 2}\n', at=1)
    left = source.lag(prefix_of(checkpoint))
    assert left is not None
    assert left.count == 1
    streamed |= drain(source.stream(spark, NAME), checkpoint)[0]
    read = source.read(spark, prefix_of(checkpoint), batch_column="batch")
    assert read.drop("batch").schema == frame.schema
    assert sorted(map(tuple, read.collect())) == [(*row, batch) for batch, (row,) in sorted(streamed.items())]
    assert [row[-1] for (row,) in streamed.values()] == ["Köln", "x y"]


GOOD = {"json": '{"a": 1, "b": "x", "c": true}\n', "csv": "1,x,true\n"}
BAD = {
    "json-cut-off": ("json", '{"a": 2, "b"'),
    "json-wrong-type": ("json", '{"a": "two", "b": "y"}'),
    "json-too-large": ("json", '{"a": 99999999999, "b": "y"}'),
    "json-no-object": ("json", '"y"'),
    "json-unused-column": ("json", '{"a": 3, "b": "y", "c": "perhaps"}'),
    "csv-too-few": ("csv", "2,y"),
    "csv-too-many": ("csv", "2,y,true,more"),
    "csv-wrong-type": ("csv", "two,y,true"),
    "csv-unused-column": ("csv", "2,y,perhaps"),
}


def rows_source(home: Path, format_: Any, policy: Any) -> Files:
    return Files(path=str(home), format=format_, schema="a INT, b STRING, c BOOLEAN", on_bad_row=policy)


@pytest.mark.parametrize("format_", rounds(GOOD))
def test_rows_that_break_the_schema_are_set_aside_whatever_columns_are_read(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    bad = [line for of, line in BAD.values() if of == format_]
    file = land(tmp_path / "input", f"a b.{format_}", GOOD[format_] + "\n".join(bad) + "\n" + GOOD[format_])
    source, checkpoint = rows_source(tmp_path / "input", format_, "quarantine"), tmp_path / "checkpoint"
    rows, progress = drain(source.stream(spark, NAME).select("b"), checkpoint)
    assert rows[0] == [("x",), ("x",)]
    assert progress[0].observedMetrics[bad_rows_metric(NAME)]["rows"] == len(bad)
    prefix = prefix_of(checkpoint)
    assert source.read(spark, prefix).select("b").collect() == [("x",), ("x",)]
    listed = source.rejected_rows(spark, prefix)
    assert listed is not None
    assert sorted(map(tuple, listed.collect())) == sorted((str(file), line, 0) for line in bad)


# What is a bad row is the same as above.
STOPS = ("json-cut-off", "json-unused-column", "csv-too-few", "csv-unused-column")


@pytest.mark.parametrize(("format_", "bad"), only_usual(BAD.values(), *(BAD[name] for name in STOPS)), ids=BAD)
def test_a_row_that_breaks_the_schema_stops_the_query_by_the_name_of_its_file(
    spark: SparkSession, tmp_path: Path, format_: str, bad: str
) -> None:
    land(tmp_path / "input", f"first.{format_}", GOOD[format_] + bad + "\n")
    source = rows_source(tmp_path / "input", format_, "fail")
    with pytest.raises(Exception, match=rf"FAILED_READ_FILE.*first\.{format_}"):
        drain(source.stream(spark, NAME), tmp_path / "checkpoint")


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_a_damaged_file_stops_the_query_by_its_name(spark: SparkSession, tmp_path: Path, format_: Any) -> None:
    land(tmp_path / "input", f"first.{format_}", "half a file, or none at all")
    source = Files(path=str(tmp_path / "input"), format=format_, schema="a INT")
    with pytest.raises(Exception, match=rf"HR304.*first\.{format_} cannot be read"):
        drain(source.stream(spark, NAME), tmp_path / "checkpoint")


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_csv_header_in_another_order_stops_the_query(spark: SparkSession, tmp_path: Path, policy: Any) -> None:
    land(tmp_path / "input", "first.csv", "b,a\nx,1\n")
    source = Files(
        path=str(tmp_path / "input"),
        format="csv",
        schema="a STRING, b STRING",
        options={"header": "true"},
        on_bad_row=policy,
    )
    with pytest.raises(Exception, match="CSV header does not conform"):
        drain(source.stream(spark, NAME), tmp_path / "checkpoint")


def test_files_that_are_gone_are_named(spark: SparkSession, tmp_path: Path) -> None:
    files = [land(tmp_path / "input", f"{number}.txt", "x\n") for number in range(6)]
    source = Files(path=str(tmp_path / "input"), format="text")
    drain(source.stream(spark, NAME), tmp_path / "checkpoint")
    for file in files[:4]:
        file.unlink()
    with pytest.raises(SourceError, match=r"4 of 6 files that were read are no longer there: .* and 1 more\n") as gone:
        source.read(spark, prefix_of(tmp_path / "checkpoint"))
    assert gone.value.findings[0].code == "HR303"


def test_a_directory_that_does_not_exist_is_named_at_start(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"missing', where files should land, does not exist"):
        Files(path=str(tmp_path / "missing"), format="text").stream(spark, NAME)


def test_hundreds_of_files_over_compacted_logs_are_read_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "input"
    home.mkdir()
    for number in range(240):
        (home / f"{number}.json").write_text(json.dumps({"v": number}) + "\n")
        os.utime(home / f"{number}.json", (1_700_000_000 + number,) * 2)
    source = Files(path=str(home), format="json", schema="v INT", max_files_per_trigger=20)
    rows, _ = drain(source.stream(spark, NAME), tmp_path / "checkpoint")
    read = source.read(spark, prefix_of(tmp_path / "checkpoint"), batch_column="batch").collect()
    assert len(rows) == 12
    assert sorted((row.batch, row.v) for row in read) == [
        (batch, row[0]) for batch in range(12) for row in sorted(rows[batch])
    ]


PROBLEMS = {
    "both-limits": ({"format": "text", "max_files_per_trigger": 1, "max_bytes_per_trigger": 1}, ["HR113"]),
    "no-size": ({"format": "text", "max_bytes_per_trigger": "much"}, ["HR113"]),
    "no-age": ({"format": "text", "max_file_age": "long"}, ["HR113"]),
    "quarantine-of-files": ({"format": "orc", "schema": "a INT", "on_bad_row": "quarantine"}, ["HR113"]),
    "archive-without-place": ({"format": "text", "clean_source": "archive"}, ["HR113"]),
    "place-without-archive": ({"format": "text", "source_archive_dir": "/archive"}, ["HR113"]),
    "our-option": ({"format": "text", "options": {"MODE": "x", "lineSep": "\n"}}, ["HR113"]),
    "all-at-once": (
        {"format": "csv", "max_files_per_trigger": 0, "max_file_age": "long", "clean_source": "archive"},
        ["HR113", "HR113", "HR113", "HR113"],
    ),
}


@pytest.mark.parametrize(("options", "codes"), PROBLEMS.values(), ids=PROBLEMS)
def test_faults_of_the_options_are_reported_all_at_once(options: dict[str, Any], codes: list[str]) -> None:
    assert [problem.code for problem in Files(path="/in", **options).problems()] == codes
