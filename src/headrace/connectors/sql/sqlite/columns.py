"""The columns of an existing SQLite table: how they change values, and whether a result fits."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

from headrace.connectors.sql.dialect import Connection, rows_of
from headrace.connectors.sql.limits import ExistingColumn, ExistingIndex, ExistingTable, Limit, Trigger
from headrace.connectors.sql.types import Kind, ResultColumn
from headrace.contract import OptionError

# As many digits of a decimal as SQLite's own number keeps exactly, so that SQL can compare and add them.
EXACT_DIGITS = 15

# What a column of a STRICT table takes without an error.
_STRICT: dict[str, tuple[Kind, ...]] = {
    "INTEGER": ("boolean", "integer"),
    "REAL": ("boolean", "integer", "float", "double", "decimal"),
    "BLOB": ("binary",),
    "TEXT": ("text", "date", "timestamp", "timestamp_ntz", "json", "decimal"),
}
_DAY = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_TIME = f"{_DAY}T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]"
_TEXTS: dict[Kind, str] = {"date": _DAY, "timestamp": f"{_TIME}Z", "timestamp_ntz": _TIME}
_COLUMN = "which treats texts as one key that differ for Spark, such as 'a' and 'A' or 'a '"


def existing_table(connection: Connection, table: str, quote: Callable[[str], str]) -> ExistingTable | None:
    rows = list(rows_of(connection, f"PRAGMA table_xinfo({quote(table)})"))
    if not rows:
        return None
    kind, text = next(
        rows_of(
            connection,
            "SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')",
            (table,),
        ),
        ("table", ""),
    )
    strict = bool(re.search(r"\bSTRICT\b", str(text).rpartition(")")[2], re.IGNORECASE))
    only_key = sum(bool(row[5]) for row in rows) == 1
    columns = tuple(
        _column(connection, table, row, strict=strict, only_key=only_key, quote=quote) for row in rows if row[6] != 1
    )
    keys = frozenset(str(row[1]) for row in rows if row[5])
    # Then the column is another name of the row's number, so that it has no index.
    is_rowid = only_key and any(row[5] and str(row[2]).upper() == "INTEGER" for row in rows)
    unique = [ExistingIndex("of the primary key", keys)] if is_rowid else []
    for _, index, is_unique, _, partial in rows_of(connection, f"PRAGMA index_list({quote(table)})"):
        if is_unique and not partial:
            members = [row for row in rows_of(connection, f"PRAGMA index_xinfo({quote(str(index))})") if row[5]]
            if all(int(row[1]) >= 0 for row in members):
                binary = all(str(row[4]).upper() == "BINARY" for row in members)
                names = frozenset(str(row[2]) for row in members)
                unique.append(ExistingIndex(f"'{index}'", names, "" if binary else _COLUMN.removeprefix("which ")))
    return ExistingTable(
        columns=columns,
        unique=tuple(unique),
        blockers=tuple(_blockers(str(kind), str(text))),
        triggers=tuple(_triggers(connection, table)),
    )


def _column(
    connection: Connection,
    table: str,
    row: tuple[object, ...],
    *,
    strict: bool,
    only_key: bool,
    quote: Callable[[str], str],
) -> ExistingColumn:
    _, name, declared, required, default, of_key, hidden = row
    shown = f"{declared} (STRICT)" if strict else str(declared)
    # The row's number takes NULL for the next number.
    numbers = only_key and bool(of_key) and str(declared).upper() == "INTEGER"
    return ExistingColumn(
        str(name),
        shown,
        bool(required) and default is None and not hidden,
        Limit(required=bool(required) or numbers, finite=strict and str(declared).upper() == "REAL"),
        blocker="and is generated, so that it takes no value" if hidden in (2, 3) else "",
        key_blocker=_key_blocker(connection, table, quote(str(name)), quote),
        constant=default is not None,
    )


def _key_blocker(connection: Connection, table: str, name: str, quote: Callable[[str], str]) -> str:
    """No pragma returns a column's collation; a comparison shows it. LIMIT keeps it in the subquery."""
    probe = (
        f"SELECT x = 'a', x = 'A ' FROM (SELECT {name} AS x FROM {quote(table)} WHERE 0 UNION ALL SELECT 'A' LIMIT 1)"
    )
    try:
        return _COLUMN if any(next(rows_of(connection, probe), ())) else ""
    except sqlite3.OperationalError as error:
        return f"and cannot be compared here: {error}"


