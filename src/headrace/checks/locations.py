"""Where a project's files lie: its storage, the paths of its ends, those that two claim or only the driver has."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from headrace.cluster.connection import is_elsewhere
from headrace.contract import Connector, Identity, same_place
from headrace.contract.identity import canonical_path, describe_identity
from headrace.errors import Finding, PlatformError, Where
from headrace.model import NamedSource, Project, Query
from headrace.model.project import paths_of
from headrace.spark.jvm.settings import CONDITIONAL_CREATION, OBJECT_STORE_PREFIX, default_master
from headrace.storage.location import is_known, path_fault, place, scheme_of
from headrace.storage.remote import at
from headrace.storage.store import SCHEMES, StoreNotAsked

_AUTHORITIES = {"hdfs": "host", "s3a": "bucket"}
# Names that others give to what Hadoop calls s3a://, and under which it has no file system of its own.
_NAMESAKES = ("s3", "s3n")
# What is kept lies in directories of these names.
NAME = re.compile(r"[A-Za-z0-9_]+\Z")
# On a cluster of the same machine, executors see the paths that the driver sees.
_FIX = "name a path that all machines see, such as hdfs:// or s3a://; or declare a mounted directory: shared_paths"


def check_storage(project: Project) -> Iterator[Finding]:
    """Report remote storage of an unknown kind, that cannot be reached, or that two drivers could share."""
    where = project.target.at("storage")
    if (wrong := _storage_fault(project.target.storage)) is not None:
        problem = f"the storage {project.target.storage} {wrong[0]}"
        yield Finding(code="HR834", what=problem, fix=wrong[1], where=where)
        return
    conditional = project.target.spark.get(OBJECT_STORE_PREFIX + CONDITIONAL_CREATION, "true").lower() == "true"
    if scheme_of(project.target.storage) == "s3a" and not conditional:
        yield Finding(
            code="HR837",
            what=f"the storage {project.target.storage} cannot keep one driver from writing over another: "
            f"{OBJECT_STORE_PREFIX}{CONDITIONAL_CREATION} is switched off",
            fix="leave that setting out; a store without conditional puts cannot hold the storage",
            where=project.target.at(OBJECT_STORE_PREFIX + CONDITIONAL_CREATION),
        )
    try:
        store, inside = at(project.storage)
        if not store.is_local:
            project.storage.exists()
            store.require_conditional(inside)
    except PlatformError as error:
        yield from (finding.reword(where=where) for finding in error.findings)


def check_permissions(project: Project, *, storage: bool) -> Iterator[Finding]:
    """Report secrets that every user of this machine may read and, with `storage`, a storage that all may write."""
    for name in project.secret_files:
        if _is_open(project.root / Path(name).expanduser(), 0o004):
            problem = f"every user of this machine may read {name}, which holds a secret"
            yield Finding(code="HR141", what=problem, fix=f"chmod o-rwx {quote(name)}", where=Where(file=name))
    if storage and _is_open(project.local_storage, 0o002):
        problem = (
            f"every user of this machine may write into the storage {project.local_storage}, and so change results"
        )
        fix = f"chmod o-rwx {quote(str(project.local_storage))}, or name a directory of your own as `storage`"
        yield Finding(code="HR141", what=problem, fix=fix, where=project.target.at("storage"))


def _is_open(path: Path, bits: int) -> bool:
    """Whether others have one of these rights to a file or directory of this machine, and can reach it."""
    with suppress(OSError):
        real = path.resolve()
        return bool(real.stat().st_mode & bits) and all(parent.stat().st_mode & 0o001 for parent in real.parents)
    return False


def _storage_fault(storage: str) -> tuple[str, str] | None:
    """Return what is wrong with the text that names the storage, as a predicate, and what to do."""
    if (wrong := path_fault(storage)) is not None:
        return wrong
    scheme = scheme_of(storage)
    if scheme is not None and scheme not in SCHEMES:
        problem = f"is on {scheme}://, of which Headrace does not know that a file there is whole and written once"
        return (
            problem,
            f"name a path on {' or '.join(f'{name}://' for name in SCHEMES)}, or a local or mounted directory",
        )
    named = next((known_scheme for known_scheme in SCHEMES if storage.lower().startswith(f"{known_scheme}:")), None)
    if named is not None and (scheme is None or not is_known(storage)):
        problem = f"names no {_AUTHORITIES[named]}, so that only Spark would know where it lies"
        return problem, f"name it: {named}://{_AUTHORITIES[named].upper()}/path"
    return None


def check_remote_paths(project: Project) -> Iterator[Finding]:
    """Report remote paths that cannot be used; each store is asked once for data, and once for Spark's log of files."""
    asked: set[tuple[str, bool]] = set()
    for named_path in _named_paths(project):
        scheme = scheme_of(named_path.path)
        if (wrong := path_fault(named_path.path)) is not None:
            problem = f"{named_path.whose} has the path {named_path.path}, which {wrong[0]}"
            yield Finding(code="HR834", what=problem, fix=wrong[1], where=named_path.where)
            continue
        # Hadoop may be configured with such a file system.
        is_configured = f"spark.hadoop.fs.{scheme}.impl" in project.target.spark or "HADOOP_CONF_DIR" in os.environ
        if scheme in _NAMESAKES and not is_configured:
            yield Finding(
                code="HR838",
                what=f"{named_path.whose} has the path {named_path.path}, and Spark has no file system for {scheme}://",
                fix=f"write s3a://{named_path.path.partition('://')[2]}",
                where=named_path.where,
            )
        store = named_path.path.partition("://")[2].partition("/")[0]
        if scheme is None or not is_known(named_path.path) or (f"{scheme}://{store}", named_path.keeps_log) in asked:
            continue
        asked.add((f"{scheme}://{store}", named_path.keeps_log))
        try:
            place(named_path.path).exists()
        except PlatformError as error:
            # Spark may reach its own data there in ways that Headrace does not have, such as Kerberos.
            may_reach = isinstance(error, StoreNotAsked) and not named_path.keeps_log
            for finding in error.findings:
                named = finding.reword(
                    what=f"{named_path.whose} has the path {named_path.path}: {finding.what}", where=named_path.where
                )
                yield named.with_severity("warning") if may_reach else named


