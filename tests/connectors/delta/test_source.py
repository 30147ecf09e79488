"""The Delta source on real tables: prefixes of every shape, changed and vacuumed tables, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest

import headrace as hr
from headrace.connectors.delta.source import Delta
from headrace.connectors.delta.table import at_path
from headrace.contract import SourceBatch, SourcePrefix
from headrace.control.board import RunResult
from headrace.errors import NOWHERE, SourceError
from headrace.frames.project_session import jars_of
from headrace.spark.jvm.jars import LISTS
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.failures import failure_of
from headrace.testing.conformance import SourceConformance, drain, forget_commit, prefix_of
from tests.connectors.suites import only
from tests.registered import layout_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

real = [pytest.mark.services, pytest.mark.connectors]


def add(spark: SparkSession, place: str, *ids: int, day: str = "é 1", mode: str = "append") -> None:
    """Add one file with a row for each of `ids`."""
    rows = spark.createDataFrame([(number, f"n{number}", day) for number in ids], "id INT, name STRING, day STRING")
    rows.coalesce(1).write.format("delta").mode(mode).partitionBy("day").save(place)


class TestDelta(SourceConformance):
    pytestmark = real
    options: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(autouse=True)
    def session(self, spark: SparkSession) -> None:
        self.spark = spark

    def place(self, home: Path) -> str:
        return str(home / "a table 100%+é")

    def make(self, home: Path) -> Delta:
        place = self.place(home)
        if not Path(place).exists():
            self.spark.sql(
                f"CREATE TABLE delta.`{place}` (id INT, name STRING, day STRING) USING delta PARTITIONED BY (day)"
            )
        return Delta(path=place, max_files_per_trigger=1, **self.options)

    def feed(self, home: Path, step: int) -> None:
        add(self.spark, self.place(home), step, step + 10, day=f"é {step}")


@pytest.mark.long
@only("protocol", "comes_again", "prefix")
class TestDeltaFromAVersion(TestDelta):
    """A table that is read from a version on differs only in its prefix."""

    options: ClassVar[dict[str, Any]] = {"starting_version": 1}

    def make(self, home: Path) -> Delta:
        if not Path(self.place(home)).exists():
            super().make(home)
            add(self.spark, self.place(home))
        return super().make(home)


@pytest.mark.long
@only("protocol", "comes_again", "prefix")
class TestDeltaByName(TestDelta):
    """A table of Spark's catalog differs only in how it is found."""

    @pytest.fixture(autouse=True)
    def name(self, session: None) -> Iterator[None]:
        self.table = f"events_{uuid4().hex}"
        self.spark.sql(f"CREATE TABLE {self.table} (id INT, name STRING, day STRING) USING delta")
        yield
        self.spark.sql(f"DROP TABLE {self.table}")

    def make(self, home: Path) -> Delta:
        return Delta(table=self.table, max_files_per_trigger=1)

    def feed(self, home: Path, step: int) -> None:
        self.spark.sql(
            f"INSERT INTO {self.table} SELECT /*+ COALESCE(1) */ * FROM VALUES ({step}, 'a', 'x'), ({step}, 'b', 'y')"
        )


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "neither path nor table is given"),
        ({"path": "p", "table": "t"}, "path and table are both given"),
        ({"table": "a b"}, "'a b' is not a valid name of a table"),
        ({"path": "p", "starting_version": 0, "starting_timestamp": "2024-01-01"}, "are both given"),
        ({"path": "p", "ignore_changes": True, "skip_change_commits": True}, "are both given"),
        ({"path": "p", "starting_version": -1}, "starting_version is -1"),
        ({"path": "p", "max_files_per_trigger": 0}, "max_files_per_trigger is 0"),
        ({"path": "p", "max_bytes_per_trigger": "much"}, "max_bytes_per_trigger is 'much'"),
        ({"path": "p", "exclude_regex": "("}, "exclude_regex is not a pattern"),
        ({"path": "p", "fail_on_data_loss": False}, "are missed silently"),
    ],
)
def test_a_wrong_option_is_reported_without_spark(options: dict[str, Any], words: str) -> None:
    [problem] = Delta(**options).problems()
    assert words in problem.what
    assert problem.fix


@pytest.mark.plain
def test_the_latest_version_is_no_start_that_can_be_made_again() -> None:
    assert not Delta(path="p", starting_version="latest").facts.replayable


