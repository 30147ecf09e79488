"""The servers that tests run against start, stop, survive a kill, and leave nothing behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from services import KINDS, KafkaServer, Server
from services.process import ServerFault, is_alive, new_home
from tests.connectors.sql.databases import Database
from tests.servers import Topics

pytestmark = [pytest.mark.services, pytest.mark.parametrize("kind", sorted(KINDS))]


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Iterator[Server]:
    request.getfixturevalue(f"{kind}_server")  # Skips, or fails in CI, where there is none.
    found = KINDS[kind](new_home(kind))
    found.install()
    found.start()
    yield found
    found.remove()


def test_what_was_committed_outlives_a_kill_and_the_port_stays(kind: str, server: Server) -> None:
    port, pid, kept = server.port, server.pid, keep(kind, server)
    server.kill()
    assert not is_alive(pid)
    assert not server.answers()
    server.start()
    assert (server.port, kept()) == (port, "seven")


def keep(kind: str, server: Server) -> Callable[[], Any]:
    """Let the server keep a word; returns how it is asked for it."""
    if isinstance(server, KafkaServer):
        topics, topic = Topics(server), server.create_topic("kept")
        topics.send(topic, "seven")
        return lambda: topics.read(topic)[0][1]
    database = Database(kind, server.create_database("kept"))
    database.query("CREATE TABLE t (word VARCHAR(5))")
    database.query("INSERT INTO t VALUES ('seven')")
    return lambda: database.query("SELECT word FROM t")[0][0]


def test_nothing_is_left_behind(kind: str, server: Server) -> None:
    home, pid = server.home, server.pid
    server.remove()
    assert not home.exists()
    assert not is_alive(pid)


def test_a_second_start_is_refused_and_harms_nothing(kind: str, server: Server) -> None:
    pid = server.pid
    with pytest.raises(ServerFault, match="runs already"):
        server.start()
    assert server.pid == pid
    assert server.answers()


def test_a_process_that_has_got_a_dead_servers_number_is_left_alone(kind: str, server: Server) -> None:
    server.kill()
    with subprocess.Popen(["sleep", "60"]) as other:
        (server.home / "pid").write_text(str(other.pid))
        server.stop()
        server.kill()
        alive = other.poll() is None
        other.kill()
    assert alive


def test_the_administrators_password_is_the_owners_alone(kind: str, server: Server) -> None:
    if not isinstance(server, KafkaServer):  # Which asks for none.
        assert (server.home / "password").stat().st_mode & 0o077 == 0
    assert (server.home / "data").exists()


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


def test_the_command_starts_and_stops_them(kind: str, server: Server) -> None:
    home = new_home("command") / "new"
    command = [sys.executable, "-m", "services"]
    started = subprocess.run(
        [*command, "start", "--home", str(home)],
        capture_output=True,
        text=True,
        check=True,
        umask=0o077,
    )
    lines = dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines())
    url = lines[f"HEADRACE_{kind.upper()}_URL"].strip("'")
    if kind == "kafka":
        assert AdminClient({"bootstrap.servers": url}).list_topics(timeout=5).brokers
    else:
        database = Database(kind, url if kind == "postgres" else f"{url}mysql")
        assert database.query("SELECT 1") == [(1,)]
    pid = KINDS[kind](home / kind).pid
    again = subprocess.run([*command, "start", "--home", str(home)], capture_output=True, text=True, check=True)
    assert (again.stdout, KINDS[kind](home / kind).pid) == (started.stdout, pid)
    subprocess.run([*command, "stop", "--home", str(home)], check=True)
    assert not home.exists()
    assert not is_alive(pid)
    home.parent.rmdir()
