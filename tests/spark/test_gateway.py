"""What the JVM is started with: secrets stand on no command line."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters
from py4j.java_gateway import CallbackServer, CallbackServerParameters, GatewayProperty

from headrace.spark.jvm import gateway
from headrace.spark.jvm.gateway import (
    _command,
    _hold_signals,
    gateway_with_callbacks,
    secret_settings,
    shut_down_reads_on_close,
)

pytestmark = pytest.mark.plain

SETTINGS = {
    "s3-key": ("spark.hadoop.fs.s3a.secret.key", "v1", True),
    "s3-access": ("spark.hadoop.fs.s3a.access.key", "v1", True),
    "password": ("spark.ssl.keyPassword", "v1", True),
    "in-the-value": ("spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=v1", True),
    "plain": ("spark.sql.shuffle.partitions", "2", False),
}


@pytest.mark.parametrize(("key", "value", "hidden"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_that_spark_would_not_show_is_in_a_private_file(
    tmp_path: Path, key: str, value: str, hidden: bool
) -> None:
    command = " ".join(_command({key: value, "spark.app.name": "counts"}, tmp_path))
    assert (value in command) is not hidden
    assert "spark.app.name=counts" in command
    files = [file.read_text() for file in tmp_path.iterdir()]
    assert any(value in text for text in files) is hidden
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())


def test_the_measure_of_what_is_secret_is_sparks_own_setting() -> None:
    conf = {"spark.redaction.regex": "(?i)bicycle", "spark.my.bicycle": "red", "spark.my.password": "p"}
    assert set(secret_settings(conf)) == {"spark.my.bicycle", "spark.redaction.regex"}
    assert set(secret_settings({**conf, "spark.redaction.regex": "*no regex"})) == {"spark.my.password"}


def test_a_value_is_written_as_java_reads_it(tmp_path: Path) -> None:
    _command({"spark.password": "a b\\c=d:e#f!\u00e4\t"}, tmp_path)
    [file] = tmp_path.iterdir()
    assert file.read_text() == "spark.password=a\\ b\\\\c\\=d\\:e\\#f\\!\u00e4\\u0009\n"


def test_a_signal_in_the_start_of_a_process_waits_for_its_end() -> None:
    done: list[str] = []

    def start() -> None:
        with _hold_signals():
            signal.raise_signal(signal.SIGINT)  # To this thread: another may take its time.
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]


def test_python_can_be_called_before_the_server_thread_has_come_to_listen() -> None:
    may_listen = threading.Event()

    class Late(CallbackServer):  # type: ignore[misc]
        def run(self) -> None:
            may_listen.wait()
            super().run()

    server = Late({}, None, callback_server_parameters=CallbackServerParameters(port=0, daemonize=True))
    server.start()
    gateway: Any = SimpleNamespace(_callback_server=server, get_callback_server=lambda: server)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    try:
        assert gateway_with_callbacks(cast("Any", spark)) is gateway
        socket.create_connection((server.get_listening_address(), server.get_listening_port()), timeout=10).close()
    finally:
        may_listen.set()
        server.shutdown()


def test_a_connection_that_the_jvm_keeps_open_is_closed_though_a_thread_reads_it() -> None:
    shut_down_reads_on_close()
    ours, kept = socket.socketpair()
    connection = ClientServerConnection(
        JavaParameters(auth_token="t"), PythonParameters(auth_token="t"), GatewayProperty(False, None), None
    )
    connection.init_socket_from_python_server(ours, ours.makefile("rb"))
    connection.initiated_from_client = True
    reading = threading.Thread(target=connection.wait_for_commands, daemon=True)
    reading.start()
    closing = threading.Thread(target=connection.close, daemon=True)
    reading.join(0.5)
    assert reading.is_alive()
    closing.start()
    closing.join(20)
    reading.join(20)
    assert not closing.is_alive()
    assert not reading.is_alive()
    kept.close()


def test_kill_all_returns_when_the_descendants_are_gone() -> None:
    child = "import os; block = bytearray(os.urandom(1)) * 400_000_000; print(os.getpid(), flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert not gateway.wait_until_gone([pid], within=0.1)
        gateway.kill_all(process.pid)
        command = gateway.PROC / str(pid) / "cmdline"
        assert not command.exists() or command.read_bytes() == b"", "alive: the command line of a zombie is empty"
