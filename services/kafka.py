"""A Kafka broker of its own: one node that is its own controller (KRaft)."""

from __future__ import annotations

import base64
import socket
import time
import uuid

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from services import process
from services.jar_server import JarServer

ANSWER_SECONDS = 30.0


class KafkaServer(JarServer):
    """One data directory."""

    title = "Kafka"
    version = "4.1.1"
    coordinates = (f"org.apache.kafka:kafka_2.13:{version}", "org.slf4j:slf4j-simple:1.7.36")

    def url(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def install(self) -> None:
        port, controller = process.free_port(), process.free_port()
        (self.home / "port").write_text(str(port))
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.home / "data",
            "auto.create.topics.enable": "false",
            # One broker can hold one replica.
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # So that what retention takes is gone within a test's patience.
            "log.retention.check.interval.ms": 500,
            # With 0, the broker looks for files to delete every millisecond: a twentieth of a core for each idle one.
            "log.segment.delete.delay.ms": 200,
        }
        file = self.home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        process.finish(
            self._kafka("kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", str(file)),
            self.user,
            self.home,
        )
        (self.home / "installed").touch()

    def _kafka(self, *command: str) -> list[str]:
        return [*self.java("-Xms256m", "-Xmx512m"), "-cp", f"{self.jars()}/*", *command]

    def command(self) -> list[str]:
        return self._kafka("kafka.Kafka", str(self.home / "server.properties"))

    def answers(self) -> bool:
        """Whether the broker tells its topics; a client of its own is not made for a port that nobody listens on."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
            return bool(self.admin().list_topics(timeout=1.0).brokers)
        except (KafkaException, OSError):
            return False

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.url(), "log_level": 0})

    def create_topic(self, name: str, *, partitions: int = 1, **config: str) -> str:
        """A new empty topic; options by Kafka's names, with _ for the dot."""
        options = {option.replace("_", "."): value for option, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=options)
        admin = self.admin()  # Its answers end with it.
        admin.create_topics([topic])[name].result(ANSWER_SECONDS)
        # What is made is told to others a moment later.
        ends = time.monotonic() + ANSWER_SECONDS
        while name not in admin.list_topics(timeout=ANSWER_SECONDS).topics and time.monotonic() < ends:
            time.sleep(0.05)
        return name

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(ANSWER_SECONDS)
