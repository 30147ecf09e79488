"""Two queries on one place are found in whatever spelling the place is given."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from headrace import registry
from headrace.checks.structure import check_structure
from headrace.connectors.catalog.sink import TableSink
from headrace.connectors.delta.sink import DeltaSink
from headrace.connectors.files.sink import FileSink
from headrace.connectors.files.source import Files
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.sql.mysql import MySql
from headrace.connectors.sql.postgres import Postgres
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import Sink, same_place
from headrace.loader import load

pytestmark = pytest.mark.plain

# The sinks of two queries, and what is said; None: they are two places.
PAIRS = {
    "a path and itself": ("files: out", "files: ./sub/../out/", "error"),
    "a path and its URI": ("files: {root}/out", "files: file://{root}/out", "error"),
    "a path and a link to it": ("files: out", "files: link", "error"),
    "a file below a link": ("sqlite: {path: out/r.db, table: t}", "sqlite: {path: link/r.db, table: T}", "error"),
    "two formats": ("files: out", "files: {path: out, format: json}", "error"),
    "files and Delta": ("files: out", "delta: {path: out}", "error"),
    "two tables of a file": ("sqlite: {path: r.db, table: t}", "sqlite: {path: r.db, table: u}", None),
    "a table of the catalog": ("table: counts", "table: spark_catalog.Default.COUNTS", "error"),
    "a table, as files and as Delta": ("table: counts", "delta: {table: default.counts}", "error"),
    "two databases of the catalog": ("table: a.counts", "table: b.counts", None),
    "two directories": ("files: out", "files: out2", None),
    "a bucket": ("files: 's3://Lake/out'", "files: 's3a://lake//out/'", "error"),
    "a topic and some of its brokers": (
        "kafka: {bootstrap_servers: 'b1:9092,b2:9092', topic: t}",
        "kafka: {bootstrap_servers: 'B2:9092', topic: t, key: [id]}",
        "warning",
    ),
    "two topics": ("kafka: {bootstrap_servers: 'b:1', topic: t}", "kafka: {bootstrap_servers: 'b:1', topic: u}", None),
    "servers": (
        "postgres: {url: 'postgresql://me:x@Db.Example/phones', table: t}",
        "postgres: {url: 'postgres://you:y@db.example.:5432/phones?sslmode=require', table: t, schema: public}",
        "error",
    ),
    "two schemas": (
        "postgres: {url: 'postgresql://db/phones', table: t, schema: a}",
        "postgres: {url: 'postgresql://db/phones?options=-csearch_path%3Db', table: t}",
        None,
    ),
    "this machine": (
        "mysql: {url: 'mysql://me@localhost/phones', table: t}",
        "mysql: {url: 'mariadb://127.0.0.1:3306/phones?connect_timeout=5', table: t}",
        "error",
    ),
    "two ports": (
        "mysql: {url: 'mysql://db/phones', table: t}",
        "mysql: {url: 'mysql://db:3307/phones', table: t}",
        None,
    ),
    "two accounts of a catalog": (
        "iceberg: {table: n.t, catalog: {type: rest, uri: 'https://me:x@cat.example/', warehouse: w}}",
        "iceberg: {table: n.t, catalog: {type: rest, uri: 'https://cat.example', warehouse: w, name: other}}",
        "error",
    ),
    "two warehouses": (
        "iceberg: {table: n.t, catalog: {type: rest, uri: 'https://cat', warehouse: w}}",
        "iceberg: {table: n.t, catalog: {type: rest, uri: 'https://cat', warehouse: v}}",
        None,
    ),
}


@pytest.mark.parametrize(("one", "other", "severity"), PAIRS.values(), ids=PAIRS)
def test_one_place_in_two_spellings_is_one_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str, severity: str | None
) -> None:
    # No bucket is asked for.
    monkeypatch.setattr(import_module("headrace.checks.locations"), "place", Path)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    text = "sources: {events: {rate: {}}}\nqueries:\n"
    for name, sink in (("a", one), ("b", other)):
        text += f"  {name}: {{select: SELECT * FROM events, sink: {{{sink.replace('{root}', str(tmp_path))}}}}}\n"
    (tmp_path / "headrace.yml").write_text(text)
    findings = [finding for finding in check_structure(load(tmp_path, environ={})) if finding.code == "HR259"]
    assert [finding.severity for finding in findings] == ([] if severity is None else [severity])


def test_a_query_that_writes_into_a_link_to_its_source_is_found(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "headrace.yml").write_text(
        "sources: {events: {files: {path: in, format: json, schema: a INT}}}\n"
        "queries: {q: {select: SELECT * FROM events, sink: {files: link/out}}}\n"
    )
    assert [finding.code for finding in check_structure(load(tmp_path, environ={}))] == ["HR267"]


SECRET: dict[str, Sink] = {
    "postgres": Postgres(url="postgresql://me:sesame@db/phones?password=sesame", table="t"),
    "postgres-not-encoded": Postgres(url="postgresql://me:se/sesame@db/phones", table="t"),
    "mysql": MySql(url="mysql://me:sesame@db/phones", table="t"),
    "mysql-not-encoded": MySql(url="mysql://me:se/sesame@db/phones", table="t"),
    "mysql-unreadable": MySql(url="mysql://me:sesame@db:port/phones", table="t"),
    "kafka": KafkaSink(bootstrap_servers="a:1", topic="t", options={"kafka.sasl.jaas.config": "sesame"}),
    "iceberg": IcebergSink(table="n.t", catalog={"uri": "postgresql://me:sesame@db/c", "token": "sesame"}),
    "files": FileSink(path="s3a://key:sesame@bucket/out"),
    "delta": DeltaSink(path="s3a://key:sesame@bucket/out"),
    "table": TableSink(table="t"),
    "sqlite": Sqlite(path="r.db", table="t"),
}


@pytest.mark.parametrize("sink", SECRET.values(), ids=SECRET)
def test_an_identity_is_plain_data_without_secrets(sink: Sink) -> None:
    identity = sink.identity()
    assert "sesame" not in json.dumps(identity)
    assert identity is None or same_place(json.loads(json.dumps(identity)), identity)


def test_every_durable_sink_but_the_users_own_functions_has_an_identity() -> None:
    kinds = {name for name in registry.list_names("sink") if registry.connector("sink", name).identity is Sink.identity}
    assert kinds == {"console", "memory", "foreach", "foreach_batch"}


def test_sources_say_what_they_read() -> None:
    assert Files(path="file:/in/x/", format="json").identity() == {"system": "files", "path": "/in/x", "format": "json"}
    kafka = {"system": "kafka", "servers": ["a:1", "b:2"]}
    servers = "B:2, a:1"
    for given, identity in (
        (Kafka(bootstrap_servers=servers, subscribe="u,t"), {"topics": ["t", "u"]}),
        (Kafka(bootstrap_servers=servers, subscribe_pattern="t.*"), {"topic_pattern": "t.*"}),
        (Kafka(bootstrap_servers=servers, assign={"t": (1, 0)}), {"topics": ["t"], "partitions": {"t": [0, 1]}}),
    ):
        assert given.identity() == {**kafka, **identity}
