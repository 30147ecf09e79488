"""Names of tables in Spark's own catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.contract import OptionError
from headrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"(?:spark_catalog\.)?(?:(\w+)\.)?(\w+)")


def is_name(table: str) -> bool:
    """Whether a table in Spark's own catalog can be called so."""
    return _NAME.fullmatch(table) is not None


def no_name(table: str | None, otherwise: str = "") -> Iterator[OptionError]:
    """Refuse a name that no table can have; `otherwise`: what else can be given."""
    if table is not None and not is_name(table):
        fault = f"'{table}' is not a valid name of a table in Spark's own catalog"
        yield OptionError(what=fault, fix=f"write table or database.table, of letters, digits and _{otherwise}")


def parts_of(spark: SparkSession, table: str) -> tuple[str, str]:
    """The database of a name, and that of the table in it."""
    match = _NAME.fullmatch(table)
    assert match is not None, "`problems` refuses other names"
    return match[1] or spark.catalog.currentDatabase(), match[2]


def require_database(spark: SparkSession, table: str) -> None:
    """Raise SinkError where the catalog lacks the database of a sink's table."""
    database, _ = parts_of(spark, table)
    if not spark.catalog.databaseExists(database):
        fault = f"the catalog has no database '{database}' for table '{table}'"
        raise SinkError(code="HR419", what=fault, fix=f"make it first: CREATE DATABASE {database}")


def quote(name: str) -> str:
    """A name as it stands in SQL."""
    return f"`{name.replace('`', '``')}`"
