"""The servers that tests run against start, stop, survive a kill, and leave nothing behind."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import fsspec
import pytest
from confluent_kafka.admin import AdminClient

from services import KINDS, HdfsServer, KafkaServer, S3Server, Server, process
from services.kafka import ANSWER_SECONDS
from services.process import ServerFault, is_alive, new_home, running
from tests.connectors.sql.databases import Database
from tests.rounds import only_usual
from tests.servers import Servers, Topics, home_of, unavailable

pytestmark = pytest.mark.services
# HDFS takes ten seconds for its start: in `make test`, tests/runner/test_hdfs.py starts one.
EACH = pytest.mark.parametrize("kind", only_usual(sorted(KINDS), "kafka", "mariadb", "postgres", "s3"))
# Kafka takes as long for each start.
MOST = pytest.mark.parametrize("kind", only_usual(sorted(KINDS), "mariadb", "postgres", "s3"))


@pytest.fixture(scope="module")
def of_this_file() -> Iterator[dict[str, Server]]:
    """One server of each kind for all tests here, which may do to it what they like."""
    servers: dict[str, Server] = {}
    yield servers
    for server in servers.values():
        server.remove()


@pytest.fixture
def server(kind: str, of_this_file: dict[str, Server]) -> Server:
    if sentence := KINDS[kind].missing():
        unavailable(sentence)
    if kind not in of_this_file:
        of_this_file[kind] = KINDS[kind](home_of(kind))
        of_this_file[kind].create()
    elif running(of_this_file[kind].home) is None:
        of_this_file[kind].start()
    return of_this_file[kind]


def keep(kind: str, server: Server) -> Callable[[], Any]:
    """Let the server keep a word; returns how it is asked for it."""
    if isinstance(server, KafkaServer):
        topics, topic = Topics(server), server.create_topic("kept")
        topics.send(topic, "seven")
        return lambda: topics.read(topic)[0][1]
    if isinstance(server, HdfsServer | S3Server):
        files, file = files_of(server), "/kept/word"
        files.pipe_file(file, b"seven")
        return lambda: files.cat_file(file).decode()
    database = Database(kind, server.create_database("kept"))
    database.query("CREATE TABLE t (word VARCHAR(5))")
    database.query("INSERT INTO t VALUES ('seven')")
    return lambda: database.query("SELECT word FROM t")[0][0]


def files_of(server: HdfsServer | S3Server) -> Any:
    """The server's files, without a JVM."""
    if isinstance(server, HdfsServer):
        host, _, port = server.web_address.partition(":")
        return fsspec.filesystem("webhdfs", host=host, port=int(port), user=server.user.name)
    server.create_bucket("kept")
    key, secret = server.credentials
    return fsspec.filesystem("s3", key=key, secret=secret, endpoint_url=server.url(), use_listings_cache=False)


@MOST
def test_a_second_start_is_refused_and_harms_nothing(kind: str, server: Server) -> None:
    pid = server.pid
    with pytest.raises(ServerFault, match="runs already"):
        server.start()
    assert server.pid == pid
    assert server.answers()


@EACH
def test_the_administrators_password_is_the_owners_alone(kind: str, server: Server) -> None:
    if not isinstance(server, KafkaServer | HdfsServer):  # Which ask for none.
        assert (server.home / "password").stat().st_mode & 0o077 == 0
    assert (server.home / "data").exists()


@EACH
def test_the_command_keeps_what_is_not_its_own(kind: str) -> None:
    home = new_home("command")
    files = [home / "mine.txt", home / kind / "mine.txt"]
    (home / kind).mkdir()
    for file in files:
        file.touch()
    subprocess.run([sys.executable, "-m", "services", "stop", "--home", str(home)], check=True)
    kept = [file.exists() for file in files]
    shutil.rmtree(home)
    assert kept == [True, True]


@EACH
def test_it_listens_on_loopback_only(kind: str, server: Server) -> None:
    """The kernel's table of listening sockets, addresses in hexadecimal."""
    port = f"{server.port:04X}"
    addresses = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
    ]
    # A JVM writes IPv4 addresses as those of IPv6.
    assert addresses in ([f"0100007F:{port}"], [f"0000000000000000FFFF00000100007F:{port}"])


@MOST
def test_what_was_committed_outlives_a_kill_and_the_port_stays(kind: str, server: Server) -> None:
    port, pid, kept = server.port, server.pid, keep(kind, server)
    server.kill()
    assert not is_alive(pid)
    assert not server.answers()
    server.start()
    assert (server.port, kept()) == (port, "seven")


