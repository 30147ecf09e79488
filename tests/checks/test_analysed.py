"""Before start, Spark's checker and ours say what is wrong with a query, at its line and with a fix."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load
from headrace.spark.jvm.session import QUERY_LOGGERS
from tests.runner.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TIMED = """
timed = hr.source.files("landing", format="json", schema="name STRING, time TIMESTAMP", watermark=("time", "1 hour"))
others = hr.source.files("landing", format="json", schema="name STRING, seen TIMESTAMP", watermark=("seen", "1 hour"))
"""


def query(body: str, *, inputs: str = "events", mode: str = "append") -> str:
    return f"""{TIMED}
@hr.query(sink=hr.sink.sqlite("o.db", table="t", key=["name"]), mode="{mode}")
def q({inputs}):
    {body}
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(query("return events.groupBy('name').count()"), "HR221", id="append without watermark"),
        pytest.param(query("return events", mode="complete"), "HR227", id="complete without aggregate"),
        pytest.param(query("return events.limit(3)", mode="update"), "HR223", id="limit"),
        pytest.param(query("return events.orderBy('name')"), "HR223", id="sort"),
        pytest.param(
            query("return events.groupBy('name').agg(F.countDistinct('amount'))", mode="update"), "HR226", id="distinct"
        ),
        pytest.param(
            query("return events.join(timed, 'name', 'left').select('name')", inputs="events, timed"),
            "HR203",
            id="outer join without bound",
        ),
        pytest.param(query("return events.nowhere"), "HR214", id="missing attribute"),
        pytest.param(query("return events.select('nowhere')"), "HR214", id="missing column"),
        pytest.param(query("return events.count()"), "HR213", id="action"),
        pytest.param(query("events.show()"), "HR213", id="show"),
        pytest.param(
            query("return timed.union(timed.where(\"name > 'a'\"))", inputs="timed").replace(
                'watermark=("time"', 'on_bad_row="quarantine", watermark=("time"'
            ),
            "HR219",
            id="a source with a quarantine twice",
        ),
        pytest.param(
            query("return timed.union(timed.where(\"name > 'a'\"))", inputs="timed").replace(
                'watermark=("time"', 'clean_source="delete", watermark=("time"'
            ),
            "HR219",
            id="a source whose files are deleted twice",
        ),
        pytest.param(query("return 7"), "HR211", id="no DataFrame"),
        pytest.param(query("return events.nope()"), "HR214", id="no such method"),
        pytest.param(query("return 1 / 0"), "HR210", id="exception"),
        pytest.param(query("return events.select(F.expr('nam e e'))"), "HR216", id="syntax"),
        pytest.param(query("return events.select('name', 'name')"), "HR404", id="two columns of one name"),
    ],
)
def test_what_spark_would_refuse_is_found_before_start(
    tmp_path: Path, spark: SparkSession, text: str, code: str
) -> None:
    root = write_project(tmp_path / "p", text)
    result = check(load(root), spark=spark)
    assert [finding.code for finding in result.errors] == [code]
    finding = result.errors[0]
    assert finding.where.file is not None
    assert finding.where.file.endswith("pipeline.py")
    assert finding.where.line
    assert finding.fix
    assert "\n" not in finding.what
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("text", "code", "severity"),
    [
        pytest.param(query("return events.groupBy('name').count()", mode="update"), "HR240", "note", id="groups"),
        pytest.param(query("return events.dropDuplicates(['name'])"), "HR240", "warning", id="duplicates"),
        pytest.param(
            query("return events.join(timed, 'name').select('name')", inputs="events, timed"),
            "HR240",
            "warning",
            id="join",
        ),
        pytest.param(query("return events.withColumn('r', F.rand())"), "HR241", "warning", id="chance"),
        pytest.param(
            query("return timed.alias('a').join(timed.alias('b'), 'name').select('name')", inputs="timed"),
            "HR240",
            "warning",
            id="a join of a source with itself",
        ),
    ],
)
def test_what_spark_does_not_say_is_said(
    tmp_path: Path, spark: SparkSession, text: str, code: str, severity: str
) -> None:
    result = check(load(write_project(tmp_path / "p", text)), spark=spark)
    assert (code, severity) in {(finding.code, finding.severity) for finding in result.findings}
    assert result.exit_code == 0


def test_unbounded_state_is_reported_with_the_column_that_would_bound_it(tmp_path: Path, spark: SparkSession) -> None:
    text = query("return timed.dropDuplicates(['name'])", inputs="timed")
    findings = check(load(write_project(tmp_path / "p", text)), spark=spark).findings
    (unbounded,) = [finding for finding in findings if finding.code == "HR240"]
    assert unbounded.fix == "use time, which has the watermark, or a window of it, in the operation as well"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("return spark.sql('SELECT nam FROM VALUES (1) AS t(name)')", id="SQL"),
        pytest.param("return events.where(F.col('nam') > 1)", id="DataFrame"),
    ],
)
def test_a_misspelt_column_is_a_finding_and_nothing_else_is_logged(
    tmp_path: Path, spark: SparkSession, body: str, request: pytest.FixtureRequest
) -> None:
    """PySpark logs such an exception as JSON, with the whole stack trace of the JVM."""
    heard: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = heard.append  # type: ignore[method-assign]
    for logger in map(logging.getLogger, QUERY_LOGGERS):
        logger.addHandler(handler)
        request.addfinalizer(lambda logger=logger: logger.removeHandler(handler))  # type: ignore[misc]
    result = check(load(write_project(tmp_path / "p", query(body, inputs="events, spark"))), spark=spark)
    assert [finding.code for finding in result.errors] == ["HR214"]
    assert "`nam`" in result.errors[0].what
    assert heard == []


def test_a_source_that_is_not_there_is_reported_with_its_line(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", query("return events"))
    (root / "landing").rmdir()
    (error,) = check(load(root), spark=spark).errors
    assert (error.code, Path(str(error.where.file)).name) == ("HR332", "pipeline.py")
    assert error.where.line is not None
    assert "events = " in (root / "pipeline.py").read_text().splitlines()[error.where.line - 1]


def test_a_query_that_is_refused_has_no_guarantee(tmp_path: Path, spark: SparkSession) -> None:
    result = check(load(write_project(tmp_path / "p", query("return events.orderBy('name')"))), spark=spark)
    assert [finding.code for finding in result.errors] == ["HR223"]
    assert result.guarantees == {}


def test_a_watermark_bounds_the_state(tmp_path: Path, spark: SparkSession) -> None:
    text = query("return timed.groupBy(F.window('time', '1 hour')).count()", inputs="timed", mode="append")
    result = check(load(write_project(tmp_path / "p", text.replace('key=["name"]', ""))), spark=spark)
    assert {finding.code for finding in result.findings} & {"HR240", "HR241"} == set()
    assert result.guarantees["q"].level == "exactly once"
    assert result.guarantees["q"].proven


def test_a_plan_that_is_left_to_chance_is_no_exactly_once(tmp_path: Path, spark: SparkSession) -> None:
    text = query("return events.where(F.rand() > 0.5)")
    guarantee = check(load(write_project(tmp_path / "p", text)), spark=spark).guarantees["q"]
    assert (guarantee.level, guarantee.weakest.part if guarantee.weakest else None) == ("at least once", "the plan")
    assert "rand(" in guarantee.sentence
