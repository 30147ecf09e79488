"""`headrace late`: what it prints, for people and for machines, and its exit codes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from headrace.cli import main
from headrace.cli.verify import batch_table, replay_sentence, row_table
from headrace.verifier.verdict import Lateness, LateRow, OperatorLateRows, Replayed
from tests.verifier import late_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
FOUND = Lateness(
    query="q",
    batch=7,
    batches=(OperatorLateRows(operator="Aggregate", batch=3, watermark=NOON, rows=1_000),),
    rows=(
        LateRow(
            operator="Aggregate",
            batch=3,
            watermark=NOON,
            time=NOON - timedelta(minutes=5),
            row={"window": {"start": "11:50", "end": "12:00"}, "who": "[red]"},
        ),
    ),
)


def render(table: object) -> str:
    console = Console(width=120, markup=False)
    with console.capture() as text:
        console.print(table)
    return " ".join(text.get().split())


@pytest.mark.plain
def test_counts_and_rows_are_tables() -> None:
    assert "3 Aggregate 2024-01-01 12:00:00 1,000" in render(batch_table(FOUND))
    rows = render(row_table(FOUND))
    assert "the first 1 of 1,000 late rows" in rows
    assert "3 2024-01-01 11:55:00 0:05:00 window=(11:50 to 12:00), who=[red]" in rows
    assert (
        replay_sentence(Replayed(late=2, written=1, deleted=1))
        == "2 late rows brought back: 1 row of the result written, 1 deleted"
    )
    assert replay_sentence(Replayed(late=0, written=0, deleted=0)) == "no late row is missing in the result"


@pytest.mark.plain
def test_replay_takes_no_part_of_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["late", "q", "--replay", "--since", "3"]) == 2
    assert "--replay brings every late row back" in capsys.readouterr().err


@pytest.mark.plain
def test_a_misspelt_query_gets_the_nearest_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = late_project.write_project(tmp_path / "p")
    assert main(["late", "update", "-C", str(root)]) == 2
    errors = capsys.readouterr().err
    assert "HR091: there is no query 'update'" in errors
    assert "did you mean 'updated'?" in errors


@pytest.mark.spark
def test_a_query_without_a_checkpoint_is_a_finding(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = late_project.write_project(tmp_path / "p")
    assert main(["late", "updated", "-C", str(root)]) == 1
    output = capsys.readouterr().out
    assert "HR701: query 'updated' has no checkpoint yet" in output
    assert "fix: run it first: headrace run updated" in output


@pytest.mark.spark
def test_the_command_lists_rows_and_brings_them_back(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = late_project.write_project(tmp_path / "p")
    late_project.run(root, "updated", spark)
    capsys.readouterr()
    assert main(["late", "updated", "-C", str(root), "--limit", "1", "--json"]) == 0
    row, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["event"], row["batch"], row["behind_seconds"], row["row"]["who"]) == ("late row", 3, 2700.0, "a")
    assert (row["time"], row["watermark"]) == ("2024-01-01T12:05:00+00:00", "2024-01-01T12:50:00+00:00")
    assert (result["event"], result["count"], result["replayed"]) == ("result", 2, None)
    assert result["batches"] == [
        {"operator": "Aggregate", "batch": 3, "watermark": "2024-01-01T12:50:00+00:00", "rows": 2}
    ]

    assert main(["late", "updated", "-C", str(root), "--replay", "--count"]) == 0
    output = capsys.readouterr().out
    assert "updated: 2 late rows brought back: 2 rows of the result written" in output
    assert "were brought back into the result" in output
    assert "event time" not in output
    assert late_project.counts_in(root, "updated") == late_project.counts(late_project.BATCHES)
