"""A project that was moved or copied reads no file twice; a source that lies elsewhere otherwise is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, plan, run, verify
from headrace.errors import Finding
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import FRUIT, TOTALS, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MANY = (
    TOTALS
    + """
written = hr.source.files("out dir", format="json", schema="name STRING, amount INT")

@hr.query(sink=hr.sink.files("out dir", format="json"), trigger=hr.available_now)
def copied(events):
    return events

@hr.query(sink=hr.sink.sqlite("out.db", table="again", key=["name"]), mode="update", trigger=hr.available_now)
def again(written):
    return written.groupBy("name").agg(F.sum("amount").alias("amount"))
"""
)
MORE = [{"name": "pear", "amount": 40}]


def ran(root: Path, spark: SparkSession, queries: list[str] | None = None) -> list[Finding]:
    """Run to the end; what was reported."""
    recorder = Recorder()
    result = run(load(root), queries, spark=spark, reporter=recorder)
    return [*recorder.all(Finding), *[end.finding for end in result.outcomes if end.finding is not None]]


def totals(root: Path, table: str = "totals") -> dict[str, int]:
    return dict(rows(root / "out.db", f"SELECT name, amount FROM {table}"))


def test_a_moved_project_continues_with_the_files_that_are_new(tmp_path: Path, spark: SparkSession) -> None:
    old, new = tmp_path / "p", tmp_path / "a b" / "größe 100%+#1"
    write_project(old, MANY, batches=FRUIT)
    (old / "out dir").mkdir()
    order = ["totals", "copied", "again"]
    for name in order:
        assert [finding for finding in ran(old, spark, [name]) if finding.severity == "error"] == []
    new.parent.mkdir()
    shutil.move(old, new)
    # A copy at the old place must not be read for this one.
    shutil.copytree(new, old)
    verdict = verify(load(new), "totals", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR464"])
    assert f"from {old} to {new}" in verdict.findings[0].what
    shutil.rmtree(old)
    land(new, 2, MORE)
    notes = [finding for name in order for finding in ran(new, spark, [name])]
    assert {finding.code for finding in notes if finding.severity != "warning"} <= {"HR524", "HR240"}
    assert f"from {old} to {new}" in next(note.what for note in notes if note.code == "HR524")
    assert totals(new) == totals(new, "again") == {"apple": 4, "pear": 42}
    assert {name: verify(load(new), name, spark=spark).state for name in order} == dict.fromkeys(order, "equal")
    assert [finding.code for finding in ran(new, spark, ["totals"]) if finding.code == "HR524"] == []
    assert totals(new) == {"apple": 4, "pear": 42}


def test_each_copy_of_a_project_continues_with_its_own_files(tmp_path: Path, spark: SparkSession) -> None:
    first, second = tmp_path / "p", tmp_path / "q"
    write_project(first, TOTALS, batches=FRUIT)
    ran(first, spark)
    shutil.copytree(first, second)
    land(first, 2, MORE)
    land(second, 2, [{"name": "fig", "amount": 7}])
    ran(second, spark)
    ran(first, spark)
    assert (totals(first), totals(second)) == ({"apple": 4, "pear": 42}, {"apple": 4, "pear": 2, "fig": 7})


def test_a_copy_continues_with_a_source_that_stayed_in_the_original(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    pipeline = root / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace('"landing"', f'"{root}/landing"'))
    ran(root, spark)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    land(root, 2, MORE)
    assert [entry.verdict for entry in plan(load(copy), spark=spark)] == ["same"]
    assert [finding for finding in ran(copy, spark) if finding.severity == "error"] == []
    assert (totals(copy), totals(root)) == ({"apple": 4, "pear": 42}, {"apple": 4, "pear": 2})
    assert verify(load(copy), "totals", spark=spark).state == "equal"
    # The directory of the copy is another one, whatever its name.
    (copy / "pipeline.py").write_text(pipeline.read_text().replace(f"{root}/", ""))
    (refused,) = (finding for finding in ran(copy, spark) if finding.severity == "error")
    assert refused.code == "HR525"


def test_a_source_in_another_directory_is_refused_with_both_paths(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    ran(root, spark)
    (root / "landing").rename(root / "elsewhere")
    code = (root / "pipeline.py").read_text()
    (root / "pipeline.py").write_text(code.replace('"landing"', '"elsewhere"'))
    (refused,) = (finding for finding in ran(root, spark) if finding.severity == "error")
    assert refused.code == "HR525"
    assert f"'{root / 'elsewhere'}'" in refused.what
    assert f"'{root / 'landing' / '0000.json'}'" in refused.what
    assert totals(root) == {"apple": 4, "pear": 2}
    # A pattern that finds the same files is no other directory.
    (root / "elsewhere").rename(root / "landing")
    (root / "pipeline.py").write_text(code.replace('"landing"', '"landing/*.json"'))
    assert [finding for finding in ran(root, spark) if finding.severity == "error"] == []
    assert totals(root) == {"apple": 4, "pear": 2}


def test_paths_are_written_as_spark_writes_them(tmp_path: Path, spark: SparkSession) -> None:
    from headrace.checkpoint.relocation import encode

    odd = tmp_path / "".join(chr(code) for code in range(33, 127) if chr(code) not in '/\\:*?[]{}"') / "ä ö\u00a0€😀"
    path = spark._jvm.org.apache.hadoop.fs.Path(str(odd))  # type: ignore[union-attr]
    assert encode(str(odd)) == path.toUri().toString()
    assert json.loads(json.dumps(encode(str(odd)))) == encode(str(odd))
