"""A Spark session started with Headrace's settings."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.spark import gateway, interrupted_calls, jvm_names, local_files
from headrace.spark.masters import not_started
from headrace.spark.settings import Purpose, is_local, settings
from headrace.spark.stderr_filter import dropping_lines
from headrace.storage.private import LOCAL_SETTING, local_directories, umask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_LEVEL_VARIABLE = "HEADRACE_SPARK_LOG"
# The JVM prints its warnings on standard output, where `--json` prints lines that programs read. Those of an archive of
# classes that does not fit tell a user nothing.
JVM_WARNINGS = ("-Xlog:disable", "-Xlog:all=warning,cds=off,cds+dynamic=off,class+path=off:stderr")
# For the short-lived JVM that only puts the driver's command line together.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xshare:auto"
# Every JVM that Spark starts prints it, for a module that Spark itself switches on.
INCUBATOR_WARNING = b"WARNING: Using incubator modules"
# What a thread of Spark's prints past its log when it reports to a session that is ending, and the lines of any trace.
TRACES = (b"java.util.concurrent.RejectedExecutionException: Task Future(<not completed>)", b"\tat ")
# What a JVM learns only at its start.
_FIXED_AT_START = ("spark.driver.", "spark.jars", "spark.master")
# The module that Python workers are forks of, and the prefix of what lets the scheduler's lines name query and batch.
DAEMON = "spark.python.daemon.module"
SCHEDULER_LINES = "spark.scheduler.streaming.idAwareLogging"
# PySpark's own, which log every exception of the analysis.
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def start(*, master: str, purpose: Purpose, name: str, overrides: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session on `master` with Headrace's settings, `overrides` last."""
    from headrace.spark import cds, jvm
    from headrace.spark.java import require_java
    from headrace.spark.masters import require_master
    from headrace.spark.versions import require_version

    require_version(version("pyspark"))
    require_master(master)
    java = require_java()
    conf = {setting.key: setting.value for setting in settings(master=master, purpose=purpose)}
    conf["spark.app.name"] = name
    conf.update(overrides or {})
    gateway.remember_secrets(conf)
    conf |= _marked_output(conf, local=is_local(master))
    if is_local(master):
        conf |= local_files.settings(conf)
        with suppress(OSError):  # Spark says it in its own words.
            conf[LOCAL_SETTING] = local_directories(conf)
        if "HADOOP_CONF_DIR" not in os.environ:
            # Hadoop's own umask is 022, whatever that of the process: a result is the user's to open or close.
            conf.setdefault("spark.hadoop.fs.permissions.umask-mode", f"{umask():03o}")
    else:
        conf |= local_files.on_class_path(conf)
    own = conf.get("spark.driver.extraJavaOptions", "")
    jvm.require(purpose, {key: conf[key] for key in sorted(conf) if key.startswith(_FIXED_AT_START)})
    options = jvm_options(purpose, own, local=is_local(master), log_level=conf.get("spark.log.level", ""))
    options += cds.options(java)
    if made := cds.ensure_in_background(java):
        print(made, file=sys.stderr)
    conf["spark.driver.extraJavaOptions"] = " ".join([*options, own]).strip()
    return _started(master, conf)


def jvm_options(purpose: Purpose, own: str, *, local: bool, log_level: str = "") -> list[str]:
    """What the driver's JVM is told besides Spark's settings; a collector among the project's `own` options stays."""
    log = Path(str(files("headrace.spark") / "log4j2.properties"))
    options = [f"-Dlog4j2.configurationFile={log.as_uri()}", "-XX:-UsePerfData", *JVM_WARNINGS]
    if level := os.environ.get(LOG_LEVEL_VARIABLE) or log_level:
        options.append(f"-Dheadrace.log.level={level}")
    if purpose == "short" and local:
        options.append("-XX:TieredStopAtLevel=1")
        if not re.search(r"-XX:\+Use\w*GC", own):
            options.append("-XX:+UseSerialGC")
    return options


def _marked_output(conf: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """What lets the log tell of which query and batch a line is: of Python workers, and of Spark's scheduler.

    On a cluster a worker's lines stay on its machine, and in another Python there may be no Headrace.
    """
    found = {f"{SCHEDULER_LINES}.enabled": "true", f"{SCHEDULER_LINES}.queryIdLength": "36"}
    python = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if local and python == sys.executable and f"{DAEMON}=" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        found[DAEMON] = "headrace.spark.worker_daemon"
    return {key: value for key, value in found.items() if key not in conf}


def _started(master: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    if is_local(master):
        # Spark's launcher asks for a host name before any setting is read.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_HOME", str(Path(str(files("pyspark")))))
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
        # PySpark imports it at its first call into the JVM; here it is read while the JVM starts. No daemon: of a start
        # that is broken off, Python must not end in the middle of an import, whose locks nobody would release.
        threading.Thread(target=import_module, args=("pandas",), name="import of pandas").start()
    # An exception comes to the user as a finding; py4j and PySpark would log its stack trace as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for logger in QUERY_LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    jvm_names.remember()
    interrupted_calls.give_up()
    builder = SparkSession.Builder().master(master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with dropping_lines(INCUBATOR_WARNING, *(() if os.environ.get(LOG_LEVEL_VARIABLE) else TRACES)):
        try:
            gateway.ensure({"spark.master": master, **conf})
            return builder.getOrCreate()
        except HeadraceError:
            raise
        except Exception as error:
            raise not_started(error, master) from error
