"""Make a database table ready for a query's batches, and read it back as whole batches."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from headrace.contract import SinkRun, Snapshot
from headrace.errors import Finding, HeadraceError, SinkFault
from headrace.sinks.sql.checkpoint_match import require_match
from headrace.sinks.sql.dialect import Dialect, identifiers, rows_of, run
from headrace.sinks.sql.ledger import Ledger
from headrace.sinks.sql.result_table import ResultTable, require_columns
from headrace.sinks.sql.types import columns, restore

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def prepare(dialect: Dialect, table: ResultTable, schema: str, life: SinkRun) -> int:
    """Make the table and the ledger ready, and take the next epoch.

    All in one transaction: if anything does not fit, an older driver goes on undisturbed.
    """
    try:
        with closing(dialect.connect()) as connection:
            ledger = Ledger(connection, dialect)
            ledger.create()
            run(connection, dialect.begin_write)
            try:
                require_match(life, ledger.last(life), table.name)
                table.ready(connection, dialect, life, schema)
                epoch = ledger.take_epoch(life.query)
                run(connection, "COMMIT")
            except BaseException:
                with suppress(*dialect.errors):
                    run(connection, "ROLLBACK")
                raise
            return epoch
    except dialect.errors as fault:
        raise _explained(dialect, fault, life) from fault


def snapshot(dialect: Dialect, name: str, key: Sequence[str], spark: SparkSession, life: SinkRun) -> Snapshot:
    """The table and its last batch, read in one transaction."""
    from pyspark.sql.types import StructType

    try:
        with closing(dialect.connect_to_read()) as connection:
            run(connection, dialect.begin_read)
            ledger = Ledger(connection, dialect)
            owner, last = ledger.owner(name), ledger.last(life)
            if owner is None or (owner.query, owner.generation) != (life.query, life.generation):
                what = f"table '{name}' holds no result of generation {life.generation} of query '{life.query}'"
                raise SinkFault(Finding(code="HR402", what=what, fix=f"run query '{life.query}' first"))
            schema = StructType.fromJson(json.loads(owner.schema))
            rows = list(rows_of(connection, f"SELECT {identifiers(dialect, schema.names)} FROM {dialect.quote(name)}"))
            run(connection, "COMMIT")
    except dialect.errors as fault:
        raise _explained(dialect, fault, life) from fault
    return Snapshot(rows=restore(spark, rows, schema), batch=None if last is None else last.batch, key=tuple(key))


def _explained(dialect: Dialect, fault: Exception, life: SinkRun) -> HeadraceError:
    problem = dialect.explain(fault)
    return SinkFault(Finding(code=problem.code, what=f"query '{life.query}': {problem.what}", fix=problem.fix))
