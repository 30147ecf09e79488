"""Change data on its way to a table: flat columns, and the changes of a key folded before they are staged.

Each change has its order as a text (`headrace.spark.change_order`). A column that a change leaves as it is has no value
in it: a gap. `older` says, as JSON, the order of what the row has in such a column from earlier changes of the batch;
an empty one says that it has nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.connectors.sql.limits import split_invalid
from headrace.connectors.sql.staging import Content, GivenChanges, RowError, Stage
from headrace.connectors.sql.system_tables import OWN_PREFIX
from headrace.connectors.sql.types import ResultColumn, columns, flatten
from headrace.contract import CHANGE_COLUMN, DELETE_COLUMN, ChangeOptions
from headrace.contract.change_data import column_mark

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

OPERATION, ORDER, OLDER, SEQUENCE = (f"{OWN_PREFIX}{name}" for name in ("operation", "order", "older", "sequence"))
# Stands in `OLDER` of a fold in which a value is left out since a delete.
LACKING = "lacking"
# Of a field of Spark's schema: the column is not a part of the result that is read back.
HIDDEN = "headrace.hidden"


@dataclass(frozen=True, kw_only=True)
class ChangeForm:
    """The columns of change data as they are staged, and those of the table.

    values: the result's own columns, the key's among them. sequence: the column of the sequence, which intervals keep.
    """

    options: ChangeOptions
    values: tuple[ResultColumn, ...]
    sequence: ResultColumn

    @classmethod
    def of(cls, options: ChangeOptions, schema: StructType) -> ChangeForm:
        """Return the form of a frame with the column `CHANGE_COLUMN`."""
        from pyspark.sql.types import StructType

        fields = [field for field in schema.fields if field.name != CHANGE_COLUMN]
        values, _ = columns(StructType(fields))
        sequence, _ = columns(StructType([_field(SEQUENCE, options.sequence_type)]))
        return cls(options=options, values=values, sequence=sequence[0])

    @property
    def has_intervals(self) -> bool:
        return self.options.scd_type == 2

    @property
    def key(self) -> tuple[str, ...]:
        return self.options.keys

    @property
    def others(self) -> tuple[ResultColumn, ...]:
        """The columns outside the key."""
        return tuple(column for column in self.values if column.name not in self.key)

    @property
    def own(self) -> tuple[ResultColumn, ...]:
        """The columns that each change has in addition to those of the result."""
        sequence = (self.sequence,) if self.has_intervals else ()
        return (*(text_column(name) for name in (OPERATION, ORDER, OLDER)), *sequence)

    @property
    def columns(self) -> tuple[ResultColumn, ...]:
        """All columns of a change."""
        return (*self.values, *self.own)


def text_column(name: str) -> ResultColumn:
    """Return a column of texts."""
    from pyspark.sql.types import StringType

    return ResultColumn(name, "text", StringType())


def table_schema(options: ChangeOptions | None, schema: StructType) -> StructType:
    """Return the columns of the table for a frame, perhaps with the column `CHANGE_COLUMN` or `DELETE_COLUMN`."""
    from pyspark.sql.types import StructType

    fields = [field for field in schema.fields if field.name not in (CHANGE_COLUMN, DELETE_COLUMN)]
    if options is None:
        return StructType(fields)
    if options.scd_type == 2:
        added = [_field(name, options.sequence_type) for name in (options.start_column, options.end_column)]
    else:
        added = [_field(name, "STRING", hidden=True) for name in (options.order_column, options.older_column)]
    return StructType([*fields, *added])


def _field(name: str, declared: str, *, hidden: bool = False) -> StructField:
    from pyspark.sql import types as T

    kinds: Mapping[str, T.DataType] = {
        "BIGINT": T.LongType(),
        "DECIMAL(38,0)": T.DecimalType(38, 0),
        "TIMESTAMP": T.TimestampType(),
        "DATE": T.DateType(),
        "STRING": T.StringType(),
    }
    return T.StructField(name, kinds[declared], metadata={HIDDEN: True} if hidden else None)


@dataclass(frozen=True, kw_only=True)
class ChangeStage(Stage):
    """Computes the changes of a batch; those of one key are folded into one, where no interval is kept of them."""

    form: ChangeForm

    @property
    def keeps_keys_whole(self) -> bool:
        return False

    def flat(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        from headrace.spark.change_order import order_text

        change, names = F.col(CHANGE_COLUMN), [F.col(f"`{column.name}`") for column in self.form.values]
        row = F.struct(change["operation"], *[name.alias(f"c{at}") for at, name in enumerate(names)])
        own = {
            OPERATION: change["operation"],
            ORDER: order_text(change["sequence"], change["position"], self.form.options.sequence_type, row),
            OLDER: F.when(F.size(change["unavailable"]) > 0, F.to_json(change["unavailable"])),
            SEQUENCE: change["sequence"],
        }
        added = frame.select(*names, *[own[column.name].alias(column.name) for column in self.form.own])
        return flatten(added, self.columns)

    def arrange(self, frame: DataFrame) -> DataFrame:
        # The text of an order is longer than what it is made of: it is made behind the shuffle.
        return self.flat(self.cluster(frame))

    def content(self, table: pa.Table) -> Content:
        content = self._accept(table.sort_by([(name, "ascending") for name in self.key]))
        if content.bad and not self.quarantines:
            raise RowError(content.bad[0])
        return replace(content, table=self._fold(content.table))

    def contents(self, chunks: Iterator[pa.Table]) -> Iterator[Content]:
        """Yield the changes of a partition; of a key that goes on in the next chunk, one row is held."""
        import pyarrow as pa

        held = None
        for chunk in chunks:
            content = self._accept(chunk)
            table = content.table if held is None else pa.concat_tables([held, content.table])
            folded = self._fold(table)
            if not self.form.has_intervals and folded.num_rows:
                held = folded.slice(folded.num_rows - 1)
                folded = folded.slice(0, folded.num_rows - 1)
            yield replace(content, table=folded)
        if held is not None:
            yield Content(table=held)

    def _accept(self, table: pa.Table) -> Content:
        """Return the upserts and deletes that the table takes, with the truncates apart and the gaps as JSON."""
        import pyarrow as pa
        import pyarrow.compute as pc

        operation, given = table.column(OPERATION), table.num_rows
        truncates = table.filter(pc.equal(operation, "truncate"))
        orders = truncates.column(ORDER).to_pylist()
        sequences = truncates.column(SEQUENCE).to_pylist() if self.form.has_intervals else [None] * len(orders)
        table = table.filter(pc.is_in(operation, pa.array(["upsert", "delete"])))
        deletes = pc.equal(table.column(OPERATION), "delete")
        if pc.any(deletes).as_py():
            for column in self.form.others:
                table = _replace(table, column.name, lambda values: _without(values, deletes))
            table = _replace(table, OLDER, lambda values: _without(values, deletes))
        table, bad = split_invalid(table, self.columns, self.limits)
        older = self._gaps(table)
        if older:
            texts = pa.array([older.get(at) for at in range(table.num_rows)], pa.string())
            table = _replace(table, OLDER, lambda values: pa.chunked_array([texts]))
        changes = GivenChanges(given, tuple(zip(orders, sequences, strict=True)), bool(older))
        return Content(table=table, bad=tuple(bad), changes=changes)

    def _gaps(self, table: pa.Table) -> dict[int, str]:
        """Return the columns without a value, by the places of the changes that lack them."""
        import pyarrow.compute as pc

        gaps: dict[int, dict[str, str]] = {}
        given = table.column(OLDER)
        for at in pc.indices_nonzero(pc.is_valid(given)).to_pylist():
            gaps[at] = dict.fromkeys(map(column_mark, json.loads(given[at].as_py())), "")
        if self.form.options.ignore_null_updates:
            upserts = pc.equal(table.column(OPERATION), "upsert")
            for column in self.form.others:
                for at in pc.indices_nonzero(pc.and_(upserts, pc.is_null(table.column(column.name)))).to_pylist():
                    gaps.setdefault(at, {})[column_mark(column.name)] = ""
        return {at: json.dumps(marks) for at, marks in gaps.items()}

    def _fold(self, table: pa.Table) -> pa.Table:
        """Return one change for each key of a sorted table: the newest, with what older ones say in its gaps."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.form.has_intervals or table.num_rows < 2:
            return table
        table = table.combine_chunks()
        begins = _key_begins(table, self.key)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], table.num_rows) - 1
        runs = pa.table({"run": np.cumsum(begins), ORDER: table.column(ORDER)})
        turn = pc.sort_indices(runs, sort_keys=[("run", "ascending"), (ORDER, "ascending")])
        if table.column(OLDER).null_count == table.num_rows:
            return table.take(turn.take(pa.array(ends)))
        table = table.take(turn)
        older = {
            at: json.loads(table.column(OLDER)[at].as_py())
            for at in pc.indices_nonzero(pc.is_valid(table.column(OLDER))).to_pylist()
        }
        folded = table.take(pa.array(ends))
        newest: list[dict[str, str]] = [{} for _ in ends]
        deletes = pc.equal(folded.column(OPERATION), "delete").to_numpy(zero_copy_only=False)
        deleted = pc.equal(table.column(OPERATION), "delete").to_numpy(zero_copy_only=False)
        orders = table.column(ORDER)
        for column in self.form.others:
            mark, there = column_mark(column.name), np.arange(table.num_rows)
            for at, gaps in older.items():
                # What an earlier fold has found in a gap is there.
                if gaps.get(mark) == "":
                    there[at] = -1
            last = np.maximum.accumulate(there)[ends]
            has, values = last >= starts, table.column(column.name)
            folded = _replace(folded, column.name, lambda _, v=values, i=last, h=has: _take(v, i, h))
            for at in np.flatnonzero((last != ends) | np.isin(ends, list(older))):
                source = int(last[at])
                if deletes[at]:
                    continue
                order = older.get(source, {}).get(mark) or orders[source].as_py() if has[at] else ""
                if source != ends[at] or mark in older.get(source, {}):
                    newest[at][mark] = order
                if self.form.options.refuses_gaps and has[at] and deleted[source]:
                    newest[at][LACKING] = "yes"
        texts = pa.array([json.dumps(gaps) if gaps else None for gaps in newest], pa.string())
        return _replace(folded, OLDER, lambda _: pa.chunked_array([texts]))


def _without(values: Any, where: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(where, pa.scalar(None, values.type), values)


def _take(values: Any, places: np.ndarray[Any, Any], has: np.ndarray[Any, Any]) -> Any:
    import pyarrow as pa

    return values.take(pa.array(places, pa.int64(), mask=~has))


def _replace(table: pa.Table, name: str, change: Any) -> pa.Table:
    import pyarrow as pa

    at, field = table.schema.get_field_index(name), table.schema.field(name)
    values = change(table.column(name))
    return table.set_column(at, field, values.cast(field.type) if isinstance(values, pa.ChunkedArray) else values)


def _key_begins(table: pa.Table, key: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return which rows of a sorted table have another key than the row before."""
    import numpy as np
    import pyarrow.compute as pc

    begins = np.zeros(table.num_rows, dtype=bool)
    begins[:1] = True
    for name in key:
        column = table.column(name).combine_chunks()
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return begins
