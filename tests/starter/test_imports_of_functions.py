"""What functions of a project import when they are called: from any directory, on the workers, and seen by `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from tests.conftest import ROOT
from tests.runner.projects import land, rows, write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
BODY = """
@F.udf("INT")
def marked(amount):
    import helper
    from parts import inner

    return helper.mark(amount) + inner.MORE


@hr.table
def factors(spark):
    from helper import FACTOR

    return spark.createDataFrame([(FACTOR,)], "factor INT")


@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), trigger=hr.available_now)
def kept(events, factors):
    return events.crossJoin(factors).select(marked("amount").alias("marked"), "factor")


def write(frame, batch):
    import helper

    (helper.HERE / f"{batch}.txt").write_text(str(frame.count()))


written = hr.query(sink=hr.sink.foreach_batch(write), trigger=hr.available_now, name="written")(lambda events: events)
"""
HELPER = """
from pathlib import Path

from beyond import BASE

FACTOR, HERE = {factor}, Path(__file__).parent


def mark(amount):
    return amount + BASE
"""


def project(root: Path, *, base: int, factor: int) -> Path:
    write_project(root, BODY)
    (root / "helper.py").write_text(HELPER.format(factor=factor))
    (root / "beyond.py").write_text(f"BASE = {base}\n")
    (root / "parts").mkdir(exist_ok=True)
    (root / "parts" / "__init__.py").write_text("")
    (root / "parts" / "inner.py").write_text("MORE = 1000\n")
    return root


def result(root: Path, spark: SparkSession) -> list[tuple[int, int]]:
    loaded = hr.load(root)
    assert [end.finding for end in hr.run(loaded, spark=spark, accept_forward=True).outcomes] == [None, None]
    return rows(root / "out.db", "SELECT marked, factor FROM kept ORDER BY marked")


def test_modules_that_functions_import_when_they_are_called_are_those_of_their_project(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    one, other = project(tmp_path / "one", base=10, factor=2), project(tmp_path / "other", base=20, factor=3)
    for root in (one, other):
        land(root, 0, [{"name": "a", "amount": 1}])
    assert result(one, spark) == [(1011, 2)]
    assert result(other, spark) == [(1021, 3)]
    land(one, 1, [{"name": "a", "amount": 2}])
    assert result(one, spark) == [(1011, 2), (1012, 2)]
    assert (one / "0.txt").read_text() == "1"
    assert hr.verify(hr.load(one), "kept", spark=spark).state == "equal"


def test_a_change_of_a_module_that_a_function_imports_when_it_is_called_is_planned_and_takes_effect(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    root = project(tmp_path / "p", base=10, factor=2)
    land(root, 0, [{"name": "a", "amount": 1}])
    assert result(root, spark) == [(1011, 2)]
    [same] = hr.plan(hr.load(root), ["kept"], spark=spark)
    assert (same.verdict, [note.code for note in same.notes]) == ("same", [])
    (root / "beyond.py").write_text("BASE = 30\n")
    [changed] = hr.plan(hr.load(root), ["kept"], spark=spark)
    assert changed.verdict == "forward"
    assert "BASE" in str(changed.differences)
    land(root, 1, [{"name": "a", "amount": 2}])
    assert result(root, spark) == [(1011, 2), (1032, 2)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('spark.read.schema("a INT").csv("ref.csv")', "HR215"),
        ('spark.createDataFrame([(len(open("ref.csv").read()),)], "a INT")', "HR210"),
    ],
    ids=["spark", "python"],
)
def test_a_relative_path_that_leads_nowhere_is_reported_with_both_directories(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, code: str
) -> None:
    table = f"@hr.table\ndef ref(spark):\n    return {body}\n\n\n"
    query = "@hr.query(sink=hr.sink.console())\ndef q(events, ref):\n    return events.crossJoin(ref)\n"
    root = write_project(tmp_path / "p", table + query)
    (root / "ref.csv").write_text("1\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    [finding] = hr.check(hr.load(root), spark=spark).errors
    assert finding.code == code
    # Spark stays in the directory in which it was started.
    here = ROOT if code == "HR215" else tmp_path / "elsewhere"
    assert f"a relative path here starts from '{here}', one of a source or a sink from '{root}'" in finding.fix


def test_a_module_that_a_function_has_imported_belongs_to_the_project_of_the_next_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = "def value():\n    import late_helper\n\n    return late_helper.VALUE\n"
    root = write_project(tmp_path / "p", body)
    (root / "late_helper.py").write_text("VALUE = 1\n")
    module, *_ = (module for module in hr.load(root).modules if hasattr(module, "value"))
    assert module.value() == 1
    (root / "late_helper.py").write_text("VALUE = 2\n")
    (root / "pipeline.py").write_text("import late_helper\n" + (root / "pipeline.py").read_text())
    modules = hr.load(root).modules
    assert {module.VALUE for module in modules if hasattr(module, "VALUE")} == {2}
