"""Which rows of a result are compared: all, some keys, a part of all keys, or those that later batches have touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import CheckFailed, HeadraceError, nearest
from headrace.model import Query
from headrace.spark.plans.plan_rewrite import UntraceableError
from headrace.spark.plans.provenance import trace
from headrace.verifier.answer import BatchAnswer
from headrace.verifier.cause import identifying, same
from headrace.verifier.late_and_open import untraceable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Choice: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True, kw_only=True)
class RowScope:
    """keys: columns of the result and their values as text, each of which chooses rows; without any, all are.

    since: only rows that a row of a later batch has fed; None: all. part: only one of so many parts of the keys, the
    first being 1; together the parts are all rows. Raises HeadraceError (HR090) for one that is none of them.
    """

    keys: tuple[Mapping[str, str], ...] = ()
    since: int | None = None
    part: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.part is not None and not 1 <= self.part[0] <= self.part[1]:
            what = f"there is no part {self.part[0]} of {self.part[1]}, so that no row would be compared"
            raise HeadraceError(code="HR090", what=what, fix="name one as part=(3, 10), the third of ten")

    @property
    def whole(self) -> bool:
        """Whether all rows are compared."""
        return not self.keys and self.since is None and self.part is None

    def __str__(self) -> str:
        keys = " or ".join(",".join(f"{name}={value}" for name, value in key.items()) for key in self.keys)
        later = "" if self.since is None else f"keys touched after batch {self.since}"
        part = "" if self.part is None else f"part {self.part[0]} of {self.part[1]}"
        return " of ".join(filter(None, (part, later, keys)))

    def choice(self, query: Query, spark: SparkSession, asked: BatchAnswer, key: tuple[str, ...]) -> Choice:
        """What takes these rows out of a frame with the result's schema. Raises CheckFailed.

        asked: the answer, over a prefix that is traced if `since` is given.
        """
        keyed = self._parted(self._keyed(query, spark, asked.frame.schema), identifying(asked.frame.schema, key))
        if self.since is None:
            return keyed
        try:
            touched, names = self._touched(spark, asked, key)
        except UntraceableError as node:
            raise CheckFailed(untraceable(query, node).but(fix="verify the whole result")) from None

        def chosen(rows: DataFrame) -> DataFrame:
            from pyspark.sql import functions as F

            pairs = [(F.col(other), F.col(f"`{name}`")) for name, other in names.items()]
            return keyed(rows.join(touched, same(pairs, by_function=asked.by_function), "left_semi"))

        return chosen

    def _touched(
        self, spark: SparkSession, asked: BatchAnswer, key: tuple[str, ...]
    ) -> tuple[DataFrame, dict[str, str]]:
        """The columns that identify a row, under other names, of each row that a later batch has fed."""
        from pyspark.sql import functions as F

        names = {name: f"__headrace_touched_{at}" for at, name in enumerate(identifying(asked.frame.schema, key))}
        frame, fed = trace(spark, asked.frame)
        later = reduce(
            lambda one, other: one | other,
            (F.coalesce(each["batch"] > F.lit(self.since), F.lit(False)) for each in fed),
        )
        return frame.where(later).select(*[F.col(f"`{name}`").alias(other) for name, other in names.items()]), names

    def _parted(self, keyed: Choice, by: Sequence[str]) -> Choice:
        """Of these rows those of the part, by a hash of the columns that identify a row; without such columns all."""
        if self.part is None or not by:
            return keyed
        from pyspark.sql import functions as F

        number, count = self.part
        chosen = F.pmod(F.xxhash64(*[F.col(f"`{name}`") for name in by]), F.lit(count)) == F.lit(number - 1)
        return lambda rows: keyed(rows).where(chosen)

    def _keyed(self, query: Query, spark: SparkSession, schema: StructType) -> Choice:
        if not self.keys:
            return lambda rows: rows
        from pyspark.sql import functions as F

        def equal(name: str, value: str) -> Column:
            if name not in schema.names:
                what = f"the result of query '{query.name}' has no column '{name}'"
                raise CheckFailed(code="HR716", what=what, fix=nearest(name, schema.names), where=query.where)
            kind = schema[name].dataType
            literal = F.lit(value)
            if kind.typeName() in ("struct", "array", "map", "variant", "interval") or (
                spark.range(1).select(literal.try_cast(kind)).collect()[0][0] is None
            ):
                what = f"'{value}' is no value of column '{name}' ({kind.simpleString()}) of query '{query.name}'"
                fix = "write a key as action=open,hour=2024-01-01T01:00; leave out what is no plain column"
                raise CheckFailed(code="HR716", what=what, fix=fix, where=query.where)
            return F.col(f"`{name}`") == literal.cast(kind)

        parts = [reduce(lambda one, other: one & other, (equal(*pair) for pair in key.items())) for key in self.keys]
        among = reduce(lambda one, other: one | other, parts)
        return lambda rows: rows.where(among)


WHOLE = RowScope()
