"""Kafka Connect's own runtime with Debezium's connectors, as one worker in front of a Kafka broker."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from services import process
from services.jar_server import JarServer
from services.kafka import KafkaServer

_KAFKA = KafkaServer.version
_DEBEZIUM = "3.6.1.Final"
# A connector takes its first snapshot before its task counts as running.
READY_SECONDS = 60.0
_LOG_LEVELS = {"": "info", ".org.reflections": "error", ".org.apache.kafka.clients": "warn", ".org.eclipse": "warn"}


class ConnectServer(JarServer):
    """A distributed worker: what it knows lies in topics, so that a kill loses nothing of it.

    Debezium's connector for MariaDB has no jar of this version at Maven Central; the one for MySQL reads its binlog.
    """

    title = "Connect"
    version = f"{_KAFKA}-debezium-{_DEBEZIUM}"
    coordinates = (
        f"io.debezium:debezium-connector-postgres:{_DEBEZIUM}",
        f"io.debezium:debezium-connector-mysql:{_DEBEZIUM}",
        f"org.apache.kafka:connect-runtime:{_KAFKA}",
        "org.slf4j:slf4j-simple:1.7.36",
        # Else those of Kafka are taken, which are older than the parts that Debezium adds to them.
        "com.fasterxml.jackson.core:jackson-databind:2.21.2",
        "com.fasterxml.jackson.core:jackson-annotations:2.21",
    )

    def __init__(self, home: Path, kafka: KafkaServer) -> None:
        super().__init__(home)
        self.kafka = kafka

    def url(self) -> str:
        """Where its REST interface answers."""
        return f"http://127.0.0.1:{self.port}"

    def install(self) -> None:
        port = process.free_port()
        (self.home / "port").write_text(str(port))
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        settings = {
            "bootstrap.servers": self.kafka.url(),
            # Workers of one name share their topics: each directory is one.
            "group.id": self.home.name,
            "listeners": f"http://127.0.0.1:{port}",
            "rest.advertised.host.name": "127.0.0.1",
            "key.converter": json_converter,
            "value.converter": json_converter,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": 500,
            "offset.storage.partitions": 1,
            "status.storage.partitions": 1,
            "scheduled.rebalance.max.delay.ms": 0,
            # So that the group lets a killed worker go within seconds.
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "producer.linger.ms": 5,
        }
        for storage in ("config", "offset", "status"):
            settings[f"{storage}.storage.topic"] = f"{self.home.name}-{storage}"
            settings[f"{storage}.storage.replication.factor"] = 1
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.home / "connect.properties").write_text(text)
        (self.home / "installed").touch()

    def command(self) -> list[str]:
        levels = [f"-Dorg.slf4j.simpleLogger.{_level(name)}={level}" for name, level in _LOG_LEVELS.items()]
        memory = ("-Xms128m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError")
        return [
            *self.java(*memory, *levels),
            *("-cp", f"{self.jars()}/*", "org.apache.kafka.connect.cli.ConnectDistributed"),
            str(self.home / "connect.properties"),
        ]

    def answers(self) -> bool:
        """Whether it knows its connectors, which it has read from its topics by then."""
        try:
            self.request("GET", "/connectors", seconds=2)
        except (URLError, OSError):
            return False
        return True

    def add(self, name: str, settings: Mapping[str, Any]) -> None:
        """Make a connector, or give it other settings, and wait until its task runs."""
        texts = {option: str(value) for option, value in settings.items()}
        self.request("PUT", f"/connectors/{name}/config", texts)
        self.await_running(name)

    def await_running(self, name: str) -> None:
        """Wait until the task of a connector runs; raises ServerFault with what it failed with."""
        ends = time.monotonic() + READY_SECONDS
        while True:
            tasks = self.tasks(name)
            if tasks and all(task["state"] == "RUNNING" for task in tasks):
                return
            failed = [task["trace"] for task in tasks if task["state"] == "FAILED"]
            if failed or time.monotonic() > ends:
                raise process.ServerFault(f"connector {name} does not run: {failed or tasks}")
            time.sleep(0.1)

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """The state of each task of a connector; none of one that is not known yet."""
        try:
            return list(self.request("GET", f"/connectors/{name}/status")["tasks"])
        except HTTPError as error:
            if error.code in (404, 409):
                return []
            raise

    def recover(self, name: str) -> None:
        """Start a connector's task again where it has failed, as when its database was away for too long."""
        self.request("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")

    def delete(self, name: str) -> None:
        self.request("DELETE", f"/connectors/{name}")

    def request(self, method: str, path: str, body: Any = None, *, seconds: float = 30) -> Any:
        """What its REST interface answers; one that is busy with its group says 409, and is asked again."""
        data = None if body is None else json.dumps(body).encode()
        ends = time.monotonic() + seconds
        while True:
            asked = Request(self.url() + path, data, {"Content-Type": "application/json"}, method=method)
            try:
                with urlopen(asked, timeout=seconds) as answer:
                    return json.loads(answer.read() or b"null")
            except HTTPError as error:
                if error.code != 409 or time.monotonic() > ends:
                    raise
                time.sleep(0.2)


def _level(logger: str) -> str:
    return f"log{logger}" if logger else "defaultLogLevel"
