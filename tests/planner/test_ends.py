"""A source or a sink of another spelling is the same, and one that gives or takes other rows is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connectors.delta.source import Delta
from headrace.connectors.files.source import Files
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.rate.micro_batch import RateMicroBatch
from headrace.connectors.rate.source import Rate
from headrace.connectors.socket.source import Socket
from headrace.generations.manifest import OperatorForm, QueryForm
from headrace.model import NamedSource
from headrace.planner.comparison import compare_forms
from headrace.planner.difference import worst
from headrace.planner.ends import source_facts

pytestmark = pytest.mark.plain

TOPICS = Kafka(bootstrap_servers="one:9092", subscribe=("a", "b"))
JSON = replace(TOPICS, value="json", schema="id INT")
LINES = Socket(host="here", port=9999)
TABLE = Delta(path="lake/events")
COMMITTED = {"kafka.Isolation.level": "read_committed"}
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
FILES = Files(path="in", format="json", schema="id INT")
STEPS = RateMicroBatch(rows_per_batch=5)

# A source before and now, and the verdict on a query without a state.
SOURCES: dict[str, tuple[Any, Any, str]] = {
    "topics in another order": (TOPICS, replace(TOPICS, subscribe=("b", "a")), "same"),
    "topics as a text": (TOPICS, replace(TOPICS, subscribe="a, b"), "same"),
    "another broker": (TOPICS, replace(TOPICS, bootstrap_servers="two:9092"), "same"),
    "where a first start begins": (TOPICS, replace(TOPICS, starting_offsets="latest"), "same"),
    "the size of a batch": (TOPICS, replace(TOPICS, max_offsets_per_trigger=5), "same"),
    "what happens after a loss": (TOPICS, replace(TOPICS, fail_on_data_loss=False), "same"),
    "a column without a reader": (JSON, replace(JSON, keep=("offset",), include_headers=True), "same"),
    "an option of the consumer": (TOPICS, replace(TOPICS, options={"kafka.fetch.max.bytes": "9"}), "same"),
    "the default isolation": (TOPICS, replace(TOPICS, options=COMMITTED), "same"),
    "uncommitted messages too": (TOPICS, replace(TOPICS, options=UNCOMMITTED), "forward"),
    "the ids of moved topics": (TOPICS, replace(TOPICS, topic_ids={"a": "4nWXE2KDRsyjgXSk7KMU3Q"}), "same"),
    "a topic more": (TOPICS, replace(TOPICS, subscribe=("a", "b", "c")), "forward"),
    "another topic": (TOPICS, replace(TOPICS, subscribe=("a", "c")), "forward"),
    "a pattern": (TOPICS, replace(TOPICS, subscribe=None, subscribe_pattern="a|b"), "forward"),
    "some partitions": (TOPICS, replace(TOPICS, subscribe=None, assign={"a": (0,), "b": (0,)}), "forward"),
    "what a message holds": (JSON, replace(JSON, value="text", schema=None), "forward"),
    "another machine": (LINES, replace(LINES, host="there"), "forward"),
    "another port": (LINES, replace(LINES, port=9998), "forward"),
    "another table of a lake": (TABLE, replace(TABLE, path="lake/others"), "forward"),
    "some files of a lake": (TABLE, replace(TABLE, exclude_regex="x"), "forward"),
    "an archive": (FILES, replace(FILES, clean_source="archive", source_archive_dir="done"), "same"),
    "a file by its name alone": (FILES, replace(FILES, file_name_only=True), "forward"),
    "the rate": (Rate(rows_per_second=2), Rate(rows_per_second=3), "forward"),
    "how long the rate rises": (Rate(), Rate(ramp_up_time="5s"), "forward"),
    "partitions of a rate": (Rate(), Rate(num_partitions=3), "same"),
    "where made rows begin": (STEPS, replace(STEPS, start_timestamp=99), "same"),
    "how many rows are made": (STEPS, replace(STEPS, rows_per_batch=9), "same"),
    "the time between made batches": (STEPS, replace(STEPS, advance_millis_per_batch=9), "forward"),
    "a switch as YAML has it": (
        replace(FILES, options={"multiLine": "True"}), replace(FILES, options={"multiline": "true"}), "same",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "verdict"), SOURCES.values(), ids=SOURCES)
def test_a_source_is_known_by_the_rows_that_it_gives(tmp_path: Path, before: Any, now: Any, verdict: str) -> None:
    project = hr.Project(name="p", root=tmp_path)

    def form(connector: Any) -> QueryForm:
        source = NamedSource(name="events", kind="source", connector=connector)
        return QueryForm(sources={"events": source_facts(project, source, str)})

    assert worst(compare_forms(form(before), form(now))) == verdict


def test_a_query_that_read_uncommitted_messages_by_default_gets_a_sentence(
    tmp_path: Path,
) -> None:
    project = hr.Project(name="p", root=tmp_path)

    def form(connector: Any) -> QueryForm:
        return QueryForm(
            sources={
                "events": source_facts(project, NamedSource(name="events", kind="kafka", connector=connector), str)
            },
            operators=(OperatorForm(kind="Aggregate"),),
        )

    # As Headrace recorded a source while Spark's default was its own.
    before = form(TOPICS)
    del before.sources["events"]["options kafka.isolation.level"]
    [difference] = compare_forms(before, form(TOPICS))
    assert (difference.verdict, difference.now) == ("safe", "read_committed")
    assert "messages of aborted transactions are no longer read" in difference.why
    assert list(compare_forms(before, form(replace(TOPICS, options=UNCOMMITTED)))) == []
