"""A plan over the rows of a table, rewritten so that what happens to each row passes through with its values.

The user's function is built over the plain columns of a change frame. In its analysed plan each Project also gives the
column `CHANGE_COLUMN`, and each Filter becomes a value of it: a row that does not pass is a delete of its key. Values
are computed for rows alone that are written, so that what a filter or a delete leaves out raises no error.

The private parts of Spark are named in tests/spark/test_change_rows.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.contract import CHANGE_COLUMN
from headrace.contract.change_data import FIELDS
from headrace.spark.jvm.gateway import jvm_of
from headrace.spark.plans.analysed import analysed_plan, identity, sequence
from headrace.spark.plans.plan_rewrite import (
    attributes,
    column_of,
    frame_of,
    has_subqueries,
    inline_ctes,
    name_of,
    scala_seq,
    with_children,
    with_columns,
    with_parts,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

UPSERT, DELETE = "upsert", "delete"
# How a filter over a column that the source did not send ends its batch; see `failures` of the messages.
UNAVAILABLE = "HEADRACE_UNAVAILABLE_IN_FILTER"
# Nodes without a part in what a row is.
_NAMES = ("SubqueryAlias", "View")
_PASSING = ("EventTimeWatermark", "ResolvedHint")
_REASONS = {
    "Aggregate": "groups rows, of which a change replaces one alone",
    "Deduplicate": "drops rows as duplicates, by rows that may be deleted later",
    "Distinct": "drops rows as duplicates, by rows that may be deleted later",
    "Join": "joins rows, of which changes of the other side are not applied",
    "Union": "unites rows, of which two may have one key",
    "Generate": "makes several rows of one, of which a delete names none",
    "Expand": "makes several rows of one, of which a delete names none",
    "Window": "looks at several rows at once",
    "Sort": "sorts rows, which a table does not keep",
    "GlobalLimit": "takes the first rows alone",
    "LocalLimit": "takes the first rows alone",
    "Sample": "takes some rows by chance",
}


class NotRowByRowError(Exception):
    """A node of the plan does more than select, compute and filter rows; the text says what, as a predicate."""


@dataclass(frozen=True)
class Origin:
    """From which columns of the source a column is computed, and whether it is one of them itself."""

    columns: frozenset[str]
    is_plain: bool


@dataclass(frozen=True)
class ChangeRows:
    """The rows that a function gives, with `CHANGE_COLUMN` last, and the origin of each column."""

    frame: DataFrame
    origins: Mapping[str, Origin]


@dataclass(frozen=True)
class _Carried:
    """A plan that gives the change, its attribute, and the origins of attributes by their identity."""

    plan: Any
    change: Any
    origins: Mapping[int, Origin]


def carry_changes(
    spark: SparkSession, rows: DataFrame, columns: Iterable[str], *, may_lack_values: bool = True
) -> ChangeRows:
    """Return `columns` of `rows`, which a function gives for the plain columns of a change frame, with each change.

    Args:
        may_lack_values: Whether the source leaves values out that did not change, which the change then names.

    Raises:
        NotRowByRowError: The function does more than select, compute and filter.
    """
    plan = inline_ctes(spark, analysed_plan(rows))
    carried = _carry(spark, plan, may_lack_values)
    named = {name_of(attribute): attribute for attribute in attributes(plan)}
    origins = {name: carried.origins[identity(attribute)] for name, attribute in named.items()}
    given = tuple(columns)
    change = column_of(spark, carried.change)
    if may_lack_values:
        change = _with_unavailable(change, {name: origins[name] for name in given})
    values = [column_of(spark, named[name]) for name in given]
    frame = frame_of(spark, carried.plan).select(*values, change.alias(CHANGE_COLUMN))
    return ChangeRows(frame=frame, origins=origins)


def _carry(spark: SparkSession, node: Any, may_lack: bool) -> _Carried:
    name, output = str(node.nodeName()), attributes(node)
    change = next((attribute for attribute in output if name_of(attribute) == CHANGE_COLUMN), None)
    if change is not None:
        own = {identity(attribute): Origin(frozenset([name_of(attribute)]), True) for attribute in output}
        return _Carried(node, change, own)
    if name not in (*_NAMES, *_PASSING, "Project", "Filter"):
        raise NotRowByRowError(_REASONS.get(name, f"has the operation {name}, which is none on single rows"))
    if has_subqueries(node):
        raise NotRowByRowError("asks a subquery, whose answer may change without a change of the row")
    carried = _carry(spark, node.child(), may_lack)
    if name in _NAMES:
        return carried
    if name == "Filter":
        return _filter(spark, node, carried, may_lack)
    if name == "Project":
        return _project(spark, node, carried)
    return _Carried(with_children(spark, node, [carried.plan]), carried.change, carried.origins)


def _filter(spark: SparkSession, node: Any, carried: _Carried, may_lack: bool) -> _Carried:
    """A row that does not pass becomes a delete; what is not an upsert passes, whatever its columns are."""
    from pyspark.sql import functions as F

    change, condition = column_of(spark, carried.change), column_of(spark, node.condition())
    passes: Column = F.coalesce(condition, F.lit(False))
    if may_lack and (needed := sorted(_columns_of(node.condition(), carried.origins))):
        lacking = F.filter(change["unavailable"], lambda name: name.isin(*needed))
        message = F.concat(F.lit(f"{UNAVAILABLE} `"), F.array_join(lacking, ", "), F.lit("`"))
        passes = F.when(F.size(lacking) > 0, F.raise_error(message).cast("boolean")).otherwise(passes)
    deleted = F.struct(*[(F.lit(DELETE) if field == "operation" else change[field]).alias(field) for field in FIELDS])
    judged = F.when(change["operation"] == UPSERT, F.when(passes, change).otherwise(deleted)).otherwise(change)
    others = [column for column in attributes(carried.plan) if identity(column) != identity(carried.change)]
    frame = frame_of(spark, carried.plan).select(
        *[column_of(spark, column) for column in others], judged.alias(CHANGE_COLUMN)
    )
    plan = analysed_plan(frame)
    return _Carried(plan, attributes(plan)[-1], carried.origins)


def _project(spark: SparkSession, node: Any, carried: _Carried) -> _Carried:
    origins, columns = dict(carried.origins), []
    for column in sequence(node.projectList()):
        if column.nodeName() != "Alias":
            columns.append(column)
            continue
        inside = column.child()
        needed = _columns_of(inside, carried.origins)
        is_renamed = inside.nodeName() == "AttributeReference"
        is_plain = is_renamed and carried.origins[identity(inside)].is_plain
        origins[identity(column)] = Origin(needed, is_plain)
        columns.append(column if is_renamed or inside.foldable() else _guard(spark, column, carried.change))
    same = with_parts(spark, node, {0: scala_seq(spark, columns)})
    return _Carried(with_columns(spark, same, [carried.change], carried.plan), carried.change, origins)


def _columns_of(expression: Any, origins: Mapping[int, Origin]) -> frozenset[str]:
    references = sequence(expression.references().toSeq())
    return frozenset(name for reference in references for name in origins[identity(reference)].columns)


def _guard(spark: SparkSession, alias: Any, change: Any) -> Any:
    """A computed column that is NULL in rows which are not written, without being computed there."""
    jvm = jvm_of(spark)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    operation = expressions.GetStructField(change, 0, jvm.scala.Option.empty())
    text = jvm.org.apache.spark.sql.types.DataTypes.StringType
    is_written = expressions.EqualTo(operation, expressions.Literal.create(UPSERT, text))
    nothing = expressions.Literal.create(None, alias.child().dataType())
    return with_children(spark, alias, [expressions.If(is_written, alias.child(), nothing)])


def _with_unavailable(change: Column, origins: Mapping[str, Origin]) -> Column:
    """The change, whose `unavailable` names the columns of the result in place of the source's."""
    from pyspark.sql import functions as F

    if all(origin.columns == {name} for name, origin in origins.items()):
        return change
    lacking = [
        F.when(F.arrays_overlap(change["unavailable"], F.array(*map(F.lit, sorted(origin.columns)))), F.lit(name))
        for name, origin in origins.items()
        if origin.columns
    ]
    named = F.filter(F.array(*lacking), lambda name: name.isNotNull())
    kept = F.when(F.size(change["unavailable"]) > 0, named).otherwise(change["unavailable"])
    return F.struct(*[(kept if field == "unavailable" else change[field]).alias(field) for field in FIELDS])
