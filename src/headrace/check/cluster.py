"""What of a project lies on the driver's machine alone, where executors run on others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.cluster.connection import is_elsewhere
from headrace.contract import path_options
from headrace.errors import Finding
from headrace.model import Project, Query
from headrace.spark.settings import default_master

# On a cluster of the same machine, executors see the paths that the driver sees.
_FIX = "name a path that all machines see, such as hdfs:// or s3a://; or declare a mounted directory: shared_paths"


def cluster(project: Project) -> Iterator[Finding]:
    """Local paths of a project whose master is on another machine."""
    master = project.target.master or default_master()
    if not is_elsewhere(master):
        return
    durable = [query for query in project.queries.values() if query.sink.facts.durable]
    if durable and _is_here(project, str(project.storage)):
        yield Finding(
            code="HR829",
            what=f"the storage {project.storage} is a directory of this machine, and executors of {master}, which "
            "write state there, run on others",
            fix=_FIX,
            where=project.target.where,
        )
    for name, source in project.sources.items():
        yield from _paths(project, source.connector, f"the source '{name}'", source.where, master)
    for name, query in project.queries.items():
        yield from _paths(project, query.sink, f"the sink of query '{name}'", query.where, master)


def state_partitions(query: Query, *, partitions: int, cores: int, keeps_state: bool) -> Iterator[Finding]:
    """Whether cores of a cluster have no part of a query's state to work on."""
    if keeps_state and partitions < cores:
        yield Finding(
            code="HR830",
            what=f"query '{query.name}' keeps its state in {partitions} partitions, and the cluster has {cores} cores: "
            f"{cores - partitions} have nothing to do",
            fix=f"headrace state repartition {query.name} {cores}; a new checkpoint gets one for each core",
            where=query.where,
        )


def _paths(project: Project, connector: Any, whose: str, where: Any, master: str) -> Iterator[Finding]:
    for option in path_options(connector):
        value = getattr(connector, option)
        for path in value if isinstance(value, (list, tuple)) else [value]:
            if path and _is_here(project, str(path)):
                yield Finding(
                    code="HR829",
                    what=f"{whose} has the {option} {path} on this machine, and executors of {master} run on others",
                    fix=_FIX,
                    where=where,
                )


def _is_here(project: Project, path: str) -> bool:
    """Whether a path is one of this machine alone."""
    if "://" in path and not path.startswith("file:"):
        return False
    plain = "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
    return not any(plain == each or plain.startswith(f"{each.rstrip('/')}/") for each in project.target.shared_paths)
