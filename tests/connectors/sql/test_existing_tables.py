"""What a table that is already there may look like, for each database: one claim a line."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from headrace.connectors.sql.dialect import StageError, WriteTarget
from headrace.connectors.sql.limits import split_invalid
from headrace.connectors.sql.preparation import prepare
from headrace.connectors.sql.result_table import result_table
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import OutputMode, SinkContext
from headrace.errors import HeadraceError
from services import MariaDbServer
from tests.servers import home_of, unavailable

from .databases import EVERY_WITHOUT_SPARK, Database, database
from .fed import LifeWithoutSpark

__all__ = ["database"]

TEXT, LONG, INT, REAL = T.StringType(), T.LongType(), T.IntegerType(), T.DoubleType()
TIME = T.TimestampType()
PLAIN: dict[str, T.DataType] = {"name": TEXT, "total": LONG}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A table made by `create`, and whether a result is taken (then `rows` come back) or refused with these words."""

    database: str
    create: tuple[str, ...]
    refused: str = ""
    columns: tuple[tuple[str, T.DataType], ...] = tuple(PLAIN.items())
    key: tuple[str, ...] = ("name",)
    mode: OutputMode = "update"
    rows: tuple[tuple[Any, ...], ...] = (("a", 1), ("A", 2), ("a ", 3))
    bad: tuple[str, ...] = ()


def claims(kind: str, table: dict[str, tuple[Any, ...]]) -> Iterator[Any]:
    """Each line: what is made, then what is refused or None, then what else differs from a plain claim."""
    marks = pytest.mark.plain if kind == "sqlite" else pytest.mark.services
    for name, (create, refused, *more) in table.items():
        statements = (create,) if isinstance(create, str) else create
        options = more[0] if more else {}
        claim = Claim(database=kind, create=statements, refused=refused or "", **options)
        yield pytest.param(kind, claim, id=f"{kind}-{name}", marks=marks)


def of(**columns: T.DataType) -> tuple[tuple[str, T.DataType], ...]:
    return tuple(columns.items())


BIG = {"columns": of(id=LONG, total=LONG), "key": ("id",), "rows": ((0, 9007199254740993), (-1, None))}
APPEND = {"mode": "append", "key": (), "rows": (("a", 1), ("a", 1))}
KEYED_APPEND = {"mode": "append"}