class _NamedPath(NamedTuple):
    """A path of a source or a sink: whose it is, by which option, and whether Spark keeps a log of its files there."""

    whose: str
    option: str
    path: str
    keeps_log: bool
    where: Where


def _named_paths(project: Project) -> Iterator[_NamedPath]:
    for name, source in project.sources.items():
        for option, path in paths_of(source.connector):
            yield _NamedPath(f"the source '{name}'", option, path, False, source.at(option))
    for name, query in project.queries.items():
        keeps_log = query.sink.facts.adds_files and not query.sink.facts.transactional
        for option, path in paths_of(query.sink):
            yield _NamedPath(f"the sink of query '{name}'", option, path, keeps_log, query.sink_at(option))


def check_cluster_paths(project: Project) -> Iterator[Finding]:
    """Report local paths of a project whose master is on another machine."""
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
    for named_path in _named_paths(project):
        if _is_here(project, named_path.path):
            there = f"{named_path.option} {named_path.path} on this machine, and executors of {master} run on others"
            yield Finding(code="HR829", what=f"{named_path.whose} has the {there}", fix=_FIX, where=named_path.where)


def check_state_partitions(query: Query, *, partitions: int, cores: int, keeps_state: bool) -> Iterator[Finding]:
    """Report cores of a cluster that have no part of a query's state to work on."""
    if keeps_state and partitions < cores:
        yield query.finding(
            "HR830",
            f"keeps its state in {partitions} partitions, and the cluster has {cores} cores: "
            f"{cores - partitions} have nothing to do",
            f"headrace state repartition {query.name} {cores}; a new checkpoint gets one for each core",
        )


def check_speculation(query: Query, *, speculative: bool, keeps_state: bool) -> Iterator[Finding]:
    """Report speculation, whose second attempt of a task writes its state under the names of the first one's files."""
    if keeps_state and speculative:
        yield query.finding(
            "HR841",
            "keeps state, and spark.speculation is on: a second attempt of a task may "
            "replace the state that the result was made with",
            "set spark.speculation: false for this target, or do not collect in the order in which rows arrive",
        )


def _is_here(project: Project, path: str) -> bool:
    """Whether a path is one of this machine alone."""
    if "://" in path and not path.startswith("file:"):
        return False
    plain = "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path
    return not any(
        plain == shared or plain.startswith(f"{shared.rstrip('/')}/") for shared in project.target.shared_paths
    )


