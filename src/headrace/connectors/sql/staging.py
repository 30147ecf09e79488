"""The rows of a batch, computed before its transaction: few through the driver, many by the executors in parallel.

A partition of few rows comes to the driver as it is. One of many is written by its own task into a staging table of
its own, and the driver gets the table's name: only the driver's transaction reads it. So the driver's memory does not
grow with the batch, and an attempt of a task that fails leaves nothing that could be taken for a result.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.dialect import STAGED_PREFIX, Dialect, StagedTable, StageError, Stager
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.limits import BadRow, Limit, bad_rows, mark_shared_keys, split_invalid
from headrace.connectors.sql.types import ResultColumn, flatten
from headrace.contract import DELETE_COLUMN, SinkContext
from headrace.spark.plans.analysed import analysed_plan
from headrace.spark.plans.plan_text import is_clustered, shuffled_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# What a task holds at once.
CHUNK_ROWS = 100_000
CHUNK_BYTES = 32 << 20
BAD_COLUMNS = ("reason", "row_values")
# Wide rows come through the driver up to this many bytes a partition.
DRIVER_BYTES = 8 << 20
# A batch that Spark takes for no larger is tried through the driver; if it has many rows all the same, it is computed
# once more.
TINY_BYTES = 1 << 20
_ROW_BITS = (1 << 33) - 1
_AT = "_headrace_at"
SHARED_KEY_FIX = "name columns in key that together identify a row of the result"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The batch and driver that rows are staged for, so that a late task sees in the ledger that it is too late."""

    context: SinkContext
    table: str
    epoch: int
    batch: int

    @classmethod
    def of(cls, context: SinkContext, table: str, epoch: int, batch: int) -> Turn:
        """Return a turn for the executors, with only the part of the context that the ledger needs."""
        reduced = SinkContext(
            query=context.query,
            query_id=context.query_id,
            generation=context.generation,
            mode=context.mode,
            checkpoint=Path(),
            application=context.application,
            rebuilds=context.rebuilds,
        )
        return cls(context=reduced, table=table, epoch=epoch, batch=batch)

    def is_over(self, dialect: Dialect) -> bool:
        """Whether the batch is in, or a newer driver writes."""
        with closing(dialect.connect()) as connection:
            ledger = Ledger(connection, dialect, self.context, self.table)
            return ledger.epoch() != self.epoch or ledger.lines_around(self.batch)[1] is not None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Computes the rows of a batch, in the driver or by tasks; it travels to the executors.

    clustered: rows of one key must come to one task, to be seen to share it. quarantines: rows that the table does
    not take are quarantined; else the first one ends the batch. driver_rows: up to so many rows a partition come
    through the driver. turn: whose rows these are, where an attempt may outlive its batch: one of two attempts of a
    task, or one on a machine that was not heard of for a while. widest: how many bytes of values one statement may
    hold, so that a partition with more is staged; None: any number. deletes: each row says in `DELETE_COLUMN` whether
    that of its key is deleted.
    """

    dialect: Dialect
    prefix: str
    columns: tuple[ResultColumn, ...]
    key: tuple[str, ...]
    limits: Mapping[str, Limit]
    clustered: bool
    quarantines: bool
    driver_rows: int
    widest: int | None = None
    turn: Turn | None = None
    deletes: bool = False

    @property
    def names(self) -> list[str]:
        """The columns of a flat frame."""
        return [*(column.name for column in self.columns), *([DELETE_COLUMN] if self.deletes else [])]

    @property
    def keeps_keys_whole(self) -> bool:
        """Whether the rows of one key are held at once."""
        return self.clustered

    def flat(self, frame: DataFrame) -> DataFrame:
        """Return the frame with nested values as JSON."""
        return flatten(frame, self.columns, also=self.names[len(self.columns) :])

    def reads_little(self, frame: DataFrame) -> bool:
        """Whether a batch is tiny, by the sizes of its files or of the shuffles before it."""
        if estimated_bytes(frame) <= TINY_BYTES:
            return True
        shuffled = shuffled_bytes(frame)
        return shuffled is not None and shuffled <= TINY_BYTES

    def compute_small(self, frame: DataFrame) -> Content | None:
        """Compute the batch through the driver; None when a partition has too many rows. It writes nothing.

        Spark computes every partition to its end, as it must for its state, but gives no more rows of each than fit.
        """
        import pyarrow.compute as pc

        # In SQL, since each function called in Python is some calls into the JVM; a tiny batch has no time for them.
        counted = self.flat(frame).selectExpr("*", f"monotonically_increasing_id() & {_ROW_BITS}L AS {_AT}")
        table = counted.where(f"{_AT} <= {self.driver_rows}").toArrow()
        if table.num_rows and pc.max(table.column(_AT)).as_py() >= self.driver_rows:
            return None
        if self.widest is not None and table.nbytes > self.widest:
            return None
        return self.content(table.drop_columns([_AT]))

    def compute_large(self, frame: DataFrame) -> Content:
        """Let the executors write the batch; raises StageError or RowError."""
        local = str(frame.sparkSession.sparkContext.master).startswith("local")
        if self.dialect.needs_shared_disk and not local:
            whole = replace(self, driver_rows=_ROW_BITS).compute_small(frame)
            if whole is not None:
                return whole
        from pyspark.sql.pandas.types import to_arrow_schema

        frame = self.arrange(frame)
        empty = to_arrow_schema(frame.schema, timezone="UTC").empty_table()
        # Spark's mapInArrow takes no column with a dot in its name.
        frame = frame.toDF(*[f"c{at}" for at in range(len(self.names))])
        # On this machine alone, no attempt outlives its batch.
        task = replace(self, turn=None) if local else self
        reports = frame.mapInArrow(task.stage, "report BINARY").toArrow().column("report").to_pylist()
        return join_reports(reports, empty.select([column.name for column in self.columns]))

    def arrange(self, frame: DataFrame) -> DataFrame:
        """Return the flat frame in the partitions and in the order in which its rows are staged."""
        return self.cluster(self.flat(frame))

    def cluster(self, frame: DataFrame) -> DataFrame:
        """Return the frame with the rows of one key in one partition, and each partition sorted, where it must be."""
        key = [f"`{name}`" for name in self.names if name in self.key]
        if self.clustered and not is_clustered(frame, self.key):
            frame = frame.repartition(*key)
        if self.dialect.most_parts is not None:
            frame = frame.coalesce(self.dialect.most_parts)
        if self.key and (self.dialect.wants_sorted or self.clustered):
            frame = frame.sortWithinPartitions(*[f"`{name}`" for name in self.key])
        return frame

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write one partition and report it: its content, or why it could not be written, pickled."""
        import pyarrow as pa

        # Raised, an error would come as Spark's text.
        if (report := self._write(batches)) is not None:
            yield pa.record_batch([pa.array([pickle.dumps(report)], pa.binary())], names=["report"])

    def content(self, table: pa.Table) -> Content:
        """Return what of a whole batch is written by the driver; raises RowError."""
        return self._content(*self.sift(table))

    def _content(self, table: pa.Table, bad: Sequence[BadRow]) -> Content:
        """Return rows with the keys of those that are deleted apart."""
        import pyarrow.compute as pc

        if not self.deletes:
            return Content(table=table, bad=tuple(bad))
        is_deleted = table.column(DELETE_COLUMN)
        rows = table.filter(pc.invert(is_deleted)).drop_columns([DELETE_COLUMN])
        return Content(table=rows, bad=tuple(bad), deleted=table.filter(is_deleted).select(list(self.key)))

    def sift(self, table: pa.Table) -> tuple[pa.Table, list[BadRow]]:
        """Return the rows of a whole batch that the table takes, and those that it does not; raises RowError."""
        table, bad = split_invalid(table, self.columns, self.limits)
        if self.key and table.num_rows > 1:
            table, doubled = self._split_doubles(table.sort_by([(name, "ascending") for name in self.key]))
            bad += doubled
        if bad and not self.quarantines:
            raise RowError(bad[0])
        return table, bad

    def _split_doubles(self, table: pa.Table) -> tuple[pa.Table, list[BadRow]]:
        """Return the rows of a sorted table with a key of their own, and the others."""
        import pyarrow.compute as pc

        twice = mark_shared_keys(table, self.key)
        if not pc.any(twice).as_py():
            return table, []
        doubled = table.filter(twice)
        reason = f"{'2' if doubled.num_rows == 2 else 'several'} rows share the key ({', '.join(self.key)}), as"
        bad = bad_rows(doubled, self.columns, [reason] * doubled.num_rows)
        return table.filter(pc.invert(twice)), [replace(row, fix=SHARED_KEY_FIX) for row in bad]

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Content | RowError | StageError | None:
        """Write one partition; None: it has no rows."""
        writing = _Writing(self, f"{self.prefix}{uuid.uuid4().hex[:12]}")
        try:
            for content in self.contents(self._chunks(batches)):
                if content.bad and not self.quarantines:
                    return RowError(content.bad[0])
                writing.add(content)
            return writing.end()
        except self.dialect.errors as error:
            return StageError(self.dialect.explain(error), self.dialect.is_transient(error))
        finally:
            writing.give_up()

    def contents(self, chunks: Iterator[pa.Table]) -> Iterator[Content]:
        """Yield what of each chunk of a partition is written."""
        for table in chunks:
            good, bad = split_invalid(table, self.columns, self.limits)
            if self.clustered:
                good, doubled = self._split_doubles(good)
                bad += doubled
            yield self._content(good, bad)

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield the partition in tables of bounded size; rows of one key stay together where they must."""
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            held.append(batch.rename_columns(self.names))
            rows += batch.num_rows
            size += batch.nbytes
            if rows < CHUNK_ROWS and size < CHUNK_BYTES:
                continue
            table = pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
            if self.keeps_keys_whole:
                first = _last_key_begins(table, self.key)
                if first == 0:
                    held, rows, size = table.to_batches(), table.num_rows, 0
                    continue
                rest = table.slice(first)
                held, rows, size = rest.to_batches(), rest.num_rows, 0
                table = table.slice(0, first)
            yield table
        if held:
            yield pa.Table.from_batches(held)


class _Writing:
    """The rows of one partition on their way: held while they are few, in staging tables when they are many."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.rows = self.bytes = self.bad_rows = self.deleted_rows = 0
        self.held: list[pa.Table] = []
        self.held_deleted: list[pa.Table] = []
        self.held_bad: list[BadRow] = []
        self.changes = GivenChanges()
        self.open: dict[str, Stager] = {}

    def add(self, content: Content) -> None:
        import pyarrow as pa
        from pyspark.sql.types import StringType

        good, bad = content.table, content.bad
        self.changes += content.changes
        self.rows += good.num_rows
        self.bytes += good.nbytes
        self.bad_rows += len(bad)
        self.held.append(good)
        self.held_bad += bad
        if self.rows > self.stage.driver_rows or self.bytes > min(DRIVER_BYTES, self.stage.widest or DRIVER_BYTES):
            for table in self.held:
                self._stager(self.name, self.stage.columns).add(table)
            self.held = [good.schema.empty_table()]
        if self.bad_rows > self.stage.driver_rows:
            columns = tuple(ResultColumn(name, "text", StringType()) for name in BAD_COLUMNS)
            values = {"reason": [row.reason for row in self.held_bad], "row_values": list(map(row_text, self.held_bad))}
            self._stager(f"{self.name}_bad", columns).add(pa.table(values))
            self.held_bad = []
        if content.deleted is not None:
            self.deleted_rows += content.deleted.num_rows
            self.held_deleted.append(content.deleted)
        if self.deleted_rows > self.stage.driver_rows:
            key = [column for column in self.stage.columns if column.name in self.stage.key]
            for table in self.held_deleted:
                self._stager(f"{self.name}_deleted", key).add(table.select([column.name for column in key]))
            self.held_deleted = []

    def _stager(self, name: str, columns: Sequence[ResultColumn]) -> Stager:
        if name not in self.open:
            self.open[name] = self.stage.dialect.stager(name, columns)
        return self.open[name]

    def end(self) -> Content | None:
        import pyarrow as pa

        for stager in self.open.values():
            stager.finish()
        self._drop_unread()
        parts = self._staged_tables(self.name, self.rows)
        bad_parts = self._staged_tables(f"{self.name}_bad", self.bad_rows)
        deleted_parts = self._staged_tables(f"{self.name}_deleted", self.deleted_rows)
        self.open = {}
        if not self.held:
            return None
        return Content(
            table=pa.concat_tables(self.held),
            parts=parts,
            bad=tuple(self.held_bad),
            bad_parts=bad_parts,
            deleted=pa.concat_tables(self.held_deleted) if self.held_deleted else None,
            deleted_parts=deleted_parts,
            changes=self.changes,
        )

    def _staged_tables(self, name: str, rows: int) -> tuple[StagedTable, ...]:
        return (StagedTable(name, rows),) if name in self.open else ()

    def _drop_unread(self) -> None:
        """Drop tables that the driver no longer reads.

        The driver commits a batch, and then drops all that was staged for it. An attempt that finishes later sees the
        commit here, and drops its own tables.
        """
        dialect, turn = self.stage.dialect, self.stage.turn
        if self.open and turn is not None and turn.is_over(dialect):
            with closing(dialect.connect()) as connection:
                dialect.drop_staged(connection, sorted(self.open))

    def give_up(self) -> None:
        for stager in self.open.values():
            with suppress(Exception):
                stager.give_up()


