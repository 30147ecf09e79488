"""What a database says of a result before a start: asked read-only, on one connection, and nothing is made."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.connectors.not_asked import findings_of, not_asked
from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.ledger_tables import TABLES_FORM
from headrace.connectors.sql.prepare import result_table
from headrace.contract import SinkContext
from headrace.errors import Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# A server that takes no connection for so long is not waited for; what it said holds for the other queries of a check.
ANSWER_SECONDS = 3.0
_REMEMBERED_SECONDS = 30.0


def incompatibilities(
    dialect: Dialect,
    name: str,
    key: Sequence[str],
    schema: StructType,
    context: SinkContext,
    *,
    adds: bool,
) -> Iterator[Finding]:
    """What keeps a result of `schema` from being written into the table."""
    try:
        table = result_table(name, key, schema, context)
        if silent := _silent(getattr(dialect, "url", "")):
            yield not_asked(silent, "start the server, or leave it out: --no-connect")
            return
        with closing(dialect.connect_to_read()) as connection:
            table = table.as_known(connection, dialect)
            there = dialect.existing(connection, table.name)
            if there is None:
                return
            missing = TABLES_FORM.missing_columns(connection, dialect)
            owner = table.owner(Ledger(connection, dialect, context, table.name)) if not missing else None
            list(table.changes(there, dialect, context, owner, adds=adds))
            if not missing or missing == TABLES_FORM.columns:
                table.require_ours(connection, dialect, context, owner, there.elsewhere)
    except SinkError as error:
        yield from findings_of(error)
    except dialect.errors as error:
        problem = dialect.explain(error)
        yield not_asked(problem.what, problem.fix)


def _silent(url: str) -> str:
    """Why the server of `url` takes no connection; empty if it does, or if only its client can tell."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or {"mysql": 3306, "mariadb": 3306}.get(parts.scheme, 5432)
    except ValueError:
        return ""
    plain = host is not None and "," not in parts.netloc and "host" not in parts.query
    return _refused(host, port, int(time.monotonic() / _REMEMBERED_SECONDS)) if host and plain else ""


@lru_cache(maxsize=64)
def _refused(host: str, port: int, moment: int) -> str:
    """Why nothing listens there; `moment` makes an answer hold for a while only."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS):
            return ""
    except OSError as error:
        return f"{host}:{port} does not answer: {error.strerror or error}"
