"""What only Spark finds wrong in a query is reported at its line, in one sentence, with a fix that fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load
from headrace.errors import Finding
from tests.bad_inputs.many_queries import FIRST_LINE, Row, rows, write

if TYPE_CHECKING:
    from tests.conftest import Sessions

ROWS = rows()


@pytest.fixture(scope="module")
def errors(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Finding]]]:
    """The errors of each query, by its name; all are found by one check of one project."""
    with pytest.MonkeyPatch.context() as patch:
        root = write(tmp_path_factory.mktemp("wrong") / "p", ROWS)
        patch.chdir(root)
        findings: dict[str, list[Finding]] = {row.id: [] for row in ROWS} | {"no query": []}
        for finding in check(load(root), spark=sessions.with_connectors(())).findings:
            owner = Path(finding.where.file or "").stem
            named = re.search(r"query '(\w+)'", finding.what)
            if finding.severity == "error":
                findings[owner if owner in findings else named[1] if named else "no query"].append(finding)
        yield findings


@pytest.mark.plain
def test_the_table_of_what_spark_finds_is_long_and_whole():
    assert len(ROWS) >= 100
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert [row.id for row in ROWS if not (row.code and row.what and row.fix)] == []


@pytest.mark.spark
def test_each_error_belongs_to_a_query(errors: dict[str, list[Finding]]):
    assert errors["no query"] == []


@pytest.mark.spark
@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_query_that_spark_refuses_is_reported(row: Row, errors: dict[str, list[Finding]]):
    assert errors[row.id], "nothing is wrong with it"
    finding = errors[row.id][0]
    assert (finding.code, row.what in finding.what, row.fix in finding.fix) == (row.code, True, True), finding
    assert "\n" not in finding.what
    assert finding.where.line is not None
    if row.at:
        own = (f"{row.id}.{'sql' if row.kind == 'sql' else 'py'}", FIRST_LINE[row.kind] + row.at - 1)
        assert (finding.where.file, finding.where.line) == own
