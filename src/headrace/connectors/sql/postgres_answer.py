"""The answer of PostgreSQL to one statement of a person: read-only, with a limit of rows and of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg


def bounded_answer(
    connection: psycopg.Connection[Any], statement: str, limit: int, seconds: float
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """The names of the columns and at most `limit` rows; raises psycopg.errors.QueryCanceled after `seconds`."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = {round(seconds * 1000)}")
        # Sent as binary, it is one statement by the protocol: nothing behind a semicolon is run.
        cursor.execute(f"DECLARE headrace_answer NO SCROLL CURSOR FOR {statement}", binary=True)
        cursor.execute(f"FETCH {limit} FROM headrace_answer")
        return [each.name for each in cursor.description or ()], cursor.fetchall()
