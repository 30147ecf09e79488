"""Queries whose storage lost the log of a change in a restore continue, and their results are the batch answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import headrace as hr
from headrace.cli.entry import main
from tests.changes.test_lost_log import lose_log
from tests.connectors.clients import newest_totals
from tests.runner.projects import land, write_project
from tests.servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
BODY = """
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

def kept(table):
    return hr.sink.postgres({url!r}, table=table, key=["name"], rewindable="7 days")

@hr.query(sink=kept("rewound"), mode="update")
def rewound(events):
    return totals(events)

@hr.query(sink=kept("was_reset"), mode="update")
def was_reset(events):
    return totals(events)

to_topic = hr.sink.kafka({kafka!r}, topic={topic!r}, key=["name"], delivery_guarantee="exactly-once")

@hr.query(sink=to_topic, mode="update")
def sent(events):
    return totals(events)
"""


def test_changes_that_the_log_lacks_are_entered_and_the_results_are_the_batch_answer(
    postgres_url: str, kafka: Topics, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.make(2)
    root = write_project(tmp_path / "p", BODY.format(url=postgres_url, kafka=kafka.url, topic=topic))
    landed, project = Counter[str](), hr.load(root)

    def more(number: int) -> None:
        rows = [{"name": name, "amount": number + 1} for name in ("a", "b", "cde"[number % 3])]
        land(root, number, rows)
        for row in rows:
            landed[str(row["name"])] += number + 1

    def run() -> hr.results.RunResult:
        return hr.run(project, trigger=hr.available_now, spark=spark)

    for number in range(3):
        more(number)
    assert run().exit_code == 0
    hr.rewind(project, "rewound", to_batch=0).apply()
    hr.reset(project, "was_reset", result="drop").apply()
    hr.reset(project, "sent", result="keep").apply()
    more(3)
    assert run().exit_code == 0
    for query in project.queries:
        lose_log(project, query)
    assert main(["plan", "-C", str(root)]) == 1
    planned = capsys.readouterr().out
    for outcome in run().outcomes:
        assert outcome.finding is not None
        way = f"headrace change resume {outcome.query}"
        assert (outcome.finding.code, way in outcome.finding.fix, way in planned) == ("HR410", True, True)
    for query in project.queries:
        change = hr.change(project, query)
        assert change is not None
        change.resume()
    more(4)
    assert run().exit_code == 0
    with psycopg.connect(postgres_url) as connection:
        for table in ("rewound", "was_reset"):
            assert dict(connection.execute(f"SELECT name, total FROM {table}").fetchall()) == landed
    assert dict(newest_totals(kafka.url, topic)) == landed
    assert {hr.verify(project, query, spark=spark).state for query in project.queries} == {"equal"}
