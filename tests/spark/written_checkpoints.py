"""Projects whose checkpoints another Spark wrote: `python -m tests.spark.written_checkpoints` makes that of its own."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import pyspark

import headrace as hr
from headrace.testing.conformance import forget_commit
from tests.registered import layout_in

PLACE = Path(__file__).parent
PIPELINE = """
import headrace as hr
from pyspark.sql import DataFrame, functions as F

events = hr.source.files("landing", format="json", max_files_per_trigger=1,
                         schema="name STRING, at TIMESTAMP, amount INT, kind STRING, place STRING, size INT",
                         watermark=("at", "1 hour"))
prices = hr.source.files("prices", format="json", schema="item STRING, since TIMESTAMP, price INT",
                         watermark=("since", "1 hour"))


@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update")
def totals(events: DataFrame) -> DataFrame:
    return events.groupBy("name").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))


@hr.query(sink=hr.sink.files("hours", format="json"))
def hours(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("at", "1 hour").alias("hour")).count()


@hr.query(sink=hr.sink.sqlite("out.db", table="names", key=["name", "at"]))
def names(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["name", "at"]).select("name", "at")


@hr.query(sink=hr.sink.sqlite("out.db", table="wide", key=["name", "at"]))
def wide(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["size", "name", "place", "at", "kind", "amount"]).select("name", "at", "place")


@hr.query(sink=hr.sink.files("priced", format="json"))
def priced(events: DataFrame, prices: DataFrame) -> DataFrame:
    bound = F.expr("name = item AND at BETWEEN since AND since + INTERVAL 1 HOUR")
    return events.join(prices, bound).select("name", "at", "price")
"""
QUERIES = ("totals", "hours", "names", "wide", "priced")
# Deduplicates by more keys than Spark 4.2 keeps in the order in which they are written.
WIDE = "wide"


def archive_of(version: str) -> Path:
    """The project as Spark `version` left it."""
    return PLACE / f"written-by-{version}.tar.xz"


def of_others() -> list[str]:
    """The versions other than the installed one whose projects are there."""
    every = (file.name.removesuffix(".tar.xz").removeprefix("written-by-") for file in PLACE.glob("written-by-*"))
    return sorted(set(every) - {pyspark.__version__})


def land(root: Path, hour: int) -> None:
    """One more file of events, and one of prices."""
    time, more = f"2026-01-01T{hour:02}:10:00Z", {"amount": hour, "kind": "k", "place": f"p{hour}", "size": 1}
    events = [{"name": name, "at": time, **more} for name in ("a", "b", "a")]
    prices = [{"item": name, "since": f"2026-01-01T{hour:02}:00:00Z", "price": hour} for name in ("a", "b")]
    for folder, rows in (("landing", events), ("prices", prices)):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / f"{hour:02}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def make(root: Path) -> None:
    """Run it over three hours, and let each query forget that its last batch was committed."""
    (root / "headrace.yml").write_text("name: older\n")
    (root / "pipeline.py").write_text(PIPELINE)
    for hour in (8, 9, 10):
        land(root, hour)
    project = hr.load(root)
    assert hr.run(project, trigger=hr.available_now).exit_code == 0
    for query in QUERIES:
        forget_commit(layout_in(project.storage, query, 1).checkpoint)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what Python compiled, and without whose files they are here."""
    if "__pycache__" in info.name:
        return None
    info.uname, info.gname, info.uid, info.gid = "", "", 0, 0
    return info


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "older"
        root.mkdir()
        make(root)
        with tarfile.open(archive_of(pyspark.__version__), "w:xz") as archive:
            archive.add(root, arcname=".", filter=_plain)
    return 0


if __name__ == "__main__":
    sys.exit(main())
