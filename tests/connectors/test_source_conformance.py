"""Every source holds what it claims, shown by real streams."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from headrace.connectors.catalog.source import CatalogTable
from headrace.connectors.files.source import Files
from headrace.connectors.iceberg.source import Iceberg
from headrace.connectors.python_source.source import Python
from headrace.connectors.rate.micro_batch import RateMicroBatch
from headrace.connectors.rate.source import Rate
from headrace.connectors.socket.source import Socket
from headrace.contract import Source
from headrace.testing.conformance import SourceConformance
from tests.connectors.iceberg import tables as iceberg_tables
from tests.connectors.python_source.tickets import SimpleTickets, Tickets
from tests.connectors.socket.lines import LineServer
from tests.connectors.suites import further_but, only
from tests.rounds import as_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "a INT, b STRING, t TIMESTAMP, inner STRUCT<x: INT, y: ARRAY<STRING>>"


def land(home: Path, name: str, *lines: str) -> Path:
    """Put a file into place at once, under a name that must survive every encoding on its way."""
    unfinished = home.parent / f"unfinished-{home.name}"
    unfinished.write_text("".join(line + "\n" for line in lines))
    home.mkdir(parents=True, exist_ok=True)
    return unfinished.rename(home / name)


def record(number: int) -> str:
    inner = {"x": number, "y": ["p", None]}
    return json.dumps({"a": number, "b": f"é{number}", "t": f"2024-01-01T00:00:{number:02}.123456Z", "inner": inner})


# TestTable shows the triggers of a source of files.
@further_but("protocol", "comes_again", "prefix", "limit", "fit")
class TestFiles(SourceConformance):
    def make(self, home: Path) -> Files:
        return Files(path=str(home), format="json", schema=SCHEMA, max_files_per_trigger=1)

    def feed(self, home: Path, step: int) -> None:
        land(home, f"step {step} 100%+é%20.json", record(step), record(step + 10))


@further_but("fit")
class TestFilesThatSetAside(TestFiles):
    def make(self, home: Path) -> Files:
        return Files(path=str(home), format="json", schema=SCHEMA, max_files_per_trigger=1, on_bad_row="quarantine")

    def feed(self, home: Path, step: int) -> None:
        land(home, f"step {step} 100%+é%20.json", record(step), record(step + 10), '{"a": ')

    def spoil(self, home: Path) -> None:
        """Each step has a bad row already."""


@only("protocol", "comes_again", "prefix")
class TestFilesThatAreDeleted(TestFiles):
    """Deleted files differ only in what can be read again."""

    def make(self, home: Path) -> Files:
        return Files(path=str(home), format="json", schema=SCHEMA, max_files_per_trigger=1, clean_source="delete")


@further_but("prefix_reads")
@only("protocol", "comes_again", "prefix")
class TestFilesThatAreArchived(TestFiles):
    """Archived files differ only in where they are read again."""

    def make(self, home: Path) -> Files:
        archive = home.parent / "archive"
        return Files(
            path=str(home),
            format="json",
            schema=SCHEMA,
            max_files_per_trigger=1,
            clean_source="archive",
            source_archive_dir=str(archive),
        )


class TestRate(SourceConformance):
    def make(self, home: Path) -> Rate:
        return Rate(rows_per_second=7, ramp_up_time="3s", num_partitions=2)

    def feed(self, home: Path, step: int) -> None:
        time.sleep(1.05)


class TestRateMicroBatch(SourceConformance):
    def make(self, home: Path) -> RateMicroBatch:
        return RateMicroBatch(rows_per_batch=7, num_partitions=2, start_timestamp=1500, advance_millis_per_batch=250)


class TestSocket(SourceConformance):
    @pytest.fixture(autouse=True)
    def server(self) -> Iterator[None]:
        self.lines = LineServer()
        yield
        self.lines.close()

    def make(self, home: Path) -> Socket:
        return Socket(host="127.0.0.1", port=self.lines.port, include_timestamp=True)

    def feed(self, home: Path, step: int) -> None:
        self.lines.send(f"step {step}", "é")


class TestTable(SourceConformance):
    @pytest.fixture(autouse=True)
    def table(self, spark: SparkSession) -> Iterator[None]:
        self.spark, self.name = spark, f"events_{uuid4().hex}"
        spark.sql(f"CREATE TABLE {self.name} (a INT, t TIMESTAMP, day STRING) USING parquet PARTITIONED BY (day)")
        yield
        spark.sql(f"DROP TABLE {self.name}")

    def make(self, home: Path) -> CatalogTable:
        return CatalogTable(table=self.name, max_files_per_trigger=1)

    def feed(self, home: Path, step: int) -> None:
        moment = f"TIMESTAMP '2024-01-01 00:00:0{step}.123456'"
        self.spark.sql(
            f"INSERT INTO {self.name} SELECT /*+ COALESCE(1) */ * FROM VALUES "
            f"({step}, {moment}, 'é {step}'), ({step + 10}, {moment}, 'é {step}') AS v(a, t, day)"
        )


@further_but("protocol", "comes_again", "prefix", "limit")
class TestIceberg(SourceConformance):
    """Its triggers are those of every source that is written in Python: TestTickets."""

    def make(self, home: Path) -> Iceberg:
        iceberg_tables.table(home, "db.events")
        return Iceberg(table="db.events", catalog=iceberg_tables.properties(home), max_files_per_trigger=1)

    def feed(self, home: Path, step: int) -> None:
        moment = datetime(2024, 1, 1, 0, 0, step, 123456, tzinfo=timezone.utc)
        inner = {"x": step, "y": ["p", None]}
        rows = [{"id": step + more, "name": f"é{step}", "time": moment, "inner": inner} for more in (0, 10)]
        iceberg_tables.add(home, "db.events", rows)


class TestTickets(SourceConformance):
    def make(self, home: Path) -> Python:
        return Python(source=Tickets, options={"home": str(home)}, replayable=True)

    def feed(self, home: Path, step: int) -> None:
        land(home, f"{step}.txt", *(f"ticket {step} {number}" for number in range(3)))


@further_but("without_commit")
class TestSimpleTickets(TestTickets):
    def make(self, home: Path) -> Python:
        return Python(source=SimpleTickets, options={"home": str(home)}, replayable=True)


@pytest.mark.parametrize(
    ("honest", "claim"),
    [
        (Rate(rows_per_second=7, num_partitions=2), {"continuous": False}),
        (Rate(rows_per_second=7, num_partitions=2), {"real_time": True}),
        (RateMicroBatch(rows_per_batch=7, num_partitions=2), {"continuous": True}),
        as_long((RateMicroBatch(rows_per_batch=7, num_partitions=2), {"real_time": True})),
    ],
    ids=str,
)
def test_a_source_that_claims_too_much_or_too_little_of_its_triggers_fails(
    spark: SparkSession, tmp_path: Path, honest: Rate | RateMicroBatch, claim: dict[str, bool]
) -> None:
    [word] = claim
    assert getattr(honest.facts, word) is not claim[word]
    lying = type("Lying", (type(honest),), {"facts": replace(honest.facts, **claim)})

    class Suite(SourceConformance):
        def make(self, home: Path) -> Source:
            return lying(**{field.name: getattr(honest, field.name) for field in fields(honest) if field.init})

    with pytest.raises(AssertionError):
        Suite().test_rows_come_without_batches_just_where_that_is_claimed(spark, tmp_path, tmp_path, word)