def _blockers(kind: str, text: str) -> list[OptionError]:
    if kind == "view":
        return [OptionError(what="it is a view", fix="name the table that the rows are to lie in")]
    if re.match(r"\s*CREATE\s+VIRTUAL\b", text, re.IGNORECASE):
        return [
            OptionError(what="it is a virtual table, whose module keeps the rows", fix="write to an ordinary table")
        ]
    return []


def _triggers(connection: Connection, table: str) -> list[Trigger]:
    """Return the triggers of the table, and those of other tables that these may set off."""
    statement = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"
    triggers = [(str(name), str(of), str(text)) for name, of, text in rows_of(connection, statement)]
    if not any(of.lower() == table.lower() for _, of, _ in triggers):
        return []
    bodies = [(name, re.split(r"\bBEGIN\b", text, maxsplit=1, flags=re.IGNORECASE)[-1]) for name, _, text in triggers]
    return [Trigger(name=name, body=body, changes_rows=False) for name, body in bodies]


def incompatible(declared: str, column: ResultColumn, wanted: str) -> str | None:
    """Return why the column would not keep the values of `column` as they are, or None."""
    affinity = _affinity(declared)
    if affinity == "ANY":
        return None
    if declared.endswith("(STRICT)") and column.kind not in _STRICT.get(affinity, ()):
        return f"which is not a type for {column.type.simpleString()}"
    if affinity == "REAL" and column.kind == "integer" and column.type.simpleString() == "bigint":
        return "which rounds whole numbers of more than 15 digits; declare it BIGINT"
    if column.kind in ("boolean", "integer", "float", "double"):
        return "which turns numbers into text" if affinity == "TEXT" else None
    if column.kind == "binary" or (column.kind == "decimal" and column.precision <= EXACT_DIGITS):
        return None
    if affinity in ("TEXT", "BLOB"):
        return None
    return f"which turns text that looks like a number into one; declare it {wanted}"


def foreign_values(column: ResultColumn, name: str) -> str:
    """Return a condition for the values of the column called `name` that are not as Headrace writes `column`.

    SQLite's columns take any value: another program may have written a time as '2026-01-01 08:00:00', and the row of
    that time would not be found by its key.
    """
    if column.kind in _TEXTS:
        return f"typeof({name}) <> 'text' OR {name} NOT GLOB '{_TEXTS[column.kind]}'"
    if column.kind == "boolean":
        return f"typeof({name}) <> 'integer' OR {name} NOT IN (0, 1)"
    if column.kind == "integer":
        return f"typeof({name}) NOT IN ('integer', 'real') OR {name} <> CAST({name} AS INTEGER)"
    if column.kind in ("float", "double"):
        return f"typeof({name}) NOT IN ('integer', 'real') AND {name} <> 'NaN'"
    if column.kind == "decimal" and column.precision <= EXACT_DIGITS:
        return f"typeof({name}) NOT IN ('integer', 'real')"
    return f"typeof({name}) <> '{'blob' if column.kind == 'binary' else 'text'}'"


def _affinity(declared: str) -> str:
    """Return SQLite's affinity of a declared type (https://sqlite.org/datatype3.html, 3.1)."""
    for pattern, affinity in (
        (r"^ANY \(STRICT", "ANY"),
        ("INT", "INTEGER"),
        ("CHAR|CLOB|TEXT", "TEXT"),
        ("BLOB|^$", "BLOB"),
        ("REAL|FLOA|DOUB", "REAL"),
    ):
        if re.search(pattern, declared.upper()):
            return affinity
    return "NUMERIC"
