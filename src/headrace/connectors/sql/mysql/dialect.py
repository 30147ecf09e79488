"""The ways of MySQL and MariaDB: their statements, types and errors."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor, SSCursor

from headrace.connectors.sql.dialect import (
    ROW_NUMBER,
    Connection,
    Dialect,
    PartLost,
    StagedTable,
    Stager,
    WriteTarget,
    rows_of,
    run,
)
from headrace.connectors.sql.faults import Faults
from headrace.connectors.sql.limits import ExistingColumn, ExistingTable, Limit
from headrace.connectors.sql.mysql.columns import existing_table, incompatible, limit_of
from headrace.connectors.sql.mysql.connection import MySqlAddress, WatchedMySqlConnection, lock_holder
from headrace.connectors.sql.mysql.faults import FAULTS, number_of
from headrace.connectors.sql.silence import SILENCE_SECONDS
from headrace.connectors.sql.types import Forms, Kind, ResultColumn, lines, rows
from headrace.contract import OptionError
from headrace.errors import in_one_line
from headrace.redaction import without

if TYPE_CHECKING:
    import pyarrow as pa

# InnoDB's limit of an index, in bytes; a character has up to four.
INDEX_BYTES = 3072
LONGEST_KEY = 255
# By which a server makes no table without a primary key: MariaDB's for InnoDB, MySQL's for every table.
FORCES_KEYS = ("innodb_force_primary_key", "sql_require_primary_key")
# How long a server may say nothing in the middle of the rows of a table that is read.
STREAM_SECONDS = 120.0
# What a statement has besides its values.
STATEMENT_BYTES = 16_384
# The widest key column that is not text: a decimal of 38 digits.
WIDEST = 20
_DECLARED: dict[Kind, str] = {
    "boolean": "TINYINT(1)",
    # FLOAT shows fewer digits than it holds.
    "float": "DOUBLE",
    "double": "DOUBLE",
    "text": "LONGTEXT",
    "binary": "LONGBLOB",
    "date": "DATE",
    "timestamp": "DATETIME(6)",
    "timestamp_ntz": "DATETIME(6)",
    # The type JSON of MySQL turns long decimals into doubles; that of MariaDB is this text.
    "json": "LONGTEXT",
}


@dataclass(frozen=True)
class MySqlDialect(Dialect):
    """The ways of MySQL and MariaDB."""

    name: ClassVar[str] = "MySQL"
    begin_write: ClassVar[str] = "START TRANSACTION"
    begin_read: ClassVar[str] = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
    transactional_ddl: ClassVar[bool] = False
    has_partial_indexes: ClassVar[bool] = False
    replaces_by_any_unique: ClassVar[bool] = True
    forms: ClassVar[Forms] = Forms(widens_floats=True)
    counter: ClassVar[str] = "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY"
    lock_own_tables: ClassVar[tuple[str, ...]] = ("DO GET_LOCK(CONCAT('headrace_', MD5(DATABASE())), 20)",)
    unlock_own_tables: ClassVar[tuple[str, ...]] = ("DO RELEASE_LOCK(CONCAT('headrace_', MD5(DATABASE())))",)
    give_up_own_tables: ClassVar[tuple[str, ...]] = unlock_own_tables
    errors: ClassVar[tuple[type[Exception], ...]] = (pymysql.MySQLError,)
    duplicates: ClassVar[tuple[type[Exception], ...]] = (pymysql.err.IntegrityError,)
    faults: ClassVar[Faults] = FAULTS
    url: str = field(repr=False)
    silence_seconds: float = SILENCE_SECONDS

    @property
    def key_text(self) -> str:
        return f"VARCHAR(191) {self._collation}"

    @property
    def long_text(self) -> str:
        return f"LONGTEXT {self._collation}"

    @property
    def _collation(self) -> str:
        """Texts are equal when their bytes are, as in Spark; a space at the end counts."""
        binary = "utf8mb4_nopad_bin" if is_mariadb(self.url) else "utf8mb4_0900_bin"
        return f"CHARACTER SET utf8mb4 COLLATE {binary}"

    def connect(self) -> Connection:
        # Found rows: a row that is set to what it is already counts too.
        return self._open(client_flag=CLIENT.FOUND_ROWS)

    def connect_to_read(self) -> Connection:
        # Rows are fetched as they come, which no statement waits for.
        return self._open(cursorclass=SSCursor, read_timeout=max(STREAM_SECONDS, self.silence_seconds))

    def _open(self, **more: Any) -> Connection:
        address = MySqlAddress.parse(self.url)
        return cast(Connection, address.connect(silence_seconds=self.silence_seconds, **more))

    def quote(self, name: str) -> str:
        # PyMySQL takes a per cent sign for a placeholder.
        return "`" + name.replace("`", "``").replace("%", "%%") + "`"

    def declare(self, column: ResultColumn, key: Sequence[ResultColumn]) -> str:
        if column.kind == "decimal":
            return f"DECIMAL({column.precision},{column.scale})"
        if column.kind == "integer":
            return column.type.simpleString().upper()
        if column.kind in ("text", "json"):
            size = f"VARCHAR({_longest_key_text(key)})" if column in key else "LONGTEXT"
            return f"{size} {self._collation}"
        if column.kind == "binary" and column in key:
            return f"VARBINARY({_longest_key_text(key)})"
        return _DECLARED[column.kind]

    def misfits(self, connection: Connection, target: WriteTarget) -> Iterator[OptionError]:
        statement = f"SHOW VARIABLES WHERE Variable_name IN {FORCES_KEYS} AND Value = 'ON'"
        forced = [] if target.key else [str(name) for name, _ in rows_of(connection, statement)]
        if forced and self.describe_table(connection, target.table) is None:
            fault = (
                f"the server makes no table without a primary key ({forced[0]}), and '{target.table}' would have none"
            )
            fix = "give the sink a key; or make the table yourself, with a primary key that counts its rows"
            yield OptionError(code="HR422", what=fault, fix=fix)

    def create_as(self, table: str, counter: str, source: str) -> Iterator[str]:
        # In one statement, as the server may make no table without a key.
        suffix = self.create_suffix((), ())
        yield f"CREATE TABLE {self.quote(table)} ({counter} {self.counter}){suffix} AS {source}"

    def create_temporary(self, table: str, source: str) -> str:
        return f"CREATE TEMPORARY TABLE IF NOT EXISTS {table} ({ROW_NUMBER} {self.counter}) AS {source}"

    def create_numbered(self, table: str, source: str) -> Iterator[str]:
        # CREATE INDEX would end the transaction.
        yield self.create_temporary(table, source)

    def create_suffix(self, columns: Sequence[ResultColumn], key: Sequence[str]) -> str:
        return " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4"

    def real_name(self, connection: Connection, table: str) -> str:
        """Return the stored spelling: a server may ignore case in names, or change it (lower_case_table_names)."""
        [(folds,)] = list(rows_of(connection, "SELECT @@lower_case_table_names"))
        if not folds:
            return table
        statement = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() "
            "AND LOWER(table_name) = LOWER(%s)"
        )
        names = list(rows_of(connection, statement, (table,)))
        return str(names[0][0]) if names else table.lower() if folds == 1 else table

    def rename_together(self, connection: Connection, names: Sequence[tuple[str, str]]) -> None:
        pairs = ", ".join(f"{self.quote(table)} TO {self.quote(name)}" for table, name in names)
        run(connection, f"RENAME TABLE {pairs}")

    def describe_table(self, connection: Connection, table: str) -> ExistingTable | None:
        return existing_table(connection, table)

    def limit_of(self, column: ResultColumn) -> Limit:
        return limit_of(self.declare(column, ()).lower())

    def incompatible(self, there: ExistingColumn, column: ResultColumn) -> str | None:
        return incompatible(there, column, self.declare(column, ()))

    def insert_new(self, table: str, columns: Sequence[str], key: Sequence[str]) -> str:
        same, marks = self.quote(key[0]), ", ".join(["%s"] * len(columns))
        # INSERT IGNORE would also ignore a value that is cut off.
        return f"{self.insert_into(table, columns)} VALUES ({marks}) ON DUPLICATE KEY UPDATE {same} = {same}"

    def replace_clause(self, columns: Sequence[str], key: Sequence[str]) -> str:
        # VALUES() is all that MariaDB knows; MySQL takes it, though it would rather have an alias.
        return f" ON DUPLICATE KEY UPDATE {self.assignments(columns, key, 'VALUES({})')}"

    def nullable(self, column: str) -> str:
        # An outer join whose condition is never met is made an inner one, which keeps NOT NULL.
        return f"CASE WHEN 1 = 0 THEN {column} END"

    def drop_temporary(self, table: str) -> str:
        # Without the word, it would end the transaction.
        return f"DROP TEMPORARY TABLE IF EXISTS {table}"

    def same_value(self, one: str, other: str) -> str:
        return f"{one} <=> {other}"

    def json_text(self, json: str, name: str) -> str:
        return self._text(f"JSON_UNQUOTE(JSON_EXTRACT({json}, '$.{name}'))")

    def json_object(self, values: Sequence[tuple[str, str]]) -> str:
        pairs = ", ".join(f"'{name}', {value}" for name, value in values)
        # A patch leaves out what is NULL.
        patched = self._text(f"JSON_MERGE_PATCH('{{}}', JSON_OBJECT({pairs}))")
        return f"NULLIF({patched}, '{{}}')"

    def _text(self, expression: str) -> str:
        """Return an expression with the collation of the columns."""
        return f"CONVERT({expression} USING utf8mb4) COLLATE {self._collation.rpartition(' ')[2]}"

    def widest(self, connection: Connection) -> int | None:
        [(size,)] = rows_of(connection, "SELECT @@max_allowed_packet")
        # Written out in a statement, a byte can take two.
        return int(size) // 2 - STATEMENT_BYTES

    def stager(self, name: str, columns: Sequence[ResultColumn]) -> Stager:
        return LoadStager(self, name, columns, "Aria TRANSACTIONAL=0" if is_mariadb(self.url) else "MyISAM")

    def delete_from(self, table: str, key: Sequence[str], source: str) -> str:
        # Before version 11.1, MariaDB would look through the whole list of keys for each row of the table.
        held = self.quote(table)
        same = " AND ".join(f"{held}.{self.quote(name)} = given.{self.quote(name)}" for name in key)
        return f"DELETE {held} FROM {held} JOIN ({source}) AS given ON {same}"

    def require_whole(self, connection: Connection, part: StagedTable) -> None:
        try:
            super().require_whole(connection, part)
        except pymysql.MySQLError as error:
            if self.has_code(error, FAULTS.part_lost):
                raise PartLost(f"the staging table '{part.name}' is gone") from None
            raise

    def staged_tables(self, connection: Connection, prefix: str) -> list[str]:
        statement = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() "
            "AND LEFT(table_name, %s) = %s"
        )
        return [str(row[0]) for row in rows_of(connection, statement, (len(prefix), prefix))]

    def drop_staged(self, connection: Connection, names: Sequence[str]) -> None:
        for name in names:
            run(connection, f"DROP TABLE IF EXISTS {self.quote(name)}")

    def select_expression(self, column: ResultColumn) -> str:
        name = self.quote(column.name)
        if column.kind == "boolean":
            # A BIT would come as bytes.
            return f"{name} + 0"
        return f"CAST({name} AS CHAR)" if column.kind in ("decimal", "date", "timestamp", "timestamp_ntz") else name

    def rights_beyond_reading(self, connection: Connection) -> str:
        # MariaDB lists those of the role that is in use by itself.
        [(role,)] = rows_of(connection, "SELECT CURRENT_ROLE()")
        using = f" FOR CURRENT_USER() USING {role}" if role not in (None, "NONE") and "`" in role else ""
        for (grant,) in rows_of(connection, f"SHOW GRANTS{using}"):
            rights = re.match(r"GRANT (.+?) ON \*\.\* TO ", str(grant))
            if rights and (right := re.search(r"\b(ALL PRIVILEGES|SUPER|FILE)\b", rights[1])):
                return f"has the right {right[0]} on all databases"
        return ""

    def answer(self, connection: Connection, statement: str, limit: int, seconds: float) -> Iterator[Sequence[Any]]:
        bounded, client = statement, cast(Any, connection)
        with client.cursor(Cursor) as cursor:
            cursor.execute(f"SET SESSION sql_select_limit = {limit}")
            if "mariadb" in str(client.get_server_info()).lower():
                bounded = f"SET STATEMENT max_statement_time = {seconds} FOR {statement}"
            else:
                cursor.execute(f"SET SESSION max_execution_time = {round(seconds * 1000)}")
            cursor.execute("START TRANSACTION READ ONLY")
        # Rows come as they are fetched; a LIMIT of the statement's own counts before that of the session.
        cursor = client.cursor()
        cursor.execute(bounded)
        yield [column[0] for column in cursor.description or ()]
        while (row := cursor.fetchone()) is not None:
            yield row

    @property
    def place(self) -> str:
        parts = urlsplit(self.url)
        return f"MySQL at {parts.hostname or 'localhost'}:{parts.port or 3306}"

    def has_code(self, error: BaseException, codes: Any) -> bool:
        return number_of(error) in codes

    def text(self, error: BaseException) -> str:
        return without(in_one_line(error.args[1] if len(error.args) > 1 else error), self.url)

    def lock_holder(self, error: Exception) -> str:
        return lock_holder(MySqlAddress.parse(self.url))


@cache
def is_mariadb(url: str) -> bool:
    """Whether the server is MariaDB; it is asked once."""
    with closing(MySqlAddress.parse(url).connect()) as connection:
        return "mariadb" in str(connection.get_server_info()).lower()


def _longest_key_text(key: Sequence[ResultColumn]) -> int:
    """Return how many characters each text of a key may have, so that the index holds all of them."""
    texts = sum(column.kind in ("text", "binary") for column in key)
    left = INDEX_BYTES - WIDEST * (len(key) - texts)
    return min(LONGEST_KEY, left // (4 * texts)) if texts else LONGEST_KEY


# The storage engine is refused, or a table without a primary key; the command is not allowed, by the server or the
# client.
_NO_ENGINE = (1286, 3161, 1289)
_NO_KEY = (1173, 3750)
_NO_LOCAL = (1148, 3948, 4166)


class OneFileConnection(WatchedMySqlConnection):
    """A connection on which the server gets one file; PyMySQL sends whichever file it is asked for."""

    file = ""

    def _read_packet(self, *rest: Any, **more: Any) -> Any:
        packet = super()._read_packet(*rest, **more)  # type: ignore[no-untyped-call]
        if packet.is_load_local_packet() and packet.get_all_data()[1:] != self.file.encode():
            self.close()
            raise pymysql.err.InternalError("the server asked for a file that it was not offered; nothing was sent")
        return packet


class LoadStager:
    """Rows on their way into a table without transactions, which is filled twice as fast.

    Nothing reads the table before it is whole, and what a crash does to it is seen by the count of its rows. The
    server is sent nothing but the file that was written here.
    """

    def __init__(self, dialect: MySqlDialect, name: str, columns: Sequence[ResultColumn], engine: str) -> None:
        self.table, self.columns, self.forms, self.quote = dialect.quote(name), columns, dialect.forms, dialect.quote
        self.dialect = dialect
        declared = ", ".join(f"{self.quote(column.name)} {dialect.declare(column, ())}" for column in columns)
        self.local = True
        self.file = tempfile.NamedTemporaryFile(prefix="headrace-", suffix=".tsv")  # noqa: SIM115
        self.connection: Any = MySqlAddress.parse(dialect.url).connect(OneFileConnection, local_infile=True)
        self.connection.file = self.file.name
        keyed = f"{declared}, {ROW_NUMBER} {dialect.counter}"
        for choice, parts in ((engine, declared), (engine, keyed), ("InnoDB", keyed)):
            try:
                self._run(f"CREATE TABLE {self.table} ({parts}) ENGINE={choice} DEFAULT CHARACTER SET utf8mb4")
                break
            except pymysql.MySQLError as error:
                if choice == "InnoDB" or error.args[0] not in (*_NO_ENGINE, *_NO_KEY):
                    raise

    def add(self, table: pa.Table) -> None:
        if self.local:
            try:
                self._load(table)
                return
            except pymysql.MySQLError as error:
                if error.args[0] not in _NO_LOCAL:
                    raise
                self.local = False
        marks = ", ".join(["%s"] * len(self.columns))
        with self.connection.cursor() as cursor:
            into = f"INSERT INTO {self.table} ({self.dialect.identifiers([column.name for column in self.columns])})"
            cursor.executemany(f"{into} VALUES ({marks})", rows(table, self.columns, self.forms))

    def _load(self, table: pa.Table) -> None:
        self.file.seek(0)
        self.file.truncate()
        self.file.write(lines(table, self.columns, self.forms))
        self.file.flush()
        targets, changes = [], []
        for at, column in enumerate(self.columns):
            name = self.quote(column.name)
            if column.kind == "binary":
                changes.append(f"{name} = UNHEX(@c{at})")
            targets.append(f"@c{at}" if column.kind == "binary" else name)
        change = f" SET {', '.join(changes)}" if changes else ""
        statement = (
            f"LOAD DATA LOCAL INFILE %s INTO TABLE {self.table} CHARACTER SET utf8mb4 ({', '.join(targets)}){change}"
        )
        with self.connection.cursor() as cursor:
            loaded = cursor.execute(statement, (self.file.name,))
            if loaded != table.num_rows or self.connection.show_warnings():
                warnings = self.connection.show_warnings()
                reason = warnings[0][2] if warnings else f"{loaded} of {table.num_rows} rows came in"
                raise pymysql.err.DataError(1265, f"rows were not staged as they are: {reason}")

    def finish(self) -> None:
        self.connection.commit()
        self._close()

    def give_up(self) -> None:
        with suppress(pymysql.MySQLError):
            self._run(f"DROP TABLE IF EXISTS {self.table}")
        self._close()

    def _close(self) -> None:
        self.file.close()
        with suppress(pymysql.MySQLError):
            self.connection.close()

    def _run(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, ())
