"""Change data merged into a Delta table: one MERGE for each batch, and what is remembered of deletes below the table.

Orders are texts (`headrace.spark.change_order`): a row has one, and so has each column whose value is older than its
row. What is older than the newest delete or truncate of a key, its floor, is gone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from headrace.connectors.delta.batches import DeltaStore, find_refused_values
from headrace.connectors.delta.ledger import Progress, own_mark
from headrace.connectors.delta.table import at_path, forget
from headrace.connectors.exactly_once import Admission
from headrace.connectors.exactly_once.changes import WHOLE_ROWS_FIX, lacking_value, lost_deletes
from headrace.connectors.spark_catalog import quote
from headrace.connectors.spark_files.formats import refuse_values
from headrace.contract import CHANGE_COLUMN, ChangeCounts, ChangeOptions
from headrace.contract.change_data import column_mark
from headrace.errors import SinkError
from headrace.spark.change_order import order_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Readers, and VACUUM of the table above, leave directories alone whose names begin so.
_DELETES = "_headrace_deletes"
_NAMES = ("operation", "order", "lacks", "top", "deleted", "floor", "generation", "batch", "at", "age", "value")
_OPERATION, _ORDER, _LACKS, _TOP, _DELETED, _FLOOR, _GENERATION, _BATCH, _AT, _AGE, _VALUE = (
    f"__headrace_{name}" for name in _NAMES
)
# Deletes that are older, and files of former versions, are removed once in so many batches.
_PRUNE_EVERY = 1_000
# Delta keeps the versions for so long to which a rewind goes back, if the table does not say otherwise.
_REWINDABLE_SECONDS = 7 * 24 * 3600


def with_stored_columns(frame: DataFrame, options: ChangeOptions) -> DataFrame:
    """Return a frame with the columns of the table, for its schema."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    return frame.drop(CHANGE_COLUMN).withColumns({options.order_column: nothing, options.older_column: nothing})


