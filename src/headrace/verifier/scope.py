"""Which rows of a result are compared: all, some keys, a part of all keys, or those that later batches have touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import CheckFailed, HeadraceError, nearest
from headrace.spark.plans.plan_rewrite import UntraceableError
from headrace.spark.plans.provenance import trace
from headrace.verifier.answer import BatchAnswer, BatchQuery
from headrace.verifier.cause import are_equal, identifying_columns
from headrace.verifier.late_and_open import report_untraceable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

RowFilter: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True, kw_only=True)
class RowScope:
    """The rows of a result that are compared; without arguments all.

    Args:
        keys: Columns of the result and their values as text; a row of any of them is compared.
        since: Only rows to which a batch after this one has contributed.
        part: Only one of so many parts of the keys, as (3, 10), the third of ten; together the parts are all rows.

    Raises:
        HeadraceError: There is no such part (HR090).
    """

    keys: tuple[Mapping[str, str], ...] = ()
    since: int | None = None
    part: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.part is not None and not 1 <= self.part[0] <= self.part[1]:
            problem = f"there is no part {self.part[0]} of {self.part[1]}, so that no row would be compared"
            raise HeadraceError(code="HR090", what=problem, fix="name one as part=(3, 10), the third of ten")

    @property
    def whole(self) -> bool:
        """Whether all rows are compared."""
        return not self.keys and self.since is None and self.part is None

    def __str__(self) -> str:
        keys = " or ".join(",".join(f"{name}={value}" for name, value in key.items()) for key in self.keys)
        later = "" if self.since is None else f"keys touched after batch {self.since}"
        part = "" if self.part is None else f"part {self.part[0]} of {self.part[1]}"
        return " of ".join(filter(None, (part, later, keys)))

    def row_filter(self, batch_query: BatchQuery, answer: BatchAnswer) -> RowFilter:
        """Return what takes these rows out of a frame with the result's schema.

        Raises CheckFailed. answer: over a prefix that is traced if `since` is given.
        """
        columns = identifying_columns(answer.frame.schema, batch_query.key)
        filters = [self._key_filter(batch_query, answer.frame.schema), self._part_filter(columns)]
        if self.since is not None:
            try:
                filters.append(self._later_filter(batch_query, answer, columns))
            except UntraceableError as node:
                raise CheckFailed(
                    report_untraceable(batch_query.query, node).reword(fix="verify the whole result")
                ) from None
        return lambda rows: reduce(lambda taken, take: take(taken), filters, rows)

    def _later_filter(self, batch_query: BatchQuery, answer: BatchAnswer, columns: Sequence[str]) -> RowFilter:
        """Take the rows to which a later batch has contributed."""
        from pyspark.sql import functions as F

        names = {name: f"__headrace_touched_{at}" for at, name in enumerate(columns)}
        frame, origins = trace(batch_query.spark, answer.frame)
        later = reduce(or_, (F.coalesce(origin["batch"] > F.lit(self.since), F.lit(False)) for origin in origins))
        touched = frame.where(later).select(*[F.col(f"`{name}`").alias(other) for name, other in names.items()])
        pairs = [(F.col(other), F.col(f"`{name}`")) for name, other in names.items()]
        return lambda rows: rows.join(touched, are_equal(pairs, by_function=answer.by_function), "left_semi")

    def _part_filter(self, columns: Sequence[str]) -> RowFilter:
        """Take the rows of the part, by a hash of the columns that identify a row; without such columns all."""
        if self.part is None or not columns:
            return lambda rows: rows
        from pyspark.sql import functions as F

        number, count = self.part
        in_part = F.pmod(F.xxhash64(*[F.col(f"`{name}`") for name in columns]), F.lit(count)) == F.lit(number - 1)
        return lambda rows: rows.where(in_part)

    def _key_filter(self, batch_query: BatchQuery, schema: StructType) -> RowFilter:
        if not self.keys:
            return lambda rows: rows
        from pyspark.sql import functions as F

        query, spark = batch_query.query, batch_query.spark

        def equal(name: str, value: str) -> Column:
            if name not in schema.names:
                problem = f"the result of query '{query.name}' has no column '{name}'"
                raise CheckFailed(code="HR716", what=problem, fix=nearest(name, schema.names), where=query.where)
            kind = schema[name].dataType
            literal = F.lit(value)
            if kind.typeName() in ("struct", "array", "map", "variant", "interval") or (
                spark.range(1).select(literal.try_cast(kind)).collect()[0][0] is None
            ):
                problem = f"'{value}' is not a value of column '{name}' ({kind.simpleString()}) of query '{query.name}'"
                fix = "write a key as action=open,hour=2024-01-01T01:00; leave out what is not a plain column"
                raise CheckFailed(code="HR716", what=problem, fix=fix, where=query.where)
            return F.col(f"`{name}`") == literal.cast(kind)

        of_any_key = reduce(or_, (reduce(and_, (equal(*pair) for pair in key.items())) for key in self.keys))
        return lambda rows: rows.where(of_any_key)


WHOLE = RowScope()