SQLITE: dict[str, tuple[Any, ...]] = {
    "plain": ("CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT)", None),
    "without-rowid": ("CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT) WITHOUT ROWID", None),
    "strict": ("CREATE TABLE result (name TEXT PRIMARY KEY, total INTEGER) STRICT", None),
    "strict-any": ("CREATE TABLE result (name ANY PRIMARY KEY, total INT) STRICT, WITHOUT ROWID", None),
    "strict-wrong": ("CREATE TABLE result (name BLOB PRIMARY KEY, total INT) STRICT", "HR406.*not a type for string"),
    "key-nocase": ("CREATE TABLE result (name TEXT COLLATE NOCASE PRIMARY KEY, total BIGINT)", "HR406.*differ for"),
    "key-rtrim": ("CREATE TABLE result (name TEXT COLLATE RTRIM PRIMARY KEY, total BIGINT)", "HR406.*differ for"),
    "index-nocase": (
        ("CREATE TABLE result (name TEXT, total BIGINT)", "CREATE UNIQUE INDEX u ON result (name COLLATE NOCASE)"),
        "HR406.*no primary key or unique index",
    ),
    "other-column-nocase": ("CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT, x TEXT COLLATE NOCASE)", None),
    "index-partial": (
        ("CREATE TABLE result (name TEXT, total BIGINT)", "CREATE UNIQUE INDEX u ON result (name) WHERE total > 0"),
        "HR406.*no primary key or unique index",
    ),
    "index-expression": (
        ("CREATE TABLE result (name TEXT, total BIGINT)", "CREATE UNIQUE INDEX u ON result (lower(name))"),
        "HR406.*no primary key or unique index",
    ),
    "bigint-in-real": ("CREATE TABLE result (id BIGINT PRIMARY KEY, total REAL)", "HR406.*'total'.*rounds whole", BIG),
    "bigint-in-integer": ("CREATE TABLE result (id BIGINT PRIMARY KEY, total INTEGER)", None, BIG),
    "int-in-real": (
        "CREATE TABLE result (name TEXT PRIMARY KEY, total REAL)",
        None,
        {"columns": of(name=TEXT, total=INT)},
    ),
    "generated-column": (
        "CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT AS (1) STORED)",
        "HR406.*'total'.*generated",
    ),
    "other-generated-column": (
        "CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT, twice BIGINT NOT NULL AS (coalesce(2 * total, 0)))",
        None,
    ),
    "ignores-conflicts": (
        "CREATE TABLE result (name TEXT PRIMARY KEY ON CONFLICT IGNORE, total BIGINT)",
        None,
        {**KEYED_APPEND, "rows": (("a", 1), ("a", 2)), "bad": ("IntegrityError",)},
    ),
    "replaces-null": (
        "CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT NOT NULL ON CONFLICT REPLACE DEFAULT 7)",
        None,
        {"rows": (("a", None),), "bad": ("column 'total' takes no NULL",)},
    ),
    "rowid": (
        "CREATE TABLE result (id INTEGER PRIMARY KEY, total BIGINT)",
        None,
        {**APPEND, "columns": of(id=LONG, total=LONG), "rows": ((None, 1),), "bad": ("column 'id' takes no NULL",)},
    ),
    "view": (
        ("CREATE TABLE t (name TEXT PRIMARY KEY, total BIGINT)", "CREATE VIEW result AS SELECT * FROM t"),
        "HR406.*is a view",
    ),
    "virtual": ("CREATE VIRTUAL TABLE result USING fts5(name, total)", "HR406.*virtual table", APPEND),
    "trigger-swallows": (
        (
            "CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT)",
            "CREATE TRIGGER s BEFORE INSERT ON result WHEN new.total = 2 BEGIN SELECT RAISE(IGNORE); END",
        ),
        "HR406.*trigger 's' leaves rows out",
    ),
    "trigger-changes": (
        (
            "CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT)",
            "CREATE TRIGGER s AFTER INSERT ON result BEGIN UPDATE result SET total = 0 WHERE name = new.name; END",
        ),
        "HR406.*trigger 's' writes the table itself",
    ),
    "trigger-notes": (
        (
            "CREATE TABLE result (name TEXT PRIMARY KEY, total BIGINT)",
            "CREATE TABLE notes (name TEXT)",
            "CREATE TRIGGER s AFTER INSERT ON result BEGIN INSERT INTO notes VALUES (new.name); END",
        ),
        None,
    ),
}

