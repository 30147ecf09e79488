"""Change data without Spark: a feed, the table that it must give, and a life that applies it through crashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from shutil import rmtree
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types as T

from headrace.connectors.exactly_once import BatchWriter
from headrace.connectors.sql.change_rows import OLDER, OPERATION, ORDER, SEQUENCE
from headrace.connectors.sql.sink import DatabaseSink
from headrace.connectors.sql.staging import Content
from headrace.contract import CHANGE_COLUMN, ChangeCounts, ChangeOptions

from .databases import Database
from .fed import LifeWithoutSpark, stage_partitions

COLUMNS = ("id", "city", "note")
ZERO = 2**63


@dataclass(frozen=True)
class Change:
    """One change; `lacks`: the columns that it leaves as they are."""

    operation: str
    sequence: int
    offset: int
    id: int | None = None
    city: str | None = None
    note: str | None = None
    lacks: tuple[str, ...] = ()
    partition: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        return self.sequence, self.offset, self.partition

    @property
    def order_text(self) -> str:
        """The same as the sink has it."""
        sequence, offset, partition = (f"{number + ZERO:016X}" for number in self.order)
        return f"{sequence}!1{offset}{partition}"


Row = tuple[Any, ...]


def histories(changes: Iterable[Change], options: ChangeOptions) -> dict[int, list[tuple[int, Row | None]]]:
    """What each key is from each of its changes on, by the order of the changes; None: it is not there."""
    ordered = sorted(changes, key=lambda change: change.order)
    states: dict[int, list[tuple[int, Row | None]]] = {change.id: [] for change in ordered if change.id is not None}
    for change in ordered:
        for key, history in states.items():
            if change.operation == "truncate" or (change.id == key and change.operation == "delete"):
                history.append((change.sequence, None))
            elif change.id == key and change.operation == "upsert":
                former = history[-1][1] if history and history[-1][1] is not None else (key, None, None)
                values = [
                    was if name in change.lacks or (options.ignore_null_updates and new is None) else new
                    for name, was, new in zip(COLUMNS, former, (key, change.city, change.note), strict=True)
                ]
                history.append((change.sequence, (key, *values[1:])))
    return states


def newest_rows(changes: Iterable[Change], options: ChangeOptions) -> list[Row]:
    """The rows of type 1."""
    states = histories(changes, options).values()
    return sorted(history[-1][1] for history in states if history and history[-1][1] is not None)


def intervals(changes: Iterable[Change], options: ChangeOptions) -> list[Row]:
    """The rows of type 2, each with the sequences from and to which it held."""
    tracked, rows = options.tracked_columns(COLUMNS), []
    for history in histories(changes, options).values():
        at_last = [list(same)[-1] for _, same in groupby(history, key=lambda state: state[0])]
        current: list[Any] | None = None
        for sequence, row in at_last:
            values = None if row is None else [row[COLUMNS.index(name)] for name in tracked]
            if current is not None and values is not None and values == current[0]:
                current[1] = row
                continue
            if current is not None:
                rows.append((*current[1], current[2], sequence))
            current = None if row is None else [values, row, sequence]
        if current is not None:
            rows.append((*current[1], current[2], None))
    return sorted(rows, key=repr)


def change_options(**options: Any) -> ChangeOptions:
    """Options for the feed of these tests."""
    return ChangeOptions(keys=("id",), sequence_type="BIGINT", **options)


class Killed(BaseException):
    """The driver is gone: nothing is tidied up."""


@dataclass
class Doomed:
    """A connection whose process dies before its statement `left`, or right after it."""

    real: Any
    left: int
    after: bool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def cursor(self, *given: Any, **options: Any) -> Any:
        return _DoomedCursor(self, self.real.cursor(*given, **options))

    def strike(self, run: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left > 0:
            return run()
        if self.left == 0 and self.after:
            run()
        self.real.close()
        raise Killed


@dataclass
class _DoomedCursor:
    doomed: Doomed
    real: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, *given: Any, **options: Any) -> Any:
        return self.doomed.strike(lambda: self.real.execute(*given, **options))

    def executemany(self, *given: Any, **options: Any) -> Any:
        return self.doomed.strike(lambda: self.real.executemany(*given, **options))


@dataclass
class ChangeLife(LifeWithoutSpark):
    """A life whose batches are changes."""

    change_options: ChangeOptions = field(default_factory=change_options)
    counts: list[ChangeCounts] = field(default_factory=list)

    @property
    def sink(self) -> DatabaseSink:
        return cast(DatabaseSink, self.database.sink(**self.options).changes.bind(self.change_options))

    @property
    def run(self) -> Any:
        return replace(super().run, on_changes=lambda batch, counts: self.counts.append(counts))

    def frame(self, rows: Sequence[Any], *, partitions: int = 0) -> Any:
        schema = T.StructType(
            [
                T.StructField("id", T.LongType()),
                T.StructField("city", T.StringType()),
                T.StructField("note", T.StringType()),
                T.StructField(CHANGE_COLUMN, T.StringType()),
            ]
        )
        return Feed(schema, self._flat(rows))

    def _flat(self, rows: Sequence[Change]) -> pa.Table:
        values = {
            "id": pa.array([change.id for change in rows], pa.int64()),
            "city": pa.array([change.city for change in rows], pa.string()),
            "note": pa.array([change.note for change in rows], pa.string()),
            OPERATION: pa.array([change.operation for change in rows], pa.string()),
            ORDER: pa.array([change.order_text for change in rows], pa.string()),
            OLDER: pa.array([json.dumps(change.lacks) if change.lacks else None for change in rows], pa.string()),
        }
        if self.change_options.scd_type == 2:
            values[SEQUENCE] = pa.array([change.sequence for change in rows], pa.int64())
        return pa.table(values)

    def begin(self, *, staged: bool = False) -> BatchWriter[Any]:
        writer = super().begin(staged=staged)
        store = cast(Any, writer.store)

        def compute(frame: Feed, batch: int) -> Content:
            with store.computing(batch):
                if staged:
                    store._has_staged = True
                    return stage_partitions(store.stage, cast(Any, frame))
                return cast(Content, store.stage.content(frame.whole))

        store.compute = compute
        return writer

    def resume(self, batch: int, *, staged: bool = False) -> BatchWriter[Any]:
        """Start over a checkpoint whose next batch is this one."""
        rmtree(self.run.checkpoint, ignore_errors=True)
        self.checkpoint("one", offsets=batch, commits=batch - 1)
        return self.begin(staged=staged)

    def expected_rows(self, changes: Iterable[Change]) -> list[Row]:
        fold = intervals if self.change_options.scd_type == 2 else newest_rows
        return sorted(fold(changes, self.change_options), key=repr)

    def rows(self) -> list[Row]:
        """The rows as a plain client of the database reads them."""
        names = [*COLUMNS, *(("__START_AT", "__END_AT") if self.change_options.scd_type == 2 else ())]
        shown = ", ".join(f'"{name}"' for name in names)
        return sorted(self.database.query(f'SELECT {shown} FROM "{self.sink.table}"'), key=repr)

    def hidden_rows(self) -> list[Row]:
        """What the sink keeps of the order of rows and columns."""
        rows = self.database.query(f'SELECT "id", "__ORDER", "__OLDER" FROM "{self.sink.table}"')
        return self.sorted_orders(rows)

    @staticmethod
    def sorted_orders(rows: Iterable[Row]) -> list[Row]:
        """Keys with the orders of their rows and columns."""
        return sorted((key, order, json.dumps(json.loads(older or "{}"), sort_keys=True)) for key, order, older in rows)


@dataclass(frozen=True)
class Feed:
    """A batch of flat changes, with what a sink asks of a frame of Spark."""

    schema: T.StructType
    whole: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def partitions(self) -> tuple[pa.Table, ...]:
        return (self.whole,)


def cut(changes: Sequence[Change], places: Iterable[int]) -> Iterator[list[Change]]:
    """The changes in batches that begin at these places."""
    edges = sorted({0, len(changes), *(place % (len(changes) + 1) for place in places)})
    for first, last in pairwise(edges):
        yield list(changes[first:last])


FEED = (
    Change("upsert", 1, 0, 1, "I i İ ı ß", 'it\'s "a\\b"\t%s {x}'),
    Change("upsert", 2, 1, 2, "🎈", None),
    Change("delete", 4, 2, 1),
    Change("upsert", 3, 3, 1, "older than its delete", "NULL"),
    Change("upsert", 6, 4, 2, None, "newer", lacks=("city",)),
    Change("upsert", 5, 5, 2, "é€", "older, though what it has in `city` is the newest"),
    Change("truncate", -5, 6),
    Change("upsert", -6, 7, 3, "older than the truncate"),
    Change("upsert", 7, 8, -(2**63), "", "\\N"),
)


def apply_feed(database: Database, home: Path) -> None:
    """Show that a feed, in two batches, gives its rows and its intervals; nothing stays in the database."""
    for kind in (1, 2):
        options = {"rewindable": "1 day", "table": f"changed{kind}"}
        life = ChangeLife(cast(Any, None), home / f"changed{kind}", database, options=options)
        life.change_options = change_options(scd_type=kind)
        for batch, (changes, staged) in enumerate(((FEED[:6], True), (FEED[6:], False))):
            writer = life.resume(batch, staged=staged)
            writer(life.frame(changes), batch)
            cast(Any, writer.store).disconnect()
        assert life.rows() == life.expected_rows(FEED)
        life.sink.reset.archive(life.run, cast(Any, None))
        life.sink.reset.discard(life.run, cast(Any, None))
