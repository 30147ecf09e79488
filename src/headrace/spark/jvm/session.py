"""A Spark session started with Headrace's settings, in a JVM that is kept for the next one where it fits.

py4j has one connection for each thread. When Ctrl-C, a signal's handler or a time-out raises while Python waits for an
answer, py4j keeps the connection, though the JVM works on the call and answers it later. The thread's next call waits
behind it, without an end where the first has none: `query.stop()` in the `finally` of a `query.awaitTermination()`.
With the connection closed, the next call gets one of its own. It can go when py4j closes such connections.

py4j asks the JVM at each use of a name such as `jvm.org.apache.spark`, at each of its parts; and to learn that `org` is
no class the JVM searches some 250 jars. PySpark does so at each call of a function: a twelfth of what a driver of small
batches spends in its JVM.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.spark.jvm import gateway, hadoop_files
from headrace.spark.jvm.gateway import gateway_of
from headrace.spark.jvm.preconditions import start_error
from headrace.spark.jvm.settings import Purpose, is_local, settings
from headrace.spark.jvm.stderr_filter import drop_lines
from headrace.storage.private import LOCAL_SETTING, local_directories, umask
from headrace.units import size_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_LEVEL_VARIABLE = "HEADRACE_SPARK_LOG"
# The JVM prints its warnings on standard output, where `--json` prints lines that programs read. Those of an archive of
# classes that does not fit are of no use to a user.
JVM_WARNINGS = ("-Xlog:disable", "-Xlog:all=warning,cds=off,cds+dynamic=off,class+path=off:stderr")
# For the short-lived JVM that only puts the driver's command line together.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
# Every JVM that Spark starts prints it, for a module that Spark itself switches on.
INCUBATOR_WARNING = b"WARNING: Using incubator modules"
# The JVM prints it for the file of `_directives`.
_DIRECTIVES_ADDED = b"1 compiler directives added"
# What a thread of Spark's prints past its log when it reports to a session that is ending, and the lines of any trace.
TRACES = (b"java.util.concurrent.RejectedExecutionException: Task Future(<not completed>)", b"\tat ")
# What a JVM learns only at its start.
_FIXED_AT_START = ("spark.driver.", "spark.jars", "spark.master")
# The module that Python workers are forks of, and the prefix of what lets the scheduler's lines name query and batch.
DAEMON = "spark.python.daemon.module"
SCHEDULER_LINES = "spark.scheduler.streaming.idAwareLogging"
# PySpark's own, which log every exception of the analysis.
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SECONDS_TO_END = 10
# What Java and Spark's scripts add to the options of a JVM.
_JVM_VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
# In bytes. A collection of all that lives in a heap of this size stops two cores for some seconds.
_LARGE_HEAP = 8 << 30
# Names of a JVMView that are packages for good; others may be imported as classes later.
_PACKAGES = {"com", "io", "java", "javax", "org", "scala"}


def start(*, master: str, purpose: Purpose, name: str, overrides: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session on `master` with Headrace's settings, `overrides` last."""
    from headrace.spark.jvm import cds
    from headrace.spark.jvm.preconditions import require_java, require_master, require_version

    require_version(version("pyspark"))
    require_master(master)
    java = require_java()
    conf = {setting.key: setting.value for setting in settings(master=master, purpose=purpose)}
    conf["spark.app.name"] = name
    conf.update(overrides or {})
    gateway.remember_secrets(conf)
    conf |= _output_settings(conf, local=is_local(master))
    if is_local(master):
        conf |= hadoop_files.settings(conf)
        with suppress(OSError):  # Spark says it in its own words.
            conf[LOCAL_SETTING] = local_directories(conf)
        if "HADOOP_CONF_DIR" not in os.environ:
            # Hadoop's own umask is 022, whatever that of the process: a result is the user's to open or close.
            conf.setdefault("spark.hadoop.fs.permissions.umask-mode", f"{umask():03o}")
    else:
        conf |= hadoop_files.class_path_settings(conf)
    own = conf.get(gateway.JAVA_OPTIONS, "")
    end_unfit_jvm(purpose, {key: conf[key] for key in sorted(conf) if key.startswith(_FIXED_AT_START)})
    memory, log_level = conf.get("spark.driver.memory", ""), conf.get("spark.log.level", "")
    options = jvm_options(purpose, own, local=is_local(master), log_level=log_level, memory=memory)
    options += cds.options(java)
    if made := cds.ensure_in_background(java):
        print(made, file=sys.stderr)
    conf[gateway.JAVA_OPTIONS] = " ".join([*options, own]).strip()
    return _start_session(master, conf)


def jvm_options(purpose: Purpose, own: str, *, local: bool, log_level: str = "", memory: str = "") -> list[str]:
    """Return the options of the driver's JVM that are not Spark's settings, which give it `memory`.

    A collector that the project's `own` options or the environment name stays: a JVM that is given two does not start.
    """
    log = Path(str(files("headrace.spark") / "log4j2.properties"))
    options = [f"-Dlog4j2.configurationFile={log.as_uri()}", "-XX:-UsePerfData", *JVM_WARNINGS]
    if level := os.environ.get(LOG_LEVEL_VARIABLE) or log_level:
        options.append(f"-Dheadrace.log.level={level}")
    if not local:
        return options
    if purpose == "short":
        options.append("-XX:TieredStopAtLevel=1")
    elif purpose != "stream":
        options += _directives()
    given = " ".join([own, *(os.environ.get(name, "") for name in _JVM_VARIABLES)])
    if not re.search(r"-XX:\+Use\w*GC\b", given):
        options += _collector(purpose, memory)
    return options


