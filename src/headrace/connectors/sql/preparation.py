"""Make a database table ready for a query's batches, and read it back as whole batches."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.connectors.exactly_once import Retry, is_applied, require_lines_fit, view_of
from headrace.connectors.result_findings import findings_of, warn_of_silent_sink
from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.change_memory import ChangeMemory
from headrace.connectors.sql.change_rows import ChangeForm
from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.limits import Limit
from headrace.connectors.sql.result_table import ResultTable, result_table
from headrace.connectors.sql.staging import drop_staged
from headrace.connectors.sql.system_tables import EPOCHS, LEDGER, TABLES, OwnLines
from headrace.connectors.sql.transactions import Transaction, explain_failure
from headrace.contract import SinkContext
from headrace.errors import CheckpointBehind, CheckpointError, Finding, SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CONTENDED_SECONDS = 20.0
# A server that takes no connection for so long is not waited for; its answer holds for the other queries of a check.
ANSWER_SECONDS = 3.0
_REMEMBERED_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A table that is ready to take batches: the epoch of this driver, and what each column takes.

    widened: the result's schema, if columns are to be added with the first batch; None: the table has all of them.
    widest: how many bytes of values one statement may hold; None: any number.
    """

    table: ResultTable
    epoch: int
    limits: Mapping[str, Limit]
    widened: str | None = None
    widest: int | None = None


def prepare(
    dialect: Dialect,
    table: ResultTable,
    schema: str,
    context: SinkContext,
    *,
    adds: bool = False,
    rewindable: bool = False,
    form: ChangeForm | None = None,
) -> Ready:
    """Make the table and the ledger ready, and take the next epoch.

    If anything does not fit, nothing is changed and an older driver is not disturbed. Where another start was in the
    way, as one that makes the same tables, it is tried again. Raises SinkError, CheckpointError.
    """
    pauses = Retry(seconds=CONTENDED_SECONDS, uneven=True).pauses()
    while True:
        try:
            with closing(dialect.connect()) as connection:
                named = table.with_real_name(OwnLines(connection, dialect, context, table.name))
                ledger = Ledger(connection, dialect, context, named.name)
                ready = _make_ready(ledger, named, schema, adds=adds)
                if form is not None:
                    ChangeMemory.of(ledger).make(named, form)
                if rewindable:
                    BeforeImages.of(ledger, named).make()
                return ready
        except _Renamed:
            continue
        except dialect.errors as error:
            # How long a lock is waited for is the caller's to say.
            again = dialect.has_code(error, dialect.faults.contended) and not dialect.waits_for_lock(error)
            pause = next(pauses, None) if again else None
            if pause is None:
                raise explain_failure(dialect, error, f"query '{context.query}'") from None
            time.sleep(pause)


def require_settings(lines: OwnLines, table: ResultTable) -> None:
    """Raise SinkError for a setting of the database by which it cannot keep the result."""
    context = lines.context
    problems = lines.dialect.misfits(lines.connection, table.target(replaces=context.mode == "update"))
    whose = f"the result of query '{context.query}' cannot be kept"
    if findings := [
        Finding(code=problem.code, what=f"{whose}: {problem.what}", fix=problem.fix) for problem in problems
    ]:
        raise SinkError(findings)


class _Renamed(Exception):
    """Another start has made the table meanwhile, under another spelling of its name."""


def _make_ready(ledger: Ledger, table: ResultTable, schema: str, *, adds: bool) -> Ready:
    connection, dialect = ledger.connection, ledger.dialect
    require_settings(ledger, table)
    ledger.create()
    with Transaction().begin(connection, dialect):
        changes, epoch = _lock(ledger, table, adds=adds)
        for change in changes:
            ledger.run(change)
        if changes and not dialect.transactional_ddl:
            # The database has committed by itself; what was read before may have changed since.
            ledger.run(dialect.begin_write)
            _, epoch = _lock(ledger, table, adds=adds, is_made=True)
        # Columns are added with the first batch, so that a start that comes to nothing leaves the table as it was.
        there, owner = ledger.describe_table(table.name), ledger.owner() or table.owner(ledger)
        added = table.additions(there, dialect) if adds and there is not None else []
        is_own = owner is not None and owner.is_of(ledger.context)
        made_for = table.key if changes else owner.made_for if owner is not None and is_own else None
        ledger.own(owner.schema if added and owner is not None and owner.schema else schema, made_for)
        ledger.context.before_entering()
        ledger.enter_epoch(epoch + 1)
    limits = table.limits(there, dialect) if there is not None else {}
    drop_staged(ledger, epoch + 1)
    widest = dialect.widest(connection)
    return Ready(table=table, epoch=epoch + 1, limits=limits, widened=schema if added else None, widest=widest)


