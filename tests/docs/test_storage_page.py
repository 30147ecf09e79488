"""The page that says what lies in the storage names each file of a real one, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.generations.log import QueryLayout
from tests.docs.blocks import ROOT
from tests.runner.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "how-to" / "repair-the-storage-by-hand.md"
BODY = """
timed = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="name STRING, at TIMESTAMP",
                        watermark=("at", "0 seconds"), on_bad_row="quarantine")
seen = hr.counter()

@hr.table(refresh="1 hour")
def names(spark):
    return spark.createDataFrame([("ann",)], "name STRING")

@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["name", "hour"], rewindable="7 days"),
          late=hr.sink.sqlite("out.db", table="late"), mode="update", trigger=hr.available_now)
def counts(timed, names, seen):
    @F.udf("string")
    def noted(name):
        seen.add(1)
        return name

    rows = timed.join(names, "name").select("at", noted("name").alias("name"))
    hours = rows.groupBy("name", F.window("at", "1 hour")).count()
    return hours.select("name", F.col("window.start").alias("hour"), "count")
"""
BATCHES = [
    [{"name": "ann", "at": "2026-01-01T12:10:00"}, {"name": "ann", "at": "noon"}],
    [{"name": "ann", "at": "2026-01-01T14:10:00"}],
    [{"name": "ann", "at": "2026-01-01T12:20:00"}],
]
# Of these the project above has none: a socket of another process, a store, an adoption, a repartition, a rebuild, ids.
NOT_MADE = re.compile(
    r"adopted|repartitions|source_ids|rebuild|leases|archive/|warehouse|control|logs|history\.db-|plan"
)
PARTS = {"Q": r"queries/[^/]+", "gN.M": r"g\d+\.\d+", "NNNNNN": r"\d{6}", "N": r"\d+", "...": ".+", "*": "[^/]+"}


def patterns() -> dict[str, re.Pattern[str]]:
    """Return what the first column of each table of files names, as expressions for paths below the storage."""
    tables = PAGE.read_text(encoding="utf-8").partition("## What each file is for")[2].partition("## The disk")[0]
    cells = re.findall(r"^\| (.*?) \|", tables, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if "/" in name or "." in name]
    words = re.compile("|".join(re.escape(word) if word in ("...", "*") else rf"\b{word}\b" for word in PARTS))
    return {
        name: re.compile("".join(PARTS.get(part, re.escape(part)) for part in re.split(f"({words.pattern})", name)))
        for name in named
        if name != "live"
    }


@pytest.mark.plain
def test_the_page_names_each_file_of_a_generation() -> None:
    named = " ".join(patterns())
    files = [entry._name for entry in vars(QueryLayout).values() if hasattr(entry, "_name")]
    assert len(files) > 10
    assert [file for file in files if f"gN.M/{file}" not in named] == []


@pytest.mark.spark
def test_the_page_names_the_files_of_a_real_storage_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", BODY, batches=BATCHES)
    project = hr.load(root)
    hr.run(project, spark=spark)
    assert hr.rewind(project, "counts", to_batch=1, spark=spark).apply()
    storage = root / ".headrace"
    files = [str(file.relative_to(storage)) for file in storage.rglob("*") if not file.is_dir()]
    files = [file for file in files if not file.endswith(".crc")]
    named = patterns()
    assert [file for file in files if not any(pattern.fullmatch(file) for pattern in named.values())] == []
    missing = [
        name
        for name, pattern in named.items()
        if not any(pattern.match(file) for file in files) and not NOT_MADE.search(name)
    ]
    assert missing == []