def _directives() -> list[str]:
    """What the second compiler leaves out: it takes longer for the code of a start than that runs.

    Not for a query that goes on: its batches run some of that code for ever.
    """
    file = str(files("headrace.spark") / "compiler.json")
    if any(space in file for space in " \t\"'"):
        return []
    # What the JVM prints must not come between the lines of `--json`.
    return ["-XX:+DisplayVMOutputToStderr", "-XX:+UnlockDiagnosticVMOptions", f"-XX:CompilerDirectivesFile={file}"]


def _collector(purpose: Purpose, memory: str) -> list[str]:
    """The collector with the most throughput: of a large heap its pauses would be too long, and the JVM's own stays."""
    if purpose == "short":
        return ["-XX:+UseSerialGC"]
    is_large = (size_bytes(memory, default_unit="m") or 0) > _LARGE_HEAP
    return [] if is_large or (os.cpu_count() or 1) < 2 else ["-XX:+UseParallelGC"]


def _output_settings(conf: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """Return the settings by which lines of Python workers and of Spark's scheduler name their query and batch.

    On a cluster a worker's lines stay on its machine, and in another Python there may be no Headrace.
    """
    chosen = {f"{SCHEDULER_LINES}.enabled": "true", f"{SCHEDULER_LINES}.queryIdLength": "36"}
    python = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if local and python == sys.executable and f"{DAEMON}=" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        chosen[DAEMON] = "headrace.spark.jvm.stderr_filter"
    return {key: value for key, value in chosen.items() if key not in conf}


def _start_session(master: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    if is_local(master):
        # Spark's launcher asks for a host name before any setting is read.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_HOME", str(Path(str(files("pyspark")))))
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
        # PySpark imports it at its first call into the JVM; here it is read while the JVM starts. No daemon: of a start
        # that is broken off, Python must not end in the middle of an import, whose locks would never be released.
        threading.Thread(target=import_module, args=("pandas",), name="import of pandas").start()
    # An exception comes to the user as a finding; py4j and PySpark would log its stack trace as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # It has what py4j logs of a call that Ctrl-C breaks off.
    for logger in QUERY_LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    cache_java_names()
    close_interrupted_connections()
    builder = SparkSession.Builder().master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with drop_lines(INCUBATOR_WARNING, _DIRECTIVES_ADDED, *(() if os.environ.get(LOG_LEVEL_VARIABLE) else TRACES)):
        try:
            gateway.ensure_jvm({"spark.master": master, **conf})
            return builder.getOrCreate()
        except HeadraceError:
            raise
        except Exception as error:
            raise start_error(error, master) from error


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def close_interrupted_connections() -> None:
    """Let py4j close such connections, for every gateway of this process; a second call changes nothing."""
    from py4j.clientserver import ClientServerConnection

    send: Callable[[Any, str], str] = ClientServerConnection.send_command

    def send_or_close(self: Any, command: str) -> str:
        try:
            return send(self, command)
        except Exception:  # py4j's own errors, which it looks after itself
            raise
        except BaseException:
            self.close()
            raise

    if send.__module__ != __name__:
        ClientServerConnection.send_command = send_or_close


@dataclass(frozen=True)
class _Asked:
    """What a JVM was started for, and the settings that it learnt at its start."""

    purpose: Purpose
    settings: Mapping[str, str]

    def serves(self, wanted: _Asked) -> bool:
        """A JVM for streams serves all; one that compiles less serves what ends as soon as what it was started for."""
        return self.settings == wanted.settings and _LASTING.index(self.purpose) >= _LASTING.index(wanted.purpose)


# The shortest first.
_LASTING: tuple[Purpose, ...] = ("short", "reading", "backlog", "stream")
_started_for: _Asked | None = None


def end_unfit_jvm(purpose: Purpose, settings: Mapping[str, str]) -> None:
    """End a JVM that was started here for a session that has ended, unless it serves the one that is to come.

    PySpark keeps the JVM after a session's stop, with all that it was started with: a check before a run would leave
    the stream the compiler and the collector of a short command, and the jars of another project.
    """
    from pyspark import SparkContext

    global _started_for
    wanted = _Asked(purpose, dict(settings))
    context: Any = SparkContext
    gateway = context._gateway
    is_idle = gateway is not None and context._active_spark_context is None
    is_other = is_idle and _started_for is not None and not _started_for.serves(wanted)
    if is_other:
        end(gateway)
    if gateway is None or is_other:
        _started_for = wanted


def end(gateway: Any, seconds: float = _SECONDS_TO_END) -> None:
    """End the JVM that PySpark has started behind `gateway`, if it has; after so many `seconds` it is killed."""
    from pyspark import SparkContext

    process = getattr(gateway, "proc", None)
    if process is None:
        return
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(seconds)
    except TimeoutExpired:
        process.kill()
        process.wait()
    context: Any = SparkContext
    context._gateway = context._jvm = None


def stop_with_jvm(spark: SparkSession, seconds: float) -> None:
    """Stop a session and end its JVM, which is killed after so many `seconds`."""
    gateway = gateway_of(spark)
    spark.stop()
    end(gateway, seconds)


def cache_java_names() -> None:
    """Let py4j keep what it has found, for every gateway of this process; a second call changes nothing."""
    from py4j import java_gateway

    for kind in (java_gateway.JVMView, java_gateway.JavaPackage):
        if kind.__getattr__.__module__ != __name__:
            kind.__getattr__ = _cache_lookup(kind.__getattr__)


def _cache_lookup(look: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView

    def look_up(self: Any, name: str) -> Any:
        value = look(self, name)
        if isinstance(value, JavaPackage):
            lasts = name in _PACKAGES if isinstance(self, JVMView) else name.islower()
        else:
            lasts = isinstance(value, JavaClass)
        if lasts:
            # Python asks `__getattr__` for what is not here alone.
            self.__dict__[name] = value
        return value

    return look_up
