"""The manifest knows which Spark wrote a query's plan, and compares what can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.model import Query
from headrace.model.layout import QueryLayout
from headrace.run.manifest import enter, forms

from .projects import write_project

pytestmark = pytest.mark.plain

QUERY = """
import headrace as hr

ticks = hr.source.rate()

@hr.query(sink=hr.sink.console())
def totals(ticks):
    return ticks
"""

# A second start (fingerprint, columns, Spark) after ("f1", "a INT", "4.2.0"), with what is told of it.
SECOND = {
    "the same": (("f1", "a INT", "4.2.0"), [], 1),
    "another query": (("f2", "a INT", "4.2.0"), ["HR545"], 2),
    "a new Spark that writes the plan alike": (("f1", "a INT", "4.3.0"), [], 2),
    "a new Spark that writes it differently": (("f2", "a INT", "4.3.0"), ["HR445"], 2),
    "a new Spark, and other columns": (("f2", "b INT", "4.3.0"), ["HR545"], 2),
}


@pytest.mark.parametrize(("second", "told", "lines"), SECOND.values(), ids=SECOND)
def test_a_new_spark_alone_is_no_changed_query(
    tmp_path: Path, second: tuple[str, str, str], told: list[str], lines: int
) -> None:
    layout, query = _query(tmp_path)

    def start(fingerprint: str, columns: str, spark: str, batch: int) -> list[str]:
        found = enter(layout, query, fingerprint, columns=columns, next_batch=batch, spark=spark)
        return [finding.code for finding in found]

    assert start("f1", "a INT", "4.2.0", 0) == []
    assert start(*second, 3) == told
    assert start(*second, 4) == []
    assert len(forms(layout.manifest)) == lines


def test_a_line_of_version_0_1_0_is_compared_by_its_fingerprint_alone(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    layout.manifest.write_text(
        '{"fingerprint": "f1", "from_batch": 0, "at": "", "headrace": "0.1.0", "spark": "4.2.0"}\n'
    )
    found = enter(layout, query, "f2", columns="b INT", next_batch=1, spark="4.3.0")
    assert [finding.code for finding in found] == ["HR445"]


def _query(root: Path) -> tuple[QueryLayout, Query]:
    project = hr.load(write_project(root / "p", QUERY))
    layout = QueryLayout(project.storage, "totals", 1)
    layout.home.mkdir(parents=True)
    return layout, project.queries["totals"]
