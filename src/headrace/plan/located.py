"""Where the part of a query that differs stands in what is written now."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.declare.location import shown
from headrace.errors import NOWHERE, Where
from headrace.model import Project, Query, Table
from headrace.plan.difference import Difference
from headrace.plan.form import QueryForm
from headrace.plan.python_objects import shown_module

_NAMED = re.compile(r"\b(?:function|class) ([\w.<>]+)")
_TABLE = re.compile(r"\btable\b")


def located(
    project: Project, query: Query, was: QueryForm, is_: QueryForm, differences: Sequence[Difference]
) -> tuple[Difference, ...]:
    """`differences`, each with its place: that of an option, a view, a table, a Python function, or the query."""
    found = [replace(each, where=_end(project, query, each.about)) for each in differences]
    return tuple(
        each if each.where != NOWHERE else replace(each, where=_in_code(project, query, was, is_, each))
        for each in found
    )


def _end(project: Project, query: Query, about: str) -> Where:
    """The place of what does not stand in the code; NOWHERE for what does."""
    kind, _, rest = about.partition(" ")
    name, _, option = rest.partition(" ")
    if kind == "source" and name in project.sources:
        source = project.sources[name]
        names = source.connector.place_options if option == "place" else (option.partition(" ")[0],)
        return next((source.lines[each] for each in names if each in source.lines), source.where)
    if kind == "watermark" and name in project.sources and project.sources[name].watermark is not None:
        return project.sources[name].where
    if kind == "sink" and name != "function":
        # A path is that of the database, which may move with its tables.
        names = query.sink.place_options[::-1] if name == "place" else (name,)
        return next((query.sink_lines[each] for each in names if each in query.sink_lines), query.sink_where)
    if kind == "mode":
        return query.where
    return project.target.where if kind == "setting" else NOWHERE


def _in_code(project: Project, query: Query, was: QueryForm, is_: QueryForm, difference: Difference) -> Where:
    """The place of a Python function that differs; else of the view, the table or the query whose text has changed."""
    for name in (*_NAMED.findall(difference.part), *difference.functions):
        where = place_of_code(project, name)
        if where is not None:
            return where
    changed = [name for name, digest in is_.pieces.items() if was.pieces.get(name) != digest] if was.pieces else []
    tables = [thing for thing in project.upstream(query.transform) if isinstance(thing, Table)]
    if not changed and _TABLE.search(f"{difference.before} {difference.now}") and len(tables) == 1:
        return tables[0].where  # Its rows have changed.
    named = [name for name in changed if name in (*project.views, *project.tables)]
    if len(changed) == 1 and named:
        thing = project.inputs()[named[0]]
        return (
            thing.where if not hasattr(thing, "transform") or not thing.transform.where.line else thing.transform.where
        )
    return query.transform.where if query.transform.where.line else query.where


def place_of_code(project: Project, name: str) -> Where | None:
    """The file and the line of a function or a class of the project, by its module and its name there."""
    modules = {shown_module(each.__name__): each for each in (*sys.modules.values(), *project.modules)}
    module = next((modules[each] for each in _prefixes(name) if each in modules), None)
    file = getattr(module, "__file__", None)
    if module is None or not file or not Path(file).resolve().is_relative_to(project.root.resolve()):
        return None
    wanted = name.removeprefix(f"{shown_module(module.__name__)}.")
    try:
        lines = [
            line for each, line in _definitions(ast.parse(Path(file).read_text(encoding="utf-8")), "") if each == wanted
        ]
    except (OSError, SyntaxError, ValueError):
        return None
    return Where(file=shown(file), line=lines[0]) if len(lines) == 1 else None


def _prefixes(name: str) -> Iterator[str]:
    """The modules that a name may begin with, the longest first."""
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))


def _definitions(node: ast.AST, inside: str) -> Iterator[tuple[str, int]]:
    """Every function and class below `node`, by the name that Python gives it, with its line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            name = f"{inside}{getattr(child, 'name', '<lambda>')}"
            yield name, child.lineno
            yield from _definitions(child, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>.")
        else:
            yield from _definitions(child, inside)
