"""The result of one generation of a query set aside, brought back, discarded, or handed to the next generation.

A table is set aside by renaming its directory, or the table in Spark's catalog; its log goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connectors.delta import ledger
from headrace.connectors.delta.lineage import own_files
from headrace.connectors.delta.log import local
from headrace.connectors.delta.table import DeltaTable, State, named
from headrace.connectors.exactly_once import Conflict, Renames, take_epoch
from headrace.connectors.spark_files import aside
from headrace.contract import Held, SinkContext
from headrace.errors import Finding, SinkError
from headrace.spark.messages import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def held(table: DeltaTable | None, name: str, context: SinkContext) -> tuple[Held, ...]:
    """The rows of the generation in the table."""
    state = None if table is None else table.now()
    if state is None or ledger.progress(context, state.txn_ids).batch is None:
        return ()
    files = own_files(state, context, name)
    rows = (state.rows() if files is None else state.rows_of(files)).count()
    return (Held(count=rows, what=f"rows of {name}"),)


def hand_over(table: DeltaTable | None, name: str, context: SinkContext, generation: int) -> None:
    """Let the table, with its rows, be that of another generation."""
    what = f"other writers changed {name} again and again"
    contended = Finding(code="HR441", what=what, fix="give the command again when the table is at rest")
    if table is not None:
        take_epoch(lambda: _handed_over(table, name, context, generation), contended)


def _handed_over(table: DeltaTable, name: str, context: SinkContext, generation: int) -> None:
    txn_ids = table.now().txn_ids
    if ledger.progress(context, txn_ids).batch is None and not ledger.is_handed_over(context, txn_ids):
        return
    known = ledger.progress_of_all(txn_ids).get((context.query, generation))
    if known is not None and known.is_closed:
        what = f"{name} was taken over by a start of generation {context.generation} of query '{context.query}'"
        raise SinkError(Finding(code="HR583", what=what, fix="let the new generation continue"))
    ours, theirs = (ledger.handover_mark(context.query, number) for number in (context.generation, generation))
    entered = {theirs: 1} | ({ours: 0} if ours in txn_ids else {})
    if not table.mark(entered, seen={mark: txn_ids[mark] for mark in entered if mark in txn_ids}):
        raise Conflict("another writer was quicker")


def require_alone(state: State, name: str, context: SinkContext) -> None:
    """Raise SinkError where the table has rows of other queries, which cannot be moved with those of this one."""
    known = ledger.progress_of_all(state.txn_ids)
    others = {query for (query, _), each in known.items() if query != context.query and each.batch is not None}
    if others:
        what = f"{name} has rows of query '{min(others)}' too, so that it cannot be set aside for '{context.query}'"
        fix = "let the query write to another table; or delete its rows by SQL, and its lines of the checkpoint by hand"
        raise SinkError(Finding(code="HR587", what=what, fix=fix))


def is_own(state: State, context: SinkContext) -> bool:
    """Whether the generation, or one that it continues, has entered itself into the table."""
    return any(query == context.query for query, _ in ledger.progress_of_all(state.txn_ids))


def set_aside_path(spark: SparkSession, path: str, context: SinkContext) -> None:
    """Give the table's directory another name."""
    aside.set_aside(_directory(path), context)
    _forget(spark, path)


def bring_back_path(spark: SparkSession, path: str, table: DeltaTable | None, context: SinkContext) -> None:
    """Give the directory its name again; a table without rows in its place is removed."""
    directory = _directory(path)
    if aside.aside(directory, context).exists():
        _require_empty(table, f"the Delta table '{path}'")
        aside.bring_back(directory, context)
        _forget(spark, path)


def discard_path(path: str, context: SinkContext) -> None:
    """Delete what was set aside."""
    aside.discard(_directory(path), context)


def set_aside_table(table: DeltaTable, name: str, context: SinkContext) -> None:
    """Give the table of Spark's catalog another name."""
    rename(table, name, aside_name(name, context))


def rename(table: DeltaTable, name: str, other: str) -> None:
    """Let the table `name` of Spark's catalog be called `other`."""
    location = table.location
    with _translate_errors(name):
        table.spark.sql(f"ALTER TABLE {name} RENAME TO {other}")
        _forget(table.spark, location)


def bring_back_table(spark: SparkSession, table: str, there: DeltaTable | None, context: SinkContext) -> None:
    """Give the table its name again; one without rows in its place is dropped."""
    kept = aside_name(table, context)
    if spark.catalog.tableExists(kept):
        _require_empty(there, f"the Delta table '{table}'")
        with _translate_errors(table):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
            spark.sql(f"ALTER TABLE {kept} RENAME TO {table}")
            if there is not None:
                _forget(spark, there.location)


def discard_table(spark: SparkSession, table: str, context: SinkContext) -> None:
    """Drop what was set aside."""
    with _translate_errors(table):
        spark.sql(f"DROP TABLE IF EXISTS {aside_name(table, context)}")


def swap_in_path(spark: SparkSession, path: str, context: SinkContext, rebuilt: SinkContext) -> None:
    """Set the table's directory aside, and give that of a rebuild its name."""
    directory = _directory(path)
    aside.swap_in(directory, context, rebuilt)
    for place in (directory, aside.beside(directory)):
        _forget(spark, str(place))


def swap_out_path(spark: SparkSession, path: str, context: SinkContext, rebuilt: SinkContext) -> None:
    """Take `swap_in_path` back."""
    directory = _directory(path)
    aside.swap_out(directory, context, rebuilt)
    for place in (directory, aside.beside(directory)):
        _forget(spark, str(place))


def path_beside(path: str) -> str:
    """Where the table of a rebuild lies until it is put in place."""
    return str(aside.beside(_directory(path)))


def renames(spark: SparkSession, table: str, context: SinkContext) -> Renames:
    """What puts the table of a rebuild in place in Spark's catalog."""

    def rename(old: str, new: str) -> None:
        found, _ = named(spark, old, SinkError)
        with _translate_errors(old):
            spark.sql(f"ALTER TABLE {old} RENAME TO {new}")
        if found is not None:
            _forget(spark, found.location)

    return Renames(
        name=table,
        beside=name_beside(table),
        aside=aside_name(table, context),
        exists=spark.catalog.tableExists,
        rename=rename,
    )


def name_beside(table: str) -> str:
    """What the table of a rebuild is called until it is put in place."""
    return f"{table}__headrace_rebuild"


def aside_name(table: str, context: SinkContext) -> str:
    """What the table is called when it is set aside."""
    return f"{table}__headrace_aside_g{context.generation}"


def _require_empty(table: DeltaTable | None, name: str) -> None:
    if table is not None and table.now().has_rows:
        what = f"{name} has rows again, so that the former ones cannot be brought back"
        fix = "look whose they are; move the table away if nobody needs it, and give the command again"
        raise SinkError(Finding(code="HR583", what=what, fix=fix))


def _directory(path: str) -> Path:
    place = local(path)
    if place is None:
        aside.require_local(path)
    return Path(path if place is None else place).absolute()


def _forget(spark: SparkSession, path: str) -> None:
    """Delta keeps what it knows of a table by the table's path."""
    jvm = spark._jvm
    assert jvm is not None, "Delta Lake runs in the JVM"
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(path))


@contextmanager
def _translate_errors(table: str) -> Iterator[None]:
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        what = f"the Delta table '{table}' cannot be renamed: {first_sentence(error)}"
        raise SinkError(
            Finding(code="HR587", what=what, fix="correct the cause, and give the command again")
        ) from error
