"""The connectors of Spark that are no part of it: their coordinates, their settings, and where their jars are."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from headrace.contract import Jars
from headrace.errors import Finding, PlatformError, nearest
from headrace.spark import object_store
from headrace.spark.compiled import CompileError, compile_into, digest
from headrace.spark.jar_sums import known_sums
from headrace.spark.maven import ChecksumError, FetchError, fetch, nearest_version
from headrace.spark.settings import default_partitions
from headrace.storage.durable import replace_file

DIRECTORIES_VARIABLE = "HEADRACE_CONNECTORS"
SCALA = "2.13"
DELTA = "4.4.0"
# Of PySpark 4.2, and what its hadoop-aws asks for.
HADOOP, AWS_SDK, ANALYTICS = "3.5.0", "2.35.4", "1.3.1"
# Settings to which each connector, and the project, adds its own.
LISTS = ("spark.jars", "spark.sql.extensions")
# Which coordinates the jars of a directory are of; written last, so that a directory is whole or not there.
CONTENT = "coordinates"


def known() -> dict[str, Jars]:
    """Every connector that Headrace can fetch, for the installed Spark."""
    spark = version("pyspark")
    found = (
        Jars(name="kafka", coordinates=(f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",)),
        Jars(name="avro", coordinates=(f"org.apache.spark:spark-avro_{SCALA}:{spark}",)),
        Jars(
            name="delta",
            coordinates=(f"io.delta:delta-spark_{'.'.join(spark.split('.')[:2])}_{SCALA}:{DELTA}",),
            settings={
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                # Delta reads the log of a table with 50 tasks, however short it is.
                "spark.databricks.delta.snapshotPartitions": str(default_partitions()),
            },
        ),
        # Of no connector either: see `object_store`. The SDK part by part, as its bundle has 600 MB.
        Jars(
            name="s3",
            coordinates=tuple(f"software.amazon.awssdk:{part}:{AWS_SDK}" for part in ("s3-transfer-manager", "sts")),
            alone=(
                f"org.apache.hadoop:hadoop-aws:{_hadoop()}",
                f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{ANALYTICS}",
            ),
            sources=(object_store.SOURCE,),
            settings=object_store.SETTINGS,
        ),
        # Of no connector: see `local_files`.
        Jars(name="local-files", coordinates=("com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",)),
    )
    return {connector.name: connector for connector in found}


def _hadoop() -> str:
    """The version of Hadoop's client among Spark's own jars."""
    found = next((Path(str(files("pyspark"))) / "jars").glob("hadoop-client-api-*.jar"), None)
    return HADOOP if found is None else found.stem.removeprefix("hadoop-client-api-")


def chosen(names: Sequence[str], every: Mapping[str, Jars] | None = None) -> tuple[Jars, ...]:
    """The connectors of these names among `every`, or those that are known; raises PlatformError for others."""
    every = known() if every is None else every
    unknown = [
        Finding(code="HR013", what=f"no connector is named '{name}'", fix=nearest(name, every))
        for name in names
        if name not in every
    ]
    if unknown:
        raise PlatformError(unknown)
    return tuple(every[name] for name in names)


def settings(
    connectors: Sequence[Jars], own: Mapping[str, str] | None = None, *, root: Path | None = None
) -> dict[str, str]:
    """What a session needs for `connectors`, with the project's `own` settings. Fetches jars that are not here.

    Raises PlatformError when a jar is neither here nor to be had.
    """
    found: dict[str, str] = {}
    for connector in connectors:
        jars = ",".join(str(jar) for jar in _jars(connector, root))
        for key, value in {**connector.settings, "spark.jars": jars}.items():
            found[key] = f"{found[key]},{value}" if key in LISTS and key in found else value
    for key, value in (own or {}).items():
        found[key] = f"{found[key]},{value}" if key in LISTS and key in found else value
    return found


def places(root: Path | None = None) -> tuple[Path, ...]:
    """Where jars are looked for: the directories of the environment, the project's, and the user's cache."""
    named = [Path(each) for each in os.environ.get(DIRECTORIES_VARIABLE, "").split(os.pathsep) if each]
    own = [] if root is None else [root / "connectors"]
    return (*named, *own, cache())


def cache() -> Path:
    """Where fetched jars are kept: `HEADRACE_CACHE`, else `headrace` in the user's cache directory."""
    if own := os.environ.get("HEADRACE_CACHE"):
        return Path(own) / "connectors"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "connectors"


def find(connector: Jars, root: Path | None = None) -> list[Path] | None:
    """The jars of `connector`, or None when they are nowhere."""
    for place in places(root):
        folder = place / connector.name
        try:
            there = (folder / CONTENT).read_text()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if there.split() == content(connector).split():
            return sorted(folder.glob("*.jar"))
    return None


def content(connector: Jars) -> str:
    """What tells that a directory holds the jars of `connector`, and no others."""
    return "\n".join((*connector.coordinates, *connector.alone, *map(digest, connector.sources))) + "\n"


def install(connector: Jars, directory: Path) -> list[Path]:
    """Fetch the jars of `connector` into a folder of `directory`; raises PlatformError."""
    folder = directory / connector.name
    try:
        (folder / CONTENT).unlink(missing_ok=True)
        for old in folder.glob("*.jar"):
            old.unlink()
        jars = fetch(connector.coordinates, folder, alone=connector.alone)
        for source in connector.sources:
            compile_into(source, folder)
        replace_file(folder / CONTENT, content(connector))
    except ChecksumError as error:
        raise PlatformError(
            Finding(
                code="HR483",
                what=f"the connector '{connector.name}' was not taken: {error}",
                fix="find out what the repository gives, or what stands in between; no jar of it was kept",
            )
        ) from error
    except CompileError as error:
        raise PlatformError(
            Finding(
                code="HR012",
                what=f"the jars of '{connector.name}' are not whole: {error}",
                fix=f"see that Java and PySpark {version('pyspark')} are whole here: headrace jars fetch DIR",
            )
        ) from error
    except (FetchError, OSError) as error:
        raise PlatformError(
            Finding(
                code="HR012",
                what=f"Spark's connector '{connector.name}' ({', '.join(connector.coordinates)}) is not here "
                f"and could not be fetched: {error}",
                fix=_fix(error, directory),
            )
        ) from error
    if unknown := sorted(jar.name for jar in jars if jar.name not in known_sums()):
        print(_unchecked(connector.name, unknown), file=sys.stderr)
    return jars


def _unchecked(name: str, jars: Sequence[str]) -> Finding:
    return Finding(
        code="HR484",
        what=f"of the connector '{name}', these jars are unchecked, for want of a SHA-256 sum: {', '.join(jars)}",
        fix="compare them with the sums that their projects publish",
    )


def _fix(error: FetchError | OSError, directory: Path) -> str:
    if isinstance(error, FetchError) and error.missing:
        near = nearest_version(error.missing[0])
        other = f", or install what it has the jars for: pip install 'pyspark=={near}'" if near else ""
        return f"let Maven use a repository that has it (mirrors in ~/.m2/settings.xml){other}"
    if isinstance(error, OSError):
        return f"give the user that runs Headrace the right to write into {directory}, or name another place"
    if directory == cache():
        return f"on a machine with a network: headrace jars fetch DIR; then set {DIRECTORIES_VARIABLE}=DIR"
    return "see that this machine reaches the repository (proxies and mirrors in ~/.m2/settings.xml), then try again"


def _jars(connector: Jars, root: Path | None) -> list[Path]:
    found = find(connector, root)
    return install(connector, cache()) if found is None else found
