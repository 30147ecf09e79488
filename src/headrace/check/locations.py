"""Where a project's files lie: the storage, the paths of its ends, and what only the driver's machine has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from headrace.cluster.connection import is_elsewhere
from headrace.contract import path_options
from headrace.errors import Finding, PlatformError, Where
from headrace.model import Project, Query
from headrace.spark.jvm.settings import CONDITIONAL_CREATION, OBJECT_STORE_PREFIX, default_master
from headrace.storage.location import is_known, path_fault, place, scheme_of
from headrace.storage.remote import RemotePath
from headrace.storage.store import SCHEMES

_AUTHORITIES = {"hdfs": "host", "s3a": "bucket"}
# Names that others give to what Hadoop calls s3a://, and under which it has no file system of its own.
_NAMESAKES = ("s3", "s3n")
# It does not answer; its package is not installed; it refuses access.
_BY_OUR_CLIENT = ("HR831", "HR011", "HR833")
# On a cluster of the same machine, executors see the paths that the driver sees.
_FIX = "name a path that all machines see, such as hdfs:// or s3a://; or declare a mounted directory: shared_paths"


def storage(project: Project) -> Iterator[Finding]:
    """Storage beyond this machine that is of no known kind, that cannot be reached, or that two drivers could share."""
    where = project.target.at("storage")
    if (wrong := path_fault(project.target.storage)) is not None:
        what = f"the storage {project.target.storage} {wrong[0]}"
        yield Finding(code="HR834", what=what, fix=wrong[1], where=where)
        return
    scheme = scheme_of(project.target.storage)
    if scheme is not None and scheme not in SCHEMES:
        yield Finding(
            code="HR834",
            what=f"the storage {project.target.storage} is on {scheme}://, of which Headrace does not know that a file "
            "there is whole and written once",
            fix=f"name a path on {' or '.join(f'{each}://' for each in SCHEMES)}, or a local or mounted directory",
            where=where,
        )
        return
    named = next((each for each in SCHEMES if project.target.storage.lower().startswith(f"{each}:")), None)
    if named is not None and (scheme is None or not is_known(project.target.storage)):
        yield Finding(
            code="HR834",
            what=f"the storage {project.target.storage} names no {_AUTHORITIES[named]}, so that only Spark would know "
            "where it lies",
            fix=f"name it: {named}://{_AUTHORITIES[named].upper()}/path",
            where=where,
        )
        return
    if (
        scheme == "s3a"
        and project.target.spark.get(OBJECT_STORE_PREFIX + CONDITIONAL_CREATION, "true").lower() != "true"
    ):
        yield Finding(
            code="HR837",
            what=f"the storage {project.target.storage} cannot keep one driver from writing over another: "
            f"{OBJECT_STORE_PREFIX}{CONDITIONAL_CREATION} is switched off",
            fix="leave that setting out; a store without conditional puts cannot hold the storage",
            where=project.target.at(OBJECT_STORE_PREFIX + CONDITIONAL_CREATION),
        )
    try:
        place = project.storage
        if isinstance(place, RemotePath):
            place.exists()
            place.require_conditional()
    except PlatformError as error:
        yield from (finding.but(where=where) for finding in error.findings)


def remote_paths(project: Project) -> Iterator[Finding]:
    """Each store is asked once for what is read or written, and once for Spark's log of a directory of files."""
    asked: set[tuple[str, bool]] = set()
    for whose, path, keeps_log, where in _paths(project):
        scheme = scheme_of(path)
        if (wrong := path_fault(path)) is not None:
            what = f"{whose} has the path {path}, which {wrong[0]}"
            yield Finding(code="HR834", what=what, fix=wrong[1], where=where)
            continue
        if scheme in _NAMESAKES and not _implemented(project, str(scheme)):
            yield Finding(
                code="HR838",
                what=f"{whose} has the path {path}, and Spark has no file system for {scheme}://",
                fix=f"write s3a://{path.partition('://')[2]}",
                where=where,
            )
        store = path.partition("://")[2].partition("/")[0]
        if scheme is None or not is_known(path) or (f"{scheme}://{store}", keeps_log) in asked:
            continue
        asked.add((f"{scheme}://{store}", keeps_log))
        try:
            place(path).exists()
        except PlatformError as error:
            for finding in error.findings:
                told = finding.but(what=f"{whose} has the path {path}: {finding.what}", where=where)
                # What Spark alone reads or writes there it may reach by ways that Headrace does not have, as Kerberos.
                yield told if keeps_log or finding.code not in _BY_OUR_CLIENT else replace(told, severity="warning")


def _paths(project: Project) -> Iterator[tuple[str, str, bool, Where]]:
    """Every path of a source or a sink, with whose it is, and whether Spark keeps a log of its files there."""
    for name, source in project.sources.items():
        yield from ((f"the source '{name}'", path, False, source.at(option)) for option, path in _of(source.connector))
    for name, query in project.queries.items():
        keeps_log = query.sink.facts.adds_files and not query.sink.facts.transactional
        whose = f"the sink of query '{name}'"
        yield from ((whose, path, keeps_log, query.sink_at(option)) for option, path in _of(query.sink))


def _of(connector: Any) -> Iterator[tuple[str, str]]:
    for option in path_options(connector):
        value = getattr(connector, option)
        yield from ((option, str(path)) for path in (value if isinstance(value, (list, tuple)) else [value]) if path)


def _implemented(project: Project, scheme: str) -> bool:
    """Whether somebody has told Hadoop of such a file system, or may have."""
    return f"spark.hadoop.fs.{scheme}.impl" in project.target.spark or "HADOOP_CONF_DIR" in os.environ


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
            where=project.target.at("storage"),
        )
    for name, source in project.sources.items():
        yield from _local_paths(project, source.connector, f"the source '{name}'", source.at, master)
    for name, query in project.queries.items():
        yield from _local_paths(project, query.sink, f"the sink of query '{name}'", query.sink_at, master)


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


def speculation(query: Query, *, speculative: bool, keeps_state: bool) -> Iterator[Finding]:
    """Whether Spark makes second attempts of tasks whose files of the state have the names of the first one's."""
    if keeps_state and speculative:
        yield Finding(
            code="HR841",
            what=f"query '{query.name}' keeps state, and spark.speculation is on: a second attempt of a task may "
            "replace the state that the result was made with",
            fix="set spark.speculation: false for this target, or do not collect in the order in which rows arrive",
            where=query.where,
        )


def _local_paths(
    project: Project, connector: Any, whose: str, at: Callable[[str], Where], master: str
) -> Iterator[Finding]:
    for option in path_options(connector):
        value = getattr(connector, option)
        for path in value if isinstance(value, (list, tuple)) else [value]:
            if path and _is_here(project, str(path)):
                yield Finding(
                    code="HR829",
                    what=f"{whose} has the {option} {path} on this machine, and executors of {master} run on others",
                    fix=_FIX,
                    where=at(option),
                )


def _is_here(project: Project, path: str) -> bool:
    """Whether a path is one of this machine alone."""
    if "://" in path and not path.startswith("file:"):
        return False
    plain = "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
    return not any(plain == each or plain.startswith(f"{each.rstrip('/')}/") for each in project.target.shared_paths)
