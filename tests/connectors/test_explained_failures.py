"""Each connector knows its own failures by Spark's message, and leaves those of others alone."""

from __future__ import annotations

import pytest

from headrace.connectors.delta.sink import DeltaSink
from headrace.connectors.delta.source import Delta
from headrace.connectors.files.source import Files
from headrace.connectors.foreach.sink import Foreach
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.python_source.source import Python
from headrace.connectors.socket.source import Socket
from headrace.contract import Connector
from headrace.errors import NOWHERE
from headrace.registry import known_failures
from headrace.spark.messages.failures import finding_of_message

pytestmark = pytest.mark.plain

HEAD = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
KAFKA = Kafka(bootstrap_servers="k:9092", subscribe="a")
DELTA = Delta(path="/lake/t")
CASES: dict[str, tuple[Connector, str, str]] = {
    "a value that does not decode": (KAFKA, "HEADRACE_MALFORMED `` orders/0/17 `{`", "HR302"),
    "messages that are gone": (KAFKA, "[KAFKA_DATA_LOSS.START_OFFSET_HAS_BEEN_RESET] Some data", "HR343"),
    "a topic that is gone": (
        KafkaSink(bootstrap_servers="k:9092", topic="a"),
        "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone",
        "HR332",
    ),
    "a message that is too large": (
        KafkaSink(bootstrap_servers="k:9092", topic="a"),
        "org.apache.kafka.common.errors.RecordTooLargeException: The message is 1500088 bytes when serialized",
        "HR408",
    ),
    "an option that Kafka refuses": (
        KafkaSink(bootstrap_servers="k:9092", topic="a"),
        "KafkaException: Failed to construct kafka producer\nCaused by: "
        "org.apache.kafka.common.config.ConfigException: Invalid value soon for configuration linger.ms",
        "HR113",
    ),
    "brokers whose names are not known": (
        KafkaSink(bootstrap_servers="k:9092", topic="a"),
        "KafkaException: Failed to construct kafka producer\nCaused by: "
        "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
        "HR331",
    ),
    "a broker that is silent": (KAFKA, "org.apache.kafka.common.errors.TimeoutException: 60000 ms", "HR331"),
    "rows that were changed": (DELTA, "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update", "HR344"),
    "rows that were deleted": (DELTA, "[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data", "HR344"),
    "columns that were changed": (DELTA, "[DELTA_SCHEMA_CHANGED] Detected schema change", "HR345"),
    "a version that is gone": (DELTA, "Cannot time travel Delta table to version 3", "HR343"),
    "another table": (DELTA, "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query", "HR346"),
    "an offset that is beyond the end": (
        KAFKA,
        "[KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] Some data may have been lost",
        "HR343",
    ),
    "files that are gone": (DeltaSink(path="/lake/t"), "[DELTA_LOG_FILE_NOT_FOUND] Unable to retrieve", "HR343"),
    "no server that listens": (Socket(host="a", port=9), HEAD + "Connection refused", "HR331"),
    "a reader without a method": (
        Python(source="tickets:Tickets"),
        "PySparkNotImplementedError: [NOT_IMPLEMENTED] latestOffset is not implemented.",
        "HR323",
    ),
    "open without an answer": (
        Foreach(function=print),
        "OpenReturnedNone: the method open of A returned None",
        "HR417",
    ),
}


@pytest.mark.parametrize(("connector", "message", "code"), CASES.values(), ids=CASES)
def test_a_connector_explains_its_own_failures(connector: Connector, message: str, code: str) -> None:
    others = (Files(path="in", format="text"), connector)
    finding = finding_of_message(message, subject="query 'q'", where=NOWHERE, connectors=others)
    assert (finding.code, finding.what.startswith("query 'q': ")) == (code, True)
    assert Files(path="in", format="text").explain_failure(message) is None


@pytest.mark.parametrize(("connector", "message", "code"), CASES.values(), ids=CASES)
def test_what_a_function_of_the_user_reads_or_writes_is_explained_as_well(
    connector: Connector, message: str, code: str
) -> None:
    """A table's function or foreach_batch may use a connector that the query does not declare."""
    finding = finding_of_message(message, subject="query 'q'", where=NOWHERE, installed=known_failures)
    assert finding.code == code
    ours = "Traceback (most recent call last)\nValueError: no price of a pear"
    assert finding_of_message(ours, subject="query 'q'", where=NOWHERE, installed=known_failures).code == "HR601"


@pytest.mark.parametrize(
    ("error", "advice", "other"),
    [
        ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "skip_change_commits", "ignore_deletes"),
        ("DELTA_SOURCE_IGNORE_DELETE", "ignore_deletes", "ignore_changes"),
    ],
)
def test_the_advice_is_an_option_that_lets_this_change_pass(error: str, advice: str, other: str) -> None:
    finding = finding_of_message(f"[{error}] x", subject="query 'q'", where=NOWHERE, connectors=(DELTA,))
    assert (advice in finding.fix, other in finding.fix) == (True, False)
