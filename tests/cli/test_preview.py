"""`headrace preview` shows what a query makes of its sources' first rows, and leaves nothing behind."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace import sampling
from headrace.cli import main
from headrace.errors import HeadraceError

pytestmark = pytest.mark.spark

PROJECT = """
name: shop
sources:
  orders:
    files: {path: landing, format: json, schema: "id INT, product STRING, amount INT"}
queries:
  totals:
    select: SELECT product, sum(amount) AS total, count(*) AS n FROM orders GROUP BY product
    mode: complete
    sink: {sqlite: {path: result.db, table: totals, key: [product]}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "headrace.yml").write_text(PROJECT)
    (tmp_path / "landing").mkdir()
    orders = [{"id": number, "product": "ab"[number % 2], "amount": number} for number in range(10)]
    (tmp_path / "landing" / "1.json").write_text("\n".join(map(json.dumps, orders)))
    return tmp_path


def test_the_whole_of_a_small_source_is_answered_and_nothing_is_written(
    root: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command would start a session of its own, and stop it.
    monkeypatch.setattr(sampling, "preview", partial(sampling.preview, spark=spark))
    before = sorted(root.rglob("*"))
    assert main(["preview", "totals", "-C", str(root), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"product": "a", "total": 20, "n": 5}, {"product": "b", "total": 25, "n": 5}]
    assert sorted(root.rglob("*")) == before
    first = hr.preview("totals", project=hr.load(root), rows=1, spark=spark)
    assert first.to_pandas().to_dict("records") == [{"product": "a", "total": 20, "n": 5}]
    assert not spark.streams.active


def test_no_more_rows_are_read_than_the_sample_has(root: Path, spark: SparkSession) -> None:
    result = hr.preview("totals", project=hr.load(root), sample=3, spark=spark)
    assert sum(row.n for row in result) == 3


def test_a_wrong_call_is_a_finding(root: Path, spark: SparkSession) -> None:
    with pytest.raises(HeadraceError, match=r"totals"):
        hr.preview("totls", project=hr.load(root), spark=spark)
    with pytest.raises(HeadraceError, match=r"HR090"):
        hr.preview("totals", project=hr.load(root), rows=0, spark=spark)
