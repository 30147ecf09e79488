"""Rows of tables, and values of broadcasts, that a test gives in the place of what the project computes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import ProjectError, nearest
from headrace.frames.plan_builder import build, value_of
from headrace.model import NamedSource, Project, PythonTransform, Query, Table
from headrace.spark.jvm.settings import WHOLE_JSON
from headrace.testing.given import typed_rows
from headrace.testing.values import json_value
from headrace.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Each start computes its tables; no interval ends in a test.
_NEVER = Duration("1000 days", 1000 * 86400.0)
# A function that computes a table is part of what a query means, with the values that it holds: here a number.
_ALL: list[GivenTables] = []


class GivenTables:
    """What the tables of these names hold now.

    project: with what is given in their place, by versions as of a refreshed table: each batch sees one, and the batch
    answer is the query over each range of batches with the version of that time.
    """

    def __init__(self, project: Project, query: Query, spark: SparkSession, names: Collection[str]) -> None:
        """Prepare the stand-ins.

        Raises:
            ProjectError: A name is not that of a table of the query.
        """
        self._given: dict[str, Any] = {}
        self._root, self._spark = project.root, spark
        tables = {thing.name: thing for thing in project.upstream(query.transform) if isinstance(thing, Table)}
        for name in names:
            if name not in tables:
                problem = f"query '{query.name}' reads no table '{name}'"
                raise ProjectError(code="HR721", what=problem, fix=nearest(name, tables), where=query.where)
        self._declared = {name: tables[name] for name in names}
        self._schemas = {name: _columns(project, tables[name], spark) for name in names if not tables[name].broadcast}
        stand_ins = {name: _stand_in(tables[name], len(_ALL)) for name in names}
        _ALL.extend([self] if names else [])
        self.project = replace(project, tables={**project.tables, **stand_ins})

    def give(self, tables: Mapping[str, Any]) -> None:
        """Set the rows of tables from the next start of the query on."""
        self._given.update(tables)

    def value(self, name: str) -> Any:
        """Return what a broadcast holds: what was given, or what is computed as it is declared."""
        if name in self._given:
            return self._given[name]
        return value_of(self.project, self._declared[name], self._spark, _no_source, {})

    def frame(self, name: str) -> DataFrame:
        """Return what a table holds."""
        if name in self._given:
            return self._frame(self._declared[name])
        return build(self.project, self._declared[name].transform, self._spark, _no_source)

    def _frame(self, table: Table) -> DataFrame:
        from pyspark.sql import functions as F

        rows, schema = self._given[table.name], self._schemas[table.name]
        if schema is None:
            return self._spark.createDataFrame(rows)
        lines = [(json.dumps(json_value(row)),) for row in typed_rows(rows, schema, self._root, table)]
        line = F.from_json("line", schema, {**WHOLE_JSON, "mode": "FAILFAST"}).alias("row")
        return self._spark.createDataFrame(lines, "line STRING").select(line).select("row.*")


def _stand_in(table: Table, number: int) -> Table:
    name = table.name

    def value() -> Any:
        return _ALL[number].value(name)

    def rows() -> DataFrame:
        return _ALL[number].frame(name)

    transform = PythonTransform(function=value if table.broadcast else rows, inputs=(), where=table.where)
    return replace(table, transform=transform, refresh=table.refresh or _NEVER)


def _columns(project: Project, table: Table, spark: SparkSession) -> StructType | None:
    """Return the columns of a table as it is declared; None where it cannot be computed here."""
    with suppress(Exception):
        return build(project, table.transform, spark, _no_source).schema
    return None


def _no_source(source: NamedSource) -> DataFrame:
    raise AssertionError(f"no table reads a source, as {source.name} is")