def find_conflicts(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """Yield the conflicts between queries, each with the queries that it keeps from running."""
    yield from _find_shared_places(project)
    yield from _find_loops(project)


def _find_shared_places(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """Yield queries whose sinks write to one place, in any spelling; many may share a console."""
    near: dict[str, list[tuple[Query, Identity | None]]] = defaultdict(list)
    for query in project.queries.values():
        if not query.sink.facts.durable:
            continue
        identity = query.sink.identity()
        neighbours = near[_bucket_of(query, identity)]
        for other, of_other in neighbours:
            same = query.sink == other.sink
            shared = all(writer.sink.facts.shares_appends and writer.mode == "append" for writer in (query, other))
            if (not same and not is_same_place(identity, of_other)) or shared:
                continue
            facts = query.sink.facts
            finding = Finding(
                code="HR259",
                what=f"queries '{other.name}' and '{query.name}' write to the same place"
                + ("" if same or identity is None else f", {describe_identity(identity)}"),
                fix="give each a place of its own, or union their inputs in one query",
                where=query.where,
                # Messages of a topic are only added, and its readers may distinguish them.
                severity="error" if same or facts.transactional or facts.idempotent else "warning",
            )
            yield frozenset({query.name, other.name}), finding
            break
        neighbours.append((query, identity))


def _bucket_of(query: Query, identity: Identity | None) -> str:
    """Return what sinks of one place have in common, so that not every pair of a project's queries is compared."""
    if identity is None:
        return query.sink_kind
    return str(identity["path"] if "path" in identity else identity["system"])


def is_same_place(one: Identity | None, other: Identity | None) -> bool:
    """Whether two connectors are known to read or write the same thing."""
    return one is not None and other is not None and same_place(one, other)


def _find_loops(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """Yield queries that read, through tables of the catalog, what they write themselves."""
    for name, query in project.queries.items():
        written = _directory(query.sink)
        for source in project.sources_of(query):
            read = _directory(source.connector)
            if written is not None and read is not None and (written == read or read in written.parents):
                problem = f"writes to {query.sink.project_path}, which its source '{source.name}' reads"
                fix = "let it write to a directory next to the source's"
                yield frozenset({name}), query.finding("HR267", problem, fix)
        above: dict[str, Query] = {}
        queue = [query]
        while queue:
            for writer in project.writers_for(queue.pop()):
                if writer.name not in above:
                    above[writer.name] = writer
                    queue.append(writer)
        if name in above:
            ways = [other for other in above if other != name]
            problem = "reads what it writes" + (f", by way of {', '.join(ways)}" if ways else "")
            fix = "read from another table than the queries below it write"
            yield frozenset({name}), query.finding("HR267", problem, fix)


def _directory(connector: Connector) -> Path | None:
    """Return the path that a connector reads or writes, in one spelling, if it has one that is not a pattern."""
    path = connector.project_path
    if not path or any(sign in path for sign in "*?[{"):
        return None
    return Path(canonical_path(path))


def check_renames(project: Project) -> Iterator[tuple[frozenset[str], Finding]]:
    """Yield the faults of `renamed_from`, each with the queries that it keeps from running."""
    for query in project.queries.values():
        for finding in _find_rename_faults(query, project.queries):
            yield frozenset({query.name}), finding
    readers = defaultdict(set)
    for query in project.queries.values():
        for source in project.sources_of(query):
            readers[source.name].add(query.name)
    for source in project.sources.values():
        for finding in _find_rename_faults(source, project.sources):
            yield frozenset(readers[source.name]), finding


def _find_rename_faults(thing: Query | NamedSource, declared: Mapping[str, Query | NamedSource]) -> Iterator[Finding]:
    word = thing.word
    for former in dict.fromkeys(thing.renamed_from):
        twin = next(
            (
                candidate
                for candidate in declared.values()
                if candidate is not thing and former in candidate.renamed_from
            ),
            None,
        )
        if NAME.match(former) is None:
            problem, fix = f"is renamed from '{former}', which is not a valid name", "write the name that it had before"
        elif former == thing.name:
            problem, fix = "is renamed from itself", "write the name that it had before, or leave the key out"
        elif former in declared and thing.name in declared[former].renamed_from:
            problem = f"and {word} '{former}' are renamed into each other, and neither name is free for the other"
            fix = "give one of them a third name first, run both, and then the name that is free"
        elif former in declared:
            problem = f"is renamed from '{former}', which is declared as well: one checkpoint has one {word}"
            fix = f"remove '{former}'; or remove renamed_from, if '{thing.name}' is another one or was renamed already"
        elif twin is not None:
            problem = f"and {word} '{twin.name}' are both renamed from '{former}': one checkpoint has one {word}"
            fix = "remove renamed_from at one of the two, which then starts from scratch"
        else:
            continue
        yield thing.finding("HR113", problem, fix)
