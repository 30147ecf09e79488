"""A sink that is changed over an old checkpoint is refused naming both; one that only moved with its rows is not."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.connectors.catalog.sink import TableSink
from headrace.connectors.delta.sink import DeltaSink
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.sql.mysql import MySql
from headrace.connectors.sql.postgres import Postgres
from headrace.contract import Outcome, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def declare(root: Path, sink: str) -> None:
    (root / "headrace.yml").write_text(
        "sources:\n  events: {files: {path: in, format: json, schema: 'name STRING, total BIGINT'}}\n"
        f"queries:\n  q: {{select: 'SELECT name, total FROM events', sink: {{{sink}}}}}\n"
    )


def run(root: Path, spark: SparkSession, sink: str) -> Outcome:
    """One more file, and a run that takes it."""
    declare(root, sink)
    (root / "in").mkdir(exist_ok=True)
    number = len(list((root / "in").iterdir()))
    (root / "in" / f"{number}.json").write_text(f'{{"name": "n{number}", "total": {number}}}\n')
    [outcome] = hr.run(hr.load(root, environ={}), trigger=hr.available_now, spark=spark).outcomes
    return outcome


# What the sink was, what it is, and how both are named; None: it is taken.
CHANGES = {
    "table": ("sqlite: {path: a.db, table: t}", "sqlite: {path: a.db, table: u}", ("table 't' in a.db", "'u' in a.db")),
    "kind": ("sqlite: {path: a.db, table: t}", "files: out", ("table 't' in a.db", "directory 'out'")),
    "directory": ("files: out", "files: other", ("directory 'out'", "directory 'other'")),
    "file-with-its-ledger": ("sqlite: {path: a.db, table: t}", "sqlite: {path: b.db, table: t}", None),
    "case": ("sqlite: {path: a.db, table: t}", "sqlite: {path: a.db, table: T}", None),
}


@pytest.mark.spark
@pytest.mark.parametrize(("was", "now", "named"), CHANGES.values(), ids=CHANGES)
def test_a_changed_sink_is_refused_naming_both(
    spark: SparkSession, tmp_path: Path, was: str, now: str, named: tuple[str, str] | None
) -> None:
    assert run(tmp_path, spark, was).state == "finished"
    if "b.db" in now:
        with sqlite3.connect(tmp_path / "a.db") as old, sqlite3.connect(tmp_path / "b.db") as new:
            old.backup(new)
    outcome = run(tmp_path, spark, now)
    if named is None:
        assert (outcome.state, outcome.rows) == ("finished", 1)
        return
    assert outcome.state == "failed"
    assert outcome.finding is not None
    assert (outcome.finding.code, [name in outcome.finding.what for name in named]) == ("HR410", [True, True])
    assert "batches up to 0" in outcome.finding.what
    assert run(tmp_path, spark, was).state == "finished"


@pytest.mark.spark
def test_a_checkpoint_without_the_record_gets_one_where_the_batches_are(spark: SparkSession, tmp_path: Path) -> None:
    """As version 0.1.0 left it; Spark's log next to the files says which batches they are of."""
    was, now, _ = CHANGES["directory"]
    assert run(tmp_path, spark, was).state == "finished"
    (record,) = tmp_path.glob(".headrace/queries/q-*/g1.1/sink.json")
    for other in (now, "table: elsewhere"):
        record.unlink(missing_ok=True)
        record.with_name("manifest.jsonl").unlink(missing_ok=True)
        refused = run(tmp_path, spark, other)
        assert refused.finding is not None
        assert (refused.state, refused.finding.code) == ("failed", "HR410")
        assert "has committed batch 0" in refused.finding.what
        assert "holds no batch" in refused.finding.what
        assert not record.exists()
    assert run(tmp_path, spark, was).state == "finished"
    assert json.loads(record.read_text())["shown"] == "directory 'out'"


@pytest.mark.spark
def test_paths_inside_the_project_are_kept_from_its_root_on(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "p"
    root.mkdir()
    assert run(root, spark, "files: out").state == "finished"
    (record,) = root.glob(".headrace/queries/q-*/g1.1/sink.json")
    assert json.loads(record.read_text()) == {
        "kind": "files",
        "name": "",
        "systems": ["out"],
        "shown": "directory 'out'",
    }


PLACES = {
    "postgres": (
        Postgres(url="postgresql://me:sesame@db.example:5433/phones?sslmode=require", table="t"),
        "table 't' in db.example:5433/phones",
    ),
    "postgres-not-encoded": (Postgres(url="postgresql://me:se/same@db.example/phones", table="t"), "in the database"),
    "mysql": (MySql(url="mysql://me:sesame@db.example/phones", table="t"), "table 't' in db.example/phones"),
    "kafka": (KafkaSink(bootstrap_servers="a:1, b:2", topic="t"), "topic 't' at a:1, b:2"),
    "delta": (DeltaSink(path="/lake/t"), "Delta table '/lake/t'"),
    "iceberg": (IcebergSink(table="n.t"), "Iceberg table 'n.t'"),
    "table": (TableSink(table="T"), "table 'default.t' of the catalog"),
}


@pytest.mark.plain
@pytest.mark.parametrize(("sink", "shown"), PLACES.values(), ids=PLACES)
def test_every_durable_sink_shows_its_place_without_secrets(sink: Sink, shown: str) -> None:
    assert sink.location is not None
    assert shown in sink.location.shown
    assert "same" not in repr(sink.location)


@pytest.mark.spark
@pytest.mark.capability("REC-04", "REC-05")
def test_a_function_may_begin_with_any_batch_once_that_is_accepted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text(
        "import json\n"
        "from pathlib import Path\n\n"
        "import headrace\n\n"
        "def write(frame, batch):\n"
        "    rows = [row.name for row in frame.collect()]\n"
        "    Path(__file__).with_name('given.txt').open('a').write(json.dumps(rows) + '\\n')\n"
    )
    function = "foreach_batch: 'given:write'"
    assert run(tmp_path, spark, "files: out").state == "finished"
    refused = run(tmp_path, spark, function)
    assert refused.finding is not None
    assert (refused.state, refused.finding.code) == ("failed", "HR537")
    [accepted] = hr.run(
        hr.load(tmp_path, environ={}), trigger=hr.available_now, spark=spark, accept_forward=True
    ).outcomes
    assert accepted.state == "finished"
    # The rows of the refused start come, those of the batch before it do not.
    assert (tmp_path / "given.txt").read_text() == '["n1"]\n'
    back = run(tmp_path, spark, "files: elsewhere")
    assert back.finding is not None
    assert (back.state, back.finding.code) == ("failed", "HR410")