def enter(place: Path, version: int, *actions: dict[str, Any]) -> Path:
    """Write one version of a table's log."""
    log = place / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    file = log / f"{version:020d}.json"
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return file


def add_action(name: str, at: int, *, moved: bool = False) -> dict[str, Any]:
    return {"add": {"path": name, "size": 10, "modificationTime": at, "dataChange": not moved, "partitionValues": {}}}


def remove_action(name: str, *, moved: bool = False) -> dict[str, Any]:
    return {"remove": {"path": name, "dataChange": not moved}}


def offset_at(version: int, index: int = -1, *, initial: bool = False) -> str:
    offset = {"sourceVersion": 1, "reservoirId": "t", "reservoirVersion": version, "index": index}
    return json.dumps({**offset, "isStartingVersion": initial})


@pytest.mark.plain
def test_what_is_left_and_what_is_gone_is_shown_without_a_jvm(tmp_path: Path) -> None:
    table = tmp_path / "table"
    enter(table, 0, add_action("b", 2), add_action("a%20x", 1))
    first = enter(table, 1, add_action("c", 3), add_action("d", 3))
    enter(table, 2, remove_action("c"), add_action("e", 4))
    enter(table, 3, remove_action("d", moved=True), remove_action("e", moved=True), add_action("f", 5, moved=True))
    for name in ("a x", "b", "d", "e", "f"):
        (table / name).touch()

    def left(end: str | None, **options: Any) -> int | None:
        lag = Delta(path=str(table), **options).lag(SourcePrefix(batches=(SourceBatch(batch=0, start=None, end=end),)))
        return None if lag is None else lag.count

    assert left(None) == 3
    assert left(None, starting_version=1) == 3
    assert left(None, starting_timestamp="2024-01-01") is None
    assert left(offset_at(0, 0, initial=True)) == 4
    assert left(offset_at(1, 0)) == 2
    assert left(offset_at(1, 0), skip_change_commits=True) == 1
    assert left(offset_at(2), exclude_regex="e$") == 0
    assert left(offset_at(4)) == 0

    def require(start: str | None, end: str) -> None:
        Delta(path=str(table)).ensure_available(SourcePrefix(batches=(SourceBatch(batch=3, start=start, end=end),)))

    require(None, offset_at(0, 1, initial=True))
    require(offset_at(1, 0), offset_at(4))
    with pytest.raises(SourceError, match=r"1 of 2 files of the Delta table .* no longer there: '.*/c'"):
        require(offset_at(1), offset_at(2))
    (table / "a x").unlink()
    require(offset_at(0, 0, initial=True), offset_at(1))
    with pytest.raises(SourceError, match=r"no longer there: '.*/a x'"):
        require(None, offset_at(1))
    first.unlink()
    with pytest.raises(SourceError, match=r"HR343: the log of .* no longer has version 1"):
        require(offset_at(1, 0), offset_at(4))


PROJECT = """
name: lake
sources:
  events:
    delta: {path: landed, max_files_per_trigger: 1%s}
queries:
  copy:
    select: SELECT id, name, day FROM events
    mode: append
    trigger: available-now
    sink: {delta: {path: out, partition_by: [day]}}
"""


def declare(root: Path, options: str = "") -> Path:
    root.mkdir(exist_ok=True)
    (root / "headrace.yml").write_text(PROJECT % options)
    return root


def ids(spark: SparkSession, root: Path) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(str(root / "out")).collect())


def fault(result: RunResult) -> tuple[str, str]:
    [outcome] = result.outcomes
    assert outcome.finding is not None
    return outcome.finding.code, outcome.finding.what


@pytest.mark.plain
def test_a_project_with_a_delta_table_gets_deltas_jars_and_settings(tmp_path: Path) -> None:
    [connector] = jars_of(hr.load(declare(tmp_path / "p")))
    assert connector.name == "delta"
    assert "spark.sql.extensions" in LISTS
    assert set(connector.settings) >= {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}


