"""Make a database table ready for a query's batches, and read it back as whole batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.contract import SinkRun, Snapshot
from headrace.errors import Finding, HeadraceError, SinkFault
from headrace.sinks.checkpoint_match import checkpoint_id, require_match
from headrace.sinks.sql.dialect import Connection, Dialect, run
from headrace.sinks.sql.ledger import Ledger, Owner
from headrace.sinks.sql.limits import Limit
from headrace.sinks.sql.own_tables import OWN_PREFIX
from headrace.sinks.sql.quarantine import Quarantine
from headrace.sinks.sql.result_table import ResultTable, require_columns
from headrace.sinks.sql.types import ResultColumn, columns, restore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def result_table(name: str, key: Sequence[str], schema: StructType, life: SinkRun) -> ResultTable:
    """The table for a result of `schema`; raises SinkFault with every column that does not fit."""
    known, refused = columns(schema)
    wrong = [*refused, *require_columns(schema.names, key)]
    if wrong:
        fix = "change the query's last select"
        raise SinkFault(
            [Finding(code="HR404", what=f"the result of query '{life.query}': {what}", fix=fix) for what in wrong]
        )
    return ResultTable(name=name, key=tuple(key), columns=known)


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A table that is ready to take batches: the epoch of this driver, and what each column takes."""

    table: ResultTable
    epoch: int
    limits: Mapping[str, Limit]


def prepare(dialect: Dialect, table: ResultTable, schema: str, life: SinkRun, *, adds: bool = False) -> Ready:
    """Make the table and the ledger ready, and take the next epoch.

    If anything does not fit, nothing is changed and an older driver goes on undisturbed. Raises SinkFault,
    CheckpointFault.
    """
    try:
        with closing(dialect.connect()) as connection:
            table = table.as_known(connection, dialect)
            ledger = Ledger(connection, dialect)
            ledger.create()
            Quarantine.FORM.make(connection, dialect)
            run(connection, dialect.begin_write)
            try:
                changes = _changes(connection, dialect, table, life, adds=adds)
                for change in changes:
                    run(connection, change)
                if changes and not dialect.transactional_ddl:
                    # The database has committed by itself; what was found before may have changed since.
                    run(connection, dialect.begin_write)
                    _changes(connection, dialect, table, life, adds=adds)
                ledger.own(table.name, Owner(life.query, life.generation, schema))
                epoch = ledger.take_epoch(life.query)
                run(connection, "COMMIT")
            except BaseException:
                with suppress(*dialect.errors):
                    run(connection, "ROLLBACK")
                raise
            there = dialect.existing(connection, table.name)
            limits = table.limits(there, dialect) if there is not None else {}
            dialect.drop_staged(connection, dialect.staged(connection, staging_prefix(life)))
            return Ready(table=table, epoch=epoch, limits=limits)
    except dialect.errors as fault:
        raise _explained(dialect, fault, life) from None


def _changes(connection: Connection, dialect: Dialect, table: ResultTable, life: SinkRun, *, adds: bool) -> list[str]:
    """What must be changed before the query's batches fit; raises when they cannot fit."""
    ledger = Ledger(connection, dialect)
    require_match(life, ledger.last(life), table.name)
    there, owner = dialect.existing(connection, table.name), table.owner(ledger)
    changes = list(table.changes(there, dialect, life, owner, adds=adds))
    if there is not None:
        table.require_ours(connection, dialect, life, owner, there.elsewhere)
    return changes


def staging_prefix(life: SinkRun) -> str:
    """How the names of the staging tables of one generation of a query begin."""
    whose = hashlib.sha256(f"{life.query}\n{life.generation}".encode()).hexdigest()[:10]
    return f"{OWN_PREFIX}s_{whose}_"


def snapshot(dialect: Dialect, name: str, key: Sequence[str], spark: SparkSession, life: SinkRun) -> Snapshot:
    """The table and its last batch, read in one transaction, with the rows that were set aside."""
    from pyspark.sql.types import StructType

    try:
        with closing(dialect.connect_to_read()) as connection:
            run(connection, dialect.begin_read)
            ledger, spelled = Ledger(connection, dialect), name
            name = dialect.real_name(connection, name)
            owner, last = ledger.owner(name) or ledger.owner(spelled), ledger.last(life)
            if owner is None or (owner.query, owner.generation) != (life.query, life.generation):
                what = f"table '{name}' holds no result of generation {life.generation} of query '{life.query}'"
                raise SinkFault(Finding(code="HR402", what=what, fix=f"run query '{life.query}' first"))
            schema = StructType.fromJson(json.loads(owner.schema))
            known, _ = columns(schema)
            shown = ", ".join(dialect.readable(column) for column in known)
            rows = restore(spark, dialect.stream(connection, f"SELECT {shown} FROM {dialect.quote(name)}"), schema)
            replayed = ledger.replayed(life, checkpoint_id(life.checkpoint) or "")
            aside = [json.loads(text) for text in Quarantine(connection, dialect, life, name).rows()]
            run(connection, "COMMIT")
    except dialect.errors as fault:
        raise _explained(dialect, fault, life) from None
    set_aside = restore(spark, [[_values(row, known) for row in aside]], schema) if aside else None
    return Snapshot(
        rows=rows, batch=None if last is None else last.batch, key=tuple(key), set_aside=set_aside, replayed=replayed
    )


def _values(row: Mapping[str, Any], known: Sequence[ResultColumn]) -> tuple[Any, ...]:
    """The values of a row that was kept as JSON."""
    return tuple(
        bytes.fromhex(row[column.name])
        if column.kind == "binary" and row[column.name] is not None
        else row[column.name]
        for column in known
    )


def _explained(dialect: Dialect, fault: Exception, life: SinkRun) -> HeadraceError:
    problem = dialect.explain(fault)
    return SinkFault(Finding(code=problem.code, what=f"query '{life.query}': {problem.what}", fix=problem.fix))
