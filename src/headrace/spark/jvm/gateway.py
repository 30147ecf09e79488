"""The JVM of a session: its objects, the secrets that it is started with, and that it never outlives this process."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.redaction import remember_settings
from headrace.storage.private import LOCAL_DIRECTORIES, LOCAL_SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark's own measure of what is secret, by the name or the value of a setting.
REDACTION_SETTING = "spark.redaction.regex"
REDACTION = r"(?i)secret|password|token|access[.]?key"
# What only the start of a JVM can take; PySpark speaks of a session's other settings with the JVM that runs.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_POLL_SECONDS = 0.05
PROC = Path("/proc")
# Two threads that ask at once would start two servers.
_CALLBACKS = threading.Lock()


# What PySpark keeps of the JVM under names that are not public; each is named here and nowhere else.
def gateway_of(spark: SparkSession) -> Any:
    """The gateway by which Python and the session's JVM call each other."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session of this process has a gateway"
    return gateway


def gateway_with_callbacks(spark: SparkSession) -> Any:
    """The gateway, by which the JVM can call Python objects from now on.

    py4j.java_gateway.CallbackServer binds its port at once, and its own thread listens on it later: a call that came
    in between was refused.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = gateway_of(spark)
    with _CALLBACKS:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        gateway.get_callback_server().server_socket.listen()
    return gateway


def working_directory(spark: SparkSession) -> Path:
    """The directory in which Spark was started, from which relative paths that it is given start."""
    return Path(str(jvm_of(spark).java.lang.System.getProperty("user.dir")))


def jvm_of(spark: SparkSession) -> Any:
    """The packages and classes of the session's JVM."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a session of this process has a JVM"
    return jvm


def java_context(spark: SparkSession) -> Any:
    """Spark's own SparkContext."""
    return spark.sparkContext._jsc.sc()


def java_session(spark: SparkSession) -> Any:
    """Spark's own SparkSession."""
    return spark._jsparkSession


def execution_of(frame: DataFrame) -> Any:
    """The QueryExecution of `frame`: its plans, from the analysed to the executed one."""
    return frame._jdf.queryExecution()


def secret_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of `conf` that Spark itself would not show."""
    pattern = _secret_pattern(conf)
    return {key: value for key, value in conf.items() if pattern.search(key) or pattern.search(value)}


def remember_secrets(conf: Mapping[str, str]) -> None:
    """Let no message show what Spark would not show."""
    pattern = _secret_pattern(conf)
    remember_settings(conf)
    for key, value in conf.items():
        if pattern.search(key):
            remember_settings({"secret": value})


def _secret_pattern(conf: Mapping[str, str]) -> re.Pattern[str]:
    try:
        return re.compile(conf.get(REDACTION_SETTING, REDACTION))
    except re.error:  # Java's, which is not Python's in everything
        return re.compile(REDACTION)


def ensure_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM that PySpark will use in this process, unless there is one, or another program has started it.

    PySpark's own `launch_gateway` puts every setting on the command line, which all users of the machine can read, and
    leaves the JVM behind when it is interrupted: it removes the directory where the JVM is to write its port, and the
    JVM fails without an end.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    shut_down_reads_on_close()
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    process, port, password = _launch(conf)
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), password
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)


def shut_down_reads_on_close() -> None:
    """Let py4j close a connection that a thread reads from; a second call changes nothing.

    py4j.clientserver.ClientServerConnection.close waits for that thread, before it shuts the socket down: for ever, if
    the JVM keeps the connection open.
    """
    from py4j.clientserver import ClientServerConnection as Connection

    close = Connection.close

    def shut_down_and_close(self: Any, reset: bool = False) -> None:
        with suppress(OSError, AttributeError):  # Closed before, or by another thread.
            self.socket.shutdown(socket.SHUT_RD)
        close(self, reset)

    if close.__module__ != __name__:
        Connection.close = shut_down_and_close


@contextmanager
def without_session() -> Iterator[Any]:
    """The gateway of a JVM that no session uses, in a process of its own, which ends with it."""
    from pyspark import SparkContext

    ensure_jvm({})
    gateway: Any = SparkContext._gateway
    yield gateway
    gateway.shutdown()


def _launch(conf: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int, str]:
    """The process, and the port and the password by which Python speaks with it."""
    from pyspark.errors import PySparkRuntimeError

    place = Path(tempfile.mkdtemp(prefix="headrace-start-"))
    process = None
    try:
        # SIGTERM ends this as Ctrl-C does, so that what it has begun is cleared away.
        with _handle_signals(_exit, signal.SIGTERM):
            answer = place / "connection"
            with _hold_signals():
                process = subprocess.Popen(
                    _command(conf, place),
                    # The JVM ends when this pipe closes, however this process ends.
                    stdin=subprocess.PIPE,
                    env=_environment(conf, answer),
                    preexec_fn=_leave_process_group,
                )
            while not answer.exists():
                if process.poll() is not None:
                    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
                time.sleep(_POLL_SECONDS)
            # As PythonGatewayServer writes them; the file is put in place whole.
            written = answer.read_bytes()
            port, length = struct.unpack(">ii", written[:8])
            return process, port, written[8 : 8 + length].decode()
    except BaseException:
        if process is not None:
            kill_all(process.pid)
            process.wait()
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _leave_process_group() -> None:
    """Make the new process the leader of a session of its own, before it becomes the JVM.

    Signals are for Python alone, which lets the running batch finish: Ctrl-C of a terminal, SIGTERM of `timeout` and of
    service managers go to the whole process group.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _environment(conf: Mapping[str, str], answer: Path) -> dict[str, str]:
    environment = {**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)}
    if LOCAL_SETTING in conf:
        # It would go before the setting, which has private directories in the same places.
        environment.pop(LOCAL_DIRECTORIES, None)
    return environment


