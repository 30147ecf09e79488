"""The jars that Spark lacks: its connectors, by coordinates, and a few lines of Java, compiled where they are used.

Spark has no setting for what they do, and what is compiled here fits the Spark that is here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from headrace.contract import Jars
from headrace.errors import Finding, PlatformError, nearest
from headrace.spark.jvm.maven import (
    ChecksumError,
    FetchError,
    changed_jars,
    fetch,
    known_sums,
    nearest_version,
    read_sums,
    sum_of,
)
from headrace.spark.jvm.settings import FILE_MANAGER_SOURCE, OBJECT_STORE_SETTINGS, default_partitions
from headrace.storage.durable import replace_file

DIRECTORIES_VARIABLE = "HEADRACE_CONNECTORS"
SCALA = "2.13"
# Spark's own connectors are not published for each patch of a version: those of its first serve the later ones.
FIRST_PATCH = {"4.2": "4.2.0"}
DELTA = "4.4.0"
# Of PySpark 4.2, and what its hadoop-aws asks for.
HADOOP, AWS_SDK, ANALYTICS = "3.5.0", "2.35.4", "1.3.1"
# Settings to which each connector, and the project, adds its own.
LISTS = ("spark.jars", "spark.sql.extensions")
# Which coordinates the jars of a directory are of; written last, so that a directory is whole or not there. The sums of
# all its jars, those that were compiled here too.
CONTENT, SUMS = "coordinates", "sums"
SECONDS = 120


def known_connectors() -> dict[str, Jars]:
    """Every connector that Headrace can fetch, for the installed Spark."""
    minor = ".".join(version("pyspark").split(".")[:2])
    spark = FIRST_PATCH.get(minor, version("pyspark"))
    client = next((Path(str(files("pyspark"))) / "jars").glob("hadoop-client-api-*.jar"), None)
    hadoop = HADOOP if client is None else client.stem.removeprefix("hadoop-client-api-")
    connectors = (
        Jars(name="kafka", coordinates=(f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",)),
        Jars(name="avro", coordinates=(f"org.apache.spark:spark-avro_{SCALA}:{spark}",)),
        Jars(
            name="delta",
            coordinates=(f"io.delta:delta-spark_{minor}_{SCALA}:{DELTA}",),
            settings={
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                # Delta reads the log of a table with 50 tasks, however short it is.
                "spark.databricks.delta.snapshotPartitions": str(default_partitions()),
            },
        ),
        # Of no connector either: see `settings`. The SDK part by part, as its bundle has 600 MB.
        Jars(
            name="s3",
            coordinates=tuple(f"software.amazon.awssdk:{part}:{AWS_SDK}" for part in ("s3-transfer-manager", "sts")),
            alone=(
                f"org.apache.hadoop:hadoop-aws:{hadoop}",
                f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{ANALYTICS}",
            ),
            sources=(FILE_MANAGER_SOURCE,),
            settings=OBJECT_STORE_SETTINGS,
        ),
        # Of no connector: see `local_files`.
        Jars(name="local-files", coordinates=("com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",)),
    )
    return {connector.name: connector for connector in connectors}


def choose(names: Sequence[str], every: Mapping[str, Jars] | None = None) -> tuple[Jars, ...]:
    """The connectors of these names among `every`, or those that are known; raises PlatformError for others."""
    every = known_connectors() if every is None else every
    unknown = [
        Finding(code="HR103", what=f"no connector is named '{name}'", fix=nearest(name, every))
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
    sums: dict[str, str] = {}
    given = []
    for connector in connectors:
        jars = find(connector, root)
        jars = install(connector, cache()) if jars is None else jars
        given.append({**connector.settings, "spark.jars": ",".join(map(str, jars))})
    for key, value in chain.from_iterable(part.items() for part in (*given, own or {})):
        sums[key] = f"{sums[key]},{value}" if key in LISTS and key in sums else value
    return sums


def places(root: Path | None = None) -> tuple[Path, ...]:
    """Where jars are looked for: the directories of the environment, the project's, and the user's cache."""
    named = [Path(place) for place in os.environ.get(DIRECTORIES_VARIABLE, "").split(os.pathsep) if place]
    own = [] if root is None else [root / "connectors"]
    return (*named, *own, cache())


def cache(kind: str = "connectors") -> Path:
    """Where jars or archives are kept: in `HEADRACE_CACHE`, else in `headrace` of the user's cache directory."""
    if own := os.environ.get("HEADRACE_CACHE"):
        return Path(own) / kind
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / kind


def find(connector: Jars, root: Path | None = None) -> list[Path] | None:
    """The jars of `connector` as they were installed, or None when they are nowhere.

    One that was not installed is left out, with a warning. Raises PlatformError for one that was changed.
    """
    for folder in (folder_of(connector, place) for place in places(root)):
        with suppress(FileNotFoundError, NotADirectoryError):
            is_whole = (folder / CONTENT).read_text().split() == content(connector).split()
            if is_whole:
                return _verified_jars(connector, folder)
    return None


def list_installed() -> tuple[str, ...]:
    """Return the known connectors whose jars are here; their sums are not read."""
    return tuple(
        name
        for name, connector in known_connectors().items()
        if any((folder_of(connector, place) / CONTENT).is_file() for place in places())
    )


