"""One batch of a database's table, one transaction: the rows and the ledger's line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.connectors.exactly_once import Admission, BatchStore, Retry, Standing
from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.dialect import Connection, Dialect, PartLost, StageError, WriteTarget, run
from headrace.connectors.sql.faults import REFUSED_FIX
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.limits import BadRow
from headrace.connectors.sql.quarantine import KeySearch, QuarantineTable
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.row_writer import RowWriter, StatementWriter
from headrace.connectors.sql.staging import DRIVER_BYTES, Content, RowError, Stage, Turn, drop_staged
from headrace.connectors.sql.system_tables import QUARANTINE
from headrace.connectors.sql.transactions import Transaction
from headrace.contract import OptionError, SinkContext
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Enough(Exception):
    """The search has its answer: roll the transaction back."""


@dataclass(kw_only=True)
class SqlStore(BatchStore[Content]):
    """A table of a database as one start of a query writes it."""

    dialect: Dialect
    table: ResultTable
    context: SinkContext
    epoch: int
    stage: Stage
    retry: Retry
    # The result's schema, as long as the table lacks columns of it.
    widened: str | None = None
    # How long replaced rows are kept; 0: they are not.
    rewindable_seconds: float = 0.0
    name: str = field(init=False)
    _connection: Connection | None = field(default=None, init=False, repr=False)
    _transaction: Transaction = field(default_factory=Transaction, init=False, repr=False)
    # Whether the last batch had few rows; the next one is then tried through the driver first. None: there was none.
    _last_was_small: bool | None = field(default=None, init=False, repr=False)
    _batch: int = field(default=-1, init=False, repr=False)
    # Whether executors may have staged rows of the batch at hand.
    _has_staged: bool = field(default=False, init=False, repr=False)
    # Whether the database has refused a row of the batch, which is then written row by row.
    _is_refused: bool = field(default=False, init=False, repr=False)
    # Whether a row of the batch refers to a missing one, and whether that one was waited for.
    _lacks_parent: bool = field(default=False, init=False, repr=False)
    _has_waited: bool = field(default=False, init=False, repr=False)
    # The table of what the batches have replaced.
    _images: str | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = self.table.name

    def begin(self, frame: DataFrame, batch: int) -> None:
        if batch != self._batch:
            self._batch, self._transaction.is_in_doubt = batch, False
            self._is_refused = self._lacks_parent = self._has_waited = False

    def standing(self, batch: int, *, lock: bool = False) -> Standing:
        ledger = self._ledger()
        with self.dialect.single_transaction(ledger.connection):
            newest = ledger.epoch(lock=lock)
            if newest != self.epoch:
                return Standing(newer=f"epoch {newest}, this one has {self.epoch}")
            before, own = ledger.lines_around(batch)
        return Standing(is_in=own is not None, own=own, before=before)

    def kept_plan(self, batch: int) -> str | None:
        return self._ledger().kept_plan(batch)

    def compute(self, frame: DataFrame, batch: int) -> Content:
        """Return the rows of the batch, before the transaction begins, so that its lock is short."""
        content, is_small = None, self._last_was_small
        if is_small is None:
            # Of the first batch, only the size of its input is known; in complete mode the result may be larger. A
            # Python worker takes longer to start than a few rows take to be written here.
            is_small = self.context.mode != "complete" and self.stage.reads_little(frame)
        if is_small:
            with self.computing(batch):
                content = self.stage.compute_small(frame)
        if content is None:
            self._has_staged = True
            turn = Turn.of(self.context, self.table.name, self.epoch, batch)
            with self.computing(batch):
                content = replace(self.stage, turn=turn).compute_large(frame)
        self._last_was_small = not content.parts and content.table.nbytes <= DRIVER_BYTES
        return content

    def commit(self, rows: Content, batch: int, admit: Admission) -> None:
        try:
            self._commit(rows, batch, admit)
        except self.dialect.errors as error:
            self._lacks_parent = self.dialect.lacks_parent(error)
            raise

    def _commit(self, rows: Content, batch: int, admit: Admission) -> None:
        self.dialect.attach(self._connect(), rows.all_parts)
        try:
            self._transact(rows, batch, admit)
        except self.dialect.errors as error:
            if self._is_refused:
                raise
            is_awaited = self.dialect.lacks_parent(error) and not self._has_waited
            if is_awaited or not self.dialect.refusal(error):
                raise
            if self.stage.quarantines:
                self._is_refused = True
                self._transact(rows, batch, admit)
            elif (row := self._first_refused(rows)) is not None:
                fault = f"{self.dialect.name} refuses the row {row}: {row.reason}"
                raise SinkError(self._finding("HR408", batch, fault, REFUSED_FIX)) from error
            else:
                raise

    def _first_refused(self, rows: Content) -> BadRow | None:
        """Return the first row of the batch that the database refuses; the search is rolled back."""
        connection, first = self._connect(), list[BadRow]()

        def stop(bad: Iterable[BadRow]) -> int:
            for row in bad:
                first.append(row)
                raise _Enough
            return 0

        with suppress(_Enough, *self.dialect.errors), Transaction().begin(connection, self.dialect):
            if self.context.mode == "complete":
                run(connection, f"DELETE FROM {self.dialect.quote(self.table.name)}")
            self._search(rows, stop)
            raise _Enough
        return first[0] if first else None

    def _search(self, rows: Content, on_bad: Callable[[Iterable[BadRow]], int]) -> None:
        """Write rows one by one."""
        on_bad(self._delete(self._connect(), rows, by_rows=True))
        on_bad(self._writer(self._connect(), awaits=False).write(rows))

    def _writer(self, connection: Connection, *, awaits: bool) -> RowWriter:
        return RowWriter(connection=connection, dialect=self.dialect, target=self._target, awaits=awaits)

    def _key_search(self) -> KeySearch:
        return KeySearch(self._ledger(), self._target)

    def _shared_key(self, content: Content) -> tuple[str, str] | None:
        return self._key_search().shared_key(content, appends=self.context.mode == "append")

    @property
    def _target(self) -> WriteTarget:
        return self.table.target(replaces=self.context.mode == "update")

    def _transact(self, rows: Content, batch: int, admit: Admission) -> None:
        connection, bad = self._connect(), 0
        if not self.dialect.transactional_ddl:
            self._add_columns(connection)
        try:
            with self._transaction.begin(connection, self.dialect):
                # An earlier attempt may have been committed: its COMMIT was under way, or its answer was lost.
                admitted = admit(self.standing(batch, lock=True))
                self._transaction.is_in_doubt = False
                if admitted is None:
                    return
                ledger = self._ledger()
                if self.widened is not None:
                    self._add_columns(connection)
                    ledger.own(self.widened)
                written, bad = self._write(connection, batch, rows)
                self.context.on_boundary("inside-transaction", batch)
                ledger.add(admitted, epoch=self.epoch, rows=written, quarantined=bad)
            self.widened = None
        except Exception as error:
            if isinstance(error, self.dialect.errors) and self.dialect.is_part_lost(error):
                raise PartLost("a staging table is gone") from error
            shared = None
            if isinstance(error, self.dialect.duplicates) and not self.stage.quarantines:
                with suppress(*self.dialect.errors):
                    shared = self._shared_key(rows)
            if shared is not None:
                raise SinkError(self._finding("HR408", batch, *shared)) from error
            raise
        if bad:
            fault = f"{bad} rows of batch {batch} of query '{self.context.query}' do not fit table '{self.name}' and "
            fault += f"were quarantined in table '{QUARANTINE}'"
            fix = "look at their reasons there, and fix the query or the table"
            self.context.on_warning(Finding(code="HR412", what=fault, fix=fix))

    def release(self, rows: Content | None, error: Exception | None) -> None:
        """Drop the staging tables of this attempt and of abandoned ones; a failure does no harm.

        If the database does not answer, the next start drops them.
        """
        silent = error is not None and self.is_transient(error) and not isinstance(error, PartLost)
        silent = silent and not self._lacks_parent
        if self._has_staged and (rows is None or not silent):
            self._has_staged = False
            with suppress(*self.dialect.errors):
                drop_staged(self._ledger(), self.epoch)

    def disconnect(self) -> None:
        if self._connection is not None:
            with suppress(*self.dialect.errors):
                self._connection.close()
            self._connection = None

    def pauses(self) -> Iterator[float]:
        yield from self.retry.pauses()
        if self._lacks_parent:
            # The parent was not written: the last attempt identifies the row that lacks it.
            self._has_waited = True
            yield 0.0

    def _add_columns(self, connection: Connection) -> None:
        """Add the columns that the table lacks; where that commits by itself, it is done before the transaction."""
        there = self.dialect.describe_table(connection, self.table.name) if self.widened is not None else None
        for statement in self.table.additions(there, self.dialect) if there is not None else ():
            run(connection, statement)

    def _write(self, connection: Connection, batch: int, content: Content) -> tuple[int, int]:
        """Write the rows; returns how many came in, and how many were quarantined."""
        quarantine = QuarantineTable.next_to(self._ledger())
        bad, existing = 0, None
        if self.stage.quarantines and self.context.mode == "append" and self.table.key and not self._is_refused:
            content, existing = self._key_search().take_out_existing(content)
        if self.rewindable_seconds:
            self._before().keep_batch(batch, content)
        if self.context.mode == "complete":
            run(connection, f"DELETE FROM {self.dialect.quote(self.table.name)}")
            quarantine.clear()
        if self.stage.quarantines:
            bad += quarantine.add(batch, existing or ())
            bad += quarantine.add(batch, content.bad) + quarantine.merge(batch, content.bad_parts)
        kept = self._delete(connection, content, by_rows=self._is_refused)
        if self._is_refused:
            writer = self._writer(connection, awaits=not self._has_waited)
            refused = quarantine.add(batch, kept) + quarantine.add(batch, writer.write(content))
            return content.rows - refused, bad + refused
        if content.table.num_rows:
            self.dialect.write(connection, self._target, content.table)
        if content.parts:
            self.dialect.merge(connection, self._target, content.parts)
        return content.rows, bad

    def _delete(self, connection: Connection, content: Content, *, by_rows: bool) -> list[BadRow]:
        """Delete the rows whose keys the batch says; those that are not there are no fault.

        Return, where each is tried, those that the database does not let go.
        """
        dialect, sources = self.dialect, []
        for part in content.deleted_parts:
            dialect.require_whole(connection, part)
            sources.append(dialect.part_source(part))
        if content.deleted is not None and content.deleted.num_rows:
            sources.append(dialect.hold_keys(connection, self.name, self.table.key_columns, content.deleted))
        kept = list[BadRow]()
        for source in sources:
            statement = partial(dialect.delete_from, self.name, self.table.key)
            if by_rows:
                keys = replace(self._target, columns=self.table.key_columns)
                writer = StatementWriter(
                    connection=connection, dialect=dialect, target=keys, awaits=False, statement=statement
                )
                kept += writer.apply(source)
            else:
                run(connection, statement(f"SELECT {dialect.identifiers(self.table.key)} FROM {source}"))
        return kept

    def _before(self) -> BeforeImages:
        seconds = self.rewindable_seconds
        images = BeforeImages.of(self._ledger(), self.table, seconds, name=self._images)
        self._images = images.name
        return images

    # ------------------------------------------------------------------------------------------------- faults

    def is_transient(self, error: Exception) -> bool:
        if isinstance(error, StageError):
            return error.is_transient
        if isinstance(error, self.dialect.errors):
            return self.dialect.is_transient(error) or self.dialect.lacks_parent(error)
        return super().is_transient(error)

    def explain(self, error: Exception, batch: int) -> Exception:
        if isinstance(error, RowError):
            fix = f"{error.fix}; or filter such rows out; or set on_bad_row to quarantine, and they are quarantined"
            return SinkError(self._finding("HR408", batch, str(error), fix))
        problem: OptionError | None = None
        if isinstance(error, StageError):
            problem = error.problem
        elif isinstance(error, PartLost):
            problem = OptionError(code="HR405", what=str(error), fix="look into the database's log; then start again")
        elif isinstance(error, self.dialect.errors):
            problem = self.dialect.explain(error)
        return SinkError(self._finding(problem.code, batch, problem.what, problem.fix)) if problem else error

    def _finding(self, code: str, batch: int, fault: str, fix: str) -> Finding:
        return Finding(
            code=code, what=f"{self.fate(batch, is_in_doubt=self._transaction.is_in_doubt)}: {fault}", fix=fix
        )

    # ------------------------------------------------------------------------------------------- connections

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self.dialect.connect()
        return self._connection

    def _ledger(self) -> Ledger:
        return Ledger(self._connect(), self.dialect, self.context, self.table.name)
