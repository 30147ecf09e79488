"""What people write by hand, next to the sinks: foreachBatch row by row or by executemany, and Spark's JDBC writer."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.figures import Figure, Side
from benchmarks.processes import environment
from benchmarks.sinks_places import QUERY, TABLE, Place
from benchmarks.sinks_rows import KEY, Rows
from headrace.connectors.sql.dialect import WriteTarget
from headrace.contract import OutputMode, SinkContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Debian's packages libpostgresql-jdbc-java and libmariadb-java.
JARS = {"postgres": Path("/usr/share/java/postgresql.jar"), "mariadb": Path("/usr/share/java/mariadb-java-client.jar")}
# Row by row, two million would take the better part of an hour: so many are measured, and the rest is reckoned.
ROW_BY_ROW = 3_000
SMALL_ROWS, SMALL_BATCHES, WARM = 100, 40, 10


def jars() -> str:
    """The JDBC drivers that are installed, for Spark's setting `spark.jars`."""
    return ",".join(str(jar) for jar in JARS.values() if jar.exists())


@dataclass(frozen=True)
class Ways:
    """The other ways into one place; `rows` are fewer than `many`, those of the comparison with the raw load."""

    place: Place
    spark: SparkSession
    rows: Rows
    many: Rows
    runs: int

    def measure(self) -> Iterator[Figure]:
        frame = self.spark.read.parquet(str(self.rows.shuffled))
        number = self.rows.table.num_rows
        new: list[float] = []
        append: list[float] = []
        by_row: list[float] = []
        by_many: list[float] = []
        by_jdbc: list[float] = []
        jar = JARS.get(self.place.name)
        for _ in range(self.runs):
            new.append(next(self.place_batches(frame, "update")))
            by_row.append(self._by_hand(frame.limit(ROW_BY_ROW), self._row_by_row) * number / ROW_BY_ROW)
            by_many.append(self._by_hand(frame, self._executemany))
            if jar is not None and jar.exists():
                append.append(next(self.place_batches(frame, "append")))
                by_jdbc.append(self._by_hand(frame, self._jdbc))
        title = f"{self.place.title}: upsert of {number:,} new rows"
        yield Figure(
            name=f"{title}, against one statement a row",
            ours=Side.of(new),
            theirs=Side.of(by_row),
            against="foreachBatch that upserts row by row over one connection in autocommit",
            unit="s",
            target=0.1,
            note=f"the other side wrote {ROW_BY_ROW:,} rows; its time is multiplied up",
        )
        yield Figure(
            name=f"{title}, against executemany",
            ours=Side.of(new),
            theirs=Side.of(by_many),
            against="foreachBatch that upserts by executemany in one transaction",
            unit="s",
            target=round(1 / 1.5, 4),
        )
        if by_jdbc:
            yield Figure(
                name=f"{self.place.title}: append of {number:,} rows, against Spark's JDBC writer",
                ours=Side.of(append),
                theirs=Side.of(by_jdbc),
                against="foreachBatch with Spark's JDBC writer, which is not exactly once",
                unit="s",
            )
        yield self._small()
        yield self._memory()

    def place_batches(self, frame: DataFrame, mode: OutputMode) -> Iterator[float]:
        """The seconds of each batch of the same rows: the first finds an empty table, the next replace the rows."""
        return batches(self.place, frame, mode)

    # ------------------------------------------------------------------------------------------------ by hand

    def _by_hand(self, frame: DataFrame, write: Callable[[DataFrame], None]) -> float:
        self.place.clear()
        self.place.create(self.rows)
        self.place.settle()
        started = time.perf_counter()
        write(frame)
        took = time.perf_counter() - started
        self.place.require(frame.count())
        return took

    def _row_by_row(self, frame: DataFrame) -> None:
        with closing(self.place.connect()) as connection:
            cursor = connection.cursor()
            for row in frame.collect():
                cursor.execute(self._upsert(), tuple(map(self._plain, row)))

    def _executemany(self, frame: DataFrame) -> None:
        with closing(self.place.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            cursor.executemany(self._upsert(), [tuple(map(self._plain, row)) for row in frame.collect()])
            cursor.execute("COMMIT")

    def _jdbc(self, frame: DataFrame) -> None:
        parts = urlsplit(self.place.url)
        kind = {"postgres": "postgresql", "mariadb": "mariadb"}[self.place.name]
        options = {"user": parts.username or "", "password": parts.password or ""}
        drivers = {"postgres": "org.postgresql.Driver", "mariadb": "org.mariadb.jdbc.Driver"}
        more = {"batchsize": "10000", "driver": drivers[self.place.name]}
        # Spark quotes names as the standard says, which MariaDB takes only with a setting.
        extra = {
            "postgres": "reWriteBatchedInserts=true",
            "mariadb": "rewriteBatchedStatements=true&sessionVariables=sql_mode='ANSI_QUOTES'",
        }
        url = f"jdbc:{kind}://{parts.hostname}:{parts.port}{parts.path}?{extra[self.place.name]}"
        frame.write.mode("append").jdbc(url, TABLE, properties={**options, **more})

    def _upsert(self) -> str:
        target = WriteTarget(table=TABLE, columns=self.rows.result_columns, key=KEY, replaces=True)
        return self.place.sink().dialect().insert(target)

    def _plain(self, value: Any) -> Any:
        return value.isoformat(" ") if hasattr(value, "isoformat") else value

    # ------------------------------------------------------------------------------------ small batches, memory

    def _small(self) -> Figure:
        """The sink's time of a batch of 100 rows, in a stream, against that of Spark's sink that does nothing."""
        frame = self.spark.range(0, SMALL_ROWS, 1, 2).selectExpr(
            "concat('device-', id) device", "timestamp_millis(id) begins", "timestamp_millis(id) ends", "id total"
        )
        above, noop = [], []
        for _ in range(self.runs):
            ours = batches(self.place, frame, "update", settles=False)
            pairs = []
            for _ in range(SMALL_BATCHES):
                started = time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                nothing = time.perf_counter() - started
                pairs.append((next(ours) * 1000, nothing * 1000))
            warm = pairs[WARM:]
            noop.append(statistics.median(nothing for _, nothing in warm))
            above.append(statistics.median(took for took, _ in warm) - noop[-1])
        return Figure(
            name=f"{self.place.title}: a batch of {SMALL_ROWS} rows, above a sink that does nothing",
            ours=Side.of(above),
            theirs=Side.of(noop),
            against="the same rows into Spark's noop sink; ours is the difference",
            unit="ms",
            target=30.0,
            target_of="ours",
            note=f"medians of {SMALL_BATCHES - WARM} batches in turn, after {WARM} to warm up",
        )

    def _memory(self) -> Figure:
        """How much larger the driver's process gets by many rows than by few."""
        few, many = [], []
        for _ in range(self.runs):
            few.append(self._peak(min(2_000, self.many.table.num_rows)))
            many.append(self._peak(self.many.table.num_rows))
        return Figure(
            name=f"{self.place.title}: memory of the driver's process, {self.many.table.num_rows:,} rows above 2,000",
            ours=Side.of([large - small for large, small in zip(many, few, strict=True)]),
            theirs=Side.of(few),
            against="the peak of the driver's Python process with 2,000 rows; ours is what more rows add to it",
            unit="MB",
            target=100.0,
            target_of="ours",
        )

    def _peak(self, number: int) -> float:
        command = [sys.executable, "-m", "benchmarks.sinks_memory", self.place.name, self.place.url]
        self.place.clear()
        done = subprocess.run(
            [*command, str(self.many.shuffled), str(number)],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        self.place.require(number)
        return float(done.stdout.splitlines()[-1])


def batches(
    place: Place, frame: DataFrame, mode: OutputMode, *, settles: bool = True, rewindable: str | None = None
) -> Iterator[float]:
    """The seconds of each batch of the same rows: the first finds an empty table, the next ones replace the rows."""
    place.clear()
    sink = replace(place.sink(), rewindable=rewindable)
    run = SinkContext(query=QUERY, generation=1, mode=mode, checkpoint=place.scratch / "checkpoint")
    writer = sink.open(frame, run)
    for batch in count():
        if settles:
            place.settle()
        started = time.perf_counter()
        writer(frame, batch)
        yield time.perf_counter() - started
