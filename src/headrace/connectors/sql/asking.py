"""What a table and its database answer to people while the query runs: read-only, a few rows, within some seconds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from typing import Any, TypeVar

from headrace.connectors.sql.dialect import Dialect, rows_of
from headrace.connectors.sql.ledger_tables import LEDGER, TABLES
from headrace.contract import LedgerLine, Rows
from headrace.errors import Finding, SinkError

LONGEST = 500
_COMMENT = re.compile(r"\s+|--[^\n]*(\n|$)|/\*(?!!).*?\*/|\(", re.DOTALL)
_READS = ("select", "with", "values", "table")
# MySQL writes a file of the server by these, which no transaction forbids.
_WRITES_FILE = re.compile(r"\b(outfile|dumpfile)\b", re.IGNORECASE)
_Found = TypeVar("_Found")


def ask(dialect: Dialect, statement: str, *, limit: int, seconds: float) -> Rows:
    """What the database answers; raises SinkError for what does not only read, fails, or takes longer."""
    wanted = statement.strip().rstrip(";").strip()
    first = re.match(r"[A-Za-z]*", _without_comments(wanted))
    if first is None or first[0].lower() not in _READS or _WRITES_FILE.search(wanted):
        what = "only a statement that reads is taken: it begins with SELECT, WITH, VALUES or TABLE"
        raise SinkError(Finding(code="HR887", what=what, fix="write one such statement"))
    columns, found = _asked(dialect, lambda: dialect.answer(wanted, limit + 1, seconds), seconds)
    return _rows(columns, found, limit)


def newest(dialect: Dialect, table: str, *, limit: int, seconds: float) -> Rows:
    """Rows of the table, those with the greatest time first if it has one, and if they can be had in the time."""

    def named() -> tuple[str, str | None]:
        with closing(dialect.connect_to_read()) as connection:
            mark = dialect.placeholder
            schema = list(rows_of(connection, f"SELECT spark_schema FROM {TABLES} WHERE table_name = {mark}", (table,)))
            return dialect.real_name(connection, table), _time_column(str(schema[0][0])) if schema else None

    name, time = _asked(dialect, named, seconds)
    every = f"SELECT * FROM {_quoted(dialect, name)}"
    if time is not None:
        ordered = f"{every} ORDER BY {_quoted(dialect, time)} DESC"
        try:
            return _rows(*dialect.answer(ordered, limit + 1, seconds), limit, order=f"the greatest {time} first")
        except dialect.errors as error:
            if not dialect.is_out_of_time(error):
                raise _explained(dialect, error, seconds) from None
    return _rows(*_asked(dialect, lambda: dialect.answer(every, limit + 1, seconds), seconds), limit)


def ledger_lines(
    dialect: Dialect, table: str, query: str, generation: int, first: int, last: int
) -> Mapping[int, LedgerLine]:
    """What the ledger of the table's own application has of these batches."""
    mark = dialect.placeholder
    statement = (
        f"SELECT batch, row_count, committed_at FROM {LEDGER} WHERE query = {mark} AND generation = {mark} "
        f"AND table_name = {mark} AND batch BETWEEN {mark} AND {mark} "
        f"AND application IN (SELECT application FROM {TABLES} WHERE table_name = {mark})"
    )

    def read() -> list[tuple[Any, ...]]:
        with closing(dialect.connect_to_read()) as connection:
            return list(rows_of(connection, statement, (query, generation, table, first, last, table)))

    return {
        int(batch): LedgerLine(rows=None if rows is None else int(rows), committed_at=at)
        for batch, rows, at in _asked(dialect, read, 0)
    }


def _asked(dialect: Dialect, look: Callable[[], _Found], seconds: float) -> _Found:
    try:
        return look()
    except dialect.errors as error:
        raise _explained(dialect, error, seconds) from None


def _explained(dialect: Dialect, error: Exception, seconds: float) -> SinkError:
    if dialect.is_out_of_time(error):
        what, fix = f"the answer took longer than {seconds:g} seconds", "ask for less, or by a column that has an index"
        return SinkError(Finding(code="HR888", what=what, fix=fix))
    # The first line of what the database says; the others repeat the statement.
    said = next(iter(str(error.args[-1] if error.args else error).strip().splitlines()), type(error).__name__)
    return SinkError(Finding(code="HR889", what=f"{dialect.name} refused it: {said}", fix="correct the statement"))


def _quoted(dialect: Dialect, name: str) -> str:
    """The name in a statement without values, where a per cent sign is no placeholder."""
    quoted = dialect.quote(name)
    return quoted if dialect.placeholder == "?" else quoted.replace("%%", "%")


def _without_comments(text: str) -> str:
    while found := _COMMENT.match(text):
        text = text[found.end() :]
    return text


def _time_column(schema: str) -> str | None:
    """The first column of a time, by the schema that the ledger keeps."""
    try:
        fields = json.loads(schema)["fields"]
    except (ValueError, KeyError, TypeError):
        return None
    return next((str(each["name"]) for each in fields if each["type"] in ("timestamp", "timestamp_ntz", "date")), None)


def _rows(columns: Sequence[str], found: Sequence[Sequence[Any]], limit: int, order: str = "") -> Rows:
    rows = tuple(tuple(map(_shown, row)) for row in found[:limit])
    return Rows(columns=tuple(columns), rows=rows, more=len(found) > limit, order=order)


def _shown(value: Any) -> str | int | float | bool | None:
    """A value as JSON has it; a whole number that a browser would round, and what else there is, as text."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**53):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = f"0x{bytes(value[: LONGEST // 2]).hex()}"
    elif isinstance(value, (dict, list)):
        text = json.dumps(value, default=str, ensure_ascii=False)
    else:
        text = value.isoformat() if isinstance(value, (date, datetime)) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
