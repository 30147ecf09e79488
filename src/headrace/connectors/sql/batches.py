"""One batch, one transaction: rows and ledger line are in together, once, and never from an older driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint, chained, planned_batch
from headrace.connectors.exactly_once import is_same_batch, other_batch
from headrace.connectors.exactly_once.checkpoint_match import checkpoint_id, is_stateful, watermark_of
from headrace.connectors.sql.dialect import Connection, Dialect, PartLost, StageError, Target, run
from headrace.connectors.sql.ledger import Entry, Ledger
from headrace.connectors.sql.prepare import drop_staged
from headrace.connectors.sql.quarantine import Quarantine
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.retry import Retry
from headrace.connectors.sql.shared_key import shared_key, take_out_existing
from headrace.connectors.sql.staging import DRIVER_BYTES, Content, RowError, Stage
from headrace.contract import OptionError, SinkContext
from headrace.errors import Fenced, Finding, HeadraceError, SinkError
from headrace.spark.python_worker import worker_died

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOT_WRITTEN = "batch {} of query '{}' was not written"


@dataclass(kw_only=True)
class BatchWriter:
    """Takes the batches of one start of a query, for Spark's foreachBatch."""

    dialect: Dialect
    table: ResultTable
    run: SinkContext
    epoch: int
    stage: Stage
    retry: Retry
    # The result's schema, as long as the table lacks columns of it.
    widened: str | None = None
    _connection: Connection | None = field(default=None, init=False, repr=False)
    # Whether the last batch had few rows; the next one is then tried through the driver first.
    _last_was_small: bool = field(default=False, init=False, repr=False)
    # Whether a COMMIT was sent of which nothing is known.
    _in_doubt: bool = field(default=False, init=False, repr=False)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        pauses, content, self._in_doubt = self.retry.pauses(), _Computed(), False
        while True:
            try:
                return self._take(frame, batch, content)
            except Exception as fault:
                self._disconnect()
                passes, known = self._passes(fault), self._known(fault, batch)
                pause = next(pauses, None) if passes else None
                if pause is None:
                    if isinstance(known, HeadraceError):
                        self.run.failed(known)
                    if known is fault:
                        raise
                    raise known from None
                self._tell_retry(known, batch, pause)
                time.sleep(pause)

    def _take(self, frame: DataFrame, batch: int, computed: _Computed) -> None:
        connection = self._connect()
        ledger = Ledger(connection, self.dialect, self.run, self.table.name)
        self._require_epoch(ledger.epoch(), batch)
        if computed.plan is None:
            computed.plan = _Plan.of(self.run, batch)
        if self._is_in(ledger, batch, computed.plan):
            if computed.content is None and is_stateful(self.run.checkpoint):
                # Spark commits the state of a batch only if every partition of it is computed.
                with self._computing(batch):
                    frame.write.format("noop").mode("overwrite").save()
            self._drop_staged(connection, computed)
            return
        try:
            if computed.content is None:
                computed.content = self._compute(frame, batch, computed)
            self._transact(connection, ledger, batch, computed.content, computed.plan)
        except Exception as fault:
            if computed.content is None or not self._passes(fault) or isinstance(fault, PartLost):
                self._drop_staged(connection, computed)
                computed.content = None
            raise
        self._drop_staged(connection, computed)

    def _compute(self, frame: DataFrame, batch: int, computed: _Computed) -> Content:
        """The rows of the batch, before the transaction begins, so that its lock is short."""
        content = None
        if self._last_was_small:
            with self._computing(batch):
                content = self.stage.small(frame)
        if content is None:
            computed.staged = True
            with self._computing(batch):
                content = self.stage.large(frame)
        self._last_was_small = not content.parts and content.table.nbytes <= DRIVER_BYTES
        return content

    @contextmanager
    def _computing(self, batch: int) -> Iterator[None]:
        """Tell that the rows are computed, and whether to their end."""
        whole = False
        try:
            yield
            whole = True
        finally:
            self.run.computed(batch, whole)

    def _is_in(self, ledger: Ledger, batch: int, plan: _Plan) -> bool:
        """Whether the ledger has this very batch; raises CheckpointError where it has another of its number."""
        before, line = ledger.around(batch)
        if line is None:
            return False
        if not is_same_batch(line, before, plan.digest):
            raise other_batch(self.run, self.table.name, batch, ledger.planned(batch))
        return True

    def _transact(self, connection: Connection, ledger: Ledger, batch: int, content: Content, plan: _Plan) -> None:
        self.dialect.attach(connection, (*content.parts, *content.bad_parts))
        self.run.secured(batch)
        self.run.reached("before-transaction", batch)
        if not self.dialect.transactional_ddl:
            self._add_columns(connection)
        run(connection, self.dialect.begin_write)
        try:
            self._require_epoch(ledger.epoch(lock=True), batch)
            if self._is_in(ledger, batch, plan):
                # An earlier attempt came through after all: its COMMIT was still under way, or its answer was lost.
                run(connection, "ROLLBACK")
                return
            self._in_doubt = False
            if self.widened is not None:
                self._add_columns(connection)
                ledger.own(self.widened)
            before, _ = ledger.around(batch)
            written, bad = self._write(connection, batch, content)
            self.run.reached("inside-transaction", batch)
            entry = Entry(
                batch=batch,
                epoch=self.epoch,
                checkpoint=checkpoint_id(self.run.checkpoint) or "",
                rows=written,
                quarantined=bad,
                watermark=watermark_of(self.run.checkpoint, batch),
                digest=plan.digest,
                chain=chained(before.chain if before else None, plan.digest) if plan.digest else None,
                planned=plan.text,
            )
            ledger.add(entry)
            self._in_doubt = True
            run(connection, "COMMIT")
            self._in_doubt, self.widened = False, None
        except BaseException as fault:
            with suppress(*self.dialect.errors):
                run(connection, "ROLLBACK")
                # The connection still answers: the COMMIT, if one was sent, was refused.
                self._in_doubt = False
            if isinstance(fault, self.dialect.errors) and self.dialect.is_part_lost(fault):
                raise PartLost("a staging table has gone") from fault
            if isinstance(fault, self.dialect.duplicates) and (found := self._shared_key(connection, content)):
                raise SinkError(self._finding("HR408", batch, *found)) from fault
            raise
        if bad:
            self._tell_quarantined(batch, bad)
        self.run.reached("after-transaction", batch)

    def _add_columns(self, connection: Connection) -> None:
        """Add the columns that the table still lacks; a database that commits this by itself has it done before."""
        there = self.dialect.existing(connection, self.table.name) if self.widened is not None else None
        for statement in self.table.additions(there, self.dialect) if there is not None else ():
            run(connection, statement)

    def _write(self, connection: Connection, batch: int, content: Content) -> tuple[int, int]:
        """Write the rows; returns how many came in, and how many were set aside."""
        target = self._target()
        quarantine = Quarantine(connection, self.dialect, self.run, self.table.name)
        if self.run.mode == "complete":
            run(connection, f"DELETE FROM {self.dialect.quote(self.table.name)}")
            quarantine.clear()
        bad = 0
        if self.stage.quarantines:
            if self.run.mode == "append" and self.table.key:
                content, existing = take_out_existing(connection, self.dialect, target, content)
                bad += quarantine.add(batch, existing)
            bad += quarantine.add(batch, content.bad) + quarantine.merge(batch, content.bad_parts)
        if content.table.num_rows:
            self.dialect.write(connection, target, content.table)
        if content.parts:
            self.dialect.merge(connection, target, content.parts)
        return content.rows, bad

    def _target(self) -> Target:
        return Target(
            table=self.table.name,
            columns=self.table.columns,
            key=self.table.key,
            replaces=self.run.mode == "update",
        )

    def _shared_key(self, connection: Connection, content: Content) -> tuple[str, str] | None:
        """Which row's key is there already: in the batch itself or in the table."""
        with suppress(*self.dialect.errors):
            return shared_key(connection, self.dialect, self._target(), content)
        return None

    def _require_epoch(self, newest: int, batch: int) -> None:
        if newest != self.epoch:
            what = (
                f"a newer driver runs query '{self.run.query}' (epoch {newest}, this one has {self.epoch}); "
                f"batch {batch} of this one was not written"
            )
            raise Fenced(
                Finding(code="HR409", what=what, fix="let only one driver run the query; this one has stopped")
            )

    # ------------------------------------------------------------------------------------------------- faults

    def _passes(self, fault: Exception) -> bool:
        """Whether the batch may be tried again: nothing of it is in, or the ledger will tell that it is."""
        if isinstance(fault, StageError):
            return fault.passes
        if isinstance(fault, PartLost):
            return True
        if isinstance(fault, self.dialect.errors):
            return self.dialect.passes(fault)
        return worker_died(str(fault))

    def _known(self, fault: Exception, batch: int) -> Exception:
        """A fault of the database in our words; a fault of Spark's or the user's as it is."""
        if isinstance(fault, RowError):
            columns = ", ".join(self.table.key) or "..."
            fix = (
                f"filter such rows out, or give them a value: coalesce({columns}, ...); "
                "or set on_bad_row to quarantine, and they are set aside"
            )
            if "share the key" in str(fault):
                fix = "make the key the columns that the query groups by"
            return SinkError(self._finding("HR408", batch, str(fault), fix))
        problem: OptionError | None = None
        if isinstance(fault, StageError):
            problem = fault.problem
        elif isinstance(fault, PartLost):
            problem = OptionError(code="HR405", what=str(fault), fix="look into the database's log; then start again")
        elif isinstance(fault, self.dialect.errors):
            problem = self.dialect.explain(fault)
        return SinkError(self._finding(problem.code, batch, problem.what, problem.fix)) if problem else fault

    def _finding(self, code: str, batch: int, what: str, fix: str) -> Finding:
        known = "it is not known whether batch {} of query '{}' was written" if self._in_doubt else _NOT_WRITTEN
        return Finding(code=code, what=f"{known.format(batch, self.run.query)}: {what}", fix=fix)

    def _tell_retry(self, fault: Exception, batch: int, pause: float) -> None:
        cause = fault.findings[0].what if isinstance(fault, HeadraceError) else "a Python worker of Spark died"
        self.run.noted(
            Finding(
                code="HR411",
                what=f"{cause}; batch {batch} is tried again in {pause:.1f} s",
                fix="nothing, if the next batches come in",
            )
        )

    def _tell_quarantined(self, batch: int, bad: int) -> None:
        self.run.noted(
            Finding(
                code="HR412",
                what=f"{bad} rows of batch {batch} of query '{self.run.query}' do not fit table '{self.table.name}' "
                f"and were set aside in table '{Quarantine.TABLE}'",
                fix="look at their reasons there, and mend the query or the table",
            )
        )

    # -------------------------------------------------------------------------------------------- connections

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self.dialect.connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(*self.dialect.errors):
                self._connection.close()
            self._connection = None

    def _drop_staged(self, connection: Connection, computed: _Computed) -> None:
        """Drop what was staged, by this attempt and by others that were given up; a failure does no harm."""
        if not computed.staged:
            return
        with suppress(*self.dialect.errors):
            drop_staged(connection, self.dialect, self.run, self.epoch)


@dataclass(frozen=True)
class _Plan:
    """What the checkpoint plans for a batch: its digest, and the text to plan it again from; None without a stream."""

    digest: str | None
    text: str | None

    @classmethod
    def of(cls, context: SinkContext, batch: int) -> _Plan:
        found = planned_batch(Checkpoint(context.checkpoint), batch)
        return cls(None, None) if found is None else cls(found.digest(context.roots), found.dumps())


@dataclass
class _Computed:
    """The rows of the batch at hand, kept from one attempt to the next, and whether executors may have staged any."""

    plan: _Plan | None = None
    content: Content | None = None
    staged: bool = False
