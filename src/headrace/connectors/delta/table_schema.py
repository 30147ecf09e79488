"""The form of the Delta table that a result lies in: made on first use, compared on every later one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.connectors.delta.table import State
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError, nearest
from headrace.spark.messages import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_REFUSED = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """The columns of a result, its key, and the columns that the table is partitioned by."""

    schema: StructType
    key: Sequence[str]
    partition_by: Sequence[str]

    def incompatibilities(self, context: SinkContext) -> Iterator[Finding]:
        """What keeps the result from being a table at all."""
        folded: dict[str, str] = {}
        for name in self.schema.names:
            if _REFUSED.search(name):
                what = (
                    f"the result of query '{context.query}' has a column '{name}': Delta takes no ,;{{}}()= nor blanks"
                )
                yield Finding(code="HR404", what=what, fix="rename it in the query's last select")
            if name.lower() in folded:
                what = f"columns '{folded[name.lower()]}' and '{name}' of query '{context.query}' differ only by case"
                yield Finding(code="HR404", what=what, fix="rename one of the two")
            folded[name.lower()] = name
        for option, names in (("key", self.key), ("partition_by", self.partition_by)):
            for name in names:
                if name not in self.schema.names:
                    what = f"{option} names '{name}', which the result of query '{context.query}' does not have"
                    yield Finding(code="HR404", what=what, fix=nearest(name, self.schema.names))
        if self.partition_by and set(self.partition_by) >= set(self.schema.names):
            what = f"partition_by names every column of the result of query '{context.query}'"
            yield Finding(code="HR404", what=what, fix="leave at least one column to be written into the files")

    def create(self, spark: SparkSession, where: str, context: SinkContext) -> None:
        """Make the table; `where` is its name in SQL."""
        from pyspark.errors import PySparkException

        parts = ", ".join(_quoted(name) for name in self.partition_by)
        columns = ", ".join(f"{_quoted(part.name)} {part.dataType.simpleString()}" for part in self.schema.fields)
        statement = f"CREATE TABLE {where} ({columns}) USING delta{f' PARTITIONED BY ({parts})' if parts else ''}"
        try:
            spark.sql(statement)
        except PySparkException as error:
            what = f"no table {where} can be made for the result of query '{context.query}': {first_sentence(error)}"
            raise SinkError(Finding(code="HR404", what=what, fix="change the query's last select")) from error

    def additions(self, state: State, table: str, context: SinkContext, *, adds: bool) -> list[str]:
        """The columns that must be added, as SQL declares them; raises SinkError with every difference that stays."""
        there = {part.name.lower(): part for part in state.schema.fields}
        ours = {name.lower() for name in self.schema.names}
        differences, added = [], []
        for part in self.schema.fields:
            found = there.get(part.name.lower())
            declared = f"{_quoted(part.name)} {part.dataType.simpleString()}"
            if found is None and adds and part.name not in self.key:
                added.append(declared)
            elif found is None:
                differences.append(f"it has no column '{part.name}'")
            elif found.dataType.simpleString() != part.dataType.simpleString():
                has, wants = found.dataType.simpleString(), part.dataType.simpleString()
                differences.append(f"its column '{found.name}' is {has}, the result's is {wants}")
        differences += [
            f"its column '{found.name}' is not in the result" for low, found in there.items() if low not in ours
        ]
        if self.partition_by and list(self.partition_by) != state.partitions:
            by = ", ".join(state.partitions) or "nothing"
            differences.append(f"it is partitioned by {by} and not by {', '.join(self.partition_by)}")
        if differences:
            only_new_columns = not adds and all("has no column" in difference for difference in differences)
            fix = "change the query's last select, or write to another table"
            fix = "set on_schema_change to add, or write to another table" if only_new_columns else fix
            raise SinkError(
                [
                    Finding(
                        code="HR406",
                        what=f"{table} does not fit the result of query '{context.query}': {each}",
                        fix=fix,
                    )
                    for each in differences
                ]
            )
        return added


def merge(where: str, source: str, key: Sequence[str]) -> str:
    """The statement that lets the rows of `source` replace those with the same key."""
    same = " AND ".join(f"t.{_quoted(name)} <=> s.{_quoted(name)}" for name in key)
    return (
        f"MERGE INTO {where} AS t USING {source} AS s ON {same} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
