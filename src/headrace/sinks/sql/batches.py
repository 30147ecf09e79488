"""One batch, one transaction: rows and ledger line are in together, once, and never from an older driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from headrace.contract import Problem, SinkRun
from headrace.errors import Fenced, Finding, HeadraceError, SinkFault
from headrace.sinks.sql.checkpoint_match import checkpoint_id, is_stateful
from headrace.sinks.sql.dialect import Connection, Dialect, identifiers, rows_of, run
from headrace.sinks.sql.ledger import Ledger
from headrace.sinks.sql.result_table import ResultTable
from headrace.sinks.sql.types import encode, flat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Below this many rows, sorting them costs more than it saves.
SORT_FROM_ROWS = 1_000


@dataclass(kw_only=True)
class BatchWriter:
    """Takes the batches of one start of a query, for Spark's foreachBatch."""

    dialect: Dialect
    table: ResultTable
    run: SinkRun
    epoch: int
    _connection: Connection | None = field(default=None, init=False, repr=False)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._take(frame, batch)
        except Exception as fault:
            self._disconnect()
            known = self._known(fault, batch)
            if isinstance(known, HeadraceError):
                self.run.failed(known)
            if known is fault:
                raise
            raise known from fault

    def _take(self, frame: DataFrame, batch: int) -> None:
        connection = self._connect()
        ledger = Ledger(connection, self.dialect)
        self._require_epoch(ledger.epoch(self.run.query), batch)
        if ledger.holds(self.run, batch):
            if is_stateful(self.run.checkpoint):
                # Spark commits the state of a batch only if every partition of it is computed.
                frame.write.format("noop").mode("overwrite").save()
            return
        rows = self._rows(frame, batch)
        checkpoint = checkpoint_id(self.run.checkpoint) or ""
        self.run.reached("before-transaction", batch)
        run(connection, self.dialect.begin_write)
        try:
            self._require_epoch(ledger.epoch(self.run.query, lock=True), batch)
            self._write(connection, rows)
            self.run.reached("inside-transaction", batch)
            ledger.add(self.run, batch, epoch=self.epoch, checkpoint=checkpoint, rows=len(rows))
            run(connection, "COMMIT")
        except BaseException as fault:
            with suppress(*self.dialect.errors):
                run(connection, "ROLLBACK")
            if isinstance(fault, self.dialect.duplicates) and (found := self._shared_key(connection, rows)):
                raise SinkFault(self._finding("HR408", batch, *found)) from fault
            raise
        self.run.reached("after-transaction", batch)

    def _rows(self, frame: DataFrame, batch: int) -> list[tuple[Any, ...]]:
        """The rows of the batch, computed before the transaction begins, so that the lock is short."""
        table = flat(frame, self.table.columns).toArrow()
        sort_by = self.table.key if table.num_rows >= SORT_FROM_ROWS else ()
        rows = encode(table, self.table.columns, sort_by=sort_by)
        if self.table.key:
            self._require_keys(rows, batch)
        return rows

    def _write(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        quoted = self.dialect.quote(self.table.name)
        if self.run.mode == "complete":
            run(connection, f"DELETE FROM {quoted}")
        if not rows:
            return
        if self.run.mode == "update":
            statement = self.dialect.upsert(self.table.name, self.table.names, self.table.key)
        else:
            marks = ", ".join([self.dialect.placeholder] * len(self.table.names))
            statement = f"INSERT INTO {quoted} ({identifiers(self.dialect, self.table.names)}) VALUES ({marks})"
        self.dialect.insert(connection, statement, rows)

    def _require_epoch(self, newest: int, batch: int) -> None:
        if newest != self.epoch:
            what = (
                f"a newer driver runs query '{self.run.query}' (epoch {newest}, this one has {self.epoch}); "
                f"batch {batch} of this one was not written"
            )
            raise Fenced(
                Finding(code="HR409", what=what, fix="let only one driver run the query; this one has stopped")
            )

    def _require_keys(self, rows: Sequence[tuple[Any, ...]], batch: int) -> None:
        places = [self.table.names.index(name) for name in self.table.key]
        for place in places:
            for row in rows:
                if row[place] is None:
                    column = self.table.names[place]
                    what = f"column '{column}' of the key is NULL in the row {self._shown(row)}"
                    raise SinkFault(
                        self._finding(
                            "HR408", batch, what, f"filter such rows out, or give them a value: coalesce({column}, ...)"
                        )
                    )
        if self.run.mode == "update":
            keys = list(map(itemgetter(*places), rows))
            if len(set(keys)) != len(keys):
                raise SinkFault(self._finding("HR408", batch, *self._shared_in(rows, places)))

    def _shared_key(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> tuple[str, str] | None:
        """Which row's key is there already: in the batch itself or in the table."""
        if not self.table.key:
            return None
        places = [self.table.names.index(name) for name in self.table.key]
        if len(set(map(itemgetter(*places), rows))) != len(rows):
            return self._shared_in(rows, places)
        condition = " AND ".join(f"{self.dialect.quote(name)} = {self.dialect.placeholder}" for name in self.table.key)
        statement = f"SELECT 1 FROM {self.dialect.quote(self.table.name)} WHERE {condition}"
        for row in rows:
            if list(rows_of(connection, statement, [row[place] for place in places])):
                what = f"the row {self._shown(row)} has a key that table '{self.table.name}' already holds"
                return what, "use mode update to replace rows, or a key that tells the rows apart"
        return None

    def _shared_in(self, rows: Sequence[tuple[Any, ...]], places: Sequence[int]) -> tuple[str, str]:
        key, count = Counter(map(itemgetter(*places), rows)).most_common(1)[0]
        row = next(row for row in rows if itemgetter(*places)(row) == key)
        what = f"{count} rows share the key ({', '.join(self.table.key)}), the first is {self._shown(row)}"
        return what, "make the key the columns that the query groups by"

    def _shown(self, row: tuple[Any, ...]) -> str:
        shown = dict(zip(self.table.names, row, strict=True))
        text = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"({text})" if len(text) <= 300 else f"({text[:300]}...)"

    def _finding(self, code: str, batch: int, what: str, fix: str) -> Finding:
        return Finding(code=code, what=f"batch {batch} of query '{self.run.query}' was not written: {what}", fix=fix)

    def _known(self, fault: Exception, batch: int) -> Exception:
        """A fault of the database in our words; a fault of Spark's or the user's as it is."""
        if isinstance(fault, HeadraceError) or not isinstance(fault, self.dialect.errors):
            return fault
        problem: Problem = self.dialect.explain(fault)
        return SinkFault(self._finding(problem.code, batch, problem.what, problem.fix))

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self.dialect.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(*self.dialect.errors):
                self._connection.close()
            self._connection = None
