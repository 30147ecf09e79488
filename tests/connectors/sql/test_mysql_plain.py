"""MySQL's own ways that need no server: the width of keys, what existing columns keep, and a server that lies."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest
from pyspark.sql import types as T

from headrace.connectors.sql.mysql import connection as mysql_connection
from headrace.connectors.sql.mysql import dialect as mysql
from headrace.connectors.sql.mysql.columns import existing_column, incompatible
from headrace.connectors.sql.mysql.dialect import LoadStager, MySqlDialect
from headrace.connectors.sql.types import ResultColumn, lines, rows

pytestmark = pytest.mark.plain

TEXT, AMOUNT = T.StringType(), T.DecimalType(38, 10)


@pytest.mark.parametrize("texts", range(1, 9))
@pytest.mark.parametrize("amounts", [0, 1, 8])
def test_every_key_fits_into_an_index(texts: int, amounts: int) -> None:
    key = [ResultColumn(f"t{at}", "text", TEXT) for at in range(texts)]
    key += [ResultColumn(f"d{at}", "decimal", AMOUNT, 38, 10) for at in range(amounts)]
    # A decimal with 28 digits before and 10 behind the point takes 13 and 5 bytes.
    assert mysql._longest_key_text(key) * 4 * texts + 18 * amounts <= 3072
    assert mysql._longest_key_text(key) >= 80


def test_a_float_is_stored_as_the_same_double_by_either_way() -> None:
    column = ResultColumn("v", "float", T.FloatType())
    table = pa.table({"v": pa.array([0.1, 3.4028234663852886e38], pa.float32())})
    by_driver = [value for (value,) in rows(table, [column], MySqlDialect.forms)]
    by_load = [float(line) for line in bytes(lines(table, [column], MySqlDialect.forms)).split()]
    assert by_driver == by_load == [0.10000000149011612, 3.4028234663852886e38]


LOSSY = {
    "json-in-latin1": ("longtext", "latin1_bin", "every character"),
    "json-of-mysql": ("json", None, "not a type for"),
}


@pytest.mark.parametrize(("declared", "collation", "words"), LOSSY.values(), ids=LOSSY)
def test_a_column_that_would_change_json_is_reported(declared: str, collation: str | None, words: str) -> None:
    column = ResultColumn("v", "json", T.ArrayType(AMOUNT))
    assert words in (incompatible(existing_column("v", declared, collation), column, "LONGTEXT") or "")


def test_an_unsigned_decimal_takes_nothing_below_zero() -> None:
    assert existing_column("v", "decimal(10,2) unsigned", None).limit.low == 0
    assert existing_column("v", "decimal(10,2)", None).limit.low < 0  # type: ignore[operator]


def test_a_certificate_that_is_refused_is_no_server_that_does_not_answer() -> None:
    def refused() -> None:
        try:
            raise ssl.SSLCertVerificationError("certificate verify failed")
        except OSError as cause:
            raise pymysql.err.OperationalError(2003, f"Can't connect ({cause})")  # noqa: B904

    with pytest.raises(pymysql.MySQLError) as raised:
        refused()
    assert MySqlDialect("mysql://db/x").explain(raised.value).code == "HR414"
    assert not MySqlDialect("mysql://db/x").is_transient(raised.value)
    assert MySqlDialect("mysql://db/x").is_transient(pymysql.err.OperationalError(2003, "refused"))


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[tuple[str, bytearray]]:
    """A server that answers LOAD DATA by asking for another file, and what it was sent."""
    secret, got = tmp_path / "secret", bytearray()
    secret.write_text("sesame")
    greeting = b"\x0a8.0\0\1\0\0\0" + b"s" * 8 + struct.pack("<BHBHHB10x", 0, 0xF7FF, 45, 2, 0x0008, 21)
    greeting += b"s" * 12 + b"\0mysql_native_password\0"

    def serve() -> None:
        with suppress(ConnectionError), listening.accept()[0] as client, client.makefile("rb") as stream:
            client.sendall(struct.pack("<I", len(greeting)) + greeting)
            while head := stream.read(4):
                size, number = struct.unpack("<I", head[:3] + b"\0")[0], head[3]
                packet = stream.read(size)
                got.extend(packet)
                answer = b"\xfb" + str(secret).encode() if packet[1:5] == b"LOAD" else b"\0\0\0\2\0\0\0"
                client.sendall(struct.pack("<I", len(answer))[:3] + bytes([(number + 1) % 256]) + answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"mysql://me@127.0.0.1:{listening.getsockname()[1]}/x?ssl_mode=disabled"
        yield url, got
        thread.join(5)


def test_a_server_that_asks_for_another_file_gets_none(
    liar: tuple[str, bytearray], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, got = liar
    monkeypatch.setattr(mysql, "is_mariadb", lambda _: False)
    stager = LoadStager(MySqlDialect(url), "t", [ResultColumn("v", "text", TEXT)], "MyISAM")
    with pytest.raises(pymysql.err.InternalError, match="not offered"):
        stager.add(pa.table({"v": ["mine"]}))
    stager.give_up()
    assert b"LOAD DATA" in got
    assert b"sesame" not in got


@pytest.mark.parametrize(
    ("engine_refused", "wanted"),
    [(0, "MyISAM"), (3161, "InnoDB")],
    ids=["every table needs a key", "MyISAM is disabled too"],
)
def test_rows_are_staged_where_every_table_needs_a_primary_key(
    monkeypatch: pytest.MonkeyPatch, engine_refused: int, wanted: str
) -> None:
    """MySQL's sql_require_primary_key, by its manual (ER_TABLE_WITHOUT_PK)."""
    made: list[str] = []

    def run(stager: LoadStager, statement: str) -> None:
        if "PRIMARY KEY" not in statement:
            raise pymysql.err.OperationalError(3750, "Unable to create or change a table without a primary key")
        if engine_refused and "InnoDB" not in statement:
            raise pymysql.err.OperationalError(engine_refused, "Storage engine MyISAM is disabled")
        made.append(statement)

    monkeypatch.setattr(mysql, "is_mariadb", lambda url: False)
    monkeypatch.setattr(LoadStager, "_run", run)
    monkeypatch.setattr(mysql_connection.MySqlAddress, "connect", lambda *_, **__: Silent())
    dialect, columns = MySqlDialect("mysql://u@h/d"), [ResultColumn("v", "text", TEXT)]
    stager: LoadStager = dialect.stager("staged", columns)  # type: ignore[assignment]
    stager.file.close()
    [statement] = made
    assert statement.endswith(f"ENGINE={wanted} DEFAULT CHARACTER SET utf8mb4")
    [temporary, kept] = [dialect.create_temporary("t", "SELECT 1"), *dialect.create_as("t", "n", "SELECT 1")]
    assert "PRIMARY KEY) AS SELECT 1" in temporary
    assert "PRIMARY KEY) ENGINE=InnoDB" in kept


class Silent:
    """A connection that is never used."""

    file = ""
