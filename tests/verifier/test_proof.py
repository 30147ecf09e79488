"""The verdict on a sink: right, wrong in each way, or not to be determined."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.checkpoint import Checkpoint
from headrace.errors import ProjectError
from headrace.model import PythonTransform, SqlTransform, Table
from headrace.verifier import rerun
from headrace.verifier.proof import verify
from tests.verifier.kit import Scene, scene, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import Sessions

pytestmark = pytest.mark.spark

IN_TIME = [
    [("12:00", "a", 0.1), ("12:01", None, 0.2)],
    [("12:02", "a", 0.3), ("12:03", "b", 0.7)],
    [("12:04", None, 0.1), ("12:05", "b", 0.2), ("12:06", "a", 0.6)],
]


def sums(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.groupBy("who").agg(F.sum("value").alias("total"), F.count("*").alias("rows"))


def passing(events: DataFrame) -> DataFrame:
    return events.select("time", "who", "value")


def random(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.select("who", F.rand().alias("chance"))


def add_clock(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return events.select("who", F.current_timestamp().alias("now"))


def self_joined(events: DataFrame, others: DataFrame) -> DataFrame:
    return events.alias("l").join(others.alias("r"), ["who", "time"]).select("who", "time", "l.value")


def outer_joined(events: DataFrame, others: DataFrame) -> DataFrame:
    return events.alias("l").join(others.alias("r"), ["who", "time"], "left").select("who", "time", "r.value")


def first_of(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["who"]).select("who", "value")


@pytest.mark.parametrize(
    ("function", "mode", "key"),
    [
        # The other tests' sums are in this mode, and those of test_corruptions.py in complete mode as well.
        pytest.param(
            *(sums, "update", ("who",)), id="update, a NULL among the keys, sums of doubles", marks=pytest.mark.long
        ),
        pytest.param(sums, "complete", ("who",), id="complete", marks=pytest.mark.long),
        pytest.param(sums, "complete", (), id="complete, without a key", marks=pytest.mark.long),
        pytest.param(passing, "append", (), id="append"),
        pytest.param(passing, "update", ("who",), id="the last row of each key"),
    ],
)
def test_a_right_sink_is_equal(
    function: Callable[..., Any], mode: Any, key: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    batches = IN_TIME if function is sums else [rows[:1] for rows in IN_TIME]
    verdict = scene(spark, tmp_path, batches, function, mode=mode, key=key).verify()
    assert (verdict.state, verdict.exit_code, verdict.sentence) == (
        "equal",
        0,
        "correct: equal to the batch query over the same input",
    ), verdict
    assert verdict.rows_read == sum(map(len, batches))
    assert verdict.rows_expected == verdict.rows_actual > 0
    assert json.loads(json.dumps(verdict.as_dict()))["verdict"] == "equal"


@pytest.fixture(scope="module")
def ran(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The sums, which were run once; its sink is spoilt by several tests."""
    home = tmp_path_factory.mktemp("sums")
    return scene(sessions.with_connectors(()), home, IN_TIME, sums, mode="update", key=("who",), delay=None)


@pytest.fixture
def made(ran: Scene, spark: SparkSession, tmp_path: Path) -> Iterator[Scene]:
    """The sums with a right sink."""
    right = shutil.copy(ran.table.path, tmp_path)
    yield replace(ran, spark=spark)
    shutil.copy(right, ran.table.path)


def change_rows(made: Scene) -> None:
    """One has another count, the sum of one is off by a ten-millionth, one is missing, and one is too many."""
    changed = json.dumps({"who": "a", "total": 1.0, "rows": 7})
    assert made.table.edit("UPDATE record SET json = ? WHERE json LIKE '%\"a\"%'", changed) == 1
    changed = json.dumps({"total": 0.3 * (1 + 1e-7), "rows": 2})
    assert made.table.edit("UPDATE record SET json = ? WHERE json NOT LIKE '%who%'", changed) == 1
    assert made.table.edit("DELETE FROM record WHERE json LIKE '%\"b\"%'") == 1
    assert made.table.edit("INSERT INTO record VALUES ('x', ?)", json.dumps({"who": "z", "total": 1.0, "rows": 1})) == 1


def lose_a_batch(made: Scene) -> None:
    last = made.table.edit("DELETE FROM batch WHERE number = (SELECT max(number) FROM batch)")
    assert last == 1


def add_a_column(made: Scene) -> None:
    shape = made.table.connect().execute("SELECT ddl FROM shape").fetchone()[0]
    assert made.table.edit("UPDATE shape SET ddl = ?", shape.replace('"rows"', '"lines"')) == 1


