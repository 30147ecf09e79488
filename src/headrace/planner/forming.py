"""The form of a query as it is written now: its plan in the normal form, its Python code, and its ends."""

from __future__ import annotations

import glob
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headrace.checkpoint.sources import SourceNames, source_of
from headrace.generations.manifest import QueryForm
from headrace.model import Project, PythonTransform, Query, Table
from headrace.planner.change_data import change_facts
from headrace.planner.code.meaning import libraries_in, read_meaning
from headrace.planner.code.objects import BY_SESSION
from headrace.planner.code.values import digest_of
from headrace.planner.ends import TIME_ZONE, sink_facts, source_facts, without_root
from headrace.planner.normal import normalise
from headrace.redaction import SECRET_NAME
from headrace.spark.plans.analysed import parse_text
from headrace.spark.plans.plan_json import Node, PlanTree, StaticInput, plan_tree
from headrace.spark.plans.python_functions import data_source, functions
from headrace.spark.plans.source_uses import with_source_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Settings of a session by which the same expression means something else.
_SETTINGS = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.execution.pandas.convertToArrowArraySafely",
    "spark.sql.execution.pandas.structHandlingMode",
    "spark.sql.execution.pythonUDF.arrow.enabled",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.jsonGenerator.ignoreNullFields",
    "spark.sql.legacy.castComplexTypesToString.enabled",
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName",
    "spark.sql.legacy.json.allowEmptyString.enabled",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.legacy.statisticalAggregate",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.int96RebaseModeInRead",
)
_TIMES = ("timestamp", "date")


def form_of(
    project: Project,
    query: Query,
    frame: DataFrame,
    *,
    salt: str,
    streams: Mapping[str, DataFrame],
    names: SourceNames | None = None,
) -> QueryForm:
    """Return the form of `query`, whose streaming result is `frame`.

    salt: what its secrets are hashed with. streams: what the connectors gave for its sources. names: of its sources,
    which the form has by those of Spark; None: none was renamed.
    """
    sources = project.sources_of(query)
    names = names or SourceNames.same(*(source.name for source in sources))
    # What a connector puts on a source is not the query's.
    plan = with_source_leaves(frame, streams, lambda use: source_of(names.now(use)))
    tree = plan_tree(frame.sparkSession, plan)
    code = _Code(project, plan, salt, tree)
    static = _Inputs(project, query, code, frame.sparkSession).text
    form = normalise(tree, complete=query.mode == "complete", python=code.name_expression, static=static)
    pieces, record = _digest_pieces(project, query, salt=salt), code.record_function
    return replace(
        form,
        python=code.records,
        sources={names.in_spark(source.name): source_facts(project, source, record) for source in sources},
        sink=sink_facts(project, query, record),
        changes=change_facts(project, query),
        mode=query.mode,
        settings=read_settings(
            frame.sparkSession, (*_SETTINGS, *([TIME_ZONE] if any(map(_has_time, _all_nodes(tree.root))) else []))
        ),
        declared=hashlib.sha256("\n".join(pieces.values()).encode()).hexdigest()[:16],
        pieces=pieces,
        spark=frame.sparkSession.version,
        packages=code.packages(),
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
    )


class _Code:
    """The Python functions of one plan: each is known by the digest of its meaning."""

    def __init__(self, project: Project, plan: Any, salt: str, tree: PlanTree) -> None:
        named = (node for node in _all_nodes(tree.root) if node.name == "NamedArgumentExpression")
        self._keywords = {str(node.arguments["key"]) for node in named}
        self.records: dict[str, Any] = {}
        self._project = project
        self._salt = salt
        self._functions = functions(plan)

    def name_expression(self, identity: int, name: str) -> str:
        """Return the name for the function of an expression."""
        function = self._functions.get(identity)
        if function is None:
            return f"python {name}"
        eval_type = BY_SESSION.get(function.eval_type, function.eval_type)
        return self.record_function(function.function, f"{eval_type} {function.return_type}")

    def record_function(self, function: Any, further: str = "", *, files: bool = True) -> str:
        """Record the meaning of `function`, with the content of the `files` that it opens, and return a name for it."""
        record = read_meaning(
            function, owned=partial(_is_owned, self._project), salt=self._salt, keywords=self._keywords, files=files
        )
        digest = hashlib.sha256(f"{record['digest']} {further}".encode()).hexdigest()[:12]
        self.records[f"python {digest}"] = record
        return f"python {digest}"

    def packages(self) -> dict[str, str]:
        """Return the versions of the installed packages that the functions use."""
        tops = {name.partition(".")[0] for record in self.records.values() for name in libraries_in(record)}
        tops -= {*sys.stdlib_module_names, "pyspark", "headrace"}
        names = {name for top in tops for name in _distributions().get(top, ())}
        return {name: version(name) for name in sorted(names)}


@dataclass(frozen=True, kw_only=True)
class DeclaredCode:
    """Digests of the code of a query, under no name, and of what feeds it, and what they are salted with.

    form: the digest of the form that the query has started with; empty: it has none, or has not started.
    """

    salt: str
    pieces: Mapping[str, str]
    form: str = field(default="", compare=False)

    @classmethod
    def of(cls, project: Project, query: Query, *, salt: str = "") -> DeclaredCode:
        """Return the digests of the code as it is written now."""
        return cls(salt=salt, pieces=_digest_pieces(project, query, salt=salt))