PG = "CREATE TABLE result (name text PRIMARY KEY, total bigint)"
FUNCTION = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$"
BEFORE = "CREATE TRIGGER s BEFORE INSERT OR UPDATE ON result FOR EACH ROW EXECUTE FUNCTION f()"
LOOSE = "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
BARE = "CREATE TABLE result (name text NOT NULL, total bigint)"
NO_INDEX = "HR406.*no primary key or unique index"
POSTGRES: dict[str, tuple[Any, ...]] = {
    "plain": (PG, None),
    "column-of-another-case": (PG.replace("total", '"Total"'), "HR406.*no column 'total', but one.*'Total'"),
    "key-of-another-case": (PG.replace("name", '"Name"'), "HR406.*no column 'name', but one.*'Name'"),
    "column-and-one-of-another-case": (PG.replace("total bigint", 'total bigint, "Total" bigint'), None),
    "required-column-of-another-case": (
        PG.replace("total bigint", 'total bigint, "Total" bigint NOT NULL'),
        "HR406.*its column 'Total' takes no NULL",
    ),
    "unlogged": (PG.replace("TABLE", "UNLOGGED TABLE"), "HR406.*UNLOGGED"),
    "view": (("CREATE TABLE t (name text, total bigint)", "CREATE VIEW result AS SELECT * FROM t"), "HR406.*a view"),
    "materialized-view": ("CREATE MATERIALIZED VIEW result AS SELECT 'a' AS name, 1::bigint AS total", "HR406"),
    "foreign": (
        (
            "CREATE FOREIGN DATA WRAPPER w",
            "CREATE SERVER s FOREIGN DATA WRAPPER w",
            "CREATE FOREIGN TABLE result (name text, total bigint) SERVER s",
        ),
        "HR406.*foreign table",
    ),
    "partitioned": (
        (
            PG + " PARTITION BY HASH (name)",
            "CREATE TABLE p PARTITION OF result FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        ),
        None,
    ),
    "partition-unlogged": (
        (
            PG + " PARTITION BY HASH (name)",
            "CREATE UNLOGGED TABLE p PARTITION OF result FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        ),
        "HR406.*partition 'p' is UNLOGGED",
    ),
    "inherited": ((PG, "CREATE TABLE child () INHERITS (result)"), "HR406.*'child' inherits"),
    "key-loose-collation": (
        (LOOSE, "CREATE TABLE result (name text COLLATE loose PRIMARY KEY, total bigint)"),
        "HR406.*'name'.*differ for Spark",
    ),
    "index-loose-collation": (
        (LOOSE, PG, "CREATE UNIQUE INDEX u ON result (name COLLATE loose)"),
        "HR406.*index 'u'.*differ for Spark",
    ),
    "other-loose-collation": ((LOOSE, PG, "ALTER TABLE result ADD COLUMN x text COLLATE loose"), None),
    "index-include": ((BARE, "CREATE UNIQUE INDEX u ON result (name) INCLUDE (total)"), None),
    "index-widened": (
        (BARE, "CREATE UNIQUE INDEX u ON result (name) INCLUDE (total)"),
        NO_INDEX,
        {"key": ("name", "total")},
    ),
    "index-partial": ((BARE, "CREATE UNIQUE INDEX u ON result (name) WHERE total > 0"), NO_INDEX),
    "index-expression": ((BARE, "CREATE UNIQUE INDEX u ON result (lower(name))"), NO_INDEX),
    "index-deferrable": ((BARE, "ALTER TABLE result ADD UNIQUE (name) DEFERRABLE"), NO_INDEX),
    "index-invalid": (
        (
            BARE,
            "CREATE UNIQUE INDEX u ON result (name)",
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'u'::regclass",
        ),
        NO_INDEX,
    ),
    "generated": (
        "CREATE TABLE result (name text PRIMARY KEY, total bigint GENERATED ALWAYS AS (1) STORED)",
        "HR406.*generated",
    ),
    "other-generated": ((PG, "ALTER TABLE result ADD COLUMN n int GENERATED ALWAYS AS (length(name)) STORED"), None),
    "identity-always": (
        "CREATE TABLE result (name text PRIMARY KEY, total bigint GENERATED ALWAYS AS IDENTITY)",
        "HR406.*GENERATED ALWAYS",
    ),
    "identity-by-default": (
        "CREATE TABLE result (name text PRIMARY KEY, total bigint GENERATED BY DEFAULT AS IDENTITY)",
        None,
    ),
    "other-identity": ((PG, "ALTER TABLE result ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY"), None),
    "not-null": (
        "CREATE TABLE result (name text PRIMARY KEY, total bigint NOT NULL DEFAULT 7)",
        None,
        {"rows": (("a", None),), "bad": ("column 'total' takes no NULL",)},
    ),
    "rule": ((PG, "CREATE RULE r AS ON INSERT TO result DO INSTEAD NOTHING"), "HR406.*rule 'r'"),
    "trigger-swallows": ((PG, FUNCTION.format("RETURN NULL;"), BEFORE), "HR406.*'s' may leave rows out"),
    "trigger-changes": (
        (PG, FUNCTION.format("NEW.total := 0; RETURN NEW;"), BEFORE),
        "HR406.*'s' changes column 'total'",
    ),
    "trigger-stamps": (
        (
            PG,
            "ALTER TABLE result ADD COLUMN at timestamptz",
            FUNCTION.format("IF NEW.total > 0 THEN NEW.at = now(); END IF; RETURN NEW;"),
            BEFORE,
        ),
        None,
    ),
    "trigger-disabled": (
        (PG, FUNCTION.format("RETURN NULL;"), BEFORE, "ALTER TABLE result DISABLE TRIGGER s"),
        None,
    ),
    "trigger-after": (
        (
            PG,
            "CREATE TABLE notes (name text)",
            FUNCTION.format("INSERT INTO notes VALUES (NEW.name); RETURN NULL;"),
            BEFORE.replace("BEFORE", "AFTER"),
        ),
        None,
    ),
    "trigger-after-on-itself": (
        (PG, FUNCTION.format("DELETE FROM result WHERE total = 2; RETURN NULL;"), BEFORE.replace("BEFORE", "AFTER")),
        "HR406.*writes the table itself",
    ),
    "trigger-not-readable": (
        (PG, BEFORE.replace("INSERT OR UPDATE", "UPDATE").replace("f()", "suppress_redundant_updates_trigger()")),
        "HR406.*'s' gets each row",
    ),
}

KEY = "name VARCHAR(50) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
MY = f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT)"
ZERO = {"columns": of(id=LONG, total=LONG), "key": ("id",), "rows": ((0, 5), (3, 6))}
STAMP = {
    "columns": of(name=TEXT, at=TIME),
    "rows": (("a", None),),
    "bad": ("column 'at' takes no NULL",),
}
MARIADB: dict[str, tuple[Any, ...]] = {
    "plain": (MY, None),
    "myisam": (f"{MY} ENGINE=MyISAM", "HR406.*engine is MyISAM"),
    "aria": (f"{MY} ENGINE=Aria", "HR406.*engine is Aria"),
    "aria-transactional": (f"{MY} ENGINE=Aria TRANSACTIONAL=1", "HR406.*engine is Aria"),
    "memory": (f"{MY} ENGINE=MEMORY", "HR406.*engine is MEMORY"),
    "view": (
        ("CREATE TABLE t (name VARCHAR(9), total BIGINT)", "CREATE VIEW result AS SELECT * FROM t"),
        "HR406.*view",
    ),
    "partitioned": (f"{MY} PARTITION BY KEY (name) PARTITIONS 3", None),
    "key-case": (MY.replace("nopad_bin", "general_ci"), "HR406.*differ for"),
    "key-pads": (MY.replace("nopad_bin", "bin"), "HR406.*differ for"),
    "auto-increment": ("CREATE TABLE result (id BIGINT AUTO_INCREMENT PRIMARY KEY, total BIGINT)", None, ZERO),
    "auto-increment-null": (
        "CREATE TABLE result (id BIGINT AUTO_INCREMENT PRIMARY KEY, total BIGINT)",
        None,
        {**APPEND, **ZERO, "key": (), "rows": ((None, 5),), "bad": ("column 'id' takes no NULL",)},
    ),
    "other-auto-increment": (
        f"CREATE TABLE result ({KEY} NOT NULL UNIQUE, total BIGINT, n BIGINT AUTO_INCREMENT PRIMARY KEY)",
        None,
    ),
    "double-of-places": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total DOUBLE(10,2))",
        "HR406.*rounds to 2 places",
        {"columns": of(name=TEXT, total=REAL)},
    ),
    "float-of-places": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total FLOAT(10,2))",
        "HR406.*not a type for double",
        {"columns": of(name=TEXT, total=REAL)},
    ),
    "double-unsigned": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total DOUBLE UNSIGNED)",
        None,
        {
            "columns": of(name=TEXT, total=REAL),
            "rows": (("a", -1.0),),
            "bad": ("column 'total' takes no value below 0",),
        },
    ),
    "timestamp-not-null": (f"CREATE TABLE result ({KEY} PRIMARY KEY, at TIMESTAMP(6) NOT NULL)", None, STAMP),
    "timestamp-of-old": (
        ("SET explicit_defaults_for_timestamp = 0", f"CREATE TABLE result ({KEY} PRIMARY KEY, at TIMESTAMP(6))"),
        None,
        STAMP,
    ),
    "key-on-update": (
        "CREATE TABLE result (at TIMESTAMP(6) NOT NULL DEFAULT NOW(6) ON UPDATE NOW(6) PRIMARY KEY, total BIGINT)",
        "HR406.*ON UPDATE CURRENT_TIMESTAMP",
        {"columns": of(at=TIME, total=LONG), "key": ("at",)},
    ),
    "other-on-update": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT, at TIMESTAMP NOT NULL DEFAULT NOW() ON UPDATE NOW())",
        None,
    ),
    "index-of-prefix": (f"CREATE TABLE result ({KEY} NOT NULL, total BIGINT, UNIQUE u (name(2)))", "HR406.*first char"),
    "other-index-of-prefix": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT, UNIQUE u (name(2), total))",
        "HR406.*'u'.*first char",
    ),
    "index-of-prefix-when-appending": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT, UNIQUE u (name(2), total))",
        None,
        KEYED_APPEND,
    ),
    "other-unique-of-a-default": (
        f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT, x INT NOT NULL DEFAULT 0 UNIQUE)",
        "HR406.*another key",
    ),
    "other-unique-of-null": (f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT, x INT UNIQUE)", None),
    "generated": (f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT AS (1) STORED)", "HR406.*generated"),
    "other-generated": (f"CREATE TABLE result ({KEY} PRIMARY KEY, total BIGINT, x BIGINT AS (total) VIRTUAL)", None),
    "trigger-changes": (
        (MY, "CREATE TRIGGER s BEFORE INSERT ON result FOR EACH ROW SET NEW.total = 0"),
        "HR406.*'s' changes column 'total'",
    ),
    "trigger-stamps": (
        (
            MY,
            "ALTER TABLE result ADD COLUMN at DATETIME",
            "CREATE TRIGGER s BEFORE INSERT ON result FOR EACH ROW SET NEW.at = IF(NEW.total = 1, NOW(), NULL)",
        ),
        None,
    ),
    "trigger-after": (
        (
            MY,
            "CREATE TABLE notes (name TEXT)",
            "CREATE TRIGGER s AFTER INSERT ON result FOR EACH ROW INSERT INTO notes VALUES (NEW.name)",
        ),
        None,
    ),
}