@pytest.mark.parametrize(
    ("damage", "code", "counts", "words"),
    [
        pytest.param(
            change_rows,
            "HR712",
            (1, 1, 2),
            "1 row missing in the sink, 1 row unexpected in the sink, 2 rows with other values",
            id="rows changed, missing and too many",
        ),
        pytest.param(lose_a_batch, "HR704", (0, 0, 0), "the sink holds batches up to 1, but", id="batch lost"),
        pytest.param(add_a_column, "HR711", (0, 0, 0), "column 'rows' is missing in the sink", id="other columns"),
    ],
)
def test_a_wrong_sink_is_named(
    damage: Callable[[Scene], None],
    code: str,
    counts: tuple[int, int, int],
    words: str,
    made: Scene,
) -> None:
    damage(made)
    verdict = made.verify()
    assert (verdict.state, verdict.exit_code) == ("mismatch", 1)
    assert [finding.code for finding in verdict.findings] == [code]
    assert (verdict.missing, verdict.unexpected, verdict.different) == counts
    assert len(verdict.differences) == sum(counts)
    assert verdict.rows_read == (7 if code == "HR712" else 0)
    assert words in verdict.sentence
    kinds = {"a": "different", None: "different", "b": "missing", "z": "unexpected"} if code == "HR712" else {}
    assert {row.key["who"]: row.kind for row in verdict.differences} == kinds


def test_a_sum_off_by_the_last_bit_is_equal(made: Scene) -> None:
    changed = json.dumps({"who": "b", "total": 0.9 * (1 + 1e-12), "rows": 2})
    assert made.table.edit("UPDATE record SET json = ? WHERE json LIKE '%\"b\"%'", changed) == 1
    assert made.verify().state == "equal"


def test_a_batch_in_the_sink_that_spark_has_not_marked_is_verified_too(spark: SparkSession, tmp_path: Path) -> None:
    made = scene(spark, tmp_path, IN_TIME, sums, mode="update", key=("who",), delay=None)
    commits = made.layout.checkpoint / "commits"
    (commits / "2").unlink()
    (commits / ".2.crc").unlink(missing_ok=True)
    verdict = made.verify()
    assert (verdict.state, verdict.batch) == ("equal", 2)
    write(tmp_path / "landing", [[("12:07", "b", 0.1)]])
    made.run()
    again = made.verify()
    assert (again.state, again.batch, again.rows_read) == ("equal", 3, 8)


@pytest.mark.parametrize(
    ("function", "code"),
    [
        pytest.param(random, "HR241", id="a random number"),
        pytest.param(add_clock, "HR241", id="the time of the batch", marks=pytest.mark.long),
    ],
)
def test_what_answers_otherwise_when_asked_again_is_undecided(
    function: Callable[..., Any], code: str, spark: SparkSession, tmp_path: Path
) -> None:
    batches = [[("12:00", "a", 1.0)], [("12:01", "a", 2.0)], [("12:01", "a", 0.5)]]
    made = scene(spark, tmp_path, batches, function, mode="append", delay=None)
    verdict = made.verify()
    assert (verdict.state, verdict.exit_code) == ("undecided", 1)
    assert code in [finding.code for finding in verdict.findings]


# test_caveats.py has such differences too.
@pytest.mark.long
def test_which_duplicate_came_first_within_a_batch_is_undecided(spark: SparkSession, tmp_path: Path) -> None:
    batches = [[("12:00", "a", float(value)) for value in range(8)], [("12:01", "a", 9.0)]]
    made = scene(spark, tmp_path, batches, first_of, mode="append", delay=None)
    assert made.verify().state == "equal"
    made.table.edit("UPDATE record SET json = ?", json.dumps({"who": "a", "value": 77.0}))
    verdict = made.verify()
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR641"])


def test_a_lost_row_of_like_duplicates_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    def names(events: DataFrame) -> DataFrame:
        return events.select("who").dropDuplicates()

    made = scene(spark, tmp_path, IN_TIME, names, mode="append", delay=None)
    assert made.table.edit("DELETE FROM record WHERE json LIKE '%\"b\"%'") == 1
    verdict = made.verify()
    assert (verdict.state, verdict.missing) == ("mismatch", 1)


@pytest.mark.long
def test_an_inner_join_of_two_streams_is_verified(spark: SparkSession, tmp_path: Path) -> None:
    others = [[("12:06", "a", 5.0)], [("12:00", "a", 6.0)], [("12:30", "b", 7.0)]]
    made = scene(spark, tmp_path, IN_TIME, self_joined, mode="append", others=others)
    verdict = made.verify()
    assert (verdict.state, verdict.rows_actual, verdict.rows_read) == ("equal", 2, 10)


