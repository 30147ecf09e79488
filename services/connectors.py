"""Connectors of Spark for the tests, also from a Maven repository that has not every part of this Spark."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import PlatformError
from headrace.spark.jvm import hadoop_files
from headrace.spark.jvm.jars import CONTENT, DIRECTORIES_VARIABLE, cache, content, find, folder_of, known_connectors
from headrace.spark.jvm.jars import install as install_jars
from headrace.spark.jvm.maven import FetchError, fetch
from services import process

# In place of the coordinates and what they need: the same jars one by one, the missing ones of an older Spark, with
# which every test passes. Projects are never given these.
STAND_INS = {
    "kafka": (
        *known_connectors()["kafka"].coordinates,
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    "avro": ("org.apache.spark:spark-avro_2.13:4.1.1",),
}


def directory() -> Path:
    """Where the tests have them."""
    return cache().parent / "services" / "connectors"


def use() -> None:
    """Let every session of this process and its children find them."""
    os.environ.setdefault(DIRECTORIES_VARIABLE, str(directory()))


def install() -> list[str]:
    """Fetch what is not here; returns a sentence for each that is not to be had."""
    use()
    faults = []
    for name, connector in known_connectors().items():
        # The library for local files is fetched with the CDS archive, which holds its place.
        if name == hadoop_files.LIBRARY or find(connector) is not None:
            continue
        try:
            install_jars(connector, directory())
        except PlatformError as error:
            try:
                folder = folder_of(connector, directory())
                fetch((), folder, alone=STAND_INS[name], sums=process.jar_sums())
                (folder / CONTENT).write_text(content(connector))
            except (FetchError, KeyError, OSError):
                faults.append(error.findings[0].what)
    return faults