EVERY = [*claims("sqlite", SQLITE), *claims("postgres", POSTGRES), *claims("mariadb", MARIADB)]


def context(home: Path, claim_mode: OutputMode, query: str = "q") -> SinkContext:
    return SinkContext(query=query, generation=1, mode=claim_mode, checkpoint=home / query)


def make(database: Database, statements: tuple[str, ...]) -> None:
    """Run the statements on one connection, as far as this server has what they ask for."""
    with closing(database.connect()) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


def prepare_sink(database: Database, home: Path, claim: Claim, table: str = "result", query: str = "q") -> Any:
    run, schema = context(home, claim.mode, query), T.StructType([T.StructField(*column) for column in claim.columns])
    shape = result_table(table, claim.key, schema, run)
    return prepare(database.sink().dialect(), shape, schema.json(), run)


@pytest.mark.parametrize(("database", "claim"), EVERY, indirect=["database"])
def test_an_existing_table_is_taken_as_it_is_or_refused_by_name(
    database: Database, tmp_path: Path, claim: Claim
) -> None:
    make(database, claim.create)
    if claim.refused:
        with pytest.raises(HeadraceError, match=claim.refused) as raised:
            prepare_sink(database, tmp_path, claim)
        assert all(finding.fix for finding in raised.value.findings)
        return
    ready = prepare_sink(database, tmp_path, claim)
    arrow = {TEXT: pa.string(), LONG: pa.int64(), INT: pa.int32(), REAL: pa.float64(), TIME: pa.timestamp("us", "UTC")}
    given = pa.table(
        {
            name: pa.array([row[at] for row in claim.rows], arrow[type_])
            for at, (name, type_) in enumerate(claim.columns)
        }
    )
    good, bad = split_invalid(given, ready.table.columns, ready.limits)
    dialect = database.sink().dialect()
    target = WriteTarget(
        table="result", columns=ready.table.columns, key=ready.table.key, replaces=claim.mode == "update"
    )
    reasons = [row.reason for row in bad]
    with closing(dialect.connect()) as connection:
        for _ in range(2 if claim.mode == "update" else 1):
            try:
                if good.num_rows:
                    dialect.write(connection, target, good)
            except dialect.duplicates as error:
                reasons.append(type(error).__name__)
    assert reasons == list(claim.bad)
    if not claim.bad:
        names = ", ".join(f'"{name}"' for name, _ in claim.columns)
        rows_now = database.query(f"SELECT {names} FROM result")
        assert sorted(rows_now, key=repr) == sorted(claim.rows, key=repr)


