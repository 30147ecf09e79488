"""The rebuilt result verified, and compared with the one in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.contract import SinkContext, Snapshot
from headrace.errors import HeadraceError, PlainData
from headrace.model import Project, Query
from headrace.spark.messages.refusals import finding_of
from headrace.verifier.comparison import compare, schema_differences
from headrace.verifier.proof import verify_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True, kw_only=True)
class ResultDifferences:
    """How the rebuilt result differs from the one in use, by value, in the columns that both have.

    only_before, only_after, different: rows; different ones have the same key. columns: what differs in names and
    types and what was not compared, a sentence's part each. batch: up to which the former result was, when it was
    read. samples: some rows that differ, `expected` as they were and `actual` as they are.
    """

    rows_before: int
    rows_after: int
    only_before: int
    only_after: int
    different: int
    batch: int | None = None
    columns: Sequence[str] = ()
    samples: Sequence[Mapping[str, Any]] = ()

    @property
    def equal(self) -> bool:
        """Whether both hold the same rows in the same columns."""
        return not (self.only_before or self.only_after or self.different or self.columns)


@dataclass(frozen=True, kw_only=True)
class RebuildReport(PlainData):
    """What was found when the rebuilt generation had caught up.

    Attributes:
        batch: Its last batch.
        verdict: The verdict on its result.
        sentence: The verdict as a sentence.
        differences: The differences from the former result; None if they could not be compared, as `notes` say.
        notes: What could not be compared.
    """

    batch: int | None
    verdict: str
    sentence: str
    differences: ResultDifferences | None
    notes: Sequence[str] = ()


def report_on(
    shadow: Project, query: Query, before: SinkContext, after: SinkContext, spark: SparkSession
) -> RebuildReport:
    """What is found of the rebuilt result, which `after` has written next to that of `before`."""
    verdict = next(verify_each(shadow, [query.name], spark=spark))
    notes = [noted.what for noted in verdict.findings]
    differences = None
    try:
        there = query.sink.read_back(spark, before)
        made = shadow.queries[query.name].sink.read_back(spark, after)
        differences = compare_results(there, made)
    except HeadraceError as error:
        notes += [f"the two results were not compared: {noted.what}" for noted in error.findings]
    except Exception as error:
        # What Spark cannot compare must not keep the rebuilt result from being taken.
        finding = finding_of(error, where=query.where, subject=f"query '{query.name}'")
        notes.append(f"the two results were not compared: {finding.what}")
    return RebuildReport(
        batch=verdict.batch,
        verdict=verdict.state,
        sentence=verdict.sentence,
        differences=differences,
        notes=tuple(notes),
    )


def _common_type(one: DataType, other: DataType) -> DataType | None:
    """The type in which values of two types can be compared; None: there is none that keeps both."""
    from pyspark.sql import types as T

    if one == other:
        return one
    if all(isinstance(type_, T.StringType | T.CharType | T.VarcharType) for type_ in (one, other)):
        return T.StringType()
    if not all(isinstance(type_, T.NumericType) for type_ in (one, other)):
        return None
    if inexact := [type_ for type_ in (one, other) if isinstance(type_, T.FloatType | T.DoubleType)]:
        return T.FloatType() if T.FloatType() in inexact else T.DoubleType()
    digits = [type_ if isinstance(type_, T.DecimalType) else T.DecimalType(20, 0) for type_ in (one, other)]
    scale = max(type_.scale for type_ in digits)
    precision = max(type_.precision - type_.scale for type_ in digits) + scale
    return T.DecimalType(precision, scale) if precision <= 38 else None


def compare_results(there: Snapshot, made: Snapshot) -> ResultDifferences:
    """Compare the rebuilt result `made` with the one in use, by value also where the type of a column has changed."""
    from pyspark.sql import functions as F

    columns = list(schema_differences(made.rows.schema, there.rows.schema))
    types = {column.name: column.dataType for column in there.rows.schema}
    shared = {
        column.name: _common_type(types[column.name], column.dataType)
        for column in made.rows.schema
        if column.name in types
    }
    common = {name: type_ for name, type_ in shared.items() if type_ is not None}
    columns += [f"the values of column '{name}' are not compared" for name in shared if name not in common]
    key = made.key if set(made.key) <= set(common) else ()
    if not common:
        former, rebuilt = there.rows.count(), made.rows.count()
        return ResultDifferences(
            rows_before=former,
            rows_after=rebuilt,
            only_before=former,
            only_after=rebuilt,
            different=0,
            batch=there.batch,
            columns=columns,
        )
    before, after = (
        snapshot.rows.select(*[F.col(f"`{name}`").cast(type_).alias(name) for name, type_ in common.items()])
        for snapshot in (there, made)
    )
    differences = compare(before, after, key)
    return ResultDifferences(
        rows_before=differences.rows_expected,
        rows_after=differences.rows_actual,
        only_before=differences.missing,
        only_after=differences.unexpected,
        different=differences.different,
        batch=there.batch,
        columns=columns,
        samples=tuple(difference.as_dict() for difference in differences.differences),
    )
