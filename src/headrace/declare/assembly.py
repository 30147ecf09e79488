"""From declared things to the model, of a project or around one query: options judged, connectors built."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headrace import model, registry
from headrace.checks.change_data import bind_changes
from headrace.contract import Sink, object_options, path_options, without_values
from headrace.declare.declarations import (
    DECLARED,
    Declared,
    DeclaredCounter,
    DeclaredQuery,
    DeclaredSettings,
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    DeclaredTransform,
)
from headrace.declare.decorators import parse_trigger
from headrace.declare.option_values import OptionValueError, read_option
from headrace.declare.variables import NO_HOME, Variables, expand_home
from headrace.errors import Finding, PlatformError, ProjectError, Where, nearest
from headrace.generations.late_rows import late_names
from headrace.model import Trigger
from headrace.model.project import paths_of
from headrace.redaction import remember_settings
from headrace.storage.location import reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# What is declared of a source next to its connector, and of a query next to its sink.
COMMON_KEYS: Mapping[registry.ConnectorKind, tuple[str, ...]] = {
    "source": ("watermark", "renamed_from"),
    "sink": ("mode", "trigger", "on_change", "renamed_from", "restart", "state_budget", "late", "delete_when"),
}


@dataclass(kw_only=True)
class Assembly:
    """Builds the model's things for one project and collects every fault met on the way.

    modules: the project's own, in which texts `module:name` are looked up. late: the sinks of late rows, by the
    queries that drop them.
    """

    root: Path
    variables: Variables
    modules: Sequence[ModuleType] = ()
    findings: list[Finding] = field(default_factory=list)
    sources: dict[str, model.NamedSource] = field(default_factory=dict)
    tables: dict[str, model.Table] = field(default_factory=dict)
    views: dict[str, model.View] = field(default_factory=dict)
    counters: dict[str, model.Counter] = field(default_factory=dict)
    late: dict[str, tuple[DeclaredSink, Sink]] = field(default_factory=dict)

    def take(self, name: str, declared: Declared) -> None:
        """Build what is declared under a name, except queries; a source whose connector has faults is left out."""
        where = declared.where
        if isinstance(declared, DeclaredSource):
            connector = self._connector("source", declared)
            if connector is not None:
                self.sources[name] = model.NamedSource(
                    name=name,
                    kind=declared.kind,
                    connector=connector,
                    watermark=declared.watermark,
                    where=where,
                    renamed_from=declared.renamed_from,
                    lines=declared.lines,
                )
        elif isinstance(declared, DeclaredTable):
            rows, refresh, broadcast = transform(declared), declared.refresh, declared.broadcast
            self.tables[name] = model.Table(
                name=name, transform=rows, refresh=refresh, where=where, broadcast=broadcast
            )
        elif isinstance(declared, DeclaredCounter):
            self.counters[name] = model.Counter(name=name, zero=declared.zero, param=declared.param, where=where)
        else:
            self.views[name] = model.View(name=name, transform=transform(declared), where=where)

    def query(self, declared: DeclaredSettings, rows: model.Transform | None) -> model.Query | None:
        """Build the query whose result `rows` computes; None when that or its sink has faults."""
        sink = self._connector("sink", declared.sink) if declared.sink else None
        late = self._connector("sink", declared.late) if declared.late else None
        if declared.late is not None and late is not None:
            self.late[declared.name] = declared.late, late
        if declared.sink is None or sink is None or rows is None:
            return None
        settings = {setting.name: getattr(declared, setting.name) for setting in fields(model.QuerySettings)}
        return model.Query(
            **settings,
            transform=rows,
            sink=sink,
            sink_kind=declared.sink.kind,
            late=None if late is None else late_names(declared.name)[0],
            sink_where=declared.sink.where,
            sink_lines=declared.sink.lines,
        )

    def project(
        self, name: str, queries: Mapping[str, model.Query], target: model.Target | None = None
    ) -> model.Project:
        """Build the project of these queries and of what was taken."""
        project = model.Project(
            name=name,
            root=self.root,
            target=target or model.Target(),
            sources=self.sources,
            tables=self.tables,
            views=self.views,
            counters=self.counters,
            queries=queries,
            secrets=dict(self.variables.secrets),
            secret_files=tuple(self.variables.secret_files),
            modules=tuple(self.modules),
        )
        connectors = (
            *(source.connector for source in self.sources.values()),
            *(query.sink for query in queries.values()),
        )
        paths = (path for connector in connectors for _, path in paths_of(connector))
        reach(paths, project.target.spark)
        return bind_changes(project)

    def _connector(self, kind: registry.ConnectorKind, declared: DeclaredSource | DeclaredSink) -> Any | None:
        options = dict(declared.options)
        options.update(self._by_position(kind, declared))
        unresolved: dict[str, list[Finding]] = {}
        for option, value in options.items():
            faults: list[Finding] = []
            options[option] = self.variables.expand(value, declared.lines.get(option, declared.where), faults)
            if faults:
                unresolved[option] = faults
        remember_settings(options)
        lacking = [fault for faults in unresolved.values() for fault in faults]
        may_lack = self.variables.may_lack
        self.findings.extend(() if may_lack else lacking)
        built, faults = build(
            kind, declared.kind, options, declared.where, lines=declared.lines, unresolved=unresolved, may_lack=may_lack
        )
        self.findings.extend(faults)
        if built is None:
            return None
        try:
            built = with_objects(with_absolute_paths(built, self.root), self.modules)
        except ValueError as error:
            message = f"the {kind} '{declared.kind}': {error}"
            self.findings.append(Finding(code="HR113", what=message, fix=NO_HOME, where=declared.where))
            return None
        return without_values(built, lacking) if lacking else built

    def _by_position(self, kind: registry.ConnectorKind, declared: DeclaredSource | DeclaredSink) -> Mapping[str, Any]:
        if not declared.arguments or declared.kind not in registry.list_names(kind):
            return {}
        names = registry.option_names(kind, declared.kind)
        clash = [name for name in names[: len(declared.arguments)] if name in declared.options]
        whose = f"the {kind} '{declared.kind}'"
        if len(declared.arguments) > 1 or clash:
            message = f"{whose} is given '{clash[0]}' twice" if clash else f"{whose} takes one option by position"
            fix = f"name the options: {', '.join(names)}"
            self.findings.append(Finding(code="HR103", what=message, fix=fix, where=declared.where))
        return {name: value for name, value in zip(names[:1], declared.arguments, strict=False) if name not in clash}


def build(
    kind: registry.ConnectorKind,
    name: str,
    options: Mapping[str, Any],
    where: Where,
    *,
    lines: Mapping[str, Where] | None = None,
    unresolved: Collection[str] = (),
    may_lack: bool = False,
) -> tuple[Any | None, list[Finding]]:
    """Build the connector that `options` describe; nothing of the connector is run.

    No finding repeats a value; it may be secret.

    Args:
        kind: Whether it is a source or a sink.
        name: The connector's name.
        options: The values as they were written.
        where: Where it is declared.
        lines: Where single options stand, if that is known.
        unresolved: Options that were given but whose values are not known, so that they are not reported as missing.
        may_lack: Whether unresolved options stay as they are written.

    Returns:
        The connector, or None, and every fault.
    """
    if (unknown := unknown_connector(kind, name, where)) is not None:
        return None, [unknown]
    try:
        cls = registry.connector(kind, name)
    except PlatformError as error:
        return None, [finding.reword(where=where) for finding in error.findings]
    whose, names, lines = f"the {kind} '{name}'", registry.options_of(cls), lines or {}
    findings = unknown_options(kind, name, options, where, lines)
    # A missing option that a misspelt one was meant for is reported with that one alone.
    meant = " ".join(finding.fix for finding in findings if finding.fix.startswith("did you mean"))
    missing = [option for option in registry.required_options(cls) if option not in options]
    for option in missing:
        if option not in unresolved and f"'{option}'" not in meant:
            message = f"{whose} lacks its option '{option}'"
            fix = f"give '{option}'; the options are {', '.join(names)}"
            findings.append(Finding(code="HR112", what=message, fix=fix, where=lines.get(option, where)))
    values, wrong = {}, False
    for option in [option for option in options if option in names]:
        try:
            values[option] = read_option(cls, option, options[option])
        except OptionValueError as error:
            if may_lack and option in unresolved:
                values[option] = options[option]
                continue
            wrong = True
            if option not in unresolved:
                message = f"{whose}: option '{option}' takes {error}"
                findings.append(Finding(code="HR113", what=message, fix=error.fix, where=lines.get(option, where)))
    if missing or wrong:
        return None, findings
    try:
        built = cls(**values)
    except ValueError as error:
        fix = "correct the options that are named"
        return None, [*findings, Finding(code="HR113", what=f"{whose}: {error}", fix=fix, where=where)]
    return (None if findings or (unresolved and not may_lack) else built), findings


def unknown_connector(kind: registry.ConnectorKind, name: str, where: Where) -> Finding | None:
    """Return the finding that there is no connector of this name; None if there is."""
    kinds = registry.list_names(kind)
    if name in kinds:
        return None
    fix = nearest(name, kinds)
    opposite: registry.ConnectorKind = "sink" if kind == "source" else "source"
    if name in registry.list_names(opposite):
        fix = f"'{name}' is a {opposite}; a {kind} is one of {', '.join(kinds)}"
    return Finding(code="HR103", what=f"there is no {kind} '{name}'", fix=fix, where=where)


def unknown_options(
    kind: registry.ConnectorKind, name: str, options: Iterable[str], where: Where, lines: Mapping[str, Where]
) -> list[Finding]:
    """Return a finding for each of `options` that the connector does not have, at its own line.

    lines: of a file in which keys that are not the connector's stand next to it.
    """
    names = registry.option_names(kind, name)
    # Without lines it is Python, where they are arguments of the same call, or of the query's decorator.
    if kind == "source":
        how = "write {0} one level higher, next to {1}:" if lines else "did you mean '{0}'?"
    else:
        how = "write {0} next to sink:" if lines else "give {0} to @hr.query: @hr.query(sink=..., {0}=...)"
    elsewhere = {key: how.format(key, name) for key in COMMON_KEYS[kind]}
    return [
        Finding(
            code="HR103",
            what=f"the {kind} '{name}' has no option '{option}'",
            fix=nearest(option, names, elsewhere=elsewhere),
            where=lines.get(option, where),
        )
        for option in options
        if option not in names
    ]


def with_absolute_paths(connector: Any, root: Path) -> Any:
    """Return `connector` with its relative local paths, the options of the type ProjectPath, resolved against `root`.

    Raises:
        ValueError: A path begins with the home of an unknown user.
    """
    changes = {name: _absolute(getattr(connector, name), root) for name in path_options(connector)}
    changes = {name: path for name, path in changes.items() if path != getattr(connector, name)}
    return replace(connector, **changes) if changes else connector


def _absolute(value: Any, root: Path) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_absolute(item, root) for item in value)
    if isinstance(value, Path):
        return root / expand_home(value)
    if not isinstance(value, str) or not value or "://" in value or value.startswith(("file:", ":memory:")):
        return value
    return os.path.normpath(root / expand_home(value))


def with_objects(connector: Any, modules: Sequence[ModuleType]) -> Any:
    """Return `connector` with the objects that its texts `module:name` name, in options of the type ProjectObject.

    A text that names nothing stays, for the connector to report.
    """
    given = {name: getattr(connector, name) for name in object_options(connector)}
    objects = {name: _look_up(text, modules) for name, text in given.items() if isinstance(text, str)}
    return replace(connector, **objects) if objects else connector


def _look_up(text: str, modules: Sequence[ModuleType]) -> Any:
    module_name, _, name = text.partition(":")
    own = {re.sub(r"^headrace_project_\d+_", "", module.__name__): module for module in modules}
    try:
        value: Any = own[module_name] if module_name in own else import_module(module_name)
        for part in name.split("."):
            value = getattr(value, part)
    except Exception:  # whatever an import may raise
        return text
    return value


def transform(declared: DeclaredTransform[..., Any]) -> model.PythonTransform:
    """Return the body of a decorated function."""
    return model.PythonTransform(
        function=declared.function,
        inputs=declared.inputs,
        wants_spark=declared.wants_spark,
        where=declared.where,
    )


def project_of(
    declared: DeclaredQuery[..., Any], *, root: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> model.Project:
    """Build the small project around one query: what it reads, by the names where its functions were written.

    An input that is not there is left for the structural check to report.

    Raises:
        ProjectError: The declarations have faults; the error has all of them.
    """
    home = Path(root or Path.cwd()).resolve()
    assembly = Assembly(root=home, variables=Variables.of(home, environ))
    waiting: list[tuple[str, DeclaredTransform[..., Any]]] = [(name, declared) for name in declared.inputs]
    seen: set[str] = set()
    while waiting:
        name, asking = waiting.pop(0)
        thing = asking.in_sight(name)
        if name in seen or not isinstance(thing, DECLARED) or isinstance(thing, DeclaredQuery):
            continue
        seen.add(name)
        assembly.take(name, thing)
        if isinstance(thing, DeclaredTransform):
            waiting.extend((wanted, thing) for wanted in thing.inputs)
    query = assembly.query(declared, transform(declared))
    if query is None or assembly.findings:
        raise ProjectError.of_all(assembly.findings)
    return assembly.project(declared.name, {query.name: query})


def set_starter(start: Callable[..., StreamingQuery]) -> None:
    """Say how to run: `start(project, query, spark, trigger=trigger)`, which only an outer room knows."""

    def start_declared(
        declared: DeclaredQuery[..., Any],
        spark: SparkSession,
        *,
        trigger: Trigger | str | None = None,
        root: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> StreamingQuery:
        project = project_of(declared, root=root, environ=environ)
        wanted = parse_trigger(trigger) if isinstance(trigger, str) else trigger
        return start(project, project.queries[declared.name], spark, trigger=wanted)

    DeclaredQuery.starter = start_declared
