"""A query run again as a stream, over the batches that it has committed, into a temporary directory.

State functions have no batch form, and what an outer join or a session gives out depends on when the watermark moved. A
second run with the same batches and the same watermarks shows what the sink must hold. The rows of a batch are moved
into the directory that the stream reads while the batch before is being written, so that Spark makes the batches that
the checkpoint has, those without data among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.checkpoint import Archive, Checkpoint, watermarks
from headrace.checkpoint.sources import source_of
from headrace.errors import CheckFailed, Finding
from headrace.frames.plan_builder import build
from headrace.model import Query
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.jvm.settings import CHECKPOINT_FORMAT, is_local
from headrace.spark.plans.plan_rewrite import BATCH
from headrace.storage.private import scratch
from headrace.verifier.answer import BatchQuery, is_untimed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# More take too long: Spark needs a few tenths of a second for a batch, whatever it holds.
MOST_BATCHES = 1_000
_ORDER = "__headrace_order"
_UNNAMED = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    CHECKPOINT_FORMAT: "1",
    "spark.sql.streaming.fileSource.cleaner.numThreads": "0",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """Another run of a query over its committed prefix.

    left_out: batches in which Spark only moved state.
    conf: the settings that the checkpoint keeps.
    """

    batch_query: BatchQuery
    left_out: frozenset[int]
    conf: Mapping[str, str]

    def obstacle(self) -> Finding | None:
        """Return why the query cannot be run again."""
        prefixes, versions = self.batch_query.prefix, self.batch_query.versions
        if self.batch_query.replayed is not None:
            return self._impossible("late rows were brought back into its result")
        for use, prefix in prefixes.sources.items():
            first = prefixes.sources[source_of(use)]
            if prefix.batches != first.batches or {*prefix.log} != {*first.log}:
                return self._impossible(f"the uses of source '{source_of(use)}' got its rows in different batches")
        if len(versions.all) > 1:
            return self._impossible("its refreshed tables changed between its batches")
        if (count := len(prefixes.watermarks)) > MOST_BATCHES:
            return self._impossible(f"{count:,} batches would take too long (at most {MOST_BATCHES:,})")
        return None

    @contextmanager
    def rows(self, *, reordered: bool = False) -> Iterator[DataFrame]:
        """Yield what the sink must hold after the last batch; to be read inside.

        reordered: the rows of each batch come in another order. Raises CheckFailed when Spark makes other batches, or
        has other watermarks, than the checkpoint has.
        """
        spark, storage = self.batch_query.spark, self.batch_query.project.storage
        retained = {"spark.sql.streaming.minBatchesToRetain": str(len(self.batch_query.prefix.watermarks) + 10)}
        # Executors elsewhere see the project's storage, and not this machine's own directories.
        local = is_local(spark.sparkContext.master or "")
        if not local:
            storage.mkdir(parents=True, exist_ok=True)
        with apply_settings(spark, {**self.conf, **_UNNAMED, **retained}), scratch(None if local else storage) as home:
            yield self._run(home, reordered=reordered)

    def _run(self, home: Path, *, reordered: bool) -> DataFrame:
        from pyspark.sql.types import LongType, StructField, StructType

        spark, query, prefix = self.batch_query.spark, self.batch_query.query, self.batch_query.prefix
        steps = [batch for batch in sorted(prefix.watermarks) if batch not in self.left_out]
        sources = {name: source for name, source in prefix.sources.items() if source_of(name) == name}
        gates = [_Gate(home / "staged" / name, home / "landing" / name) for name in sources]
        new = [
            {batch.batch for batch in source.batches if batch.end is not None and batch.end != batch.start}
            for source in sources.values()
        ]
        schemas = {
            name: gate.fill(spark, self._batches(name), batches, reordered=reordered)
            for name, gate, batches in zip(sources, gates, new, strict=True)
        }

        def release(number: int) -> None:
            if number < len(steps):
                for gate, batches in zip(gates, new, strict=True):
                    if steps[number] in batches:
                        gate.open(steps[number])

        def write(rows: DataFrame, number: int) -> None:
            if number < len(steps):
                rows.write.mode("overwrite").parquet(str(home / "result" / f"{BATCH}={number}"))
            else:  # A batch beyond them is not kept; but it must be computed, or it commits no state and fails.
                rows.write.format("noop").mode("overwrite").save()
            release(number + 1)

        frame = build(
            self.batch_query.project,
            query.transform,
            spark,
            lambda source: spark.readStream.schema(schemas[source.name]).parquet(str(home / "landing" / source.name)),
            self.batch_query.versions.last.tables,
        )
        release(0)
        writer = frame.writeStream.outputMode(query.mode).option("checkpointLocation", str(home / "checkpoint"))
        running = writer.foreachBatch(write).start()
        try:
            running.processAllAvailable()
        finally:
            running.stop()
        self._require_same(home / "checkpoint", steps)
        shape = StructType([*frame.schema, StructField(BATCH, LongType())])
        rows = spark.createDataFrame([], shape)
        if (home / "result").exists():
            rows = spark.read.schema(shape).parquet(str(home / "result"))
        return _final_rows(rows, frame.columns, query, self.batch_query.key, len(steps) - 1)

    def count_rows_read(self) -> tuple[int, int]:
        """Count the rows that the sources gave in all batches, and those without an event time."""
        from pyspark.sql import functions as F

        counts = []
        for name in self.batch_query.prefix.sources:
            untimed = F.count_if(is_untimed(self.batch_query.project.sources[source_of(name)]))
            counts += self._batches(name).agg(F.count("*"), untimed).collect()
        return sum(rows for rows, _ in counts), sum(untimed for _, untimed in counts)

    def _batches(self, name: str) -> DataFrame:
        connector = self.batch_query.project.sources[source_of(name)].connector
        return connector.read(self.batch_query.spark, self.batch_query.prefix.sources[name], batch_column=BATCH)

    def _require_same(self, checkpoint: Path, steps: Sequence[int]) -> None:
        made = Checkpoint(checkpoint)
        if (made.last_committed or 0) < len(steps) - 1:
            raise CheckFailed(self._impossible("Spark makes other batches of its rows now"))
        again = watermarks(made, Archive(checkpoint / "archive.jsonl"), len(steps) - 1)
        for number, batch in enumerate(steps):
            if again[number].evict_ms != self.batch_query.prefix.watermarks[batch].evict_ms:
                raise CheckFailed(self._impossible(f"its watermark in batch {batch} was another one than it is now"))

    def _impossible(self, why: str) -> Finding:
        return self.batch_query.query.finding(
            "HR715",
            f"cannot be run again over its batches: {why}",
            "compare the differing rows below by hand, or reset the query (headrace reset QUERY) and verify sooner",
        )


@dataclass(frozen=True)
class _Gate:
    """The batches of one source as files, and the directory that the stream reads."""

    staged: Path
    landing: Path

    def fill(self, spark: SparkSession, rows: DataFrame, batches: set[int], *, reordered: bool) -> StructType:
        """Write the rows of all `batches`; return the schema of their rows."""
        from pyspark.sql import functions as F

        visible = rows.drop(BATCH)
        if reordered:
            # Backwards, so that of any two rows the other one comes first.
            rows = rows.withColumn(_ORDER, F.monotonically_increasing_id()).repartition(1)
            rows = rows.sortWithinPartitions(BATCH, F.desc(_ORDER)).drop(_ORDER)
        self.landing.mkdir(parents=True)
        rows.write.partitionBy(BATCH).parquet(str(self.staged / "batches"))
        if not all(self._place(batch).is_dir() for batch in batches):
            visible.limit(0).coalesce(1).write.parquet(str(self.staged / "empty"))
        return visible.schema

    def _place(self, batch: int) -> Path:
        """Return the directory of a batch's rows, if it has any."""
        return self.staged / "batches" / f"{BATCH}={batch}"

    def open(self, batch: int) -> None:
        """Let the rows of `batch` in: at least one file, since Spark counts a file without rows as new too."""
        files = sorted(self._place(batch).glob("*.parquet"))
        for index, file in enumerate(files):
            file.rename(self.landing / f"{batch:09d}-{index:05d}.parquet")
        if not files:
            empty = next((self.staged / "empty").glob("*.parquet"))
            hidden = self.landing / f".{batch:09d}"
            hidden.write_bytes(empty.read_bytes())
            hidden.rename(self.landing / f"{batch:09d}-empty.parquet")


def _final_rows(rows: DataFrame, columns: Sequence[str], query: Query, key: tuple[str, ...], last: int) -> DataFrame:
    """Return the rows that a sink of this mode and key holds after all batches."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if query.mode == "complete":
        rows = rows.where(F.col(BATCH) == last)
    elif query.mode == "update" and key:
        newest = Window.partitionBy(*[F.col(f"`{name}`") for name in key]).orderBy(F.desc(BATCH))
        rows = rows.withColumn(_ORDER, F.rank().over(newest)).where(F.col(_ORDER) == 1)
    return rows.select(*[F.col(f"`{name}`") for name in columns])


def settings_of(checkpoint: Checkpoint, through: int) -> Mapping[str, str]:
    """Return the settings that the checkpoint keeps for its state."""
    entry = checkpoint.offset(through)
    return {} if entry is None else {key: value for key, value in entry.conf.items() if key.startswith("spark.sql.")}