OWN = [
    pytest.param("sqlite", ["CREATE VIEW {0} AS SELECT * FROM {0}_kept"], id="sqlite", marks=pytest.mark.plain),
    pytest.param("postgres", ["ALTER TABLE {0}_kept SET UNLOGGED", "ALTER TABLE {0}_kept RENAME TO {0}"],
                 id="postgres", marks=pytest.mark.services),
    # Without their keys, which are longer than those engines take.
    pytest.param("mariadb", ["CREATE TABLE {0} ENGINE=MyISAM AS SELECT * FROM {0}_kept"],
                 id="mariadb", marks=pytest.mark.services),
]  # fmt: skip


@pytest.mark.parametrize(("database", "spoil"), OWN, indirect=["database"])
def test_tables_of_our_own_that_could_lose_lines_are_refused_too(
    database: Database, tmp_path: Path, spoil: list[str]
) -> None:
    claim = Claim(database=database.kind, create=())
    prepare_sink(database, tmp_path, claim)
    for own in ("_headrace_ledger", "_headrace_epochs", "_headrace_tables", "_headrace_quarantine"):
        make(database, (f"ALTER TABLE {own} RENAME TO {own}_kept", *(statement.format(own) for statement in spoil)))
        with pytest.raises(HeadraceError, match=f"HR406.*own table '{own}'"):
            prepare_sink(database, tmp_path, claim)
        drop = "VIEW" if database.kind == "sqlite" else "TABLE"
        make(database, (f"DROP {drop} {own}",))
        prepare_sink(database, tmp_path, claim)