def _verified_jars(connector: Jars, folder: Path) -> list[Path]:
    """Those jars of a folder that have their sums. Raises FileNotFoundError for a folder without sums."""
    jars = sorted(folder.glob("*.jar"))
    sums = {**read_sums((folder / SUMS).read_text()), **known_sums()}
    if other := changed_jars(jars, sums):
        named = ", ".join(other)
        raise PlatformError(
            code="HR483",
            what=f"of the connector '{connector.name}' in {folder}, {named} is not the jar that was installed there",
            fix="find out who changed it; then remove that directory: the next start fetches its jars",
        )
    if unknown := [jar.name for jar in jars if jar.name not in sums]:
        message = f"in {folder}, {', '.join(unknown)} was not installed by Headrace, and is left out of the class path"
        fix = "remove it; jars of your own belong into spark.jars"
        print(Finding(code="HR140", what=message, fix=fix), file=sys.stderr)
    return [jar for jar in jars if jar.name not in unknown]


def folder_of(connector: Jars, directory: Path) -> Path:
    """Where `install` puts the jars: a folder for each PySpark, which leaves out jars of its own, and each content.

    So two environments that share a directory never touch the jars of each other's running drivers.
    """
    spark = version("pyspark")
    key = hashlib.sha256(f"{spark}\n{content(connector)}".encode()).hexdigest()[:8]
    return directory / f"{connector.name}-{spark}-{key}"


def content(connector: Jars) -> str:
    """Name the jars of `connector` so that a directory of others has another name."""
    return "\n".join((*connector.coordinates, *connector.alone, *map(digest, connector.sources))) + "\n"


def install(connector: Jars, directory: Path) -> list[Path]:
    """Fetch and compile the jars of `connector` into its folder of `directory`; returns all; raises PlatformError.

    A jar that is there already is replaced whole: a driver that has it open keeps what it reads.
    """
    folder = folder_of(connector, directory)
    try:
        fetched = fetch(connector.coordinates, folder, alone=connector.alone)
        compiled = [compile_into(source, folder) for source in connector.sources]
        sums = "".join(f"{sum_of(jar)}  {jar.name}\n" for jar in (*fetched, *compiled))
        replace_file(folder / SUMS, sums)
        replace_file(folder / CONTENT, content(connector))
    except ChecksumError as error:
        raise PlatformError(
            code="HR483",
            what=f"the connector '{connector.name}' was not taken: {error}",
            fix="find out what the repository gives, or what stands in between; no jar of it was kept",
        ) from error
    except CompileError as error:
        raise PlatformError(
            code="HR012",
            what=f"the jars of '{connector.name}' are not whole: {error}",
            fix=f"see that Java and PySpark {version('pyspark')} are whole here: headrace jars fetch DIR",
        ) from error
    except (FetchError, OSError) as error:
        raise PlatformError(
            code="HR012",
            what=f"Spark's connector '{connector.name}' ({', '.join(connector.coordinates)}) is not here "
            f"and could not be fetched: {error}",
            fix=_fix(error, directory),
        ) from error
    if unknown := ", ".join(sorted(jar.name for jar in fetched if jar.name not in known_sums())):
        message = f"of the connector '{connector.name}', these jars are unchecked, for want of a SHA-256 sum: {unknown}"
        note = Finding(code="HR484", what=message, fix="compare them with the sums that their projects publish")
        print(note, file=sys.stderr)
    return sorted((*fetched, *compiled))


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


class CompileError(Exception):
    """The message is one sentence."""


def digest(source: str) -> str:
    """Identify a compiled source by its text and by the Spark that it was compiled for."""
    text = (files("headrace.spark") / source).read_bytes()
    return f"{source}:{version('pyspark')}:{hashlib.sha256(text).hexdigest()[:16]}"


def jar_name(source: str) -> str:
    return f"headrace-{Path(source).stem}.jar"


def compile_into(source: str, directory: Path) -> Path:
    """The jar of the classes of `source`, a file of this package. Raises CompileError, OSError."""
    jar = directory / jar_name(source)
    with tempfile.TemporaryDirectory(prefix=".compiling-", dir=directory) as scratch:
        # In a process of its own: its JVM knows no session, and ends with it.
        command = [sys.executable, "-m", "headrace.spark.jvm.jars", str(files("headrace.spark") / source), scratch]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise CompileError(f"the compiler of Java did not come to its end: {error}") from error
        made = sorted(Path(scratch).rglob("*.class"))
        if done.returncode or not made:
            lines = [line for line in done.stderr.splitlines() if "xception" in line] or done.stderr.splitlines()
            raise CompileError(f"{source} cannot be compiled: {lines[-1] if lines else 'nothing was made'}")
        with zipfile.ZipFile(Path(scratch) / jar.name, "w") as packed:
            for compiled in made:
                packed.write(compiled, str(compiled.relative_to(scratch)))
        os.replace(Path(scratch) / jar.name, jar)
    return jar


def main(source: str, target: str) -> int:
    """Let Janino, which Spark compiles its queries with, write the classes of `source` below `target`."""
    from headrace.spark.jvm.gateway import without_session

    with without_session() as gateway:
        write_classes(gateway, target, source)
    return 0


def write_classes(gateway: Any, target: str, *sources: str) -> None:
    """Compile `sources`, which may use one another, in the JVM of a gateway."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(loader))
    compiler.setDestinationDirectory(jvm.java.io.File(target), False)
    given = gateway.new_array(jvm.java.io.File, len(sources))
    for at, source in enumerate(sources):
        given[at] = jvm.java.io.File(source)
    compiler.compile(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
