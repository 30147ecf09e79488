"""A topic of changes applied to a table of PostgreSQL, against Flink SQL's upsert of the same topic; processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from benchmarks.change_data_topic import COLUMNS, PROJECT, TABLE, Row, create_table, fill
from benchmarks.figures import Figure, Side
from benchmarks.flink import FLINK, Flink
from benchmarks.model_kafka import broker
from benchmarks.processes import HEADRACE, seconds
from services import PostgresServer
from services import connectors as stand_ins
from services.process import new_home

TITLE = "change data: a topic of Debezium's messages into PostgreSQL, against Flink SQL"
RUNS = 3
CHANGES, KEYS = 2_000_000, 500_000
_CONNECTORS = (
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    "org.apache.flink:flink-connector-jdbc-core:4.0.0-2.0",
    "org.apache.flink:flink-connector-jdbc-postgres:4.0.0-2.0",
    "org.postgresql:postgresql:42.7.4",
)


def measure(*, runs: int, quick: bool) -> list[Figure]:
    count, keys = (40_000, 10_000) if quick else (CHANGES, KEYS)
    flink, took = Flink.install(_CONNECTORS), dict[str, list[float]](ours=[], theirs=[])
    stand_ins.install()
    with ExitStack() as stack:
        kafka = stack.enter_context(broker())
        server = PostgresServer(new_home("postgres"))
        stack.callback(server.remove)
        server.create()
        topic = kafka.topic()
        expected = fill(kafka, topic, count, keys)

        def ours(place: Path, url: str) -> float:
            project = PROJECT.format(broker=kafka.url, topic=topic, url=url, trigger="available-now")
            (place / "headrace.yml").write_text(project, encoding="utf-8")
            return seconds([*HEADRACE, "run"], cwd=place)

        def theirs(place: Path, url: str) -> float:
            with closing(psycopg.connect(url, autocommit=True)) as connection:
                connection.execute(create_table())
            parts = urlsplit(url)
            jdbc = f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true"
            given = [kafka.url, topic, jdbc, parts.username or "", parts.password or "", str(place / "checkpoints")]
            given.append(flink.jars)
            return seconds(flink.script("flink_changes.py", place, given), cwd=place)

        sides: dict[str, Callable[[Path, str], float]] = {"ours": ours, "theirs": theirs}
        for pair in range(runs):
            # Each pair begins with the other side.
            for side in sorted(sides, reverse=pair % 2 == 1):
                url = server.create_database(f"{side}_{pair}")
                server.execute("CHECKPOINT")
                with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
                    took[side].append(sides[side](Path(scratch), url))
                _compare(side, url, expected)
    return [
        Figure(
            name=f"PostgreSQL: {count:,} changes of {keys:,} keys from a topic",
            ours=Side.of(took["ours"]),
            theirs=Side.of(took["theirs"]),
            against=f"Flink SQL {FLINK}, debezium-json and the JDBC sink, at least once",
            unit="s",
            target=None if quick else 0.7,
            note="whole processes; every table was compared with the expected one, row for row",
        )
    ]


def _compare(side: str, url: str, expected: list[Row]) -> None:
    with closing(psycopg.connect(url)) as connection:
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {TABLE} ORDER BY id").fetchall()
    if rows != expected:
        raise RuntimeError(f"the table of '{side}' has {len(rows):,} rows and is not the expected one")
