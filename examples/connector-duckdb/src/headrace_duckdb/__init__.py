"""A DuckDB file as a sink, as a source and as a table of Headrace."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from headrace.errors import Finding, PlatformError

PATIENCE_SECONDS = 20.0


def quote(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def connect(path: str, *, read_only: bool = False) -> Iterator[Any]:
    """One transaction on the file; another process that has it open is waited for."""
    ends, connection = time.monotonic() + PATIENCE_SECONDS, None
    while connection is None:
        try:
            connection = duckdb.connect(path, read_only=read_only)
        except duckdb.IOException as error:
            if time.monotonic() > ends or not os.path.exists(path):
                fix = "see that it is there, and let other processes close it between their transactions"
                raise PlatformError(
                    Finding(code="DUCKDB-1", what=f"{path} cannot be opened: {error}", fix=fix)
                ) from None
            time.sleep(0.1)
    with connection:  # It is closed at the end, and what was not committed is rolled back.
        connection.execute("SET TimeZone = 'UTC'; BEGIN")
        yield connection
        connection.execute("COMMIT")
