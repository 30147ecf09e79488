"""The guide's advertisements: impressions, the clicks on them, and the purchases that follow, as small projects."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.api import check, load, run
from headrace.contract import BatchRecord
from headrace.errors import Finding
from tests.runner.projects import rows
from tests.runner.test_run import Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[str | None, str]
"""An advertisement and a time of 2026-03-01; `+10:00` is that of the day after."""

HEADER = """
import headrace as hr
from pyspark.sql import functions as F

def files(kind, short, delay):
    schema = f"{short}_ad STRING, {short}_time TIMESTAMP"
    mark = (f"{short}_time", delay) if delay else None
    return hr.source.files(kind, format="json", max_files_per_trigger=1, schema=schema, watermark=mark)

impressions = files("impressions", "i", "2 hours")
clicks = files("clicks", "c", "3 hours")
purchases = files("purchases", "p", "1 hour")
plain_impressions = files("impressions", "i", None)
plain_clicks = files("clicks", "c", None)

WITHIN = "c_ad = i_ad AND c_time BETWEEN i_time AND i_time + INTERVAL 1 HOUR"
SHOWN = ("i_ad", "date_format(i_time, 'HH:mm') AS i", "c_ad", "date_format(c_time, 'HH:mm') AS c")

@hr.table
def ads(spark):
    return spark.sql("SELECT * FROM VALUES ('a', 'acme'), ('b', 'bolt'), ('z', 'zeta') AS t(i_ad, brand)")
"""


@dataclass(frozen=True)
class Scene:
    """A project in `root` with one query `q` that writes the table `q` of `out.db`."""

    root: Path
    spark: SparkSession

    def land(self, kind: str, *landed: Row) -> None:
        """One file with these rows, younger than all before it."""
        folder = self.root / kind
        number = len(list(folder.iterdir()))
        file = folder / f"{number:04d}.json"
        short = kind[0]
        file.write_text("".join(json.dumps({f"{short}_ad": ad, f"{short}_time": _at(at)}) + "\n" for ad, at in landed))
        os.utime(file, (1_700_000_000 + number,) * 2)

    def run(self) -> Recorder:
        """Take in everything that has landed."""
        recorder = Recorder()
        result = run(load(self.root), spark=self.spark, reporter=recorder)
        assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
        return recorder

    def batches(self) -> list[BatchRecord]:
        """What Spark reports of taking in everything that has landed."""
        return self.run().all(BatchRecord)

    def rows(self, columns: str = "*", *, table: str = "q") -> list[tuple[Any, ...]]:
        """The sink's rows, in order; NULL first."""
        answer = rows(self.root / "out.db", f"SELECT {columns} FROM {table}")
        return sorted(answer, key=lambda row: [str(value or "") for value in row])

    def findings(self, *codes: str) -> list[Finding]:
        """What the check finds, of these codes only."""
        findings = check(load(self.root), spark=self.spark).findings
        return [finding for finding in findings if finding.code in codes]

    def refusal(self) -> Finding:
        """The one error of the check; a run ends with the same before anything is begun."""
        (error,) = refusals(self.root, self.spark).values()
        return error


def refusals(root: Path, spark: SparkSession) -> dict[str, Finding]:
    """The one error of each query of a project, by the query's name, in which a run of it ends as well."""
    errors = check(load(root), spark=spark).errors
    outcomes = run(load(root), spark=spark).outcomes
    assert [(outcome.state, outcome.finding, outcome.batches) for outcome in outcomes] == [
        ("failed", error, 0) for error in errors
    ]
    assert not (root / "out.db").exists()
    assert not list(root.glob(".headrace/**/offsets/*"))
    for error in errors:
        assert error.fix
        assert (error.where.file or "").endswith("pipeline.py")
        assert "\n" not in error.what
    return {outcome.query: error for outcome, error in zip(outcomes, errors, strict=True)}


def scene(
    root: Path,
    spark: SparkSession,
    inputs: str,
    body: str,
    *,
    mode: str = "append",
    key: Sequence[str] = (),
    impressions: Sequence[Sequence[Row]] = (),
    clicks: Sequence[Sequence[Row]] = (),
    purchases: Sequence[Sequence[Row]] = (),
    extra: str = "",
) -> Scene:
    """A project whose query `q` is a function of `inputs` that returns `body`, a Python expression; its data landed."""
    queries = [query(inputs, body, mode=mode, key=key)]
    return scene_of(root, spark, queries, impressions=impressions, clicks=clicks, purchases=purchases, extra=extra)


def scene_of(
    root: Path,
    spark: SparkSession,
    queries: Sequence[str],
    *,
    impressions: Sequence[Sequence[Row]] = (),
    clicks: Sequence[Sequence[Row]] = (),
    purchases: Sequence[Sequence[Row]] = (),
    extra: str = "",
) -> Scene:
    """A project of these declarations; its data landed."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text("name: advertisements\n")
    (root / "pipeline.py").write_text(f"{HEADER}\n{extra}\n{''.join(queries)}")
    made = Scene(root, spark)
    for kind, timeline in {"impressions": impressions, "clicks": clicks, "purchases": purchases}.items():
        (root / kind).mkdir(exist_ok=True)
        for landed in timeline:
            made.land(kind, *landed)
    return made


def query(inputs: str, body: str, *, mode: str = "append", key: Sequence[str] = (), name: str = "q") -> str:
    """The declaration of a query that returns `body` into the table of its name."""
    of_key = f", key={list(key)!r}" if key else ""
    return (
        f'\n@hr.query(sink=hr.sink.sqlite("out.db", table="{name}"{of_key}), mode="{mode}", trigger=hr.available_now)\n'
        f"def {name}({inputs}):\n    return {body}\n"
    )


def refusals_of(root: Path, spark: SparkSession, queries: Sequence[str], *, extra: str = "") -> dict[str, Finding]:
    """The one error of each of these declarations, all of one project, by the query's name."""
    scene_of(root, spark, queries, extra=extra)
    return refusals(root, spark)


def _at(at: str) -> str:
    day = 2 if at.startswith("+") else 1
    return f"2026-03-0{day}T{at.removeprefix('+')}:00Z"
