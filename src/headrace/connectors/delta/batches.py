"""One batch, one version of a Delta table: once, and never from an older driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.connectors.delta import ledger
from headrace.connectors.delta.ledger import Standing
from headrace.connectors.delta.table import DeltaTable, at_path, first_sentence
from headrace.connectors.delta.table_schema import merge
from headrace.connectors.exactly_once.checkpoint_match import checkpoint_id, is_stateful
from headrace.connectors.exactly_once.kept import KeptLine, require_same
from headrace.connectors.exactly_once.retry import attempts
from headrace.contract import SinkContext
from headrace.errors import Fenced, Finding, HeadraceError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONFLICTS = "DELTA_CONCURRENT"
_CONSTRAINTS = (
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    "EXCEED_LIMIT_LENGTH",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
)
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(kw_only=True)
class DeltaBatches:
    """Takes the batches of one start of a query, for Spark's foreachBatch."""

    location: str
    name: str
    key: Sequence[str]
    run: SinkContext
    epoch: int
    last: KeptLine | None = None
    # The columns that the table still lacks, as SQL declares them.
    added: tuple[str, ...] = ()
    _entered: bool = field(default=False, init=False)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._take(frame, batch)
        except HeadraceError as fault:
            self.run.failed(fault)
            raise

    def _take(self, frame: DataFrame, batch: int) -> None:
        table = self._table(frame.sparkSession)
        last = self._standing(table, batch)
        if last.batch is not None and last.batch >= batch:
            # As many lines as lie between, and the one before.
            require_same(self.run, self.name, ledger.lines(table.now(), self.run, last.batch - batch + 2), batch)
            if is_stateful(self.run.checkpoint):
                # Spark commits the state of a batch only if every partition of it is computed.
                frame.write.format("noop").mode("overwrite").save()
            return
        self._enter_checkpoint(table)
        if self.run.mode == "update":
            # Looked through for shared keys, then merged.
            frame.persist()
        try:
            self.run.secured(batch)
            self.run.reached("before-transaction", batch)
            if self.run.mode == "update":
                self._require_single(frame, batch)
            self._add_columns(frame.sparkSession)
            self._commit(table, frame, batch, last)
            self.run.reached("after-transaction", batch)
        finally:
            if self.run.mode == "update":
                frame.unpersist()

    def _commit(self, table: DeltaTable, frame: DataFrame, batch: int, last: Standing) -> None:
        """Write the batch, again where another writer came in between."""
        line = KeptLine.of(self.run, batch, self.last)
        for _ in attempts():
            said = self._attempt(table, frame, line, last)
            if not said:
                self.last = line
                return
            what = f"another writer changed {self.name} meanwhile; batch {batch} is tried again"
            fix = "nothing, if the next batches come in"
            self.run.noted(Finding(code="HR411", what=what, fix=fix))
        fix = "let nobody else change the table while the query runs, then start again: the batch is made again"
        raise SinkError(self._finding("HR441", batch, said, fix))

    def _attempt(self, table: DeltaTable, frame: DataFrame, line: KeptLine, last: Standing) -> str:
        """Write the batch; returns what Delta says where another writer was quicker, else nothing."""
        batch = line.batch
        wanted = Standing(self.epoch, batch)
        note = json.dumps({"query": self.run.query, "generation": self.run.generation, **line.as_dict()})
        try:
            self._write(frame, wanted.number, note)
        except HeadraceError:
            raise
        except Exception as fault:
            self._tell(fault, batch)
            if _CONFLICTS not in str(fault):
                raise
            self.run.computed(batch, False)
            self._standing(table, batch)
            return first_sentence(fault)
        if self._standing(table, batch) == last:
            # A batch that changes nothing may leave no version behind.
            app = ledger.app(self.run.query, self.run.generation)
            with _settings(table.spark, {_NOTE: note}):
                entered = table.mark({app: wanted.number}, seen={app: last.number})
            if not entered:
                return "the table was changed at the same time"
        return ""

    def _add_columns(self, spark: SparkSession) -> None:
        """Right before the first batch, so that a start that comes to nothing leaves the table as it was."""
        if self.added:
            columns = ", ".join(self.added)
            spark.sql(f"ALTER TABLE delta.`{self.location.replace('`', '``')}` ADD COLUMNS ({columns})")
            self.added = ()

    def _write(self, frame: DataFrame, number: int, note: str) -> None:
        app = ledger.app(self.run.query, self.run.generation)
        if self.run.mode == "update":
            spark = frame.sparkSession
            view = f"headrace_{self.run.query}_{self.run.generation}"
            frame.createOrReplaceTempView(view)
            with _settings(spark, {_APP: app, _VERSION: str(number), _NOTE: note}):
                spark.sql(merge(f"delta.`{self.location.replace('`', '``')}`", view, self.key)).collect()
            return
        writer = frame.write.format("delta").mode("overwrite" if self.run.mode == "complete" else "append")
        writer = writer.options(txnAppId=app, txnVersion=str(number), userMetadata=note)
        if self.run.mode == "complete":
            writer = writer.option("partitionOverwriteMode", "static")
        writer.save(self.location)

    def _table(self, spark: SparkSession) -> DeltaTable:
        found = at_path(spark, self.location, SinkError)
        if found is None:
            what, fix = f"{self.name} is no longer there", "put it back, or begin the query anew"
            raise SinkError(Finding(code="HR405", what=what, fix=fix))
        return found

    def _standing(self, table: DeltaTable, batch: int) -> Standing:
        """What the table has of the query. Raises Fenced where it has a newer driver."""
        txn_ids = table.now().txn_ids
        found = ledger.standings(txn_ids).get((self.run.query, self.run.generation), Standing(0, None))
        if found.epoch != self.epoch:
            newer = "a newer generation" if found.is_closed else f"epoch {found.epoch}, this one has {self.epoch}"
            what = f"a newer driver runs query '{self.run.query}' ({newer}); batch {batch} of this one was not written"
            raise Fenced(
                Finding(code="HR409", what=what, fix="let only one driver run the query; this one has stopped")
            )
        return found

    def _enter_checkpoint(self, table: DeltaTable) -> None:
        """Let the table remember the checkpoint's id, which Spark makes at the first start, after `prepare`."""
        identity = None if self._entered else checkpoint_id(self.run.checkpoint)
        if identity is not None:
            mark = ledger.checkpoint_mark(self.run, identity)
            if mark not in table.now().txn_ids:
                table.mark({mark: 1}, seen={})
        self._entered = True

    def _require_single(self, frame: DataFrame, batch: int) -> None:
        """MERGE would add both of two rows with the same new key."""
        from pyspark.sql import functions as F

        rows = "__headrace_rows"
        keys = [F.col(f"`{name}`") for name in self.key]
        twice = frame.groupBy(*keys).agg(F.count(F.lit(1)).alias(rows)).where(F.col(rows) > 1).limit(1).collect()
        if twice:
            shown = ", ".join(f"{name} = {twice[0][name]!r}" for name in self.key)
            what = f"{twice[0][rows]} rows share the key {shown}"
            fix = "make the key the columns that the query groups by"
            raise SinkError(self._finding("HR408", batch, what, fix))

    def _tell(self, fault: Exception, batch: int) -> None:
        """Raise SinkError for a row that breaks a constraint of the table."""
        if any(sign in str(fault) for sign in _CONSTRAINTS):
            text = str(fault)
            at = max(text.find(sign) for sign in _CONSTRAINTS)
            said = first_sentence(Exception(text[max(at - 1, 0) :].partition("\tat ")[0]))
            fix = "filter such rows out in the query, or change the table; then start again: the batch is made again"
            raise SinkError(self._finding("HR440", batch, said, fix)) from fault

    def _finding(self, code: str, batch: int, what: str, fix: str) -> Finding:
        return Finding(code=code, what=f"batch {batch} of query '{self.run.query}' was not written: {what}", fix=fix)


@contextmanager
def _settings(spark: SparkSession, chosen: dict[str, str]) -> Iterator[None]:
    """Settings of the query's own session for the time of one statement."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in chosen}
    try:
        for name, value in chosen.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
