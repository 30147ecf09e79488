"""The interface of a database for the exactly-once mechanism; each database implements it in its folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from headrace.connectors.exactly_once import RowsLost
from headrace.connectors.sql.faults import BATCH_FIX, Faults
from headrace.connectors.sql.limits import ExistingColumn, ExistingTable, Limit
from headrace.connectors.sql.types import Forms, ResultColumn, rows
from headrace.contract import OptionError

if TYPE_CHECKING:
    import pyarrow as pa


class Connection(Protocol):
    """A DB-API connection that commits each statement by itself unless a transaction was begun in SQL."""

    def cursor(self) -> Any: ...

    def close(self) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """The table that rows go to, and how: `replaces` says that a row replaces the one with its key."""

    table: str
    columns: tuple[ResultColumn, ...]
    key: tuple[str, ...]
    replaces: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True)
class StagedTable:
    """A staging table with so many rows, written by one attempt of one task."""

    name: str
    rows: int


class PartLost(RowsLost):
    """A staging table does not hold what was written into it, as after a crash of the server."""


class StageError(Exception):
    """Rows could not be written: the database's problem, and whether it may pass."""

    def __init__(self, problem: OptionError, is_transient: bool) -> None:
        super().__init__(problem, is_transient)
        self.problem, self.is_transient = problem, is_transient

    def __str__(self) -> str:
        return self.problem.what


def require_all_in(table: str, given: int, came_in: int) -> None:
    """Raise StageError if the database took rows without an error and did not write them, as a trigger can."""
    if came_in < given:
        fault = (
            f"{given} rows were given to table '{table}', and only {came_in} came in: something there leaves rows out"
        )
        fix = "look for triggers, rules and policies on the table, and drop those that leave rows out"
        raise StageError(OptionError(code="HR406", what=fault, fix=fix), is_transient=False)


# How the names of staging tables begin.
# The column that numbers the rows of a temporary table.
ROW_NUMBER = "_headrace_number"
STAGED_PREFIX = "_headrace_s_"


class Stager(Protocol):
    """One attempt of one task, writing rows into a staging table of its own.

    Only the driver's transaction reads the table. An attempt that is given up leaves nothing, or a table that
    `Dialect.staged_tables` lists.
    """

    def add(self, table: pa.Table) -> None:
        """Write rows; called several times."""

    def finish(self) -> None:
        """Commit the rows."""

    def give_up(self) -> None:
        """Remove the table, as far as that is possible."""


# The temporary table of keys of a batch.
_KEYS = "_headrace_keys"
# Rows that are fetched at once when a table is read back.
FETCHED_ROWS = 50_000