def row_text(row: BadRow) -> str:
    """Return the values of a row that was quarantined, as JSON; binary ones as hexadecimal digits."""
    return json.dumps(dict(row.values), default=bytes.hex, ensure_ascii=False)


def _last_key_begins(table: pa.Table, key: Sequence[str]) -> int:
    """Return the first row of the run of rows that share the key of the last row of a sorted table."""
    last = table.slice(table.num_rows - 1).select(list(key)).to_pylist()
    first = int(table.num_rows) - 1
    while first > 0 and table.slice(first - 1, 1).select(list(key)).to_pylist() == last:
        first -= 1
    return first


@dataclass(frozen=True)
class GivenChanges:
    """What of change data is in no row.

    given: how many changes came. truncates: the order and the sequence of each truncate. has_gaps: a row lacks values.
    """

    given: int = 0
    truncates: tuple[tuple[str, Any], ...] = ()
    has_gaps: bool = False

    def __add__(self, other: GivenChanges) -> GivenChanges:
        truncates = (*self.truncates, *other.truncates)
        return GivenChanges(self.given + other.given, truncates, self.has_gaps or other.has_gaps)


@dataclass(frozen=True, kw_only=True)
class Content:
    """A batch's rows: those that came to the driver, the staging tables of the others, and the rows quarantined.

    deleted, deleted_parts: the keys of the rows that are deleted.
    """

    table: pa.Table
    parts: tuple[StagedTable, ...] = ()
    bad: tuple[BadRow, ...] = ()
    bad_parts: tuple[StagedTable, ...] = ()
    deleted: pa.Table | None = None
    deleted_parts: tuple[StagedTable, ...] = ()
    changes: GivenChanges = GivenChanges()

    @property
    def rows(self) -> int:
        """How many rows are written, or deleted."""
        deleted = 0 if self.deleted is None else int(self.deleted.num_rows)
        return int(self.table.num_rows) + deleted + sum(part.rows for part in (*self.parts, *self.deleted_parts))

    @property
    def all_parts(self) -> tuple[StagedTable, ...]:
        """All staging tables."""
        return (*self.parts, *self.bad_parts, *self.deleted_parts)


