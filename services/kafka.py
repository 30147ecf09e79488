"""A Kafka broker of its own: one node that is its own controller (KRaft)."""

from __future__ import annotations

import base64
import socket
import time
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from services import process, tls
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
        settings |= self.further_settings(str(settings["listeners"]))
        file = self.home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        process.finish(
            self._kafka(
                *("kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "-c", str(file)),
                *self.format_options,
            ),
            self.user,
            self.home,
        )
        (self.home / "installed").touch()

    @property
    def format_options(self) -> tuple[str, ...]:
        """What the directory is made with."""
        return ()

    def further_settings(self, listeners: str) -> dict[str, object]:
        """Return more settings, which win, for a broker with `listeners`."""
        return {}

    def _kafka(self, *command: str) -> list[str]:
        return [*self.java("-Xms256m", "-Xmx512m"), "-cp", f"{self.jars()}/*", *command]

    def command(self) -> list[str]:
        return self._kafka("kafka.Kafka", str(self.home / "server.properties"))

    def answers(self) -> bool:
        """Whether the broker lists its topics; a port without a listener gets no client of its own."""
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
        # Other brokers learn of a new topic a moment later.
        ends = time.monotonic() + ANSWER_SECONDS
        while name not in admin.list_topics(timeout=ANSWER_SECONDS).topics and time.monotonic() < ends:
            time.sleep(0.05)
        return name

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(ANSWER_SECONDS)


class SecureKafkaServer(KafkaServer):
    """The same with two more listeners: with accounts (PLAIN and SCRAM) over TLS, and with certificates of clients."""

    password = "a secret of the tests"

    @property
    def format_options(self) -> tuple[str, ...]:
        return (f"--add-scram=SCRAM-SHA-512=[name=scram,password={self.password}]",)

    def further_settings(self, listeners: str) -> dict[str, object]:
        _, certificate, key = tls.make(self.home)
        store = self.home / "broker.pem"
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
        accounts, certificates = process.free_port(), process.free_port()
        (self.home / "accounts").write_text(str(accounts))
        (self.home / "certificates").write_text(str(certificates))
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        more = f"SASL_SSL://127.0.0.1:{accounts},SSL://127.0.0.1:{certificates}"
        return {
            "listeners": f"{listeners},{more}",
            "advertised.listeners": f"PLAINTEXT://{self.url()},{more}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{plain} user_plain="{self.password}";',
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.root_certificate,
        }

    @property
    def root_certificate(self) -> Path:
        """The authority that clients trust."""
        return self.home / "root.crt"

    @property
    def account_url(self) -> str:
        """The listener that asks for an account."""
        return f"localhost:{(self.home / 'accounts').read_text()}"

    @property
    def certificate_url(self) -> str:
        """The listener that asks for a certificate."""
        return f"localhost:{(self.home / 'certificates').read_text()}"

    def make_client(self, name: str) -> Path:
        """Return a file with the key and the certificate of a client."""
        return tls.make_client(self.home, name)
