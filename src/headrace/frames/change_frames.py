"""The result of a query as its sink takes it: rows, or the changes of a table with what the function makes of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.checks.change_data import check_change_columns, no_order, ordered_type, sequence_types
from headrace.contract import CHANGE_COLUMN, DELETE_COLUMN
from headrace.contract.change_data import FIELDS
from headrace.errors import CheckFailed, Finding
from headrace.frames.plan_builder import Reader, build
from headrace.model import NamedSource, Project, Query
from headrace.model.change_data import ChangeData
from headrace.spark.change_order import sequence_text
from headrace.spark.messages.refusals import finding_of
from headrace.spark.plans.change_rows import ChangeRows, NotRowByRowError, carry_changes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# How a row without a sequence ends its batch, where the source does not judge it; see `failures` of the messages.
NO_SEQUENCE = "HEADRACE_NO_SEQUENCE"


@dataclass(frozen=True, kw_only=True)
class QueryResult:
    """What a query gives.

    frame: what its sink takes. rows: what its function gives, of which its form is taken; the same without changes.
    """

    frame: DataFrame
    rows: DataFrame


def build_result(
    project: Project,
    query: Query,
    spark: SparkSession,
    read: Reader,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> QueryResult:
    """Return the result of `query` over its sources, each given by `read`. Raises as `build`."""
    cdc = query.cdc
    if cdc is None:
        rows = build(project, query.transform, spark, read, given)
        return QueryResult(frame=mark_deletes(query, rows), rows=rows)

    def read_rows(source: NamedSource) -> DataFrame:
        positioned = source.connector.with_positions()
        connector, added = positioned or (source.connector, ())
        frame = read(replace(source, connector=connector))
        visible = [name for name in frame.columns if name not in (*added, CHANGE_COLUMN)]
        return _plain_rows(project, query, cdc, source, frame, visible, has_positions=positioned is not None)

    rows = build(project, query.transform, spark, read_rows, given)
    columns = tuple(rows.columns)
    _require(check_change_columns(query, cdc, columns))
    try:
        may_lack = any(source.connector.facts.change_data for source in project.sources_of(query))
        changes = carry_changes(spark, rows, cdc.written_columns(columns), may_lack_values=may_lack)
    except NotRowByRowError as error:
        problem = f"{error}; change data is applied row by row"
        fix = "select, compute and filter rows alone, and do the rest where the copy is read"
        raise CheckFailed(query.finding("HR297", problem, fix).reword(where=query.transform.where)) from None
    _require(_check_keys(query, cdc, changes))
    return QueryResult(frame=changes.frame, rows=rows.select(*[f"`{name}`" for name in cdc.written_columns(columns)]))


def mark_deletes(query: Query, rows: DataFrame) -> DataFrame:
    """Return the rows with whether each is deleted, where the query says when."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    if query.delete_when is None:
        return rows
    try:
        is_deleted = F.when(F.expr(query.delete_when), F.lit(True)).otherwise(F.lit(False))
        return rows.withColumn(DELETE_COLUMN, is_deleted)
    except PySparkException as error:
        subject = f"delete_when of query '{query.name}'"
        raise CheckFailed(finding_of(error, where=query.where, subject=subject)) from error


def _require(findings: Iterable[Finding]) -> None:
    if faults := tuple(findings):
        raise CheckFailed(faults)


def _check_keys(query: Query, cdc: ChangeData, changes: ChangeRows) -> Iterator[Finding]:
    """Report keys that are computed: of a delete the source may send its own key alone, and two keys may become one."""
    for name in cdc.keys:
        if not changes.origins[name].is_plain:
            problem = f"computes its key '{name}', so that a delete may not find its row, or find that of another key"
            yield query.finding("HR297", problem, "let the key be a column of the source, perhaps under another name")


def _plain_rows(
    project: Project,
    query: Query,
    cdc: ChangeData,
    source: NamedSource,
    frame: DataFrame,
    visible: Sequence[str],
    *,
    has_positions: bool,
) -> DataFrame:
    """Return the rows that the function sees, `visible`; below them, in the plan, is the change of each."""
    from pyspark.errors import PySparkException

    try:
        types = sequence_types(project, query, cdc)
        change = _change(cdc, frame, types, visible, has_positions=has_positions)
        changes = frame.select(*[f"`{name}`" for name in visible], change.alias(CHANGE_COLUMN))
    except PySparkException as error:
        raise CheckFailed(finding_of(error, where=query.where, subject=f"cdc of query '{query.name}'")) from error
    for by, declared in zip(cdc.sequence_by, types, strict=False):
        kind = frame.schema[by].dataType.jsonValue()
        if ordered_type(kind) is None:
            raise CheckFailed(no_order(query, by, kind))
        if ordered_type(kind) != declared:
            problem = f"orders changes by '{by}', whose type {str(kind).upper()} is seen by Spark alone"
            fix = f"declare the schema of source '{source.name}', or order by a BIGINT"
            raise CheckFailed(query.finding("HR299", problem, fix))
    return changes.select(*[f"`{name}`" for name in visible])


def _change(
    cdc: ChangeData, frame: DataFrame, types: Sequence[str], visible: Sequence[str], *, has_positions: bool
) -> Column:
    """Return the change of each row, by the options; what a source says itself stays, but for a named sequence."""
    from pyspark.sql import functions as F

    given = F.col(CHANGE_COLUMN) if CHANGE_COLUMN in frame.columns else None
    if given is not None and not cdc.sequence_by:
        return given
    ordered = []
    for name, kind in zip(cdc.sequence_by, types, strict=False):
        missing = F.raise_error(F.lit(f"{NO_SEQUENCE} `{name}`")).cast(kind)
        ordered.append((F.coalesce(F.col(f"`{name}`").cast(kind), missing), kind))
    sequence = ordered[0][0] if len(ordered) == 1 else sequence_text(ordered)
    if given is not None:
        return F.struct(*[(sequence if field == "sequence" else given[field]).alias(field) for field in FIELDS])
    operation = F.lit("upsert")
    if cdc.apply_as_deletes is not None:
        operation = F.when(F.expr(cdc.apply_as_deletes), "delete").otherwise(operation)
    if cdc.apply_as_truncates is not None:
        operation = F.when(F.expr(cdc.apply_as_truncates), "truncate").otherwise(operation)
    partition, offset = F.lit(0), F.xxhash64(*[f"`{name}`" for name in visible])
    if has_positions:
        partition, offset = F.col("partition"), F.col("offset")
    position = F.struct(partition.cast("int").alias("partition"), offset.cast("bigint").alias("offset"))
    values = (operation, sequence, position, F.array().cast("array<string>"), F.lit(None).cast("timestamp"))
    return F.struct(*[value.alias(field) for field, value in zip(FIELDS, values, strict=True)])
