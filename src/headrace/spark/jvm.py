"""The JVM of this process: kept for the next session where it fits, replaced where it was started for other work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from subprocess import TimeoutExpired
from typing import Any

from headrace.spark.settings import Purpose

_SECONDS_TO_END = 10


@dataclass(frozen=True)
class _Asked:
    """What a JVM was started for, and the settings that it learnt at its start."""

    purpose: Purpose
    settings: Mapping[str, str]

    def serves(self, wanted: _Asked) -> bool:
        """A JVM for streams serves a short command; one that compiles little and collects serially serves no stream."""
        return self.settings == wanted.settings and self.purpose in ("stream", wanted.purpose)


_started: _Asked | None = None


def require(purpose: Purpose, settings: Mapping[str, str]) -> None:
    """End a JVM that was started here for a session that has ended, unless it serves the one that is to come.

    PySpark keeps the JVM after a session's stop, with all that it was started with: a check before a run would leave
    the stream the compiler and the collector of a short command, and the jars of another project.
    """
    from pyspark import SparkContext

    global _started
    wanted = _Asked(purpose, dict(settings))
    context: Any = SparkContext
    gateway = context._gateway
    if gateway is not None and context._active_spark_context is None and _started and not _started.serves(wanted):
        end(gateway)
        gateway = context._gateway
    if gateway is None:
        _started = wanted


def end(gateway: Any) -> None:
    """End the JVM that PySpark has started behind `gateway`, if it has."""
    from pyspark import SparkContext

    process = getattr(gateway, "proc", None)
    if process is None:
        return
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(_SECONDS_TO_END)
    except TimeoutExpired:
        process.kill()
        process.wait()
    context: Any = SparkContext
    context._gateway = context._jvm = None