@pytest.mark.plain
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_names_that_differ_only_by_case_are_one_table_of_one_query(database: Database, tmp_path: Path) -> None:
    claim = Claim(database="sqlite", create=())
    prepare_sink(database, tmp_path, claim, table="Result", query="first")
    with pytest.raises(HeadraceError, match=r"HR407.*'Result' belongs to query 'first'"):
        prepare_sink(database, tmp_path, claim, table="RESULT", query="second")
    ready = prepare_sink(database, tmp_path, claim, table="result", query="first")
    assert ready.table.name == "Result"


class FoldingServer(MariaDbServer):
    """A server that sees no case in the names of tables, as on Windows."""

    def command(self) -> list[str]:
        return [*super().command(), "--lower-case-table-names=1", "--innodb-buffer-pool-size=64M"]


@pytest.fixture
def folding() -> Iterator[Database]:
    if sentence := FoldingServer.missing():
        unavailable(sentence)
    server = FoldingServer(home_of("mariadb"))
    try:
        server.create()
        yield Database("mariadb", server.create_database("test"))
    finally:
        server.remove()


@pytest.mark.services
def test_a_server_that_sees_no_case_has_one_table_of_one_query(folding: Database, tmp_path: Path) -> None:
    claim = Claim(database="mariadb", create=())
    assert prepare_sink(folding, tmp_path, claim, table="Result", query="first").table.name == "result"
    with pytest.raises(HeadraceError, match=r"HR407.*'result' belongs to query 'first'"):
        prepare_sink(folding, tmp_path, claim, table="RESULT", query="second")
    prepare_sink(folding, tmp_path, claim, table="result", query="first")


@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_table_of_another_schema_is_refused_until_the_ledger_lies_next_to_it(
    database: Database, tmp_path: Path
) -> None:
    name = database.query("SELECT current_database(), current_user")[0]
    make(database, (PG, f'CREATE SCHEMA own AUTHORIZATION "{name[1]}"'))
    make(database, (f'ALTER DATABASE "{name[0]}" SET search_path = own, public',))
    claim = Claim(database="postgres", create=())
    with pytest.raises(HeadraceError, match=r"HR407.*lies in schema 'public'[\s\S]*schema: public"):
        prepare_sink(database, tmp_path, claim)


