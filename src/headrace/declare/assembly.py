"""From declared things to the model: variables filled in, connectors built, paths made absolute."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace import model, registry
from headrace.contract import object_options, path_options
from headrace.declare.declarations import (
    DECLARED,
    DeclaredCounter,
    DeclaredQuery,
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    DeclaredTransform,
    DeclaredView,
)
from headrace.declare.variables import Variables
from headrace.errors import Finding, ProjectError, Where
from headrace.redaction import remember_settings


@dataclass(kw_only=True)
class Assembly:
    """Builds the model's things for one project and collects every fault met on the way.

    modules: the project's own, in which texts `module:name` are looked up.
    """

    root: Path
    variables: Variables
    modules: Sequence[ModuleType] = ()
    findings: list[Finding] = field(default_factory=list)

    def source(self, name: str, declared: DeclaredSource) -> model.Source | None:
        """The source, or None when its connector has faults."""
        connector = self._connector("source", declared)
        if connector is None:
            return None
        return model.Source(
            name=name,
            kind=declared.kind,
            connector=connector,
            watermark=declared.watermark,
            where=declared.where,
            renamed_from=declared.renamed_from,
            lines=declared.lines,
        )

    def sink(self, declared: DeclaredSink) -> Any | None:
        """The sink's connector, or None when it has faults."""
        return self._connector("sink", declared)

    def query(self, name: str, declared: DeclaredQuery) -> model.Query | None:
        """The query, or None when its sink has faults."""
        sink = self.sink(declared.sink) if declared.sink else None
        if declared.sink is None or sink is None:
            return None
        return model.Query(
            name=name,
            transform=transform(declared),
            sink=sink,
            sink_kind=declared.sink.kind,
            mode=declared.mode,
            trigger=declared.trigger,
            where=declared.where,
            description=declared.description,
            on_change=declared.on_change,
            renamed_from=declared.renamed_from,
            restart=declared.restart,
            state_budget_bytes=declared.state_budget_bytes,
            sink_where=declared.sink.where,
            sink_lines=declared.sink.lines,
        )

    def _connector(self, kind: registry.ConnectorKind, declared: DeclaredSource | DeclaredSink) -> Any | None:
        options = dict(declared.options)
        options.update(self._by_position(kind, declared))
        unresolved = set()
        for option, value in options.items():
            before = len(self.findings)
            options[option] = self.variables.expand(value, declared.lines.get(option, declared.where), self.findings)
            if len(self.findings) > before:
                unresolved.add(option)
        remember_settings(options)
        built, faults = registry.build(
            kind, declared.kind, options, declared.where, lines=declared.lines, unresolved=unresolved
        )
        self.findings.extend(faults)
        return None if built is None else with_objects(absolute(built, self.root), self.modules)

    def _by_position(self, kind: registry.ConnectorKind, declared: DeclaredSource | DeclaredSink) -> Mapping[str, Any]:
        if not declared.arguments or declared.kind not in registry.known(kind):
            return {}
        names = registry.option_names(kind, declared.kind)
        clash = [name for name in names[: len(declared.arguments)] if name in declared.options]
        whose = f"the {kind} '{declared.kind}'"
        if len(declared.arguments) > 1 or clash:
            what = f"{whose} is given '{clash[0]}' twice" if clash else f"{whose} takes one option by position"
            fix = f"name the options: {', '.join(names)}"
            self.findings.append(Finding(code="HR111", what=what, fix=fix, where=declared.where))
        return {name: value for name, value in zip(names[:1], declared.arguments, strict=False) if name not in clash}


def absolute(connector: Any, root: Path) -> Any:
    """`connector` with its relative local paths, the options of the type ProjectPath, resolved against `root`."""
    changes = {name: _absolute(getattr(connector, name), root) for name in path_options(connector)}
    changes = {name: path for name, path in changes.items() if path != getattr(connector, name)}
    return replace(connector, **changes) if changes else connector