@pytest.mark.long
@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-LAKE-01")
def test_a_table_is_copied_once_and_verified_though_its_files_change(spark: SparkSession, tmp_path: Path) -> None:
    root, landed = declare(tmp_path / "p"), str(tmp_path / "p" / "landed")
    assert fault(hr.run(hr.load(root), spark=spark)) == (
        "HR332",
        f"query 'copy', source 'events': the Delta table '{landed}' does not exist",
    )
    add(spark, landed, 1, 2)
    add(spark, landed, 3, day="é 2")
    result = hr.run(hr.load(root), spark=spark)
    assert (result.exit_code, result.outcomes[0].batches) == (0, 2)
    add(spark, landed, 4)
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    # The crash between Delta's commit and Spark's: the batch is made again, and comes in once.
    [checkpoint] = (root / ".headrace").rglob("checkpoint")
    assert forget_commit(checkpoint) == 2
    # Rows are moved to other files, which are no new rows.
    spark.sql(f"OPTIMIZE delta.`{landed}`")
    source = hr.load(root).sources["events"].connector
    add(spark, landed, 5, 6)
    backlog = source.lag(prefix_of(checkpoint))
    assert backlog is not None
    assert (backlog.count, backlog.unit) == (2, "files")
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    assert ids(spark, root) == [1, 2, 3, 4, 5, 6]
    assert hr.check(hr.load(root), spark=spark).guarantees["copy"].level == "exactly once"
    verdict = hr.verify(hr.load(root), "copy", spark=spark)
    assert (verdict.state, verdict.rows_read, verdict.rows_actual) == ("equal", 6, 6)
    spark.sql(f"INSERT INTO delta.`{root / 'out'}` VALUES (7, 'n7', 'x')")
    wrong = hr.verify(hr.load(root), "copy", spark=spark)
    assert (wrong.state, wrong.unexpected) == ("mismatch", 1)


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-LAKE-01")
def test_a_changed_table_ends_the_query_with_a_way_to_go_on(spark: SparkSession, tmp_path: Path) -> None:
    root, landed = declare(tmp_path / "p"), str(tmp_path / "p" / "landed")
    add(spark, landed, 1, 2)
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    spark.sql(f"UPDATE delta.`{landed}` SET name = 'x' WHERE id = 1")
    add(spark, landed, 3)
    assert fault(hr.run(hr.load(root), spark=spark))[0] == "HR344"
    declare(root, ", skip_change_commits: true")
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    assert ids(spark, root) == [1, 2, 3]
    # The rows as they were given: the first one with its old name.
    assert hr.verify(hr.load(root), "copy", spark=spark).state == "equal"
    names = spark.read.format("delta").load(str(root / "out")).where("id = 1").collect()
    assert [row.name for row in names] == ["n1"]
    # The files of the first version are removed: that prefix is gone.
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # Otherwise it lists the few files in thousands of tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
    with apply_settings(spark, settings):
        spark.sql(f"VACUUM delta.`{landed}` RETAIN 0 HOURS")
    verdict = hr.verify(hr.load(root), "copy", spark=spark)
    assert (verdict.state, verdict.findings[0].code) == ("undecided", "HR343")
    assert verdict.findings[0].what.startswith("1 of 2 files of the Delta table ")
    # Another table of the same place.
    shutil.rmtree(landed)
    add(spark, landed, 9, 10)
    for version in range(11, 14):
        add(spark, landed, version)
    code, sentence = fault(hr.run(hr.load(root), spark=spark))
    assert (code, f"table '{landed}' was deleted and created again: its id is " in sentence) == ("HR346", True)
    [judgement] = hr.plan(hr.load(root), spark=spark)
    assert (judgement.verdict, [note.code for note in judgement.notes]) == ("forbidden", ["HR346"])
    assert hr.verify(hr.load(root), "copy", spark=spark).findings[0].code == "HR346"
    [standing] = hr.status(hr.load(root))
    assert standing.backlog is not None
    assert "was deleted and created again" in standing.backlog.problem
    # A checkpoint of an older Headrace has no ids, and Delta's own offsets decide.
    (layout_in(root / ".headrace", "copy").home / "source_ids.json").unlink()
    assert fault(hr.run(hr.load(root), spark=spark))[0] == "HR346"