def _digest_pieces(project: Project, query: Query, *, salt: str) -> dict[str, str]:
    things = {thing.name: thing for thing in project.upstream(query.transform) if hasattr(thing, "transform")}
    return {name: _digest_piece(project, thing, salt) for name, thing in {"": query, **things}.items()}


def _digest_piece(project: Project, thing: Any, salt: str) -> str:
    transform, refreshed = thing.transform, isinstance(thing, Table) and bool(thing.refresh)
    if isinstance(transform, PythonTransform):
        owned = partial(_is_owned, project)
        record = read_meaning(transform.function, owned=owned, salt=salt, files=not refreshed)
        return str(record["digest"])[:16]
    bare = " ".join(re.sub(r"--[^\n]*|/\*.*?\*/", " ", transform.sql, flags=re.DOTALL).split())
    return hashlib.sha256(bare.encode()).hexdigest()[:16]


def _is_owned(project: Project, module: ModuleType) -> bool:
    """Whether the code of a module is followed: the project's, and that of helpers that are not installed."""
    return module in project.modules or _is_followed(getattr(module, "__file__", None), module.__name__)


@cache
def _is_followed(file: str | None, name: str) -> bool:
    if not file or name.partition(".")[0] in ("headrace", "pyspark", "py4j"):
        return False
    path = Path(file).resolve()
    if {"site-packages", "dist-packages"} & {*path.parts}:
        return False
    return not any(path.is_relative_to(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))


_distributions = cache(packages_distributions)


class _Inputs:
    """What stands for the bounded inputs of one plan."""

    def __init__(self, project: Project, query: Query, code: _Code, spark: SparkSession) -> None:
        self._project = project
        self._spark = spark
        self._code = code
        self._tables = [thing for thing in project.upstream(query.transform) if isinstance(thing, Table)]

    def text(self, static: StaticInput) -> str:
        """Return a bounded input by what it holds."""
        if static.rows is not None:
            return f"table of {static.rows}"
        if static.kind == "rdd":
            functions = [
                self._code.record_function(table.transform.function)
                for table in self._tables
                if isinstance(table.transform, PythonTransform)
            ]
            named = (pattern for path in static.paths for pattern in path.split(","))
            paths = [path for pattern in named for path in glob.glob(_local_path(pattern))]
            holding = f" holding {digest_of(paths)}" if paths else ""
            return f"table of an RDD {', '.join(map(self._within, static.paths))}{holding} by {', '.join(functions)}"
        if not static.paths:
            if not static.source:
                return f"table {static.kind}"
            plain = {key: value for key, value in static.options.items() if not SECRET_NAME.search(key)}
            given = ", ".join(f"{key}={without_root(self._project, value)}" for key, value in sorted(plain.items()))
            reader = self._code.record_function(data_source(self._spark, static.source))
            return f"table {static.kind} given [{given}] by {reader}"
        for table in self._tables:
            version_of = re.compile(rf"/queries/[\w-]+/g\d+\.\d+/tables/{re.escape(table.name)}/\d+$")
            if table.refresh and any(map(version_of.search, static.paths)):  # It is recomputed while the query runs.
                return f"refreshed table {table.name} made by {self._definition(table)}"
        options = ", ".join(f"{key}={value}" for key, value in sorted(static.options.items()))
        return (
            f"table of {static.kind} {', '.join(map(self._within, static.paths))} "
            f"[{options}] holding {digest_of(map(_local_path, static.paths))}"
        )

    def _definition(self, table: Table) -> str:
        """Return what computes a refreshed table; its rows are no part of what a query means."""
        upstream = [thing.transform for thing in self._project.upstream(table.transform) if hasattr(thing, "transform")]
        names = []
        for transform in (table.transform, *upstream):
            if isinstance(transform, PythonTransform):
                names.append(self._code.record_function(transform.function, files=False))
            else:
                parsed = parse_text(self._spark, transform.sql)
                names.append(f"SQL {hashlib.sha256(parsed.encode()).hexdigest()[:12]}")
        return ", ".join(names)

    def _within(self, path: str) -> str:
        return without_root(self._project, _local_path(path))


def _local_path(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)


def read_settings(spark: SparkSession, names: Iterable[str]) -> dict[str, str]:
    """Return settings of a session, defaults included; without those that this Spark does not know."""
    from pyspark.errors import PySparkException

    settings = {}
    for name in names:
        # With a default in the call, Spark would not return its own default.
        with suppress(PySparkException):
            settings[name] = str(spark.conf.get(name))
    return settings


def _has_time(node: Node) -> bool:
    """Whether the session's time zone may decide what an expression gives, or how a source reads a column."""
    return node.arguments.get("dataType") in _TIMES or (
        node.name not in ("Cast", "AttributeReference", "Literal") and node.arguments.get("timeZoneId") is not None
    )


def _all_nodes(value: Any) -> Iterator[Node]:
    """Yield every node of a plan, and of the expressions in it."""
    if isinstance(value, list):
        for part in value:
            yield from _all_nodes(part)
    elif isinstance(value, Node):
        yield value
        for part in (*value.children, *value.arguments.values()):
            yield from _all_nodes(part)
