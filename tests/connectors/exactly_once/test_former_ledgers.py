"""A ledger of version 0.1.0, which knew a query by its name alone, is refused before anything is written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connectors.delta import ledger as delta
from headrace.connectors.exactly_once import TextLedger
from headrace.connectors.iceberg.batches import TableLedger
from headrace.connectors.kafka.topic_ledger import TopicLedger
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.contract import SinkContext
from headrace.errors import SinkError

pytestmark = pytest.mark.plain
FORMER = Path(__file__).parents[2] / "generations" / "form_of_0_1_0" / "ledger.sql"
CONTEXT = SinkContext(query="totals", query_id="7f3a9c1e", generation=1, mode="append", checkpoint=Path("none"))
FACTS = {"query": "totals", "generation": 1, "application": "ours", "epoch": "e", "result": "{}", "lines": []}


def test_the_tables_of_a_database(tmp_path: Path) -> None:
    file = str(tmp_path / "out.db")
    with closing(sqlite3.connect(file)) as made:
        made.executescript(FORMER.read_text())
        before = list(made.iterdump())
    dialect = SqliteDialect(file)
    with closing(dialect.connect()) as connection, pytest.raises(SinkError, match=r"HR407.*version 0\.1\.0"):
        Ledger(connection, dialect, CONTEXT, "counts").create()
    with closing(sqlite3.connect(file)) as after:
        assert list(after.iterdump()) == before


def test_the_text_that_a_table_keeps() -> None:
    with pytest.raises(SinkError, match=r"HR407.*version 0\.1\.0"):
        TextLedger.loads(json.dumps(FACTS))
    with pytest.raises(SinkError, match=r"HR407.*version 0\.1\.0"):
        TableLedger.loads(json.dumps({**FACTS, "batch": 2, "checkpoint": "id", "spark_schema": "{}"}))


def test_the_topic_of_a_ledger() -> None:
    head = {"ledger": {name: value for name, value in FACTS.items() if name != "lines"}, "life": "l", "begins": []}
    records = {"ours/totals/1/head": json.dumps(head).encode()}
    with pytest.raises(SinkError, match=r"HR407.*0\.1\.0"):
        TopicLedger.of(records, CONTEXT)


def test_the_identifiers_of_a_delta_table_are_those_of_another_query_of_the_name() -> None:
    former = {"headrace/totals/1": delta.Progress(1, 4).number, "headrace/totals/1/application/ours": 1}
    assert delta.progress(CONTEXT, former) == delta.NOT_BEGUN
    assert delta.label("totals", 1, former) == "totals"
    ours = delta.start_marks(CONTEXT, delta.Progress(1, None), None)
    assert delta.label("7f3a9c1e", 1, ours) == "totals"
