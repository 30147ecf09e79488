"""Read lines of text from a TCP server, for trying things out."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.contract import Failure, Identity, OptionError, Source, SourceFacts, SourcePrefix, canonical_server
from headrace.errors import SourceError
from headrace.spark.stream.work import thread_names
from headrace.units import is_host

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Socket(Source):
    """Lines of UTF-8 text as rows of (value), or of (value, timestamp) with `include_timestamp`: when each came.

    Source: Structured Streaming guide, "Input Sources". The driver connects as a client, once at each start, and what
    the server sends goes to the clients of the moment: nothing can be read again, a later start cannot resume from the
    checkpoint, and a trigger that ends by itself finds nothing. When the server closes the connection, Spark waits for
    ever; Headrace says so.
    """

    place_options: ClassVar[tuple[str, ...]] = ("host", "port")
    facts: ClassVar[SourceFacts] = SourceFacts(replayable=False, continuous=True, ephemeral=True)
    failures: ClassVar[tuple[Failure, ...]] = (
        Failure(
            code="HR331",
            pattern=(
                r"terminated with exception: (?:Connection (?:refused|timed out|reset)|No route to host|"
                r"Host is unreachable|Host is down|Network is unreachable|Operation timed out|Connect timed out)"
            ),
            what="the server of its socket source cannot be reached",
            fix="start the server first, or correct host and port; then start the query again",
        ),
    )
    host: str
    port: int
    include_timestamp: bool = False

    def problems(self) -> Iterator[OptionError]:
        if not 0 < self.port < 65536:
            yield OptionError(what=f"port is {self.port}", fix="give a number from 1 to 65535")
        if not is_host(self.host):
            fault = f"host is '{self.host}', neither a name nor an IP address" if self.host.strip() else "host is empty"
            yield OptionError(what=fault, fix="give the server's name or address")

    def identity(self) -> Identity:
        return {"system": "socket", "server": canonical_server(self.host, self.port)}

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        self._require_server()
        reader = spark.readStream.name(name).format("socket").option("host", self.host).option("port", self.port)
        return reader.option("includeTimestamp", self.include_timestamp).load()

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        if not prefix.batches:
            columns = "value STRING" + (", timestamp TIMESTAMP" if self.include_timestamp else "")
            return spark.createDataFrame([], columns + (f", {batch_column} BIGINT" if batch_column else ""))
        fault = f"what {self.host}:{self.port} has sent cannot be read again"
        raise SourceError(code="HR433", what=fault, fix="read from a source that keeps its rows, such as files")

    @property
    def readable_as_batch(self) -> bool:
        return False

    def health(self, spark: SparkSession) -> OptionError | None:
        """The thread that reads the connection ends when the server closes it, and Spark only logs that."""
        names = [f"TextSocket{kind}({self.host}, {self.port})" for kind in ("Source", "ContinuousReader")]
        if not thread_names(spark).isdisjoint(names):
            return None
        return OptionError(
            code="HR319",
            what=f"{self.host}:{self.port} has closed the connection, so that no more rows will come",
            fix="stop the query, start the server, and start the query again",
            severity="warning",
        )

    def _require_server(self) -> None:
        """Refuse a start where no server listens, without taking a connection: a server may serve one only.

        Where an address of this machine can be bound, no server listens on it. Of other machines only the name is
        looked up; that they do not answer is reported when the query fails.
        """
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._unreachable(error.strerror or str(error)) from error
        if not all(_is_free(family, address) for family, _, _, _, address in addresses):
            return
        try:
            # What is forwarded from a free port of this machine can only be seen by connecting.
            socket.create_connection((self.host, self.port), timeout=_SECONDS).close()
        except OSError as error:
            raise self._unreachable(error.strerror or str(error)) from error

    def _unreachable(self, reason: str) -> SourceError:
        fault = f"no server can be reached at {self.host}:{self.port}: {reason}"
        fix = f"start the server first, for example: nc -lk {self.port}; or correct host and port"
        return SourceError(code="HR331", what=fault, fix=fix)


def _is_free(family: int, address: tuple[object, ...]) -> bool:
    """Whether an address is of this machine and no server listens on it."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError as error:
            # An address family that is switched off has no server either.
            return error.errno == errno.EADDRNOTAVAIL and address[0] == "::1"
    return True
