"""A directory, its `headrace.yml` and its Python files become one project, or every fault of them at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType

from headrace import model, registry
from headrace.checks import structure
from headrace.declare.assembly import Assembly, transform
from headrace.declare.declarations import Declared, DeclaredQuery, DeclaredSettings, DeclaredSource
from headrace.declare.faults import display_path, is_collecting, where_of_frame
from headrace.declare.variables import NoText, Variables, expand_home, read_text
from headrace.errors import Finding, ProjectError, Where
from headrace.generations.late_rows import late_names, with_late_query
from headrace.loader import document, modules, sql, targets, yaml_queries
from headrace.loader.document import DocumentEntry, DocumentReading
from headrace.loader.modules import ProjectFiles, find, nothing_at
from headrace.loader.yaml_queries import Select, WrittenQuery
from headrace.units import Duration

_SECTIONS = ("sources", "tables", "views", "queries")
KEYS = (
    *targets.OF_THE_PROJECT,
    "spark",
    "state_store",
    "storage",
    targets.DURABILITY,
    *targets.OPERATION_KEYS,
)
# Where a Python file asks for a variable of the environment by a name that stands in it.
_ENVIRONMENT = re.compile(r"""\b(?:environ\s*\[|environ\.get\(|getenv\()\s*["'](\w+)["']""")


def load(
    path: str | Path = ".",
    *,
    target: str | None = None,
    environ: Mapping[str, str] | None = None,
    may_lack_variables: bool = False,
) -> model.Project:
    """The project at `path`, seen from `target`, with variables taken from `environ` (the process's own by default).

    `path` is a directory, a headrace.yml or one Python file. Raises ProjectError with every fault found.
    may_lack_variables: for looks and orders, which need no passwords. Sources, sinks and settings of Spark whose
    variables are not set raise ProjectError when they are used.
    """
    try:
        return _load(path, target, environ, may_lack=may_lack_variables)
    except ProjectError:
        if not may_lack_variables:
            raise
        # What is wrong may come of a variable that is not set, which is then to be said first.
        return _load(path, target, environ, may_lack=False)


def _load(path: str | Path, target: str | None, environ: Mapping[str, str] | None, *, may_lack: bool) -> model.Project:
    if is_collecting():
        message = "a file of the project loads it, while the load runs that file"
        fix = "put the loading under: if __name__ == '__main__':"
        raise ProjectError(code="HR121", what=message, fix=fix, where=where_of_frame(_caller()))
    place = find(path)
    variables = Variables.of(place.root, environ, may_lack=may_lack)
    reading = DocumentReading(variables=variables)
    top, where = _top(place, reading)
    chosen = targets.choose(top, reading, target, where)
    alone = place.document is None and len(place.modules) == 1 and not place.passed_over
    own_name = place.root.name or (place.modules[0].stem if alone else "project")
    name = reading.text(top.get("name"), "name") or own_name
    sources = yaml_queries.sources(top.get("sources"), reading)
    selects = yaml_queries.selects(top, reading, place.root)
    queries = yaml_queries.queries(top.get("queries"), reading, place.root)
    declared, faults, own = modules.run(place.root, _module_files(top, place, reading), _load_limit(reading, where))
    if place.document is None and not declared and not faults:
        raise ProjectError(nothing_at(place))
    assembly = Assembly(root=place.root, variables=variables, modules=own)
    parts = _Parts(assembly)
    parts.take(sources, selects, queries, declared)
    findings = [*reading.findings, *faults, *parts.findings, *assembly.findings]
    in_order = {name: parts.queries[name] for name in parts.places if name in parts.queries}
    project = assembly.project(name, in_order, target=chosen)
    for late_of, (late, late_sink) in assembly.late.items():
        if late_of in project.queries:
            project = with_late_query(project, project.queries[late_of], late_sink, late.kind, late.where)
    if findings:
        # What is whole is judged too, so that one load reports all that is wrong.
        lines = {where.line for where in reading.misplaced}
        entries = {name: entry for section in _SECTIONS for name, entry in _mapping(top.get(section)).items()}
        unsound = [name for name, entry in entries.items() if not lines.isdisjoint(entry.lines())]
        besides = structure.check_declared(
            project,
            faulty=None if faults or not top else {*parts.places, *entries},
            unsound=[*unsound, *parts.twice],
            incomplete=parts.incomplete,
        )
        raise ProjectError.of_all([*findings, *(finding for finding in besides if finding.severity == "error")])
    # The working directory may be another one by then.
    again = partial(load, expand_home(path).resolve(), target=chosen.name, environ=environ)
    asked = {name: value for module in own for name in _environment_names(module) if (value := variables.get(name))}
    return replace(project, loaded=model.Loaded(again=again, target=chosen, variables={**asked, **variables.asked}))


def _environment_names(module: ModuleType) -> Iterable[str]:
    """Return the variables of the environment that a Python file of the project names."""
    try:
        return _ENVIRONMENT.findall(read_text(Path(module.__file__ or "")))
    except NoText:
        return ()


def _mapping(section: DocumentEntry | None) -> Mapping[str, DocumentEntry]:
    return section.value if section is not None and isinstance(section.value, dict) else {}


def _caller() -> FrameType:
    """The innermost frame outside the package: the user's line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headrace."):
        frame = frame.f_back
    return frame


def _top(place: ProjectFiles, reading: DocumentReading) -> tuple[dict[str, DocumentEntry], Where]:
    if place.document is None:
        return {}, Where(file=display_path(place.root))
    file = display_path(place.document)
    where = Where(file=file, line=1)
    try:
        text = read_text(place.document)
    except NoText as error:
        at = replace(where, line=error.line or 1)
        reading.fault("HR101", f"the file cannot be read: {error}", "make it a readable UTF-8 text file", at)
        return {}, where
    tree, faults = document.read(text, file)
    reading.findings.extend(faults)
    return reading.mapping(tree, place.document.name, KEYS, elsewhere=_elsewhere()), where


def _elsewhere() -> dict[str, str]:
    """Keys that do not stand at the top of the file, each with its place."""
    of_target = [key for key in targets.KEYS if key not in KEYS]
    return {
        **{key: f"write it at a target: targets: {{dev: {{{key}: ...}}}}" for key in of_target},
        **{kind: f"write it below sources: {{NAME: {{{kind}: ...}}}}" for kind in registry.list_names("source")},
        **{key: f"write it at a query: queries: {{NAME: {{{key}: ...}}}}" for key in yaml_queries.QUERY_KEYS},
        "watermark": "write it at a source: sources: {NAME: {..., watermark: {column: time, delay: 2 hours}}}",
    }


def _load_limit(reading: DocumentReading, where: Where) -> Duration:
    """How long one Python file may take to load."""
    given = reading.variables.get(modules.LIMIT_VARIABLE)
    try:
        return modules.LIMIT if given is None else Duration.parse(given)
    except ValueError as error:
        reading.fault("HR104", f"{modules.LIMIT_VARIABLE}: {error}", "write for example '5 minutes'", where)
        return modules.LIMIT


def _module_files(top: dict[str, DocumentEntry], place: ProjectFiles, reading: DocumentReading) -> list[Path]:
    if "modules" not in top:
        return list(place.modules)
    files = []
    for text, where in reading.many(top["modules"], "modules"):
        file = (place.root / text).resolve()
        if file.is_file() and file.suffix == ".py":
            files.append(file)
        else:
            fix = f"name Python files relative to {display_path(place.root)}"
            reading.fault("HR115", f"modules: there is no Python file '{text}'", fix, where)
    return list(dict.fromkeys(files))


@dataclass
class _Parts:
    """The things of a project, in one namespace."""

    assembly: Assembly
    findings: list[Finding] = field(default_factory=list)
    places: dict[str, Where] = field(default_factory=dict)
    queries: dict[str, model.Query] = field(default_factory=dict)
    waiting: list[tuple[Select, WrittenQuery | None]] = field(default_factory=list)
    twice: set[str] = field(default_factory=set)
    incomplete: dict[str, model.Transform] = field(default_factory=dict)

    def claim(self, name: str, where: Where) -> bool:
        """Whether `name` is still free; if not, both places are reported."""
        if name not in self.places:
            self.places[name] = where
            return True
        message = f"'{name}' is declared here and at {self.places[name]}"
        self.twice.add(name)
        self.findings.append(Finding(code="HR109", what=message, fix="rename one of the two", where=where))
        return False

    def take(
        self,
        sources: Mapping[str, DeclaredSource],
        selects: Iterable[Select],
        queries: Iterable[WrittenQuery],
        declared: list[tuple[str, Declared]],
    ) -> None:
        """What is written in the document, and what Python files declare; a SELECT may name all of it."""
        for name, source in sources.items():
            if self.claim(name, source.where):
                self.assembly.take(name, source)
        for select in selects:
            if self.claim(select.name, select.where):
                self.waiting.append((select, None))
        for written in queries:
            if not self.claim(written.name, written.where):
                continue
            if written.select is not None:
                self.waiting.append((written.select, written))
            else:  # Its sink is judged all the same.
                self._query(written, None)
        for name, thing in declared:
            if not self.claim(name, thing.where):
                continue
            if isinstance(thing, DeclaredQuery):
                self._query(thing, transform(thing))
            else:
                self.assembly.take(name, thing)
        of_queries = {name for name, thing in declared if isinstance(thing, DeclaredQuery)}
        of_queries |= {query.name for _, query in self.waiting if query is not None}
        inputs = [name for name in self.places if name not in of_queries]
        for select, query in self.waiting:
            body, faults = sql.transform(select.text, select.text_where, inputs)
            self.findings.extend(faults)
            name, where = select.name, select.where
            if query is not None:
                self._query(query, body)
            elif body is not None and select.kind == "table":
                made = model.Table(name=name, transform=body, refresh=select.refresh, where=where)
                self.assembly.tables[name] = made
            elif body is not None:
                self.assembly.views[name] = model.View(name=name, transform=body, where=where)

    def _query(self, declared: DeclaredSettings, rows: model.Transform | None) -> None:
        query = self.assembly.query(declared, rows)
        if declared.late is not None:
            for made in late_names(declared.name):
                self.claim(made, declared.late.where)
        if query is not None:
            self.queries[declared.name] = query
        elif rows is not None:
            self.incomplete[declared.name] = rows
