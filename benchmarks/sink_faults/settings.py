"""The settings of the session in which a sink is tried: bounds of its faults, the sink's jars, the start of its JVM."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from benchmarks.sink_faults.query import TestedSink
from headrace.contract import Jars
from headrace.spark.jvm import cds, hadoop_files, jars
from headrace.spark.jvm.gateway import JAVA_OPTIONS
from headrace.spark.jvm.preconditions import require_java

SETTINGS = {
    "spark.master": "local[2,4]",  # A task that fails is tried again, as on a cluster.
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    # Each file is a task, and rows leave the Python worker while later ones are worked on.
    "spark.sql.files.openCostInBytes": "134217728",
    "spark.buffer.size": "1024",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}
SPECULATION = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    # A task counts as slow when it takes longer than the other one did.
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.minTaskRuntime": "500ms",
}


def settings_of(sink: TestedSink, *, spark: str, connector: str | None = None, url: str = "") -> dict[str, str]:
    """The sink's settings with its jars, which are fetched; raises PlatformError.

    spark: of which version the PySpark is. connector: its version or group:artifact:version, in place of the known one.
    """
    # Without a URL there is nothing that a JDBC driver would be for.
    jdbc = not url and "org.postgresql:" in "".join(sink.coordinates)
    wanted = [] if jdbc else coordinates_of(sink, spark=spark, connector=connector)
    if not wanted:
        return dict(sink.settings)
    names = (name for name, connector in jars.known_connectors().items() if connector.coordinates == tuple(wanted))
    name, kind = next(names, wanted[0].split(":")[1]), "alone" if sink.alone else "coordinates"
    asked: dict[str, Any] = {"coordinates": (), kind: tuple(wanted)}
    return jars.settings([Jars(name=name, settings=sink.settings, **asked)])


def coordinates_of(sink: TestedSink, *, spark: str, connector: str | None = None) -> list[str]:
    """The coordinates of the sink's jars for that version of Spark, which PySpark's wheel brings for one Scala."""
    minor, scala = ".".join(spark.split(".")[:2]), "2.12" if spark.startswith("3.") else "2.13"
    wanted = [coordinate.format(spark=minor, scala=scala) for coordinate in sink.coordinates]
    if connector and wanted:
        wanted[0] = connector if ":" in connector else f"{wanted[0].rpartition(':')[0]}:{connector}"
    return wanted


def of_the_jvm(spark: str) -> dict[str, str]:
    """Settings that let the JVM start with the classes that `make setup` has archived, for the Spark that is here."""
    first = hadoop_files.jar()
    if first is None or spark != version("pyspark"):
        return {}
    options = " ".join([SETTINGS[JAVA_OPTIONS], *cds.options(require_java())])
    return {JAVA_OPTIONS: options, "spark.driver.extraClassPath": str(first)}