def _lock(ledger: Ledger, table: ResultTable, *, adds: bool, is_made: bool = False) -> tuple[list[str], int]:
    """Return what must be changed before the query's batches fit, and the newest epoch; raises when they cannot fit.

    is_made: this start has made the table, and has not yet entered for which key.

    Both rows are locked first. An older driver's batch has then ended, no other can begin, and all that is read here
    stays as it is until the commit.
    """
    owner, epoch = ledger.owner(lock=True) or table.owner(ledger), ledger.epoch(lock=True)
    is_applied(ledger.context, ledger.mark())
    if ledger.dialect.real_name(ledger.connection, table.spelled or table.name) != table.name:
        raise _Renamed
    there = ledger.describe_table(table.name)
    _require_lines(ledger, table, there is not None)
    changes = list(table.changes(ledger, there, owner, adds=adds))
    if there is not None:
        table.require_ours(ledger, owner, there.elsewhere)
        if not is_made:
            table.require_same_key(ledger, owner)
    return changes, epoch


def _require_lines(ledger: Ledger, table: ResultTable, is_there: bool, *, is_kept: bool = True) -> None:
    """Raise CheckpointError where the ledger's lines and the checkpoint do not fit; `is_kept`: there is a ledger."""
    context, here = ledger.context, view_of(ledger.context)
    lines = ledger.lines(min(here.digests, default=0)) if is_kept else []
    # Rows without a line may be those of the first batch, unless an older generation has left them.
    is_unknown = not lines and context.mode == "append" and is_there and not (is_kept and ledger.has_lines)
    begun = not (is_unknown and table.has_rows(ledger))
    require_lines_fit(context, table.name, lines, here=here, kept=ledger.kept_plan, begun=begun)
    # A new table would hold the next batches alone. In complete mode the next one brings all rows.
    if lines and not is_there and context.mode != "complete":
        fault = (
            f"the ledger has batches of query '{context.query}' up to {lines[-1].batch}, and table '{table.name}', "
            "which held them, is gone: it was dropped, or a reset has set it aside and this storage is an older copy"
        )
        fix = "put the table back, or the storage of after the reset; or reset the query (headrace reset QUERY)"
        raise CheckpointError(code="HR410", what=fault, fix=fix)


def incompatibilities(
    dialect: Dialect, name: str, key: Sequence[str], schema: StructType, context: SinkContext, *, adds: bool
) -> Iterator[Finding]:
    """Yield what keeps a result of `schema` from being written into the table, by its columns and by its ledger."""
    try:
        table = result_table(name, key, schema, context)
        if silent := _connection_fault(getattr(dialect, "url", "")):
            yield warn_of_silent_sink(silent, "start the server, or leave it out: --no-connect")
            return
        with closing(dialect.connect_to_read()) as connection:
            table = table.with_real_name(OwnLines(connection, dialect, context, table.name))
            ledger = Ledger(connection, dialect, context, table.name)
            require_settings(ledger, table)
            there = ledger.describe_table(table.name)
            if context.application:
                if not EPOCHS.missing_columns(connection, dialect):
                    is_applied(context, ledger.mark())
                is_kept = not LEDGER.missing_columns(connection, dialect)
                with suppress(CheckpointBehind):  # A start repairs it.
                    _require_lines(ledger, table, there is not None, is_kept=is_kept)
            if there is None:
                return
            missing = TABLES.missing_columns(connection, dialect)
            owner = table.owner(ledger) if not missing else None
            list(table.changes(ledger, there, owner, adds=adds))
            if not missing or missing == TABLES.columns:
                table.require_ours(ledger, owner, there.elsewhere)
                table.require_same_key(ledger, owner)
    except (CheckpointError, SinkError) as error:
        yield from findings_of(error)
    except dialect.errors as error:
        problem = dialect.explain(error)
        yield warn_of_silent_sink(problem.what, problem.fix)


def _connection_fault(url: str) -> str:
    """Return why the server of `url` takes no connection; empty if it does, or if only its client knows."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or {"mysql": 3306, "mariadb": 3306}.get(parts.scheme, 5432)
    except ValueError:
        return ""
    plain = host is not None and "," not in parts.netloc and "host" not in parts.query
    return _connect_fault(host, port, int(time.monotonic() / _REMEMBERED_SECONDS)) if host and plain else ""


@lru_cache(maxsize=64)
def _connect_fault(host: str, port: int, moment: int) -> str:
    """Return why nothing listens there; `moment` makes an answer hold for a while only."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS):
            return ""
    except OSError as error:
        return f"{host}:{port} does not answer: {error.strerror or error}"
