"""What keeps late rows from being kept, seen without Spark, and that Python and YAML declare the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.api import check, load
from headrace.errors import ProjectError
from headrace.model import Every

pytestmark = pytest.mark.plain
PYTHON = """
import headrace as hr

events = hr.source.files("landing", format="json", schema="id INT, time TIMESTAMP",
                         watermark=("time", "1 hour"){source})
clicks = hr.source.kafka(bootstrap_servers="k:9092", subscribe="late", watermark=("timestamp", "1 hour"))
{more}
@hr.query(sink=hr.sink.{sink}, mode="{mode}", trigger=hr.{trigger}, late=hr.sink.{late})
def distinct({input}):
    return {input}.dropDuplicatesWithinWatermark(["id"])
"""
SOUND = {
    "source": "",
    "more": "",
    "sink": 'sqlite("out.db", table="distinct")',
    "mode": "append",
    "trigger": "every('2 seconds')",
    "late": 'sqlite("out.db", table="late")',
    "input": "events",
}
KAFKA = 'kafka("k:9092", topic="late", delivery_guarantee="exactly-once")'
WRONG = {
    "at least once": ({"late": 'kafka("k:9092", topic="x")'}, "HR268", "may come twice"),
    "not kept": ({"late": "console()"}, "HR268", "may come twice"),
    "the result's table": ({"late": 'sqlite("out.db", table="distinct")'}, "HR259", "same place"),
    "the result's topic": ({"sink": KAFKA, "late": KAFKA}, "HR268", "the place of the result"),
    "the topic that is read": ({"input": "clicks", "late": KAFKA}, "HR268", "would come again"),
    "no checkpoint": ({"sink": "console()"}, "HR268", "keeps nothing"),
    "files that are gone": ({"source": ', clean_source="delete"'}, "HR268", "does not keep them"),
    "mode": ({"late": "memory()"}, "HR268", "may come twice"),
}


def write(root: Path, **changes: str) -> Path:
    (root / "headrace.yml").write_text("name: late\n")
    (root / "pipeline.py").write_text(PYTHON.format(**{**SOUND, **changes}))
    return root


def test_a_query_with_a_sink_for_late_rows_has_a_second_query_for_them(tmp_path: Path) -> None:
    project = load(write(tmp_path))
    assert [*project.queries] == ["distinct", "distinct_late"]
    late = project.queries["distinct_late"]
    assert project.queries["distinct"].late == "distinct_late"
    assert (late.mode, isinstance(late.trigger, Every), late.sink_kind) == ("append", True, "sqlite")
    assert project.writers_for(late) == (project.queries["distinct"],)
    assert not [finding for finding in check(project, spark=False).findings if finding.severity == "error"]
    assert [*project.only(["distinct"]).queries] == ["distinct", "distinct_late"]


def test_python_and_yaml_declare_the_same(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(
        """
name: late
sources:
  events:
    files: {path: landing, format: json, schema: "id INT, time TIMESTAMP"}
    watermark: {column: time, delay: 1 hour}
queries:
  distinct:
    select: SELECT DISTINCT id FROM events
    sink: {sqlite: {path: out.db, table: distinct}}
    trigger: {every: 2 seconds}
    late: {sqlite: {path: out.db, table: late}}
"""
    )
    (tmp_path / "python").mkdir()
    written, declared = load(tmp_path), load(write(tmp_path / "python"))
    assert written.queries["distinct"].late == "distinct_late"
    assert type(written.queries["distinct_late"].sink) is type(declared.queries["distinct_late"].sink)
    assert written.queries["distinct_late"].trigger == declared.queries["distinct_late"].trigger


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_kept_exactly_once_is_refused(tmp_path: Path, case: str) -> None:
    changes, code, words = WRONG[case]
    findings = [
        finding for finding in check(load(write(tmp_path, **changes)), spark=False).findings if finding.code == code
    ]
    assert [words in finding.what for finding in findings] == [True], findings
    assert all(finding.fix and finding.severity == "error" for finding in findings)


def test_the_names_of_what_is_made_have_to_be_free(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as refused:
        load(write(tmp_path, more="distinct_late_rows = hr.source.rate()\n"))
    assert [finding.code for finding in refused.value.findings] == ["HR109"]


def test_a_sink_for_late_rows_is_a_sink(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as refused:
        load(write(tmp_path, late="sqlite"))
    assert "HR112" in {finding.code for finding in refused.value.findings}
