"""The Spark session of a project: its master, its storage, the jars of its connectors, and its own settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cluster import connection, pack
from headrace.contract import Connector, Jars
from headrace.errors import PlatformError
from headrace.model import Project
from headrace.model.project import paths_of
from headrace.spark.jvm import jars, session_conf, settings
from headrace.spark.jvm.session import start
from headrace.spark.jvm.settings import LOCAL_LISTING, Purpose, default_master, is_local
from headrace.storage.location import scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    project: Project,
    *,
    purpose: Purpose = "stream",
    overrides: Mapping[str, str] | None = None,
    preparing: Callable[[str], None] | None = None,
) -> SparkSession:
    """Return the session of `project`'s target, started if there is none yet; `preparing` gets each step as it begins.

    Raises PlatformError when there is no usable Java, or when a connector that the project needs is not to be had.
    """
    project.target.require_settings()
    master = project.target.master or default_master()
    connection.use_this_python(master)
    begin, needed = preparing or (lambda step: None), jars_of(project)
    if needed:
        begin(f"looking for the jars of {', '.join(entry.name for entry in needed)}")
    if not is_local(master):
        begin(f"connecting to {master}")
    made = start(
        master=master,
        purpose=purpose,
        name=f"headrace {project.name}",
        overrides={
            "spark.sql.warehouse.dir": str(project.storage / "warehouse"),
            **listing_settings(project),
            **connection.settings(master, project.target.spark),
            **jars.settings(needed, project.target.spark, root=project.root),
            **(settings.object_store_settings(project.target.spark) if uses_s3(project) else {}),
            **connection.archive_settings(master, project.target.spark),
            **_package_settings(project, master),
            **(overrides or {}),
        },
    )
    # A look at a project writes nothing into its storage.
    storage = None if purpose in ("short", "reading") else project.storage
    connection.make_ready(made, master, worker_packages(project), storage, begin=begin)
    return made


def worker_packages(project: Project) -> set[str]:
    """Return what the tasks of the project's sources and sinks import, by the names that pip knows."""
    return {package for connector in _connectors(project) for package in connector.worker_packages}


def _package_settings(project: Project, master: str) -> dict[str, str]:
    """Return the settings by which executors get the target's archive of packages, if any. Raises PlatformError."""
    given = project.target.worker_packages
    if given is None or is_local(master):
        return {}
    archive = given if "://" in given else str((project.root / given).absolute())
    if "://" not in archive and not Path(archive).is_file():
        problem = f"there is no archive {archive}, which target '{project.target.name}' has as worker_packages"
        fix = f"make it: headrace cluster pack --out {given}"
        raise PlatformError(code="HR857", what=problem, fix=fix, where=project.target.at("worker_packages"))
    return pack.settings(archive, project.target.spark)


def borrow(
    project: Project, spark: SparkSession | None = None, *, much: bool = False
) -> AbstractContextManager[SparkSession]:
    """Return a session to read with, given back as it was; one of the project's own where there is none to copy.

    much: it will read so many rows that the JVM's second compiler gains more than it costs.
    """
    return session_conf.borrow(spark, lambda: session(project, purpose="reading" if much else "short"))


def jars_of(project: Project) -> tuple[Jars, ...]:
    """Return the jars that the sources and sinks of `project` ask for by their member `jars`.

    Raises PlatformError when one of them is unknown.
    """
    asked = [jar for connector in _connectors(project) for jar in connector.jars]
    own = {entry.name: entry for entry in asked if isinstance(entry, Jars)}
    names = dict.fromkeys(entry.name if isinstance(entry, Jars) else entry for entry in asked)
    if uses_s3(project):
        names[settings.OBJECT_STORE_JARS] = None
    return jars.choose(tuple(names), {**jars.known_connectors(), **own})


def uses_s3(project: Project) -> bool:
    """Whether the storage, or a path of a source or a sink, is in a bucket."""
    return any(scheme_of(path) == "s3a" for path in (str(project.target.storage), *_paths(project)))


def listing_settings(project: Project) -> dict[str, str]:
    """Return the setting by which the driver lists files, if all lie on a local file system."""
    is_local_only = all(scheme_of(path) is None for path in _paths(project))
    return {LOCAL_LISTING.key: LOCAL_LISTING.value} if is_local_only else {}


def _paths(project: Project) -> Iterator[str]:
    yield from (path for connector in _connectors(project) for _, path in paths_of(connector))


def _connectors(project: Project) -> Iterator[Connector]:
    yield from (source.connector for source in project.sources.values())
    yield from (query.sink for query in project.queries.values())
