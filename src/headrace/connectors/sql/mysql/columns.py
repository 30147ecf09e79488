"""The columns of an existing MySQL table: the values that they take, and whether a result fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from headrace.connectors.sql import limits
from headrace.connectors.sql.dialect import Connection, rows_of
from headrace.connectors.sql.types import Kind, ResultColumn
from headrace.contract import OptionError

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES = {"tinytext": 1 << 8, "text": 1 << 16, "mediumtext": 1 << 24}
_BLOBS = {"tinyblob": 1 << 8, "blob": 1 << 16, "mediumblob": 1 << 24}
_TEXTS = ("varchar", *_BYTES, "longtext")
_FITS: dict[Kind, tuple[str, ...]] = {
    "boolean": ("tinyint", "bit"),
    "integer": (*_BITS, "decimal"),
    "float": ("double",),
    "double": ("double",),
    "decimal": ("decimal",),
    "text": _TEXTS,
    "binary": ("varbinary", *_BLOBS, "longblob"),
    "date": ("date",),
    "timestamp": ("datetime", "timestamp"),
    "timestamp_ntz": ("datetime",),
    # Not the type JSON of MySQL, which turns long decimals into doubles; that of MariaDB is longtext.
    "json": ("longtext", "mediumtext"),
}
# The manual promises these; earlier years "might work".
_EARLIEST, _LATEST = datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
_TABLE = "SELECT table_type, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"
_COLUMNS = """
SELECT column_name, column_type, collation_name, is_nullable = 'YES', column_default, extra,
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


def existing_column(
    name: str,
    declared: str,
    collation: str | None,
    takes_null: object = True,
    default: object = None,
    extra: object = "",
    generated: object = False,
) -> limits.ExistingColumn:
    """Return a column as information_schema describes it; the collation is part of its declaration."""
    has_default = default is not None and str(default) != "NULL"
    shown = f"{declared} COLLATE {collation}" if collation else declared
    counts, changes = (words in str(extra).lower() for words in ("auto_increment", "on update"))
    return limits.ExistingColumn(
        name,
        shown,
        required=not takes_null and not has_default and not counts and not generated,
        # A NULL for a TIMESTAMP that takes none would be the time of day, one for AUTO_INCREMENT the next number.
        limit=replace(limit_of(declared), required=not takes_null),
        blocker="and is generated, so that it takes no value" if generated else "",
        key_blocker="ON UPDATE CURRENT_TIMESTAMP, which changes the key of a row that is replaced"
        if changes
        else _key_blocker(collation),
        constant=has_default or bool(generated),
    )


def incompatible(there: limits.ExistingColumn, column: ResultColumn, wanted: str) -> str | None:
    """Return why the existing column would not keep the values of `column` as they are, or None."""
    base, sizes = _split_type(there.declared)
    if base not in _FITS[column.kind]:
        return f"which is not a type for {column.type.simpleString()}; declare it {wanted}"
    if base == "decimal" and sizes[1] < column.scale:
        return f"which rounds to {sizes[1]} places; declare it {wanted}"
    if base == "double" and sizes:
        return f"which rounds to {sizes[1]} places; declare it {wanted}"
    if base in ("datetime", "timestamp") and (not sizes or sizes[0] < 6):
        return f"which cuts off microseconds; declare it {wanted}"
    collation = there.declared.rpartition(" COLLATE ")[2] if " COLLATE " in there.declared else ""
    if column.kind in ("text", "json") and not collation.startswith("utf8mb4_"):
        return f"which does not keep every character; declare it {wanted}"
    return None


def _key_blocker(collation: str | None) -> str:
    """Return why a key column with this collation treats different texts as one; empty: it does not."""
    if not collation or collation in ("utf8mb4_nopad_bin", "utf8mb4_0900_bin"):
        return ""
    return "which treats texts as one key that differ for Spark, such as 'a' and 'a '"


def limit_of(declared: str) -> limits.Limit:
    """Return the limit of a column of this type."""
    base, sizes = _split_type(declared)
    if base in _BITS:
        bits = _BITS[base]
        unsigned = "unsigned" in declared
        return limits.Limit(low=0 if unsigned else -(1 << (bits - 1)), high=(1 << (bits - (not unsigned))) - 1)
    if base == "decimal":
        limit = limits.digits_limit(sizes[0], sizes[1])
        return replace(limit, low=0) if "unsigned" in declared else limit
    if base == "varchar":
        return limits.Limit(characters=sizes[0])
    if base == "varbinary":
        return limits.Limit(size=sizes[0])
    if base in _BYTES or base in _BLOBS:
        return limits.Limit(size={**_BYTES, **_BLOBS}[base] - 1)
    if base == "double":
        return limits.Limit(finite=True, low=0 if "unsigned" in declared else None)
    if base == "timestamp":
        return limits.Limit(first=datetime(1970, 1, 1, 0, 0, 1), last=datetime(2038, 1, 19, 3, 14, 7, 999999))
    return limits.Limit(first=_EARLIEST, last=_LATEST) if base in ("date", "datetime") else limits.Limit()


def _split_type(declared: str) -> tuple[str, tuple[int, ...]]:
    """Return the type's name and the numbers behind it."""
    parts = re.match(r"(\w+)(?:\(([\d,]+)\))?", declared.lower())
    if parts is None:
        return declared.lower(), ()
    return parts[1], tuple(int(number) for number in (parts[2] or "").split(",") if number)


def existing_table(connection: Connection, table: str) -> limits.ExistingTable | None:
    [*tables] = rows_of(connection, _TABLE, (table,))
    if not tables:
        return None
    columns = tuple(existing_column(*row) for row in rows_of(connection, _COLUMNS, (table,)))
    return limits.ExistingTable(
        columns=columns,
        unique=tuple(_unique_indexes(connection, table)),
        blockers=tuple(_blockers(*tables[0])),
        triggers=tuple(
            limits.Trigger(name=str(name), body=str(body), changes_rows=bool(before), deletes_only=bool(deletes))
            for name, before, deletes, body in rows_of(connection, _TRIGGERS, (table,))
        ),
    )


def _blockers(kind: object, engine: object) -> Iterator[OptionError]:
    if "VIEW" in str(kind):
        yield OptionError(what="it is a view", fix="name the table that the rows are to lie in")
    elif str(engine).lower() != "innodb":
        fault = f"its engine is {engine}, which does not write rows and ledger in one transaction"
        yield OptionError(what=fault, fix="ALTER TABLE ... ENGINE=InnoDB")


def _unique_indexes(connection: Connection, table: str) -> Iterator[limits.ExistingIndex]:
    indexes: dict[str, dict[str | None, object]] = {}
    for index, column, size in rows_of(connection, _UNIQUE, (table,)):
        indexes.setdefault(str(index), {})[None if column is None else str(column)] = size
    for index, members in indexes.items():
        loose = ""
        if None in members:
            loose = "is on an expression, which can be the same for different rows"
        elif any(size is not None for size in members.values()):
            loose = "looks at the first characters only, so that it treats texts as one that differ for Spark"
        yield limits.ExistingIndex(f"'{index}'", frozenset(name for name in members if name is not None), loose)
