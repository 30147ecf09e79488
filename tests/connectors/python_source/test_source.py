"""A source that the user wrote in Python, in the project's own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load, run, verify
from headrace.connectors.python_source.source import Python
from headrace.errors import HeadraceError
from headrace.testing.conformance import forget_commit
from tests.registered import layout_in
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLASS = """
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Reader(DataSourceStreamReader):
    def __init__(self, options):
        self.home, self.step = Path(options["home"]), int(options["step"])

    def initialOffset(self):
        return {"next": 0}

    def latestOffset(self):
        return {"next": int((self.home / "until").read_text())}

    def partitions(self, start, end):
        return [InputPartition(number) for number in range(start["next"], end["next"])]

    def read(self, partition):
        yield partition.value, f"n{partition.value % self.step}"


class Numbers(DataSource):
    def schema(self):
        return "number INT, name STRING"

    def streamReader(self, schema):
        return Reader(self.options)
"""

PROJECT = """
import headrace as hr
from pyspark.sql import functions as F

numbers = hr.source.python(Numbers, options={"home": "HOME", "step": "2"}, replayable=True)


@hr.query(sink=hr.sink.sqlite("out.db", table="sums", key=["name"]), mode="update", trigger=hr.available_now)
def sums(numbers):
    return numbers.groupBy("name").agg(F.sum("number").alias("sum"))
"""

YAML = """
name: p
modules: [numbers_source.py]
sources:
  numbers: {python: {source: "numbers_source:Numbers", options: {home: HOME, step: "2"}, replayable: true}}
queries:
  sums:
    select: SELECT name, sum(number) AS sum FROM numbers GROUP BY name
    mode: update
    trigger: available-now
    sink: {sqlite: {path: out.db, table: sums, key: [name]}}
"""


def project(root: Path, *, yaml: bool = False, text: str = CLASS + PROJECT) -> Path:
    root.mkdir()
    if yaml:
        (root / "numbers_source.py").write_text(CLASS)
        (root / "headrace.yml").write_text(YAML.replace("HOME", str(root)))
    else:
        (root / "pipeline.py").write_text(text.replace("HOME", str(root)))
    return root


# The conformance suite of Tickets reads a batch again, and the example own-source goes on with a class of its own.
@pytest.mark.long
@pytest.mark.capability("SRC-CUSTOM-01")
def test_a_class_of_the_project_is_read_again_after_a_crash_and_verified(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p")
    loaded = load(root)
    for until in (4, 7):
        (root / "until").write_text(str(until))
        assert [end.finding for end in run(loaded, spark=spark).outcomes] == [None]
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("n0", 12), ("n1", 9)]
    assert forget_commit(layout_in(loaded.storage, "sums").checkpoint) == 1
    (root / "until").write_text("9")
    for _ in ("the batch that comes again", "the next one"):
        assert run(loaded, spark=spark).exit_code == 0
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("n0", 20), ("n1", 16)]
    verdict = verify(loaded, "sums", spark=spark)
    assert (verdict.state, verdict.rows_read) == ("equal", 9)
    assert check(loaded, spark=spark).guarantees["sums"].level == "exactly once"


@pytest.mark.capability("SRC-CUSTOM-01")
def test_yaml_names_the_class_by_its_module(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", yaml=True)
    (root / "until").write_text("4")
    assert run(load(root), spark=spark).exit_code == 0
    assert rows(root / "out.db", "SELECT * FROM sums ORDER BY name") == [("n0", 2), ("n1", 4)]


@pytest.mark.capability("SRC-CUSTOM-01")
def test_without_the_users_word_nothing_is_claimed(tmp_path: Path, spark: SparkSession) -> None:
    root = project(
        tmp_path / "p", text=CLASS + PROJECT.replace("replayable=True", "schema='number BIGINT, name STRING'")
    )
    (root / "until").write_text("2")
    loaded = load(root)
    assert run(loaded, spark=spark).exit_code == 0
    assert check(loaded, spark=False).guarantees["sums"].level == "none"
    verdict = verify(loaded, "sums", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR702"])


@pytest.mark.parametrize(
    ("old", "new", "code", "says", "line"),
    [
        pytest.param(
            'return "number INT, name STRING"',
            'raise ValueError("no shape")',
            "HR323",
            "the source class Numbers cannot be used: ValueError: no shape",
            "numbers = hr.source",
            id="schema",
        ),
        pytest.param(
            'return "number INT, name STRING"', 'return "number NUM"', "HR323", "Numbers cannot be used", "", id="ddl"
        ),
        pytest.param(
            "        yield partition.value,",
            "        raise KeyError(partition.value)\n        yield partition.value,",
            "HR601",
            "KeyError: ",
            "raise KeyError",
            id="reading",
        ),
        pytest.param(
            'return {"next": int',
            'raise OSError("no answer")\n        return {"next": int',
            "HR601",
            "OSError: no answer",
            "raise OSError",
            id="offsets",
        ),
    ],
)
def test_a_fault_of_the_class_is_one_sentence(
    tmp_path: Path, spark: SparkSession, old: str, new: str, code: str, says: str, line: str
) -> None:
    root = project(tmp_path / "p", text=(CLASS + PROJECT).replace(old, new))
    (root / "until").write_text("2")
    (end,) = run(load(root), spark=spark).outcomes
    assert end.finding is not None
    assert (end.state, end.finding.code) == ("failed", code)
    assert says in end.finding.what
    assert "Traceback" not in str(end.finding)
    if code == "HR601":
        assert end.finding.where.line is not None
        assert line in (root / "pipeline.py").read_text().splitlines()[end.finding.where.line - 1]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("numbers:Missing", "'numbers:Missing' names no class"),
        (int, "int is not a class of a data source"),
        ("DataSource", "has neither streamReader nor simpleStreamReader"),
        ("no schema", "has no method schema"),
    ],
)
def test_what_gives_no_stream_is_refused_without_spark(given: object, says: str) -> None:
    from pyspark.sql.datasource import DataSource

    class Batch(DataSource):
        def schema(self) -> str:
            return "a INT"

    class Shapeless(DataSource):
        def simpleStreamReader(self, schema: object) -> object:  # type: ignore[override]  # noqa: N802
            return object()

    source = Python(source={"DataSource": Batch, "no schema": Shapeless}.get(str(given), given))
    (problem,) = source.problems()
    assert problem.code == "HR415"
    assert says in problem.what
    assert problem.fix


def test_a_text_that_names_nothing_is_reported_with_its_line(tmp_path: Path) -> None:
    root = project(tmp_path / "p", yaml=True)
    (root / "headrace.yml").write_text((root / "headrace.yml").read_text().replace(":Numbers", ":Numerals"))
    findings = check(load(root), spark=False).errors
    assert [(finding.code, finding.where.line) for finding in findings] == [("HR415", 5)]
    with pytest.raises(HeadraceError):
        run(load(root))
