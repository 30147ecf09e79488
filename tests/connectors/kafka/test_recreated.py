"""A topic that was deleted and created again is another one, whatever it holds: each check of it says so by name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicCollection

import headrace as hr
from headrace.connectors.kafka import client
from headrace.connectors.kafka.source import Kafka
from headrace.errors import SourceError
from headrace.generations.register import layout_of
from headrace.history.lag import read_committed_prefixes
from headrace.runner import source_health
from headrace.starter.start import start
from tests.connectors.kafka.test_source import ran, refusal_of, sale, write
from tests.rounds import rounds
from tests.runner.projects import rows
from tests.servers import Topics
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
TOTALS = "SELECT name, total FROM totals ORDER BY name"


def topic_id(kafka: Topics, topic: str) -> str:
    """The id as Kafka's own client for C gives it."""
    admin = kafka.server.admin()  # Its answers end with it.
    id_ = str(admin.describe_topics(TopicCollection([topic]))[topic].result(20).topic_id)
    return id_.replace("+", "-").replace("/", "_")


def create_again(kafka: Topics, topic: str, messages: int) -> None:
    kafka.server.delete_topic(topic)
    eventually(lambda: topic not in kafka.server.admin().list_topics(timeout=10).topics)
    kafka.server.create_topic(topic)
    kafka.send(topic, *[sale("new", 1)] * messages)


@pytest.mark.parametrize("messages", rounds([1, 9]), ids=["fewer messages than before", "more messages than before"])
def test_a_topic_that_was_created_again_is_refused_until_its_new_id_is_accepted(
    kafka: Topics, spark: SparkSession, tmp_path: Path, messages: int
) -> None:
    topic = kafka.make()
    kafka.send(topic, *[sale("a", 1)] * 4)
    root = write(tmp_path / "p", kafka.url, topic)
    assert ran(root, spark).exit_code == 0
    before = topic_id(kafka, topic)
    create_again(kafka, topic, messages)
    now = topic_id(kafka, topic)
    sentence = f"topic '{topic}' was deleted and created again: its id is {now}, and was {before} when the query first "

    assert refusal_of(root, spark).startswith(f"HR346: query 'totals', source 'sales': {sentence}")
    assert rows(root / "out.db", TOTALS) == [("a", 4)]
    [judgement] = hr.plan(hr.load(root), spark=spark)
    assert (judgement.verdict, [note.code for note in judgement.notes]) == ("forbidden", ["HR346"])
    assert "headrace reset totals" in judgement.notes[0].fix
    assert f"topic_ids: {{{topic}: {now}}}" in judgement.notes[0].fix
    verdict = hr.verify(hr.load(root), "totals", spark=spark)
    assert (verdict.state, verdict.findings[0].code) == ("undecided", "HR346")
    [standing] = hr.status(hr.load(root))
    assert standing.backlog is not None
    assert (standing.backlog.count, standing.backlog.problem.startswith(sentence)) == (0, True)
    project = hr.load(root)
    query = project.queries["totals"]
    [source] = project.sources_of(query)
    prefix = read_committed_prefixes(project, query, layout_of(project, query))["sales"]
    assert source.connector.unreachable(spark, prefix).startswith(sentence)
    with pytest.raises(SourceError, match="was deleted and created again"):
        Kafka(bootstrap_servers=kafka.url, subscribe=topic, starting_offsets="latest").since(spark, prefix)

    if messages == 1:
        hr.reset(hr.load(root), "totals", result="drop").apply()
        assert ran(root, spark).exit_code == 0
        assert rows(root / "out.db", TOTALS) == [("new", 1)]
    else:
        write(root, kafka.url, topic, f", topic_ids={{{topic!r}: {now!r}}}")
        [judgement] = hr.plan(hr.load(root), spark=spark)
        noted = [note.what for note in judgement.notes if note.code == "HR538"]
        assert (judgement.verdict, len(noted)) == ("same", 1)
        assert f"topic '{topic}' has another id than before, which is accepted: {now}, was {before}" in noted[0]
        assert ran(root, spark).exit_code == 0
        # Those before the offset at which the query resumes count as the moved ones.
        assert rows(root / "out.db", TOTALS) == [("a", 4), ("new", 5)]
        write(root, kafka.url, topic)
        assert ran(root, spark).exit_code == 0, "the id that was accepted is the topic's now"


def test_a_topic_that_came_under_a_pattern_while_the_query_ran_is_known_as_well(
    kafka: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_health, "LEFT_OUT_SECONDS", 0.2)
    first = kafka.make()
    later = f"{first}-later"
    kafka.send(first, sale("a", 1))
    root = write(tmp_path / "p", kafka.url, first)
    file = root / "pipeline.py"
    text = file.read_text().replace(f"subscribe={first!r}", f"subscribe_pattern='{first}(-.*)?'")
    # No batch comes in between, which Spark would end for a topic that is not there.
    text = text.replace('"available-now"', 'hr.every("5 minutes")')
    file.write_text(text.replace("max_offsets_per_trigger=2", "options={'kafka.metadata.max.age.ms': '200'}"))
    project = hr.load(root)

    def ids() -> str:
        """What is kept, once the first start has given the query its directory."""
        file = layout_of(project, project.queries["totals"]).home / "source_ids.json"
        return file.read_text() if file.exists() else ""

    def script() -> None:
        eventually(lambda: first in ids())
        kafka.server.create_topic(later)
        kafka.send(later, sale("b", 1))
        eventually(lambda: later in ids())
        create_again(kafka, later, 3)

    thread = threading.Thread(target=script)
    thread.start()
    [outcome] = hr.run(project, spark=spark).outcomes
    thread.join()
    assert outcome.finding is not None
    assert (outcome.state, outcome.finding.code) == ("failed", "HR346")
    assert f"topic '{later}' was deleted and created again" in outcome.finding.what


def test_a_topic_that_is_created_again_between_two_batches_is_named_in_place_of_its_retention(
    kafka: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.make()
    kafka.send(topic, *[sale("a", 1)] * 6)
    root = write(tmp_path / "p", kafka.url, topic)

    def reached(boundary: str, batch: int) -> None:
        if (boundary, batch) == ("inside-transaction", 0):
            create_again(kafka, topic, 1)

    [outcome] = hr.run(hr.load(root), spark=spark, reached=reached).outcomes
    assert outcome.finding is not None
    assert (outcome.state, outcome.finding.code) == ("failed", "HR346")
    assert rows(root / "out.db", TOTALS) == [("a", 2)]


def test_a_broker_that_draws_no_ids_is_noted(
    kafka: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.make()
    kafka.send(topic, sale("a", 1))
    monkeypatch.setattr(client, "_NO_ID", topic_id(kafka, topic))
    project = hr.load(write(tmp_path / "p", kafka.url, topic))
    running = start(project, project.queries["totals"], spark)
    running.handle.awaitTermination()
    running.clean_up()
    noted = [note.what for note in running.notes if note.code == "HR347"]
    assert noted == [
        f"query 'totals', source 'sales': the id of topic '{topic}' is not known, so that it is not seen if it is "
        "deleted and created again"
    ]