class Dialect(ABC):
    """One database's own ways; everything else is common to all of them. It travels to Spark's executors.

    transactional_ddl: whether CREATE and ALTER are part of a transaction.
    detects_duplicates: whether `write` and `merge` themselves refuse two rows of one key within a batch.
    wants_sorted: whether a staging table must be sorted by the key to be merged fast; else `merge` sorts.
    driver_rows: up to this many rows a partition are faster through the driver than staged by a task.
    needs_shared_disk: whether tasks can stage rows only on the driver's own machine.
    most_parts: how many staging tables can be merged at once; None: any number.
    replaces_by_any_unique: whether an update also replaces a row that shares another unique index than the key's.
    forms: how values are written as text.
    counter: the type of a column that numbers the rows of its table by itself and is their primary key, for replication
    that wants one; empty where tables need none.
    lock_own_tables, unlock_own_tables, give_up_own_tables: the statements around changes of Headrace's own tables, so
    that of several drivers one makes them.
    errors: the exceptions of the client library. duplicates: those that can mean that two rows share a key.
    barrier: the end of a subquery whose expressions are computed once for each row, however often they are read.
    check_now: the statement that lets constraints be checked with each statement, and not with the COMMIT.
    has_partial_indexes: whether an index can leave rows out by a condition.
    """

    name: ClassVar[str]
    placeholder: ClassVar[str] = "%s"
    begin_write: ClassVar[str]
    begin_read: ClassVar[str]
    lock_row: ClassVar[str] = " FOR UPDATE"
    transactional_ddl: ClassVar[bool] = True
    detects_duplicates: ClassVar[bool] = False
    wants_sorted: ClassVar[bool] = True
    driver_rows: ClassVar[int] = 5_000
    needs_shared_disk: ClassVar[bool] = False
    most_parts: ClassVar[int | None] = None
    replaces_by_any_unique: ClassVar[bool] = False
    forms: ClassVar[Forms]
    counter: ClassVar[str] = ""
    lock_own_tables: ClassVar[tuple[str, ...]]
    unlock_own_tables: ClassVar[tuple[str, ...]] = ("COMMIT",)
    give_up_own_tables: ClassVar[tuple[str, ...]] = ("ROLLBACK",)
    errors: ClassVar[tuple[type[Exception], ...]]
    duplicates: ClassVar[tuple[type[Exception], ...]]
    barrier: ClassVar[str] = ""
    check_now: ClassVar[str] = ""
    has_partial_indexes: ClassVar[bool] = True
    faults: ClassVar[Faults]

    @property
    def key_text(self) -> str:
        """The type of a text that a primary key of Headrace's own tables can hold."""
        return "text"

    @property
    def long_text(self) -> str:
        """The type of a text of any length."""
        return "text"

    # ------------------------------------------------------------------------------------------------- connections

    @abstractmethod
    def connect(self) -> Connection:
        """Return a new connection for writing; creates the database if that is its way."""

    @abstractmethod
    def connect_to_read(self) -> Connection:
        """Return a new connection for reading an existing database."""

    def misfits(self, connection: Connection, target: WriteTarget) -> Iterator[OptionError]:
        """Yield why the database, by its settings, cannot take the rows of `target`; asked before anything is made."""
        return iter(())

    def stream(self, connection: Connection, statement: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query in chunks, without holding all of them."""
        with closing(self.stream_cursor(connection)) as cursor:
            cursor.execute(statement, ())
            while rows := cursor.fetchmany(FETCHED_ROWS):
                yield list(map(tuple, rows))

    def stream_cursor(self, connection: Connection) -> Any:
        """Return a cursor that fetches the rows of a query as they are wanted."""
        return connection.cursor()

    def single_transaction(self, connection: Connection) -> AbstractContextManager[None]:
        """Let the statements of a block be one transaction, where that costs less than one for each."""
        return nullcontext()

    @abstractmethod
    def rights_beyond_reading(self, connection: Connection) -> str:
        """Return the right by which a statement that reads could reach more than tables, in words; "": none.

        For example `is a superuser`, who can read and write files of the server, or end sessions.
        """

    @abstractmethod
    def answer(self, connection: Connection, statement: str, limit: int, seconds: float) -> Iterator[Sequence[Any]]:
        """Yield the columns' names, then the first `limit` rows of one statement as they come, of which none is held.

        The statement may only read and is ended after `seconds`; the connection is of `connect_to_read`, and serves for
        nothing else.
        """

    # ---------------------------------------------------------------------------------------------------- tables

    def quote(self, name: str) -> str:
        """`name` as a quoted identifier."""
        return '"' + name.replace('"', '""') + '"'

    def identifiers(self, names: Sequence[str]) -> str:
        """`names` quoted, with commas between."""
        return ", ".join(map(self.quote, names))

    def column_key(self, name: str) -> str:
        """Return the form of a column's name in which two names are equal if they name one column."""
        return name.lower()

    @abstractmethod
    def declare(self, column: ResultColumn, key: Sequence[ResultColumn]) -> str:
        """Return the type to declare for `column` in a table with this `key`."""

    def create_suffix(self, columns: Sequence[ResultColumn], key: Sequence[str]) -> str:
        """Return the end of the statement that creates the result table, behind its columns."""
        return ""

    def real_name(self, connection: Connection, table: str) -> str:
        """Return the one spelling under which the database knows a table of this name, whether it is there or not."""
        return table

    @abstractmethod
    def describe_table(self, connection: Connection, table: str) -> ExistingTable | None:
        """Return the table as it is, or None."""

    def create_as(self, table: str, counter: str, source: str) -> Iterator[str]:
        """Yield the statements that make a table with the columns of `source`, a SELECT, and the column `counter`."""
        yield f"CREATE TABLE {self.quote(table)} AS {source}"
        if self.counter:
            yield f"ALTER TABLE {self.quote(table)} ADD COLUMN {counter} {self.counter}"

    def create_temporary(self, table: str, source: str) -> str:
        """Return the statement that makes a temporary table of `source`, a SELECT.

        The table ends with the transaction or the session. The statement does nothing where it is there.
        """
        return f"CREATE TEMPORARY TABLE IF NOT EXISTS {table} AS {source}"

    def create_numbered(self, table: str, source: str) -> Iterator[str]:
        """Yield the statements that make a temporary table whose rows are numbered in `ROW_NUMBER`, in any steps."""
        numbered = f"SELECT given.*, ROW_NUMBER() OVER () AS {ROW_NUMBER} FROM ({source}) AS given"
        yield self.create_temporary(table, numbered)
        yield f"CREATE INDEX {table}_numbers ON {table} ({ROW_NUMBER})"

    def nullable(self, column: str) -> str:
        """Return the expression by which a table made from a SELECT has the column with its type, but takes NULL."""
        return column

    def drop_temporary(self, table: str) -> str:
        """Return the statement that drops a temporary table, or does nothing."""
        return f"DROP TABLE IF EXISTS {table}"

    def rename(self, connection: Connection, table: str, name: str) -> None:
        """Give a table another name; views that read it by its old name do so still, where the database can do that."""
        run(connection, f"ALTER TABLE {self.quote(table)} RENAME TO {self.quote(name)}")

    def rename_together(self, connection: Connection, names: Sequence[tuple[str, str]]) -> None:
        """Give each table its other name, in this order; in one step also where a rename ends the transaction."""
        for table, name in names:
            self.rename(connection, table, name)

    def limit_of(self, column: ResultColumn) -> Limit:
        """Return the limit of a column that is declared for `column`."""
        return Limit()

    def foreign_values(self, column: ResultColumn) -> str:
        """Return a condition that holds for values of `column` in another form than they are written in.

        Empty where a column's type leaves one form only.
        """
        return ""

    @abstractmethod
    def incompatible(self, there: ExistingColumn, column: ResultColumn) -> str | None:
        """Return why the existing column would not keep the values of `column`, or None."""

    @abstractmethod
    def select_expression(self, column: ResultColumn) -> str:
        """Return the expression that selects `column` in a form that `restore` takes."""

    # ------------------------------------------------------------------------------- statements; names come unquoted

    def own(self, statement: str) -> str:
        """Return a statement of ours, whose placeholders are question marks, as the client library takes it."""
        return statement.replace("?", self.placeholder)

    def insert_into(self, table: str, columns: Sequence[str]) -> str:
        """Return how a statement begins that inserts rows."""
        return f"INSERT INTO {self.quote(table)} ({self.identifiers(columns)})"

    def replace_clause(self, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return the end of an INSERT whose rows replace those with their keys."""
        return f" ON CONFLICT ({self.identifiers(key)}) DO UPDATE SET {self.assignments(columns, key, 'excluded.{}')}"

    def assignments(self, columns: Sequence[str], key: Sequence[str], value: str) -> str:
        """Return the assignments of SET that replace a row: `value`, with the name, for each column outside the key."""
        # A table of keys alone: a row that is there is set to what it is, so that rows are counted.
        others = [self.quote(name) for name in columns if name not in key] or [self.quote(key[0])]
        return ", ".join(f"{name} = {value.format(name)}" for name in others)

    def bytewise(self, text: str) -> str:
        """Return the expression `text` so that it is compared by its bytes."""
        return text

    def same_value(self, one: str, other: str) -> str:
        """Return the condition that two expressions have one value, or are both NULL."""
        return f"{one} IS NOT DISTINCT FROM {other}"

    @abstractmethod
    def json_text(self, json: str, name: str) -> str:
        """Return the expression of the text that a JSON object, an expression too, has for a name of ASCII letters."""

    @abstractmethod
    def json_object(self, values: Sequence[tuple[str, str]]) -> str:
        """Return the expression of a JSON object, as text, of names and expressions; what is NULL is left out.

        Where nothing is left, it is NULL.
        """

    def insert_from(self, target: WriteTarget, source: str) -> str:
        """Return the statement that writes the rows that `source` gives, a SELECT or VALUES."""
        then = self.replace_clause(target.names, target.key) if target.replaces else ""
        return f"{self.insert_into(target.table, target.names)} {source}{then}"

    def upsert_from(self, connection: Connection, target: WriteTarget, source: str) -> str:
        """Return the fastest statement that writes the many rows that `source` gives, a SELECT."""
        return self.insert_from(target, source)

    def insert(self, target: WriteTarget) -> str:
        """Return the statement that writes one row, given by its values."""
        return self.insert_from(target, f"VALUES ({', '.join([self.placeholder] * len(target.names))})")

    def insert_new(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        """Return the statement that inserts a row, given by its values, or does nothing where its key is there."""
        marks = ", ".join([self.placeholder] * len(columns))
        return f"{self.insert_into(table, columns)} VALUES ({marks}) ON CONFLICT ({self.identifiers(key)}) DO NOTHING"

    def delete_from(self, table: str, key: Sequence[str], source: str) -> str:
        """Return the statement that deletes the rows whose keys `source` selects."""
        return f"DELETE FROM {self.quote(table)} WHERE ({self.identifiers(key)}) IN ({source})"

    # ------------------------------------------------------------------------------------------------------- rows

    def hold_keys(self, connection: Connection, table: str, key: tuple[ResultColumn, ...], given: pa.Table) -> str:
        """Write the keys of a few rows of a table into a temporary one, and return its name."""
        held = WriteTarget(table=_KEYS, columns=key, key=(), replaces=False)
        source = f"SELECT {self.identifiers(held.names)} FROM {self.quote(table)} WHERE 1 = 0"
        run(connection, self.create_temporary(_KEYS, source))
        run(connection, f"DELETE FROM {_KEYS}")
        self.write(connection, held, given.select(list(held.names)))
        return _KEYS

    def write(self, connection: Connection, target: WriteTarget, table: pa.Table) -> None:
        """Write the few rows of `table` in as few round trips as there can be; raises StageError if not all come in."""
        self.write_rows(connection, target, rows(table, target.columns, self.forms))

    def write_rows(self, connection: Connection, target: WriteTarget, given: Sequence[tuple[Any, ...]]) -> None:
        """Write rows of plain values, as `types.rows` and `readable` give them; raises StageError as `write`."""
        cursor = connection.cursor()
        cursor.executemany(self.insert(target), given)
        require_all_in(target.table, len(given), cursor.rowcount)

    def widest(self, connection: Connection) -> int | None:
        """Return how many bytes of values one statement may hold; None: any number."""
        return None

    @abstractmethod
    def stager(self, name: str, columns: Sequence[ResultColumn]) -> Stager:
        """Return a new staging table of this name; called on an executor."""

    def attach(self, connection: Connection, parts: Sequence[StagedTable]) -> None:  # noqa: B027
        """Make staging tables readable before the transaction begins; a server's connections read all of them."""

    def part_source(self, part: StagedTable) -> str:
        """Return the name of a staging table for FROM."""
        return self.quote(part.name)

    def merge(self, connection: Connection, target: WriteTarget, parts: Sequence[StagedTable]) -> None:
        """Write the rows of all staging tables.

        Raises PartLost when one does not hold its number of rows, StageError when not all of them come in.
        """
        # Each part is sorted by the key: one after the other, they go in twice as fast as sorted together here.
        for part in parts:
            self.require_whole(connection, part)
            source = f"SELECT {self.identifiers(target.names)} FROM {self.part_source(part)}"
            cursor = connection.cursor()
            cursor.execute(self.insert_from(target, source), ())
            require_all_in(target.table, part.rows, cursor.rowcount)

    def require_whole(self, connection: Connection, part: StagedTable) -> None:
        """Raise PartLost for a staging table that does not hold its rows."""
        [(rows,)] = rows_of(connection, f"SELECT COUNT(*) FROM {self.part_source(part)}")
        if rows != part.rows:
            raise PartLost(f"{part.rows} rows were staged in '{part.name}', and {rows} were found")

    @abstractmethod
    def staged_tables(self, connection: Connection, prefix: str) -> list[str]:
        """Return the names of the staging tables that begin with `prefix`."""

    @abstractmethod
    def drop_staged(self, connection: Connection, names: Sequence[str]) -> None:
        """Drop staging tables, also attached ones; one that is not there any more is no error."""

    # ----------------------------------------------------------------------------------------------------- faults

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the database is, for people."""

    @abstractmethod
    def has_code(self, error: BaseException, codes: Any) -> bool:
        """Whether the error has one of these codes of `faults`."""

    def text(self, error: BaseException) -> str:
        """Return the database's own words, never with a password in them."""
        return str(error)

    def lock_holder(self, error: Exception) -> str:
        """Who holds the lock that was waited for, in words; empty if it cannot be seen."""
        return ""

    def explain(self, error: Exception) -> OptionError:
        """Return the database's error as one sentence; never with a password in it."""
        text = self.text(error)
        for codes, code, fault, fix in self.faults.sentences:
            if self.has_code(error, codes):
                holder = self.lock_holder(error) if self.waits_for_lock(error) else ""
                fault = f"{self.place} {fault.format(text=text)}{f': {holder}' if holder else ''}"
                return OptionError(code=code, what=fault, fix=fix)
        return OptionError(code="HR425", what=f"{self.place} refuses it: {text}", fix=BATCH_FIX)

    def refusal(self, error: Exception) -> str:
        """Return why the database refuses a row, in its own words; "" if it refuses something else, or the moment."""
        return self.text(error) if self.has_code(error, self.faults.refusals) else ""

    def waits_for_lock(self, error: BaseException) -> bool:
        return self.has_code(error, self.faults.lock_wait)

    def is_transient(self, error: Exception) -> bool:
        return self.has_code(error, self.faults.passing)

    def lacks_parent(self, error: Exception) -> bool:
        return self.has_code(error, self.faults.no_parent)

    def is_part_lost(self, error: Exception) -> bool:
        """Whether the fault is that a staging table is missing or damaged."""
        return self.has_code(error, self.faults.part_lost) and STAGED_PREFIX in str(error)


def rows_of(connection: Connection, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(statement, tuple(values))
    yield from cursor.fetchall()


def run(connection: Connection, statement: str, values: Sequence[Any] = ()) -> int:
    """Run a statement; returns how many rows it has written, where it writes rows."""
    cursor = connection.cursor()
    cursor.execute(statement, tuple(values))
    return int(cursor.rowcount)