def _command(conf: Mapping[str, str], place: Path) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    hidden = secret_settings(conf)
    command = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
    if JAVA_OPTIONS in hidden:
        # They stand on the JVM's own command line, which takes them from a file as well.
        options = write_private(place / "options", hidden[JAVA_OPTIONS])
        hidden[JAVA_OPTIONS] = f"@{options}"
    if hidden:
        lines = "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in hidden.items())
        file = write_private(place / "spark.properties", lines)
        # The installation's spark-defaults.conf counts as it does without a file of ours.
        command += ["--properties-file", str(file), "--load-spark-defaults"]
    for key, value in conf.items():
        if key not in hidden:
            command += ["--conf", f"{key}={value}"]
    return command + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


def write_private(path: Path, text: str) -> Path:
    """Write a file that its owner alone may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _escape(text: str) -> str:
    """`text` as java.util.Properties reads it."""
    return "".join(
        f"\\u{ord(character):04x}" if character < " " else f"\\{character}" if character in "\\=:#! " else character
        for character in text
    )


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait for the end of the block.

    In the middle of a fork, Python forgets what a handler raises, or leaves a process that no code knows. A mask would
    not do: the signal would come by another thread.
    """
    held: list[int] = []
    with _handle_signals(lambda number, _: held.append(number), signal.SIGINT, signal.SIGTERM):
        yield
    if held:
        signal.raise_signal(held[0])


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


@contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Let a handler take `signals` in this block; only the main thread can have them handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def kill() -> None:
    """End the JVM of this process with all its children, at once and whatever they do."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        with suppress(OSError, subprocess.TimeoutExpired):
            kill_all(process.pid)
            process.wait(10)


def kill_all(pid: int) -> None:
    """Send SIGKILL to a process of ours and to its descendants, and wait until the descendants are gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # It starts nothing more while we look.
    children = descendants(pid)
    for process in (*children, pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    wait_until_gone(children, within=10)


def wait_until_gone(pids: Sequence[int], *, within: float) -> bool:
    """Wait until none of these processes exists, zombies aside; False when `within` seconds did not suffice.

    A process that had a large heap exists for some tenths of a second after SIGKILL.
    """
    deadline = time.monotonic() + within
    while any(_exists(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return not (PROC / "self").exists() and _is_listed(pid)
    except PermissionError:
        return True


def _is_listed(pid: int) -> bool:
    """Whether a machine without /proc still lists the process as more than a zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and those that they have started, the nearest first."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    processes = list(children.get(pid, ()))
    for process in processes:  # which grows as it is read
        processes += children.get(process, ())
    return processes


def _parents() -> list[tuple[int, int]]:
    if not (PROC / "self").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
        return [(int(line.split()[0]), int(line.split()[1])) for line in listed.splitlines() if line.strip()]
    pairs = []
    for place in PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            # The name in brackets may hold anything.
            pairs.append((int(place.name), int((place / "stat").read_text().rpartition(")")[2].split()[1])))
    return pairs
