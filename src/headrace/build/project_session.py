"""The Spark session of a project: its master, its storage, the jars of its connectors, and its own settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from headrace.cluster import connection
from headrace.contract import Connector, Jars
from headrace.model import Project
from headrace.spark import borrowed_session, jars
from headrace.spark.session import start
from headrace.spark.settings import Purpose, default_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    project: Project, *, purpose: Purpose = "stream", overrides: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of `project`'s target, started if there is none yet.

    Raises PlatformError when there is no usable Java, or when a connector that the project needs is not to be had.
    """
    master = project.target.master or default_master()
    connection.use_this_python(master)
    made = start(
        master=master,
        purpose=purpose,
        name=f"headrace {project.name}",
        overrides={
            "spark.sql.warehouse.dir": str(project.storage / "warehouse"),
            **connection.settings(master, project.target.spark),
            **jars.settings(jars_of(project), project.target.spark, root=project.root),
            **(overrides or {}),
        },
    )
    connection.make_ready(made, master, {package for each in _connectors(project) for package in each.worker_packages})
    return made


def borrowed(project: Project, spark: SparkSession | None = None) -> AbstractContextManager[SparkSession]:
    """A session to read with, given back as it was; one of the project's own where there is none to copy."""
    return borrowed_session.borrowed(spark, lambda: session(project, purpose="short"))


def jars_of(project: Project) -> tuple[Jars, ...]:
    """The jars that the sources and sinks of `project` ask for by their member `jars`.

    Raises PlatformError when one of them is unknown.
    """
    asked = [each for connector in _connectors(project) for each in connector.jars]
    own = {each.name: each for each in asked if isinstance(each, Jars)}
    names = dict.fromkeys(each.name if isinstance(each, Jars) else each for each in asked)
    return jars.chosen(tuple(names), {**jars.known(), **own})


def _connectors(project: Project) -> Iterator[Connector]:
    yield from (source.connector for source in project.sources.values())
    yield from (query.sink for query in project.queries.values())
