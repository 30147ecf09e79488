"""A broker that asks who a client is, by a password or a certificate: Spark, the lag and the sink show it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import headrace as hr
from headrace.connectors.kafka import prefix
from headrace.connectors.kafka.source import Kafka
from headrace.contract import Lag, SourcePrefix
from services import SecureKafkaServer
from tests.rounds import rounds
from tests.servers import Topics, home_of, unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureKafkaServer]:
    if sentence := SecureKafkaServer.missing():
        unavailable(sentence)
    server = SecureKafkaServer(home_of("secure-kafka"))
    try:
        server.create()
        yield server
    finally:
        server.remove()


def account(server: SecureKafkaServer, mechanism: str, user: str, password: str) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    login = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(server.root_certificate),
    }


def access(server: SecureKafkaServer, way: str) -> tuple[str, dict[str, str]]:
    """Where a client connects, and the options by which it is let in."""
    if way == "certificate":
        options = {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.type": "PEM"}
        options["kafka.ssl.keystore.location"] = str(server.make_client("reader"))
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = str(server.root_certificate)
        return server.certificate_url, options
    mechanism = "PLAIN" if way == "plain" else "SCRAM-SHA-512"
    return server.account_url, account(server, mechanism, way, server.password)


def write_copy(root: Path, servers: str, options: dict[str, str], source: str, result: str) -> None:
    """A project that copies a topic into another one, exactly once."""
    there = {"bootstrap_servers": servers, "options": options}
    sink = {**there, "topic": result, "key": ["id"], "delivery_guarantee": "exactly-once"}
    declared = {
        "name": "copies",
        "sources": {"events": {"kafka": {**there, "subscribe": source, "value": "json", "schema": "id BIGINT"}}},
        "queries": {
            "copy": {
                "select": "SELECT id FROM events",
                "trigger": "available-now",
                "sink": {"kafka": sink},
            }
        },
    }
    root.mkdir()
    (root / "headrace.yml").write_text(yaml.safe_dump(declared))


@pytest.mark.parametrize("way", rounds(["scram", "certificate", "plain"]))
def test_source_lag_sink_and_verify_show_who_they_are(
    way: str, broker: SecureKafkaServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix, "ANSWER_SECONDS", 30.0)
    topics = Topics(broker)
    source, result = topics.make(), topics.make()
    topics.send(source, '{"id": 1}', '{"id": 2}')
    servers, options = access(broker, way)
    waiting = Kafka(bootstrap_servers=servers, subscribe=source, options=options).lag(SourcePrefix(batches=()))
    assert waiting == Lag(count=2, unit="messages", oldest_ms=getattr(waiting, "oldest_ms", None))
    write_copy(tmp_path / "p", servers, options, source, result)
    project = hr.load(tmp_path / "p")
    assert hr.run(project, spark=spark).exit_code == 0
    assert sorted(json.loads(value or "")["id"] for _, value in topics.read(result)) == [1, 2]
    assert hr.verify(project, "copy", spark=spark).state == "equal"
    (status,) = hr.status(project)
    assert status.lags == {"events": Lag(count=0, unit="messages")}


def test_a_wrong_password_is_a_finding_that_does_not_hold_it(
    broker: SecureKafkaServer, spark: SparkSession, tmp_path: Path
) -> None:
    topics = Topics(broker)
    source, result = topics.make(), topics.make()
    wrong = account(broker, "SCRAM-SHA-512", "scram", "no such password")
    write_copy(tmp_path / "p", broker.account_url, wrong, source, result)
    checked = hr.check(hr.load(tmp_path / "p"), spark=spark)
    (finding,) = [finding for finding in checked.findings if finding.severity == "error"]
    assert finding.code == "HR331"
    assert "credentials" in finding.what
    assert "no such password" not in f"{finding.what} {finding.fix}"