@pytest.mark.parametrize("kind", only_usual(KINDS, "s3"))
def test_a_server_whose_port_somebody_else_has_got_first_is_made_with_another_one(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sentence := KINDS[kind].missing():
        unavailable(sentence)
    server = KINDS[kind](home_of(kind))
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        ports = chain([taken], iter(process.free_port, None))
        monkeypatch.setattr(process, "free_port", lambda: next(ports))
        try:
            server.create()
            assert server.answers()
            assert server.port != taken
        finally:
            server.remove()


@pytest.mark.parametrize("kind", ["s3"])
def test_a_server_waits_for_its_own_port(kind: str, server: Server) -> None:
    """As after a kill, when a connection of somebody else's has got the port."""
    server.stop()
    holder = socket.create_server(("127.0.0.1", server.port))
    closing_later = threading.Timer(1.5, holder.close)
    closing_later.start()
    server.start()
    closing_later.join()
    assert server.answers()


@pytest.mark.long
def test_a_datanode_without_its_port_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    if sentence := HdfsServer.missing():
        unavailable(sentence)
    monkeypatch.setattr(process, "START_SECONDS", 8.0)
    server = HdfsServer(home_of("hdfs"))
    try:
        server.install()
        with socket.create_server(("127.0.0.1", server.ports()["data"])), pytest.raises(process.PortTaken):
            server.start_once()
    finally:
        server.remove()


@pytest.mark.long
def test_an_hdfs_whose_datanode_was_killed_serves_again_once_it_is_back(of_this_file: dict[str, Server]) -> None:
    if sentence := HdfsServer.missing():
        unavailable(sentence)
    server = of_this_file["hdfs"]
    assert isinstance(server, HdfsServer)
    if running(server.home) is None:
        server.start()
    kept = keep("hdfs", server)
    server.node.kill()
    assert not server.node.answers()
    server.node.start()
    assert kept() == "seven"


@pytest.mark.parametrize("kind", only_usual(KINDS, "postgres"))
def test_a_process_that_has_got_a_dead_servers_number_is_left_alone(kind: str, server: Server) -> None:
    server.kill()
    with subprocess.Popen(["sleep", "60"]) as other:
        (server.home / "pid").write_text(str(other.pid))
        server.stop()
        server.kill()
        alive = other.poll() is None
        other.kill()
    assert alive


@pytest.mark.long
def test_the_command_starts_and_stops_them_and_leaves_nothing_behind() -> None:
    for kind in KINDS.values():
        if sentence := kind.missing():
            unavailable(sentence)
    home = new_home("command") / "new"
    command = [sys.executable, "-m", "services"]
    started = subprocess.run(
        [*command, "start", "--home", str(home)],
        capture_output=True,
        text=True,
        check=True,
        umask=0o077,
    )
    urls = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines())
    for kind in KINDS:
        url = urls[f"HEADRACE_{kind.upper()}_URL"].strip("'")
        if kind == "kafka":
            assert AdminClient({"bootstrap.servers": url}).list_topics(timeout=ANSWER_SECONDS).brokers
        elif kind in ("hdfs", "s3"):
            assert (HdfsServer if kind == "hdfs" else S3Server)(home / kind).answers()
        else:
            assert Database(kind, url if kind == "postgres" else f"{url}mysql").query("SELECT 1") == [(1,)]
    pids = {kind: KINDS[kind](home / kind).pid for kind in KINDS}
    again = subprocess.run([*command, "start", "--home", str(home)], capture_output=True, text=True, check=True)
    assert (again.stdout, {kind: KINDS[kind](home / kind).pid for kind in KINDS}) == (started.stdout, pids)
    subprocess.run([*command, "stop", "--home", str(home)], check=True)
    assert not home.exists()
    assert [pid for pid in pids.values() if is_alive(pid)] == []
    home.parent.rmdir()


def test_a_shared_server_that_a_test_has_killed_is_there_for_the_next(servers: Servers) -> None:
    server = servers.get("postgres")
    server.kill()
    assert servers.get("postgres") is server
    assert server.answers()
    shutil.rmtree(server.home / "data")
    server.kill()
    new = servers.get("postgres")
    assert new is not server
    assert new.answers()
    assert not server.home.exists()


@pytest.mark.parametrize("kind", ["mariadb"])
def test_a_server_that_starts_leaves_the_temporary_tables_of_another_alone(server: Server, mariadb_url: str) -> None:
    """MariaDB deletes what others have in its directory for temporary tables, which is /tmp unless another is set."""
    with closing(Database("mariadb", mariadb_url).connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE mine (word VARCHAR(5)) ENGINE = Aria")
        server.stop()
        server.start()
        cursor.execute("INSERT INTO mine VALUES ('seven')")
        cursor.execute("DROP TEMPORARY TABLE mine")