@dataclass(kw_only=True)
class DeltaChangeStore(DeltaStore):
    """A Delta table as one start of a query applies changes to it.

    Deletes are remembered in a Delta table in a directory below, which moves with the table. A batch is written there
    first, in the place of all lines from its number on: of a batch that did not come in, or that a rewind took back.
    The first batch of a start is written there in any case, so that Delta takes nothing more from an older driver.
    """

    options: ChangeOptions
    _is_first: bool = field(default=True, init=False)
    _counts: ChangeCounts | None = field(default=None, init=False, repr=False)

    def begin(self, frame: DataFrame, batch: int) -> None:
        super().begin(frame, batch)
        if self._is_first:
            # A rebuild may have put another table in its place since this JVM has read its log.
            forget(frame.sparkSession, self._deletes_location)

    def compute(self, frame: DataFrame, batch: int) -> DataFrame:
        from pyspark.sql import functions as F

        self._enter_checkpoint()
        frame = refuse_values(frame, find_refused_values(frame, self._known_table.now().partitions))
        change = F.col(CHANGE_COLUMN)
        names = [F.col(f"`{name}`") for name in frame.columns if name != CHANGE_COLUMN]
        row = F.struct(change["operation"], *[name.alias(f"c{at}") for at, name in enumerate(names)])
        order = order_text(change["sequence"], change["position"], self.options.sequence_type, row)
        own = (change["operation"].alias(_OPERATION), order.alias(_ORDER), change["unavailable"].alias(_LACKS))
        self._persisted = frame.select(*names, *own).persist()
        return self._persisted

    def commit(self, rows: DataFrame, batch: int, admit: Admission) -> None:
        self._counts = None
        super().commit(rows, batch, admit)
        if self._counts is not None:
            self.context.on_changes(batch, self._counts)

    def _write(self, frame: DataFrame, number: int, note: str) -> None:
        from pyspark.sql import functions as F

        names, batch = list(self.options.keys), Progress.of(number).batch or 0
        operation, order, keys = F.col(_OPERATION), F.col(_ORDER), [F.col(f"`{name}`") for name in names]
        is_row = operation.isin("upsert", "delete")
        has_no_key = F.greatest(F.lit(False), *[key.isNull() for key in keys])
        signs = (operation == "truncate", operation == "delete", is_row & has_no_key, F.size(_LACKS) > 0)
        counts = frame.agg(F.count(order), *map(F.count_if, signs)).collect()[0]
        given, truncates, deleted, without_key, lacking = counts
        if without_key:
            fault = f"{without_key} changes have no key ({', '.join(names)})"
            raise self._error_of_batch("HR408", batch, fault, "filter such rows out in the query")
        merge = DeltaMerge(self.options, tuple(name for name in frame.columns[:-3] if name not in names))
        newest = merge.fold(frame.where(is_row))
        deletes = newest.where(F.col(_DELETED) > F.col(_TOP)).select(*keys, F.lit("delete"), _DELETED)
        deleted = deletes.count() if deleted else 0
        if self._is_first or deleted or truncates or batch % _PRUNE_EVERY == 0:
            self._remember(
                frame.where(operation == "truncate").select(*keys, _OPERATION, _ORDER).union(deletes), number
            )
        table = at_path(frame.sparkSession, self._deletes_location, SinkError)
        assert table is not None, "the first batch makes it"
        lines = table.now().rows()
        truncate = lines.where(operation == "truncate").agg(F.max(order)).collect()[0][0] or ""
        floors = lines.where(operation == "delete").groupBy(*keys).agg(F.max(order).alias(_FLOOR))
        changes = merge.put_floors(newest.join(floors, names, "left"), truncate)
        if lacking and self.options.refuses_gaps:
            for row in self._query(changes, merge.lacking):
                key = ", ".join(f"{name}={row[name]}" for name in names)
                raise self._error_of_batch("HR297", batch, lacking_value(key, self.name), WHOLE_ROWS_FIX)
        statement = partial(merge.statement, truncate=truncate if truncates else "")
        # Of a driver that is fenced off, Delta does nothing and returns nothing.
        for _, updates, deletes, inserts in self._merge(changes, statement, number, note):
            ignored = max(0, given - truncates - deleted - inserts - updates)
            self._counts = ChangeCounts(
                inserts=inserts, updates=updates, deletes=deletes, ignored=ignored, truncates=truncates
            )

    @property
    def _deletes_location(self) -> str:
        return f"{self.location}/{_DELETES}"

    def _remember(self, lines: DataFrame, number: int) -> None:
        """Write the deletes of a batch in the place of all lines from it on."""
        from pyspark.sql import functions as F

        spark, generation, batch = lines.sparkSession, self.context.generation, Progress.of(number).batch or 0
        if self._progress.batch is not None and at_path(spark, self._deletes_location, SinkError) is None:
            raise lost_deletes(f"directory '{_DELETES}' of {self.name}", self.context)
        now, prunes = int(time.time()), batch % _PRUNE_EVERY == 0
        # A truncate is never forgotten.
        at = F.when(F.col(_OPERATION) == "delete", F.lit(now))
        own = {_GENERATION: F.lit(generation), _BATCH: F.lit(batch), _AT: at}
        replaced = f"{_GENERATION} > {generation} OR ({_GENERATION} = {generation} AND {_BATCH} >= {batch})"
        if prunes:
            replaced += f" OR {_AT} < {now - self.options.keep_deletes - _REWINDABLE_SECONDS}"
        options = {"replaceWhere": replaced, "txnAppId": own_mark(self.context), "txnVersion": str(number)}
        # Each batch with deletes adds a file.
        options["delta.autoOptimize.autoCompact"] = "true"
        writer = lines.withColumns({name: value.cast("long") for name, value in own.items()}).write.format("delta")
        writer.mode("overwrite").options(**options).save(self._deletes_location)
        self._is_first = False
        if prunes and batch:
            spark.sql(f"VACUUM delta.{quote(self._deletes_location)}")


