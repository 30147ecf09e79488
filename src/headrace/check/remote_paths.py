"""Whether the paths of sources and sinks that lie in a store can be reached, asked without a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headrace.contract import path_options
from headrace.errors import Finding, PlatformError, Where
from headrace.model import Project
from headrace.storage.location import is_known, place, scheme_of

# Names that others give to what Hadoop calls s3a://, and under which it has no file system of its own.
_NAMESAKES = ("s3", "s3n")
# It does not answer; its package is not installed; it refuses access.
_BY_OUR_CLIENT = ("HR831", "HR832", "HR833")


def remote_paths(project: Project) -> Iterator[Finding]:
    """Each store is asked once for what is read or written, and once for Spark's log of a directory of files."""
    asked: set[tuple[str, bool]] = set()
    for whose, path, keeps_log, where in _paths(project):
        scheme = scheme_of(path)
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
        yield from ((f"the source '{name}'", path, False, source.where) for path in _of(source.connector))
    for name, query in project.queries.items():
        keeps_log = query.sink.facts.adds_files and not query.sink.facts.transactional
        yield from ((f"the sink of query '{name}'", path, keeps_log, query.where) for path in _of(query.sink))


def _of(connector: Any) -> Iterator[str]:
    for option in path_options(connector):
        value = getattr(connector, option)
        yield from (str(path) for path in (value if isinstance(value, (list, tuple)) else [value]) if path)


def _implemented(project: Project, scheme: str) -> bool:
    """Whether somebody has told Hadoop of such a file system, or may have."""
    return f"spark.hadoop.fs.{scheme}.impl" in project.target.spark or "HADOOP_CONF_DIR" in os.environ
