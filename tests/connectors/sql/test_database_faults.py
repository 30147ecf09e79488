"""Servers that restart, locks, deadlocks, dropped tables and changed passwords: one sentence, and an exact result."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pytest

from headrace.connectors.sql.dialect import run
from headrace.errors import SinkError
from services import MariaDbServer, PostgresServer
from tests.waiting import until

from .databases import Database, Life, database
from .fed import LifeWithoutSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]
Server = PostgresServer | MariaDbServer
pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True),
]
PATHS = pytest.mark.parametrize("staged", [False, True], ids=["driver", "staged"])


@pytest.fixture
def context(tmp_path: Path, database: Database) -> Life:
    """A life without Spark: a server fails in the same way."""
    return LifeWithoutSpark(cast("SparkSession", None), tmp_path, database, options={"retry_seconds": 20})


@pytest.fixture
def in_spark(spark: SparkSession, tmp_path: Path, database: Database) -> Life:
    return Life(spark, tmp_path, database, options={"retry_seconds": 20})


@pytest.fixture
def server(database: Database, request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(f"{database.kind}_server")
    return server


def at(context: Life, wanted: str, act: Any) -> Any:
    """A hook that calls `act` once at a boundary."""
    done: list[bool] = []

    def reached(boundary: str, batch: int) -> None:
        if boundary == wanted and not done:
            done.append(True)
            act()

    from dataclasses import replace

    return replace(context.run, on_boundary=reached)


# Every two of how, when and by which way the rows go.
@pytest.mark.parametrize(
    ("how", "boundary", "staged"),
    [
        ("restart", "before-transaction", False),
        ("restart", "inside-transaction", True),
        ("kill", "before-transaction", True),
        ("kill", "inside-transaction", False),
    ],
    ids=["restart-before-driver", "restart-inside-staged", "kill-before-staged", "kill-inside-driver"],
)
def test_a_server_that_goes_away_in_mid_batch_is_waited_for(
    context: Life, server: Server, boundary: str, how: str, staged: bool
) -> None:
    def away() -> None:
        if how == "restart":
            server.restart()
        else:
            server.kill()
            server.start()

    writer = context.begin(staged=staged)
    writer(context.frame([("a", 1), ("b", 1)]), 0)
    writer.store.context = at(context, boundary, away)
    writer(context.frame([("b", 2), ("c", 2)], partitions=2), 1)
    assert context.rows() == [("a", 1), ("b", 2), ("c", 2)]
    assert [batch for batch, _, _ in context.database.batches()] == [0, 1]
    assert "HR411" in {finding.code for finding in context.noted}
    assert context.database.left_over() == []


@PATHS
def test_a_commit_whose_answer_was_lost_is_not_done_twice(context: Life, server: Server, staged: bool) -> None:
    """The connection breaks after the commit has come through: the next attempt finds the batch in the ledger."""
    context.key, context.mode = (), "append"
    writer = context.begin(staged=staged)
    commit = writer.store.commit

    def lost(*given: Any) -> None:
        commit(*given)
        server.restart()
        run(writer.store._connection, "SELECT 1")

    writer.store.commit = lost
    writer(context.frame([("a", 1), ("b", 2)]), 0)
    assert context.rows() == [("a", 1), ("b", 2)]
    assert [finding.code for finding in context.noted] == ["HR411"]


def test_a_server_that_does_not_come_back_ends_the_batch_in_one_sentence(context: Life, server: Server) -> None:
    context.options = {"retry_seconds": 1.0}
    writer = context.begin()
    server.stop()
    try:
        with pytest.raises(SinkError, match=r"batch 0 of query 'q' was not written: .* does not answer") as raised:
            writer(context.frame([("a", 1)]), 0)
    finally:
        server.start()
    assert raised.value.findings[0].code == "HR405"
    assert "start the server" in raised.value.findings[0].fix
    context.begin()(context.frame([("a", 1)]), 0)
    assert context.rows() == [("a", 1)]


def test_a_lock_of_another_transaction_is_waited_for(context: Life) -> None:
    writer = context.begin()
    writer(context.frame([("a", 1)]), 0)
    with closing(context.database.connect()) as other:
        cursor = other.cursor()
        cursor.execute("BEGIN")
        cursor.execute("UPDATE result SET total = 9 WHERE name = 'a'")
        ended = threading.Timer(1.0, lambda: cursor.execute("ROLLBACK"))
        ended.daemon = True
        ended.start()
        writer(context.frame([("a", 2)]), 1)
        ended.join(30)
    assert context.rows() == [("a", 2)]


# The transactions that wait for a row which another one holds.
WAITS = {
    "postgres": "SELECT pid FROM pg_locks WHERE NOT granted",
    "mariadb": "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}


def test_a_deadlock_is_tried_again(context: Life) -> None:
    writer = context.begin()
    writer(context.frame([("a", 1), ("b", 1)]), 0)
    with closing(context.database.connect()) as other:
        cursor = other.cursor()
        cursor.execute("BEGIN")
        cursor.execute("UPDATE result SET total = 9 WHERE name = 'a'")
        wants: list[threading.Thread] = []

        def cross() -> None:
            """Ask for a row that the batch has locked, while the batch will ask for ours."""

            def ask() -> None:
                # Whichever of the two the database ends, the other continues.
                with suppress(Exception):
                    cursor.execute("UPDATE result SET total = 9 WHERE name = 'b'")
                with suppress(Exception):
                    cursor.execute("ROLLBACK")

            wants.append(threading.Thread(target=ask, daemon=True))
            wants[0].start()
            until(
                "transaction that waits for a row", lambda: context.database.query(WAITS[context.database.kind]) != []
            )

        dialect_write = writer.store.dialect.__class__.write

        def write(self: Any, connection: Any, target: Any, table: Any) -> None:
            """Write the row 'b' before the row 'a', with the other transaction in between."""
            for place, row in enumerate(sorted(range(table.num_rows), reverse=True)):
                dialect_write(self, connection, target, table.slice(row, 1))
                if place == 0 and not wants:
                    cross()

        writer.store.dialect.__class__.write = write  # type: ignore[method-assign]
        try:
            writer(context.frame([("a", 2), ("b", 2)]), 1)
        finally:
            writer.store.dialect.__class__.write = dialect_write  # type: ignore[method-assign]
        wants[0].join(30)
    assert context.rows() == [("a", 2), ("b", 2)]
    assert [batch for batch, _, _ in context.database.batches()] == [0, 1]


@PATHS
def test_a_table_that_is_dropped_while_the_query_runs_is_reported_and_made_again(context: Life, staged: bool) -> None:
    writer = context.begin(staged=staged)
    context.database.query("DROP TABLE result")
    with pytest.raises(SinkError, match="has lost a table that was there at the start") as raised:
        writer(context.frame([("a", 1)]), 0)
    assert raised.value.findings[0].code == "HR405"
    context.begin(staged=staged)(context.frame([("a", 1)]), 0)
    assert context.rows() == [("a", 1)]


@pytest.fixture
def lesser(context: Life, server: Server) -> Any:
    """A user with the rights that the documentation of the sink lists, and no other."""
    name = context.database.place.rpartition("/")[2]
    if context.database.kind == "postgres":
        statements = [
            "CREATE USER writer PASSWORD 'sesame/1'",
            f'REVOKE ALL ON DATABASE "{name}" FROM PUBLIC',
            f'GRANT CONNECT ON DATABASE "{name}" TO writer',
            "CREATE SCHEMA results",
            "GRANT USAGE, CREATE ON SCHEMA results TO writer",
        ]
        context.options["schema"] = "results"
    else:
        statements = [
            "CREATE USER writer@'127.0.0.1' IDENTIFIED BY 'sesame/1'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER ON `{name}`.* TO writer@'127.0.0.1'",
        ]
    for statement in statements:
        server.execute(statement, database=name)
    place = urlsplit(server.url(user="writer", password="sesame%2F1", database=name)).geturl()
    context.database = Database(context.database.kind, place)
    yield context
    server.drop_database(name)
    server.execute("DROP USER writer" + ("@'127.0.0.1'" if context.database.kind == "mariadb" else ""))


@PATHS
def test_the_rights_that_are_documented_are_enough(lesser: Life, staged: bool) -> None:
    for batch in range(2):
        lesser.begin(staged=staged)(lesser.frame([("a", batch), ("b", 1)]), batch)
        lesser.checkpoint("", offsets=batch, commits=batch)
    assert lesser.rows() == [("a", 1), ("b", 1)]


def test_a_changed_password_is_one_sentence_and_never_shown(lesser: Life, server: Server) -> None:
    writer = lesser.begin()
    user = "writer" if lesser.database.kind == "postgres" else "writer@'127.0.0.1'"
    verb = "PASSWORD" if lesser.database.kind == "postgres" else "IDENTIFIED BY"
    server.execute(f"ALTER USER {user} {verb} 'second'")
    with pytest.raises(SinkError, match=r"batch 0.*refuses the (user or the )?password") as raised:
        writer(lesser.frame([("a", 1)]), 0)
    assert raised.value.findings[0].code == "HR414"
    for text in (str(raised.value), repr(writer), repr(writer.store.dialect), repr(lesser.sink)):
        assert "sesame" not in text
    place = lesser.database.place.replace("sesame%2F1", "second")
    lesser.database = Database(lesser.database.kind, place)
    lesser.begin()(lesser.frame([("a", 1)]), 0)
    assert lesser.rows() == [("a", 1)]


def test_without_the_right_to_create_the_message_says_what_to_grant(lesser: Life, server: Server) -> None:
    name = lesser.database.place.rpartition("/")[2]
    if lesser.database.kind == "postgres":
        server.execute("REVOKE CREATE ON SCHEMA results FROM writer", database=name)
    else:
        server.execute(f"REVOKE CREATE ON `{name}`.* FROM writer@'127.0.0.1'")
    with pytest.raises(SinkError) as raised:
        lesser.begin()
    assert raised.value.findings[0].code == "HR414"
    assert "documentation" in raised.value.findings[0].fix


def test_a_password_is_in_no_plan_and_in_no_event_log(in_spark: Life, tmp_path: Path) -> None:
    password = urlsplit(in_spark.database.place).password or ""
    writer = in_spark.begin(staged=True)
    plans: list[str] = []
    large = writer.store.stage.__class__.compute_large

    def seen(stage: Any, frame: Any) -> Any:
        mapped = frame.mapInArrow(stage.stage, "kind STRING, name STRING, rows BIGINT, body BINARY")
        plans.append(mapped._jdf.queryExecution().toString())
        return large(stage, frame)

    writer.store.stage.__class__.compute_large = seen  # type: ignore[method-assign]
    try:
        writer(in_spark.frame([("a", 1)]), 0)
    finally:
        writer.store.stage.__class__.compute_large = large  # type: ignore[method-assign]
    assert "MapInArrow" in plans[0]
    assert len(password) > 8
    assert password not in plans[0]


def test_tls_is_used_and_checked_as_asked(context: Life, server: Server, tmp_path: Path) -> None:
    place = context.database.place
    if context.database.kind == "postgres":
        good = f"{place}?sslmode=verify-ca&sslrootcert={server.root_certificate}"
        bad = f"{place}?sslmode=verify-ca&sslrootcert={tmp_path / 'none.crt'}"
        encrypted = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    else:
        good = f"{place}?ssl_mode=verify_ca&ssl_ca={server.root_certificate}"
        bad = f"{place}?ssl_mode=verify_ca&ssl_ca={tmp_path / 'none.crt'}"
        encrypted = "SHOW STATUS LIKE 'Ssl_cipher'"
    context.database = Database(context.database.kind, good)
    with closing(context.sink.dialect().connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(encrypted)
        assert str(cursor.fetchone()[-1]) not in ("false", "", "None")
    context.begin()(context.frame([("a", 1)]), 0)
    context.database = Database(context.database.kind, bad)
    with pytest.raises(SinkError, match="TLS") as raised:
        context.begin()
    assert raised.value.findings[0].code == "HR414"


LIMITS = {
    "postgres": (
        "CREATE USER limited PASSWORD 'x' CONNECTION LIMIT 0",
        "SELECT 1",
        "'limited' no connection more",
        "ALTER",
    ),
    "mariadb": (
        "CREATE USER limited@'127.0.0.1' IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 1",
        "GRANT ALL ON *.* TO limited@'127.0.0.1'",
        "gives this user no more.*max_user_connections",
        "ALTER USER",
    ),
}


def test_a_limit_of_connections_is_named_with_the_statement_that_raises_it(database: Database, server: Server) -> None:
    create, grant, words, fix = LIMITS[database.kind]
    name = database.place.rpartition("/")[2]
    for statement in (create, grant):
        server.execute(statement, database=name)
    limited = Database(database.kind, server.url(user="limited", password="x", database=name))
    try:
        with ExitStack() as held:
            if database.kind == "mariadb":
                held.enter_context(closing(limited.connect()))
            dialect = limited.sink().dialect()
            with pytest.raises(dialect.errors) as refused:
                dialect.connect()
        problem = dialect.explain(refused.value)
        assert problem.code == "HR405"
        assert re.search(words, problem.what)
        assert fix in problem.fix
        assert dialect.is_transient(refused.value)
    finally:
        server.execute("DROP USER limited" + ("@'127.0.0.1'" if database.kind == "mariadb" else ""), database=name)


@pytest.mark.parametrize("whose", ["ROLE reader", "DATABASE {name}", "ROLE reader IN DATABASE {name}"])
def test_the_message_to_a_user_who_may_only_read_names_no_standby(
    database: Database, server: Server, whose: str
) -> None:
    if database.kind == "mariadb":
        pytest.skip("MariaDB has no such setting of a user")
    name = database.place.rpartition("/")[2]
    setting = f"ALTER {whose.format(name=name)} {{}} default_transaction_read_only"
    for statement in ("CREATE USER reader PASSWORD 'x'", setting.format("SET") + " = on"):
        server.execute(statement)
    try:
        reader = Database("postgres", server.url(user="reader", password="x", database=name))
        dialect = reader.sink().dialect()
        with pytest.raises(dialect.errors) as refused:
            reader.query("CREATE TABLE t (a INT)")
        problem = dialect.explain(refused.value)
        assert (problem.code, "standby" in problem.what, problem.fix) == ("HR414", False, setting.format("RESET"))
    finally:
        server.execute(setting.format("RESET"))
        server.execute("DROP USER reader")


def test_what_the_server_says_in_several_lines_stays_in_sentences(context: Life, server: Server) -> None:
    dialect = context.sink.dialect()
    server.stop()
    try:
        with pytest.raises(dialect.errors) as refused:
            dialect.connect()
    finally:
        server.start()
    sentence = dialect.explain(refused.value).what
    assert "\n" not in sentence
    if context.database.kind == "postgres":
        assert "Connection refused; Is the server running" in sentence
