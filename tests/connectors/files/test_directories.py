"""Key=value directories that change: what does not fit is reported with a code, and no file is left out in silence."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.errors import Finding
from headrace.verifier.proof import verify
from tests.rounds import as_long
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROJECT = """
import headrace as hr

events = hr.source.files("landing", format="json", schema={schema!r})


@hr.query(sink=hr.sink.sqlite("out.db", table="taken"), trigger="available-now")
def taken(events):
    return events
"""


def land(root: Path, name: str, number: int) -> Path:
    file = root / "landing" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"v": number}) + "\n")
    os.utime(file, (1_700_000_000 + number,) * 2)
    return file


def write(root: Path, schema: str) -> Path:
    (root / "landing").mkdir(parents=True)
    (root / "headrace.yml").write_text("name: p\n")
    (root / "pipeline.py").write_text(PROJECT.format(schema=schema))
    return root


def ran(root: Path, spark: SparkSession) -> Finding | None:
    [end] = hr.run(hr.load(root), spark=spark).outcomes
    return end.finding


@pytest.mark.capability("SRC-FILE-08")
@pytest.mark.parametrize(
    ("schema", "first", "second", "words"),
    [
        as_long(
            ("v INT, dt DATE", "dt=2024-01-01/a", "hour=5/b", "not all of the same columns and depth: dt and hour")
        ),
        ("v INT, dt DATE", "dt=2024-01-01/a", "dt=2024-01-01/hour=5/b", "the same columns and depth: dt and dt, hour"),
        as_long(("v INT, dt DATE, hour INT", "dt=2024-01-01/hour=5/a", "dt=2024-01-01/b", "depth: dt and dt, hour")),
        (
            "v INT, dt DATE",
            "dt=2024-01-01/a",
            "dt=soon/b",
            "dt=soon does not fit the schema: 'soon' in column 'dt' is no",
        ),
        ("v INT, n INT", "n=1/a", "n=x/b", "gives the column 'n' the value 'x', and the schema says INT"),
    ],
    ids=["another column", "deeper", "less deep", "no date", "no number"],
)
def test_directories_that_do_not_fit_stop_the_query_until_they_do(
    spark: SparkSession, tmp_path: Path, schema: str, first: str, second: str, words: str
) -> None:
    root = write(tmp_path / "p", schema)
    land(root, first, 0)
    assert ran(root, spark) is None
    wrong = land(root, second, 1)
    finding = ran(root, spark)
    assert finding is not None
    # A date of a csv or json file is judged as any other value of its row.
    code = "HR302" if "does not fit the schema" in words else "HR310"
    assert (finding.code, "\n" in finding.what, bool(finding.fix)) == (code, False, True), finding
    assert words in finding.what
    if code == "HR302":
        # The batch is planned with that file, and a start without it is refused.
        (root / "pipeline.py").write_text(
            PROJECT.format(schema=schema).replace('", schema', '", on_bad_row="quarantine", schema')
        )
        assert ran(root, spark) is None
        assert rows(root / "out.db", "SELECT v FROM taken") == [(0,)]
        land(root, f"{first}-copied", 1)
        assert ran(root, spark) is None
        assert rows(root / "out.db", "SELECT v FROM taken ORDER BY v") == [(0,), (1,)]
        assert verify(hr.load(root), "taken", spark=spark).state == "equal"
        return
    wrong.unlink()
    with suppress(OSError):
        wrong.parent.rmdir()
    land(root, f"{first}-fixed", 1)
    assert ran(root, spark) is None
    assert rows(root / "out.db", "SELECT v FROM taken ORDER BY v") == [(0,), (1,)]


@pytest.mark.capability("SRC-FILE-08")
def test_a_file_next_to_the_directories_is_never_left_out_in_silence(spark: SparkSession, tmp_path: Path) -> None:
    root = write(tmp_path / "p", "v INT, dt DATE")
    land(root, "dt=2024-01-01/a", 0)
    stray = land(root, "stray", 1)
    finding = ran(root, spark)
    assert finding is not None
    assert (finding.code, f"{stray} lies in no directory dt=..." in finding.what) == ("HR310", True), finding
    assert rows(root / "out.db", "SELECT * FROM taken") == []
    stray.write_text("")
    land(root, "dt=2024-01-02/b", 2)
    finding = ran(root, spark)
    assert finding is None, finding
    assert rows(root / "out.db", "SELECT v, dt FROM taken ORDER BY v") == [(0, "2024-01-01"), (2, "2024-01-02")]
    assert verify(hr.load(root), "taken", spark=spark).state == "equal"


@pytest.mark.capability("SRC-FILE-08")
def test_a_directory_that_the_schema_does_not_name_makes_no_column(spark: SparkSession, tmp_path: Path) -> None:
    root = write(tmp_path / "p", "dt DATE, v INT")
    land(root, "dt=2024-01-01/hour=5/a", 0)
    assert ran(root, spark) is None
    land(root, "dt=2024-01-02/hour=6/b", 1)
    assert ran(root, spark) is None
    assert rows(root / "out.db", "SELECT * FROM taken ORDER BY v") == [("2024-01-01", 0), ("2024-01-02", 1)]
