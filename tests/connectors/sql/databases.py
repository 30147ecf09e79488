"""One database of any kind for a test, and a query's life that writes into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

from headrace.connectors.exactly_once import BatchWriter
from headrace.connectors.sql.postgres import Postgres
from headrace.connectors.sql.sink import DatabaseSink
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import OutputMode, SinkContext
from headrace.errors import Finding, HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY = [
    pytest.param("sqlite", marks=pytest.mark.spark),
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("mariadb", marks=pytest.mark.services),
]
# The same where no Spark is needed.
EVERY_WITHOUT_SPARK = [pytest.param("sqlite", marks=pytest.mark.plain), *EVERY[1:]]
# The servers in `make test-long` alone: what is shown of Spark is the same with each database.
MOSTLY_SQLITE = [
    EVERY[0],
    *(pytest.param(param.values[0], marks=[*param.marks, pytest.mark.long]) for param in EVERY[1:]),
]

# A statement of a test that waits for longer hangs.
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Database:
    """An empty database: how a sink names it, and how a test looks into it. In SQL, "x" is quoted as it wants."""

    kind: str
    place: str

    def sink(self, **options: Any) -> DatabaseSink:
        options = {"table": "result", "retry_seconds": 0.3, **options}
        if self.kind == "sqlite":
            return Sqlite(path=self.place, **options)
        if self.kind == "postgres":
            return Postgres(url=self.place, **options)
        from headrace.connectors.sql.mysql import MySql

        return MySql(url=self.place, **options)

    @property
    def name(self) -> str:
        """What the database is called in messages."""
        return {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MySQL"}[self.kind]

    def connect(self) -> Any:
        """A connection that commits each statement."""
        if self.kind == "sqlite":
            return sqlite3.connect(self.place, isolation_level=None)
        if self.kind == "postgres":
            limit = f"-c statement_timeout={1000 * PATIENCE_SECONDS}"
            return psycopg.connect(
                self.place, autocommit=True, connect_timeout=PATIENCE_SECONDS, options=limit, sslmode="disable"
            )
        parts = urlsplit(self.place)
        return pymysql.connect(
            host=parts.hostname or "",
            port=parts.port or 3306,
            user=parts.username,
            password=unquote(parts.password or ""),
            database=parts.path[1:],
            autocommit=True,
            read_timeout=PATIENCE_SECONDS,
            ssl_disabled=True,
        )

    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What a statement returns on a connection of its own."""
        if self.kind == "mariadb":
            statement = statement.replace('"', "`")
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement, *([values] if values else []))
            return list(map(tuple, cursor.fetchall())) if cursor.description else []

    def batches(self) -> list[tuple[int, int, int]]:
        """The ledger: batch, rows, rows quarantined."""
        return self.query("SELECT batch, row_count, quarantined FROM _headrace_ledger ORDER BY batch")  # type: ignore[return-value]

    def left_over(self) -> list[str]:
        """The staging tables or files that are there."""
        if self.kind == "sqlite":
            return [file.name for file in Path(self.place).parent.glob("*_headrace_s_*")]
        schema = "current_schema()" if self.kind == "postgres" else "database()"
        return [
            row[0]
            for row in self.query(
                f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema} "
                "AND table_name LIKE '%headrace\\_s\\_%'"
            )
        ]


def checkpoint_of(place: Path, identity: str, *, offsets: int, commits: int) -> None:
    """A checkpoint as Spark leaves it, over a source whose offset is the batch's number."""
    (place / "offsets").mkdir(parents=True, exist_ok=True)
    (place / "commits").mkdir(exist_ok=True)
    for number in range(offsets + 1):
        (place / "offsets" / str(number)).write_text(f'v2\n{{"batchWatermarkMs":0}}\nevents:{number}')
    for number in range(commits + 1):
        (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (place / "metadata").write_text(f'{{"id":"{identity}"}}')


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The database of the kind that the test's parameter names."""
    kind = request.param
    if kind == "sqlite":
        yield Database("sqlite", str(tmp_path / "result.db"))
    else:
        yield Database(kind, request.getfixturevalue(f"{kind}_url"))


@dataclass
class Life:
    """A query's life without a stream: batches are offered to the sink as Spark's foreachBatch offers them."""

    spark: SparkSession
    home: Path
    database: Database
    schema: str = "name STRING, total BIGINT"
    key: tuple[str, ...] = ("name",)
    mode: OutputMode = "update"
    query: str = "q"
    options: dict[str, Any] = field(default_factory=dict)
    errors: list[HeadraceError] = field(default_factory=list)
    noted: list[Finding] = field(default_factory=list)
    boundaries: list[tuple[str, int]] = field(default_factory=list)

    @property
    def sink(self) -> DatabaseSink:
        return self.database.sink(key=self.key, **self.options)

    @property
    def run(self) -> SinkContext:
        return SinkContext(
            query=self.query,
            generation=1,
            mode=self.mode,
            checkpoint=self.home / "checkpoint",
            on_boundary=lambda boundary, batch: self.boundaries.append((boundary, batch)),
            on_error=self.errors.append,
            on_warning=self.noted.append,
        )

    def begin(self, *, staged: bool = False) -> BatchWriter[Any]:
        """Prepare the sink; `staged`: even a few rows go by way of staging tables."""
        sink = self.sink
        writer = sink.open(self.frame([]), self.run)
        if staged:
            writer.store.stage = replace(writer.store.stage, driver_rows=0)
        return writer

    def frame(self, rows: Sequence[tuple[Any, ...]], *, partitions: int = 0) -> DataFrame:
        frame = self.spark.createDataFrame(list(rows), self.schema)
        return frame.repartition(partitions) if partitions else frame

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.sink.read_back(self.spark, self.run).rows.collect()), key=repr)

    def checkpoint(self, identity: str, *, offsets: int, commits: int) -> None:
        """A checkpoint as Spark leaves it."""
        checkpoint_of(self.run.checkpoint, identity, offsets=offsets, commits=commits)
