"""A MySQL or MariaDB table that is already there, as information_schema tells of it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.connectors.sql.dialect import Connection, rows_of
from headrace.connectors.sql.existing import Blocker, ExistingIndex, ExistingTable, Trigger
from headrace.connectors.sql.mysql_columns import existing_column

_TABLE = "SELECT table_type, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"
_COLUMNS = """
SELECT column_name, column_type, is_nullable = 'YES', column_default, extra, collation_name,
COALESCE(generation_expression, '') <> '' FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position
"""
# The column of an index on an expression is NULL.
_UNIQUE = """
SELECT index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0
"""
_TRIGGERS = """
SELECT trigger_name, action_timing = 'BEFORE', event_manipulation = 'DELETE', action_statement
FROM information_schema.triggers WHERE event_object_schema = DATABASE() AND event_object_table = %s
"""


def existing_table(connection: Connection, table: str) -> ExistingTable | None:
    """The table as it is, or None."""
    [*found] = rows_of(connection, _TABLE, (table,))
    if not found:
        return None
    columns = tuple(
        existing_column(
            str(name),
            str(declared),
            collation,
            takes_null=bool(nullable),
            has_default=default is not None and str(default) != "NULL",
            extra=str(extra),
            generated=bool(generated),
        )
        for name, declared, nullable, default, extra, collation, generated in rows_of(connection, _COLUMNS, (table,))
    )
    return ExistingTable(
        columns=columns,
        unique=tuple(_unique(connection, table)),
        blockers=tuple(_blockers(*found[0])),
        triggers=tuple(
            Trigger(name=str(name), body=str(body), changes_rows=bool(before), deletes_only=bool(deletes))
            for name, before, deletes, body in rows_of(connection, _TRIGGERS, (table,))
        ),
    )


def _blockers(kind: object, engine: object) -> Iterator[Blocker]:
    if "VIEW" in str(kind):
        yield Blocker("HR465", "it is a view", "name the table that the rows are to lie in")
    elif str(engine).lower() != "innodb":
        what = f"its engine is {engine}, which does not write rows and ledger in one transaction"
        yield Blocker("HR465", what, "ALTER TABLE ... ENGINE=InnoDB")


def _unique(connection: Connection, table: str) -> Iterator[ExistingIndex]:
    indexes: dict[str, dict[str | None, object]] = {}
    for index, column, size in rows_of(connection, _UNIQUE, (table,)):
        indexes.setdefault(str(index), {})[None if column is None else str(column)] = size
    for index, members in indexes.items():
        loose = ""
        if None in members:
            loose = "is on an expression, which can be the same for different rows"
        elif any(size is not None for size in members.values()):
            loose = "looks at the first characters only, so that it takes texts for one that differ for Spark"
        yield ExistingIndex(f"'{index}'", frozenset(name for name in members if name is not None), loose)
