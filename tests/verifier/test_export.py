"""Late rows are written out as their sources gave them, once each, and can be read as a source again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import late
from headrace.errors import HeadraceError
from tests.verifier import late_project
from tests.verifier.late_project import BATCHES, counts, land, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECOND = [[("12:46", "b"), ("13:40", "b")], [("13:40", "b")], [("12:10", "c"), ("13:05", "a"), ("13:41", "a")]]


def times_by_file(directory: Path) -> dict[str, list[str]]:
    """The times of the rows in each file."""
    times = {}
    for file in sorted(directory.rglob("[!.]*.json")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        times[file.name] = [row["time"][11:16] for row in rows]
    return times


@pytest.mark.capability("OP-WM-04")
def test_each_late_row_is_written_once_and_again_only_where_it_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    root = late_project.write_project(tmp_path / "p")
    project = run(root, "sliding", spark)
    to = tmp_path / "out"
    result = late(project, "sliding", export=to, spark=spark)
    # 12:05 is late for two windows and is one row.
    assert result.count == 3
    assert times_by_file(to) == {"sliding-g1-000003.json": ["12:05", "12:45"]}
    assert [str(file.relative_to(to)) for file in result.exported] == ["events/sliding-g1-000003.json"]
    (file,) = result.exported
    assert json.loads(file.read_text().splitlines()[0]) == {
        "time": "2024-01-01T12:05:00.000000Z",
        "who": "a",
        "value": 1.5,
    }

    land(root, *SECOND)
    run(root, "sliding", spark)
    # What a process left that was killed while it wrote.
    (file.parent / ".sliding-g1-000009.json").write_text('{"time": "2024')
    before = file.stat().st_mtime_ns
    late(project, "sliding", export=to, spark=spark)
    assert file.stat().st_mtime_ns == before
    assert sorted(time for times in times_by_file(to).values() for time in times) == [
        "12:05",
        "12:10",
        "12:45",
        "12:46",
        "13:05",
    ]
    whole = {path.name: path.read_bytes() for path in file.parent.glob("[!.]*")}
    file.unlink()
    late(project, "sliding", export=to, spark=spark)
    assert {path.name: path.read_bytes() for path in file.parent.glob("[!.]*")} == whole


CORRECTION = """

late_events = hr.source.files("late/events", format="json", schema=SCHEMA)

@hr.query(sink=table("corrections"), mode="complete")
def corrections(late_events):
    return counted(late_events)
"""


@pytest.mark.capability("OP-WM-04")
def test_a_query_over_the_exported_rows_gives_what_the_result_lacks(spark: SparkSession, tmp_path: Path) -> None:
    batches = [*BATCHES, *SECOND, [("14:30", "z")], [("14:30", "z")]]
    root = late_project.write_project(tmp_path / "p", batches)
    project = run(root, "keyless", spark)
    late(project, "keyless", export=root / "late", spark=spark)
    (root / "pipeline.py").write_text((root / "pipeline.py").read_text() + CORRECTION)
    run(root, "corrections", spark)
    both = late_project.read(
        root,
        "SELECT who, substr(start, 12, 5), sum(count) FROM (SELECT who, start, count FROM keyless UNION ALL "
        "SELECT who, start, count FROM corrections) GROUP BY who, start",
    )
    answer = {key: count for key, count in counts(batches).items() if key[0] != "z"}
    assert {(who, start): count for who, start, count in both} == answer


def test_rows_of_a_deduplication_can_be_exported_too(spark: SparkSession, tmp_path: Path) -> None:
    root = late_project.write_project(tmp_path / "p")
    project = run(root, "distinct", spark)
    result = late(project, "distinct", export=tmp_path / "out", spark=spark)
    assert [batch.operator for batch in result.batches] == ["Deduplicate"]
    assert times_by_file(tmp_path / "out") == {"distinct-g1-000003.json": ["12:05", "12:45", "12:50"]}


def test_a_directory_that_will_not_do_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = late_project.write_project(tmp_path / "p")
    project = run(root, "updated", spark)
    (tmp_path / "file").write_text("")
    for to, code in ((root / "landing" / "late", "HR663"), (tmp_path / "file" / "out", "HR663")):
        with pytest.raises(HeadraceError) as refused:
            late(project, "updated", export=to, spark=spark)
        assert [(finding.code, bool(finding.fix)) for finding in refused.value.findings] == [(code, True)]