def _absolute(value: Any, root: Path) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_absolute(item, root) for item in value)
    if isinstance(value, Path):
        return root / value.expanduser()
    if not isinstance(value, str) or not value or "://" in value or value.startswith(("file:", ":memory:")):
        return value
    return os.path.normpath(root / Path(value).expanduser())


def with_objects(connector: Any, modules: Sequence[ModuleType]) -> Any:
    """`connector` with what its texts `module:name`, in options of the type ProjectObject, name in a Python file.

    A text that names nothing stays, for the connector to say so.
    """
    given = {name: getattr(connector, name) for name in object_options(connector)}
    found = {name: _named(text, modules) for name, text in given.items() if isinstance(text, str)}
    return replace(connector, **found) if found else connector


def _named(text: str, modules: Sequence[ModuleType]) -> Any:
    module_name, _, name = text.partition(":")
    own = {re.sub(r"^headrace_project_\d+_", "", module.__name__): module for module in modules}
    try:
        found: Any = own[module_name] if module_name in own else import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception:  # whatever an import may raise
        return text
    return found


def transform(declared: DeclaredTransform) -> model.PythonTransform:
    """The body of a decorated function."""
    return model.PythonTransform(
        function=declared.function,
        inputs=declared.inputs,
        wants_spark=declared.wants_spark,
        where=declared.where,
    )


def table(name: str, declared: DeclaredTable) -> model.Table:
    """The table that a decorated function declares."""
    return model.Table(
        name=name,
        transform=transform(declared),
        refresh=declared.refresh,
        where=declared.where,
        broadcast=declared.broadcast,
    )


def counter(name: str, declared: DeclaredCounter) -> model.Counter:
    """The counter as declared."""
    return model.Counter(name=name, zero=declared.zero, param=declared.param, where=declared.where)


def project_of(
    declared: DeclaredQuery, *, root: Path | str | None = None, environ: Mapping[str, str] | None = None
) -> model.Project:
    """The small project around one query: what it reads, found by name where its functions were written.

    Raises ProjectError with every fault of the declarations; an input that is not found is left for the structural
    check to report.
    """
    home = Path(root or Path.cwd()).resolve()
    assembly = Assembly(root=home, variables=Variables.of(home, environ))
    found: dict[str, dict[str, Any]] = {"sources": {}, "tables": {}, "views": {}, "counters": {}}
    waiting: list[tuple[str, DeclaredTransform]] = [(name, declared) for name in declared.inputs]
    seen: set[str] = set()
    while waiting:
        name, asking = waiting.pop(0)
        thing = asking.in_sight(name)
        if name in seen or not isinstance(thing, DECLARED):
            continue
        seen.add(name)
        if isinstance(thing, DeclaredSource):
            found["sources"][name] = assembly.source(name, thing)
        elif isinstance(thing, DeclaredTable):
            found["tables"][name] = table(name, thing)
        elif isinstance(thing, DeclaredCounter):
            found["counters"][name] = counter(name, thing)
        elif isinstance(thing, DeclaredView):
            found["views"][name] = model.View(name=name, transform=transform(thing), where=thing.where)
        if isinstance(thing, (DeclaredTable, DeclaredView)):
            waiting.extend((wanted, thing) for wanted in thing.inputs)
    query = assembly.query(declared.name, declared)
    if query is None or assembly.findings:
        raise ProjectError(in_order(assembly.findings, assembly.variables))
    return model.Project(
        name=declared.name,
        root=home,
        sources=found["sources"],
        tables=found["tables"],
        views=found["views"],
        counters=found["counters"],
        queries={query.name: query},
        secrets=dict(assembly.variables.secrets),
    )


def in_order(findings: list[Finding], variables: Variables) -> list[Finding]:
    """`findings` by file and line, each once, with no secret in them."""

    def place(finding: Finding) -> tuple[str, int]:
        where: Where = finding.where
        return where.file or "", where.line or 0

    clean = [
        finding.but(what=variables.redacted(finding.what), fix=variables.redacted(finding.fix))
        for finding in dict.fromkeys(findings)
    ]
    return sorted(clean, key=place)