@pytest.mark.services
@pytest.mark.connectors
def test_a_start_that_the_table_does_not_have_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    root, landed = tmp_path / "p", str(tmp_path / "p" / "landed")
    add(spark, landed, 1)
    add(spark, landed, 2)
    declare(root, ", starting_version: 7")
    assert fault(hr.run(hr.load(root), spark=spark))[0] == "HR343"
    declare(root, ", starting_timestamp: '2090-01-01'")
    assert fault(hr.run(hr.load(root), spark=spark))[0] == "HR343"
    declare(root, ", starting_version: 1")
    assert hr.run(hr.load(root), spark=spark).exit_code == 0
    assert ids(spark, root) == [2]
    # A version is missing in the middle of the log.
    for number in (3, 4):
        add(spark, landed, number)
    log = tmp_path / "p" / "landed" / "_delta_log"
    missing = log / f"{2:020d}.json"
    text = missing.read_text()
    missing.unlink()
    code, sentence = fault(hr.run(hr.load(root), spark=spark))
    assert (code, "Versions (0, 1, 3) are not contiguous" in sentence) == ("HR349", True)
    # Versions that were to be read are cut off, as the table's retention does after a checkpoint of its log.
    missing.write_text(text)
    delta_table = at_path(spark, landed, SourceError)
    assert delta_table is not None
    delta_table.log.checkpoint()
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    assert fault(hr.run(hr.load(root), spark=spark))[0] == "HR343"


@pytest.mark.services
@pytest.mark.connectors
def test_a_column_that_comes_in_mid_stream_is_taken_at_the_next_start(spark: SparkSession, tmp_path: Path) -> None:
    landed, checkpoint = str(tmp_path / "landed"), tmp_path / "checkpoint"
    add(spark, landed, 1)
    source = Delta(path=landed)
    query = (
        source.stream(spark, "events")
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        spark.sql(f"ALTER TABLE delta.`{landed}` ADD COLUMNS (more INT)")
        with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED"):
            query.processAllAvailable()
    finally:
        query.stop()
    failure = failure_of(query, [], subject="query 'copy'", where=NOWHERE, connectors=(source,))
    assert failure is not None
    assert failure.code == "HR345"
    rows, _ = drain(source.stream(spark, "events"), checkpoint)
    assert list(rows.values()) in ([], [[]])
    spark.sql(f"INSERT INTO delta.`{landed}` VALUES (2, 'n2', 'x', 3)")
    rows, _ = drain(source.stream(spark, "events"), checkpoint)
    assert [row for batch in rows.values() for row in batch] == [(2, "n2", "x", 3)]


@pytest.mark.services
@pytest.mark.connectors
@pytest.mark.capability("SINK-LAKE-01")
def test_a_prefix_is_read_as_it_was_given_whatever_a_version_holds(spark: SparkSession, tmp_path: Path) -> None:
    landed = str(tmp_path / "landed")
    spark.sql(
        f"CREATE TABLE delta.`{landed}` (id INT, name STRING, day STRING) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    source = Delta(path=landed, max_files_per_trigger=1, ignore_changes=True, exclude_regex="day=skip")
    checkpoint, streamed = tmp_path / "checkpoint", []

    def take() -> int:
        batches, _ = drain(source.stream(spark, "events"), checkpoint)
        streamed.extend((*row, batch) for batch, rows in batches.items() for row in rows)
        return len(batches)

    # The table as it is, in two batches.
    add(spark, landed, 1, 2, 3, day="a")
    add(spark, landed, 4, day="b")
    assert take() == 2
    # One version of three files, in three batches, of which one is left out.
    spark.sql(f"INSERT INTO delta.`{landed}` VALUES (5, 'n5', 'c'), (6, 'n6', 'd'), (7, 'n7', 'skip')")
    assert take() == 3
    # The same file again, with one row marked as deleted.
    spark.sql(f"DELETE FROM delta.`{landed}` WHERE id = 2")
    take()
    assert sorted(row[0] for row in streamed) == [1, 1, 2, 3, 3, 4, 5, 6]
    read = source.read(spark, prefix_of(checkpoint), batch_column="batch")
    assert sorted(map(tuple, read.collect())) == sorted(streamed)
    # A stream that begins at a time reads what came in from then on.
    moment = spark.sql(f"DESCRIBE HISTORY delta.`{landed}`").where("version = 3").collect()[0].timestamp
    later = Delta(path=landed, starting_timestamp=moment.isoformat(), ignore_deletes=True)
    with pytest.raises(Exception, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        drain(later.stream(spark, "events"), tmp_path / "later")
    later = replace(later, ignore_deletes=False, skip_change_commits=True)
    batches, _ = drain(later.stream(spark, "events"), tmp_path / "later")
    assert sorted(row[0] for rows in batches.values() for row in rows) == [5, 6, 7]
    assert sorted(row.id for row in later.read(spark, prefix_of(tmp_path / "later")).collect()) == [5, 6, 7]