class RowError(Exception):
    """A row that the table does not take."""

    def __init__(self, row: BadRow) -> None:
        super().__init__(row)
        self.fix = row.fix

    def __str__(self) -> str:
        row: BadRow = self.args[0]
        return f"{row.reason} in the row {row}"


def join_reports(reports: Iterable[bytes], empty: pa.Table) -> Content:
    """Join what all tasks have reported; raises RowError or StageError for what one of them could not write."""
    import pyarrow as pa

    contents = list(map(pickle.loads, reports))
    for kind in (RowError, StageError):
        if fault := next((content for content in contents if isinstance(content, kind)), None):
            raise fault
    tables = [content.table for content in contents if content.table.num_rows]
    deleted = [content.deleted for content in contents if content.deleted is not None]
    return Content(
        table=pa.concat_tables(tables) if tables else empty,
        parts=tuple(part for content in contents for part in content.parts),
        bad=tuple(row for content in contents for row in content.bad),
        bad_parts=tuple(part for content in contents for part in content.bad_parts),
        deleted=pa.concat_tables(deleted) if deleted else None,
        deleted_parts=tuple(part for content in contents for part in content.deleted_parts),
        changes=sum((content.changes for content in contents), GivenChanges()),
    )


def drop_staged(ledger: Ledger, epoch: int) -> None:
    """Drop the staging tables of this driver and of older ones; those of a newer one are not ours to drop."""
    prefix, dialect = _query_prefix(ledger.context), ledger.dialect
    epochs = {
        name: name.removeprefix(prefix).partition("_")[0] for name in dialect.staged_tables(ledger.connection, prefix)
    }
    old = [name for name, number in epochs.items() if not number.isdigit() or int(number) <= epoch]
    dialect.drop_staged(ledger.connection, old)


def staging_prefix(context: SinkContext, epoch: int) -> str:
    """Return how the names of the staging tables of one driver begin."""
    return f"{_query_prefix(context)}{epoch}_"


def _query_prefix(context: SinkContext) -> str:
    whose = f"{context.application}\n{context.query_id}\n{context.generation}"
    return f"{STAGED_PREFIX}{hashlib.sha256(whose.encode()).hexdigest()[:10]}_"


def estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's estimate of a batch's bytes, by its files; for other systems it is larger than any batch."""
    return int(analysed_plan(frame).stats().sizeInBytes())
