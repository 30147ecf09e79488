"""One batch, one version of a Delta table: once, and never from an older driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.connectors.delta import ledger
from headrace.connectors.delta.ledger import Progress
from headrace.connectors.delta.table import CONFLICTS, NOTE, DeltaTable, at_path
from headrace.connectors.exactly_once import Admission, BatchStore, Conflict, KeptLine, Standing
from headrace.connectors.spark_catalog import quote
from headrace.connectors.spark_files.formats import find_refused_partitions, refuse_values
from headrace.contract import RefusedValue, SinkContext
from headrace.errors import HeadraceError, SinkError
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_CONSTRAINTS = (
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    "EXCEED_LIMIT_LENGTH",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
)
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


@dataclass(kw_only=True)
class DeltaStore(BatchStore["DataFrame"]):
    """A Delta table as one start of a query writes it; each batch is one version.

    Delta computes the rows while it writes them, so that each attempt computes them again.
    """

    location: str
    name: str
    key: Sequence[str]
    context: SinkContext
    epoch: int
    last: KeptLine | None = None
    # The columns that the table still lacks, as SQL declares them.
    added: Sequence[str] = ()
    _table: DeltaTable | None = field(default=None, init=False, repr=False)
    # What the table had of the query when it was last looked at, and what the ledger says by it.
    _progress: Progress = field(default=ledger.NOT_BEGUN, init=False)
    _standing: Standing = field(default=Standing(), init=False)
    _persisted: DataFrame | None = field(default=None, init=False, repr=False)
    _knows_checkpoint: bool = field(default=False, init=False)

    def begin(self, frame: DataFrame, batch: int) -> None:
        self._table = at_path(frame.sparkSession, self.location, SinkError)
        if self._table is None:
            fault, fix = f"{self.name} is no longer there", "put it back, or reset the query (headrace reset QUERY)"
            raise SinkError(code="HR405", what=fault, fix=fix)

    def standing(self, batch: int) -> Standing:
        state = self._known_table.now()
        progress = self._progress = ledger.progress(self.context, state.txn_ids)
        self._standing = Standing(newer=self._newer(progress), before=self.last)
        if progress.batch is not None and progress.batch >= batch:
            # As many lines as lie between, and the one before.
            lines = ledger.lines(state, self.context, progress.batch - batch + 2)
            own = next((line for line in lines if line.batch == batch), None)
            before = next((line for line in reversed(lines) if line.batch < batch), None)
            self._standing = Standing(newer=self._standing.newer, is_in=True, own=own, before=before)
        return self._standing

    def kept_plan(self, batch: int) -> str | None:
        lines = ledger.lines(self._known_table.now(), self.context)
        return next((line.planned for line in lines if line.batch == batch), None)

    def compute(self, frame: DataFrame, batch: int) -> DataFrame:
        self._enter_checkpoint()
        frame = refuse_values(frame, find_refused_values(frame, self._known_table.now().partitions))
        if self.context.mode == "update":
            # Looked through for shared keys, then merged: MERGE would add both of two rows with the same new key.
            self._persisted = frame.persist()
            if shared := find_shared_key(frame, self.key):
                fault = "{} rows share the key {}".format(*shared)
                fix = "name columns in key that together identify a row of the result"
                raise self._error_of_batch("HR408", batch, fault, fix)
        return frame

    def commit(self, rows: DataFrame, batch: int, admit: Admission) -> None:
        # Delta compares the ledger: it takes the number of this driver's batch only behind what was there.
        admitted = admit(self._standing)
        if admitted is None:
            return
        self._add_columns(rows.sparkSession)
        context, before, wanted = self.context, self._progress, Progress(self.epoch, batch)
        note = json.dumps({"query": context.query, "generation": context.generation, **admitted.line.as_dict()})
        try:
            with self.computing(batch):
                self._write(rows, wanted.number, note)
        except Exception as error:
            if CONFLICTS in str(error):
                raise Conflict(first_sentence(error)) from error
            raise
        progress = ledger.progress(context, self._known_table.now().txn_ids)
        if newer := self._newer(progress):
            # Delta has left the batch out, since a newer driver's number is above it.
            admit(Standing(newer=newer))
        if progress == before:
            # A batch that changes nothing may have left no version behind.
            app = ledger.own_mark(context)
            with apply_settings(rows.sparkSession, {NOTE: note}):
                self._known_table.now().enter({app: wanted.number}, seen={app: before.number})
        self.last = admitted.line

    def release(self, rows: DataFrame | None, error: Exception | None) -> None:
        if self._persisted is not None:
            self._persisted.unpersist()
            self._persisted = None

    def explain(self, error: Exception, batch: int) -> Exception:
        if isinstance(error, Conflict):
            fix = "let no other program change the table during a run, then start again: the batch is made again"
            return self._error_of_batch("HR441", batch, str(error), fix)
        text = str(error)
        if not isinstance(error, HeadraceError) and any(sign in text for sign in _CONSTRAINTS):
            at = max(text.find(sign) for sign in _CONSTRAINTS)
            reason = first_sentence(Exception(text[max(at - 1, 0) :].partition("\tat ")[0]))
            fix = "filter such rows out in the query, or change the table; then start again: the batch is made again"
            return self._error_of_batch("HR440", batch, reason, fix)
        return error

    # ------------------------------------------------------------------------------------------------- the table

    @property
    def _known_table(self) -> DeltaTable:
        assert self._table is not None, "`begin` comes first"
        return self._table

    def _newer(self, progress: Progress) -> str:
        if progress.epoch == self.epoch:
            return ""
        return "a newer generation" if progress.is_closed else f"epoch {progress.epoch}, this one has {self.epoch}"

    def _enter_checkpoint(self) -> None:
        """Enter the checkpoint's id into the table; Spark makes it at the first start, after `prepare`."""
        identity = None if self._knows_checkpoint else Checkpoint(self.context.checkpoint).id
        if identity is not None:
            state, mark = self._known_table.now(), ledger.own_mark(self.context, ledger.CHECKPOINT, identity)
            if mark not in state.txn_ids:
                state.enter({mark: 1})
        self._knows_checkpoint = True

    def _add_columns(self, spark: SparkSession) -> None:
        """Right before the first batch, so that a start that comes to nothing leaves the table as it was."""
        if self.added:
            columns = ", ".join(self.added)
            spark.sql(f"ALTER TABLE delta.{quote(self.location)} ADD COLUMNS ({columns})")
            self.added = ()

    def _write(self, frame: DataFrame, number: int, note: str) -> None:
        app, mode = ledger.own_mark(self.context), self.context.mode
        if mode == "update":
            self._merge(frame, partial(merge, key=self.key), number, note)
            return
        writer = frame.write.format("delta").mode("overwrite" if mode == "complete" else "append")
        writer = writer.options(txnAppId=app, txnVersion=str(number), userMetadata=note)
        if mode == "complete":
            writer = writer.option("partitionOverwriteMode", "static")
        writer.save(self.location)

    def _query(self, frame: DataFrame, statement: Callable[[str, str], str]) -> list[Row]:
        """Run a statement that is made of the names of the table and of a view of `frame`."""
        view = f"headrace_{self.context.query}_{self.context.generation}"
        frame.createOrReplaceTempView(view)
        return frame.sparkSession.sql(statement(f"delta.{quote(self.location)}", view)).collect()

    def _merge(self, frame: DataFrame, statement: Callable[[str, str], str], number: int, note: str) -> list[Row]:
        """Run a MERGE as the batch of this number."""
        settings = {_APP: ledger.own_mark(self.context), _VERSION: str(number), NOTE: note}
        with apply_settings(frame.sparkSession, settings):
            return self._query(frame, statement)

    def _error_of_batch(self, code: str, batch: int, fault: str, fix: str) -> SinkError:
        return SinkError(code=code, what=f"{self.fate(batch, is_in_doubt=False)}: {fault}", fix=fix)


def find_refused_values(frame: DataFrame, partitions: Sequence[str]) -> Iterator[RefusedValue]:
    """The values of `frame` that a table with these partitions would change; Delta reads times back without the era."""
    return find_refused_partitions(frame, partitions, signed_years=False)


def find_shared_key(frame: DataFrame, key: Sequence[str]) -> tuple[int, str] | None:
    """Find a key that several rows share, and count them; None: each row has its own."""
    from pyspark.sql import functions as F

    rows = "__headrace_rows"
    keys = [F.col(f"`{name}`") for name in key]
    shared = frame.groupBy(*keys).agg(F.count(F.lit(1)).alias(rows)).where(F.col(rows) > 1).limit(1).collect()
    if not shared:
        return None
    return shared[0][rows], ", ".join(f"{name} = {shared[0][name]!r}" for name in key)


def merge(where: str, source: str, key: Sequence[str]) -> str:
    """The statement that lets the rows of `source` replace those with the same key."""
    same = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in key)
    return (
        f"MERGE INTO {where} AS t USING {source} AS s ON {same} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