@dataclass(frozen=True)
class DeltaMerge:
    """The changes of a batch folded into one for each key, and merged. others: the columns outside the key."""

    options: ChangeOptions
    others: tuple[str, ...]

    def fold(self, changes: DataFrame) -> DataFrame:
        """Return for each key the newest value of each column, with the newest orders of its upserts and deletes."""
        from pyspark.sql import functions as F

        is_upsert, order, nothing = F.col(_OPERATION) == "upsert", F.col(_ORDER), F.lit("")
        folded = [F.coalesce(F.max(F.when(is_upsert, order)), nothing).alias(_TOP)]
        folded.append(F.coalesce(F.max(F.when(~is_upsert, order)), nothing).alias(_DELETED))
        for at, name in enumerate(self.others):
            value = F.col(f"`{name}`")
            has = is_upsert & ~F.coalesce(F.array_contains(_LACKS, name), F.lit(False))
            given = F.when(has & value.isNotNull() if self.options.ignore_null_updates else has, order)
            folded += [F.max_by(value, given).alias(f"{_VALUE}{at}"), F.max(given).alias(f"{_AGE}{at}")]
        return changes.groupBy(*[f"`{name}`" for name in self.options.keys]).agg(*folded)

    def put_floors(self, folded: DataFrame, truncate: str) -> DataFrame:
        """Return the changes, in which what is older than the newest delete or truncate is a NULL of that order."""
        from pyspark.sql import functions as F

        floor, columns = F.greatest(F.col(_FLOOR), F.col(_DELETED), F.lit(truncate)), []
        for at, name in enumerate(self.others):
            age = F.col(f"{_AGE}{at}")
            columns += [
                F.when(age > floor, F.col(f"{_VALUE}{at}")).alias(name),
                F.greatest(age, floor).alias(f"{_AGE}{at}"),
            ]
        return folded.select(*[f"`{name}`" for name in self.options.keys], *columns, _TOP, floor.alias(_FLOOR))

    def statement(self, table: str, source: str, *, truncate: str) -> str:
        """Return the MERGE of the changes, and of a truncate of this order; "" for none."""
        order, is_there, newest = self._order, f"s.{_TOP} > s.{_FLOOR}", f"greatest({self._order}, s.{_TOP})"
        is_newer, updates = self._update(self._ages, "s.{}", newest)
        names = [*map(quote, (*self.options.keys, *self.others))]
        added = [quote(self.options.order_column), quote(self.options.older_column)]
        values = [*(f"s.{name}" for name in names), f"s.{_TOP}", self._older(self._ages, f"s.{_TOP}")]
        clauses = [
            f"MERGE INTO {table} AS t USING {source} AS s ON {self._same}",
            f"WHEN MATCHED AND s.{_FLOOR} > {order} AND NOT {is_there} THEN DELETE",
            f"WHEN MATCHED AND (s.{_TOP} > {order} OR {is_newer}) THEN UPDATE SET {added[0]} = {newest}, {updates}",
            f"WHEN NOT MATCHED AND {is_there} THEN INSERT ({', '.join(names + added)}) VALUES ({', '.join(values)})",
        ]
        if truncate:
            is_newer, updates = self._update([f"'{truncate}'"] * len(self.others), "NULL", order)
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND '{truncate}' > {order} THEN DELETE")
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND ({is_newer}) THEN UPDATE SET {updates}")
        return " ".join(clauses)

    def lacking(self, table: str, source: str) -> str:
        """Return a SELECT of the key of a row of which a column has no value since it began."""
        pairs = zip(self._ages, self._held_ages, strict=True)
        ages = " OR ".join(f"greatest({given}, {held}) = s.{_FLOOR}" for given, held in pairs)
        keys = ", ".join(f"s.{quote(name)}" for name in self.options.keys)
        rows = f"SELECT {keys} FROM {source} AS s LEFT JOIN {table} AS t ON {self._same}"
        return f"{rows} WHERE s.{_TOP} > s.{_FLOOR} AND ({ages}) LIMIT 1"

    @property
    def _same(self) -> str:
        return " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in self.options.keys)

    @property
    def _order(self) -> str:
        return f"t.{quote(self.options.order_column)}"

    @property
    def _ages(self) -> list[str]:
        return [f"s.{_AGE}{at}" for at in range(len(self.others))]

    @property
    def _held_ages(self) -> list[str]:
        ages = f"from_json(t.{quote(self.options.older_column)}, 'MAP<STRING, STRING>')"
        return [f"coalesce({ages}['{column_mark(name)}'], {self._order})" for name in self.others]

    def _update(self, ages: Sequence[str], value: str, newest: str) -> tuple[str, str]:
        """Return the condition that any of these ages is newer than the row's, and what is set in such a row."""
        pairs = list(zip(ages, self._held_ages, strict=True))
        older = self._older([f"greatest({given}, {held})" for given, held in pairs], newest)
        sets = [f"{quote(self.options.older_column)} = {older}"]
        for name, (given, held) in zip(map(quote, self.others), pairs, strict=True):
            sets.append(f"{name} = CASE WHEN {given} > {held} THEN {value.format(name)} ELSE t.{name} END")
        return " OR ".join(["false", *(f"{given} > {held}" for given, held in pairs)]), ", ".join(sets)

    def _older(self, ages: Sequence[str], newest: str) -> str:
        """The orders, as JSON, of those columns whose value is older than the row; NULL where none is."""
        pairs = [f"'{column_mark(name)}', {age}" for name, age in zip(self.others, ages, strict=True)]
        marks = f"map_filter(map({', '.join(pairs)}), (mark, age) -> age < {newest})"
        return f"nullif(to_json({marks}), '{{}}')" if pairs else "CAST(NULL AS STRING)"