@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_table_whose_rows_are_hidden_from_the_user_is_refused(database: Database, tmp_path: Path) -> None:
    name = database.place.rpartition("/")[2]
    make(database, (PG, f"CREATE ROLE writer_of_{name}", f"GRANT ALL ON result TO writer_of_{name}"))
    make(database, (f"GRANT ALL ON SCHEMA public TO writer_of_{name}",))
    make(database, (f'ALTER DATABASE "{name}" SET role = writer_of_{name}',))
    claim = Claim(database="postgres", create=())
    ready = prepare_sink(database, tmp_path, claim)
    assert ready.table.name == "result"
    make(database, ("SET ROLE NONE", "ALTER TABLE result ENABLE ROW LEVEL SECURITY"))
    with pytest.raises(HeadraceError, match=r"HR406.*row security"):
        prepare_sink(database, tmp_path, claim)


@pytest.mark.plain
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_rows_that_a_later_trigger_leaves_out_are_missed(database: Database, tmp_path: Path) -> None:
    ready = prepare_sink(database, tmp_path, Claim(database="sqlite", create=()))
    make(database, ("CREATE TRIGGER s BEFORE INSERT ON result WHEN new.total = 2 BEGIN SELECT RAISE(IGNORE); END",))
    dialect = database.sink().dialect()
    target = WriteTarget(table="result", columns=ready.table.columns, key=("name",), replaces=True)
    with (
        closing(dialect.connect()) as connection,
        pytest.raises(StageError, match=r"3 rows .* only 2 came in") as raised,
    ):
        dialect.write(connection, target, pa.table({"name": ["a", "b", "c"], "total": [1, 2, 3]}))
    assert raised.value.problem.code == "HR406"
    assert not raised.value.is_transient


@pytest.mark.plain
def test_a_look_at_a_sqlite_database_leaves_no_files_next_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a b.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE result (name TEXT)")
    dialect = Sqlite(path=str(path), table="result").dialect()
    with closing(dialect.connect_to_read()) as looking:
        assert dialect.describe_table(looking, "result") is not None
    assert [file.name for file in tmp_path.iterdir()] == ["a b.db"]
    with closing(sqlite3.connect(path)) as driver:
        driver.execute("INSERT INTO result VALUES ('a')")
        driver.commit()
        with closing(dialect.connect_to_read()) as looking:
            assert list(looking.execute("SELECT name FROM result")) == [("a",)]
        assert (tmp_path / "a b.db-wal").exists(), "the log of a driver stays"


@pytest.mark.plain
def test_the_directory_of_a_sqlite_file_is_made(tmp_path: Path) -> None:
    database = Database("sqlite", str(tmp_path / "new" / "deep" / "result.db"))
    prepare_sink(database, tmp_path, Claim(database="sqlite", create=()))
    assert Path(database.place).exists()


@pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)
def test_a_table_whose_columns_take_no_null_can_go_back(database: Database, tmp_path: Path) -> None:
    """Of a new key it is kept that there was no row."""
    name = "VARCHAR(60) COLLATE utf8mb4_nopad_bin" if database.kind == "mariadb" else "TEXT"
    database.query(f"CREATE TABLE result (name {name} PRIMARY KEY, total BIGINT NOT NULL)")
    life = LifeWithoutSpark(cast(Any, None), tmp_path, database, options={"rewindable": "1 day"})
    writer = life.begin()
    for batch, rows in enumerate([[("a", 1)], [("a", 2), ("b", 3)]]):
        writer(life.frame(rows), batch)
    life.sink.rewind.go_back(life.run, 0, cast(Any, None))
    assert life.rows() == [("a", 1)]


@pytest.mark.services
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_long_keys_that_begin_alike_go_back_to_their_own_rows(database: Database, tmp_path: Path) -> None:
    """More than the 1024 bytes of a text that count in a sort by default are the same."""
    database.query("CREATE TABLE result (name VARCHAR(700) COLLATE utf8mb4_nopad_bin PRIMARY KEY, total BIGINT)")
    life = LifeWithoutSpark(cast(Any, None), tmp_path, database, options={"rewindable": "1 day"})
    writer, keys = life.begin(), ["🎈" * 300 + letter for letter in "abcd"]
    for batch in range(6):
        writer(life.frame([(key, batch) for key in keys]), batch)
    life.sink.rewind.go_back(life.run, 1, cast(Any, None))
    assert life.rows() == [(key, 1) for key in keys]