@pytest.mark.long
def test_an_outer_join_that_waits_for_partners_is_proved_by_another_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [[("12:06", "a", 5.0)], [("12:00", "a", 6.0)]]
    made = scene(spark, tmp_path, IN_TIME, outer_joined, mode="append", others=others)
    verdict = made.verify()
    assert (verdict.state, verdict.shown_by, verdict.missing) == ("open", "rerun", 0)
    assert verdict.rows_open > 0
    monkeypatch.setattr(rerun, "MOST_BATCHES", 2)
    verdict = made.verify()
    assert (verdict.state, verdict.missing > 0) == ("undecided", True)
    assert [finding.code for finding in verdict.findings] == ["HR706", "HR715"]


def test_before_the_first_run_there_is_nothing_to_prove(made: Scene, tmp_path: Path) -> None:
    elsewhere = Scene(made.spark, type(made.project)(**{**vars(made.project), "root": tmp_path / "new"}), made.table)
    verdict = elsewhere.verify()
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR701"])


def test_files_that_are_gone_leave_the_verdict_open(made: Scene) -> None:
    file = made.project.root / "landing" / "000.json"
    file.rename(file.with_suffix(".gone"))
    try:
        verdict = made.verify()
    finally:
        file.with_suffix(".gone").rename(file)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR303"])
    assert "no longer there" in verdict.sentence


def test_a_sink_ahead_of_the_checkpoint_leaves_the_verdict_open(made: Scene) -> None:
    assert made.table.edit("INSERT INTO batch VALUES (7)") == 1
    verdict = made.verify()
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR510"])
    assert "batch 7 is not in the checkpoint" in verdict.sentence


def test_a_misspelt_query_gets_the_nearest_name(made: Scene) -> None:
    with pytest.raises(ProjectError, match="did you mean 'q'"):
        verify(made.project, "qq", spark=made.spark)


# test_refreshed_tables.py has a query in SQL over a table.
@pytest.mark.long
def test_sql_with_a_clause_and_a_bounded_table_is_verified(spark: SparkSession, tmp_path: Path) -> None:
    def names(spark: SparkSession) -> DataFrame:
        return (
            spark.createDataFrame([("a", "Ann"), ("a", "Anton")], "who STRING, name STRING")
            .groupBy("who", "name")
            .count()
        )

    late = [*IN_TIME, [("13:00", "a", 1.0)], [("13:00", "a", 1.0)], [("12:07", "a", 1.0), ("12:07", "b", 1.0)]]
    sql = """
        WITH known AS (SELECT e.time, e.who, n.name FROM events e JOIN names n ON e.who = n.who)
        SELECT name, window.start AS start, count(*) AS rows FROM known GROUP BY name, window(time, '10 minutes')
    """
    transform = SqlTransform(sql=sql, inputs=("events", "names"))
    tables = {"names": Table(name="names", transform=PythonTransform(function=names, inputs=(), wants_spark=True))}
    made = scene(spark, tmp_path, late, transform, mode="update", key=("name", "start"), tables=tables)
    verdict = made.verify()
    assert (verdict.state, verdict.rows_late, verdict.rows_actual) == ("late", 2, 4)


@pytest.mark.long
def test_rows_behind_a_python_function_over_partitions_are_proved_by_another_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def through_python(events: DataFrame) -> DataFrame:
        return events.mapInPandas(lambda frames: frames, events.schema).groupBy("time", "who").count()

    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    late = [[("12:00", "a", 1.0)], [("13:00", "a", 1.0)], [("13:00", "a", 1.0)], [("12:07", "a", 1.0)]]
    verdict = scene(spark, tmp_path, late, through_python, mode="update", key=("time", "who")).verify()
    # The late row, which the batch query has, and which nothing marks as late.
    assert (verdict.state, verdict.shown_by, verdict.missing) == ("equal", "rerun", 1)
    assert [finding.code for finding in verdict.findings] == ["HR687"]


def test_a_batch_of_two_entries_of_the_source_log_is_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    """A driver died after the source's log and before the batch's plan: the next batch takes that file too."""
    made = scene(spark, tmp_path, IN_TIME[:2], sums, mode="update", key=("who",))
    write(tmp_path / "landing", IN_TIME[2:])
    log = made.layout.checkpoint / "sources" / "events"
    version, line = (log / "1").read_text().splitlines()
    entry = json.loads(line)
    entry |= {"path": entry["path"].replace("001", "002"), "timestamp": 1_700_000_002_000, "batchId": 2}
    (log / "2").write_text(f"{version}\n{json.dumps(entry)}")
    write(tmp_path / "landing", [[("12:09", "c", 0.4)]])
    made.run()
    verdict = made.verify()
    assert (verdict.state, verdict.rows_read, verdict.rows_actual) == ("equal", 8, 4)
    offsets = Checkpoint(made.layout.checkpoint).offsets()
    assert [offsets[batch].offsets["events"] for batch in (2, 3)] == ['{"logOffset":1}', '{"logOffset":3}']
