"""One difference between two forms of a query: what follows from it, why, and where its code stands."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from headrace.declare.faults import display_path
from headrace.errors import NOWHERE, Where
from headrace.generations.manifest import QueryForm
from headrace.model import Project, Query, Table
from headrace.planner.code.meaning import compare_meanings as python_differences
from headrace.planner.code.meaning import name_of
from headrace.planner.code.objects import shown_module
from headrace.user_source import parse as parse_python

Kind: TypeAlias = Literal["same", "safe", "forward", "rebuild", "forbidden"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NAMED = re.compile(r"\b(?:function|class) ([\w.<>]+)")
_TABLE = re.compile(r"\btable\b")


@dataclass(frozen=True, kw_only=True)
class PlanDifference:
    """One thing that is not as it was; `--json` has the first five attributes and `where`.

    Attributes:
        verdict: What follows from it alone, as for the query.
        part: What has changed, in words.
        before: As it was.
        now: As it is.
        why: What would come of it.
        fix: What else there is to do than to undo it.
        about: `source NAME OPTION`, `sink OPTION`, `mode`, `setting NAME` or `watermark SOURCE`; empty for code.
        functions: The Python functions that differ, by module and name.
        where: The place in what is written now.
        clause: The difference as one clause, where that says more than both texts.
        code: The lines of the query's code that differ, as they were and as they are.
    """

    verdict: Kind
    part: str
    before: str
    now: str
    why: str
    fix: str = ""
    about: str = ""
    functions: tuple[str, ...] = ()
    where: Where = NOWHERE
    clause: str = ""
    code: tuple[str, str] = ("", "")

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain data, for `--json`."""
        return {
            "verdict": self.verdict,
            "part": self.part,
            "before": self.before,
            "now": self.now,
            "why": self.why,
            "where": asdict(self.where),
        }

    def describe(self, shown: int) -> str:
        """Return the difference as a clause, each text of it cut to `shown` characters."""

        def cut(text: str) -> str:
            return text if len(text) <= shown else f"{text[:shown]}..."

        was, is_ = self.code
        code = "; its code was " if was and is_ else "; its code no longer has " if was else "; its code now has "
        code += " and is ".join(f"`{cut(line)}`" for line in self.code if line)
        clause = cut(self.clause) or f"{self.part} was {cut(self.before)} and is {cut(self.now)}"
        return clause + (code if was or is_ else "")


def worst(differences: Sequence[PlanDifference]) -> Kind:
    """Return the verdict over all differences together."""
    return max((difference.verdict for difference in differences), key=KINDS.index, default="same")


def compare_functions(old: str, new: str, before: QueryForm, now: QueryForm) -> tuple[list[str], tuple[str, ...]]:
    """Return what differs between the Python functions that two texts name, taken in their order; and their names."""
    gone = [name for name in before.python if name in old and name not in new]
    come = [name for name in now.python if name in new and name not in old]
    names = tuple(name_of(now.python[name]) for name in sorted(come, key=new.index))
    if len(gone) != len(come):
        return [], names
    pairs = zip(sorted(gone, key=old.index), sorted(come, key=new.index), strict=True)
    return [change for was, is_ in pairs for change in python_differences(before.python[was], now.python[is_])], names


def verdict_on_mixing(before: QueryForm) -> Kind:
    """Return the verdict if the source's rows from now on differ from those before."""
    return "rebuild" if before.operators else "forward"


def text_of(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def locate(
    project: Project, query: Query, was: QueryForm, is_: QueryForm, differences: Sequence[PlanDifference]
) -> tuple[PlanDifference, ...]:
    """Return `differences`, each with its place: an option, a view, a table, a Python function, or the query."""
    placed = [replace(difference, where=_place_of_end(project, query, difference.about)) for difference in differences]
    return tuple(
        difference
        if difference.where != NOWHERE
        else replace(difference, where=_place_in_code(project, query, was, is_, difference))
        for difference in placed
    )


def _place_of_end(project: Project, query: Query, about: str) -> Where:
    """Return the place of what is not in the code; NOWHERE for what is."""
    kind, _, rest = about.partition(" ")
    name, _, option = rest.partition(" ")
    if kind == "source" and name in project.sources:
        source = project.sources[name]
        names = source.connector.place_options if option == "place" else (option.partition(" ")[0],)
        return next((source.lines[key] for key in names if key in source.lines), source.where)
    if kind == "watermark" and name in project.sources and project.sources[name].watermark is not None:
        return project.sources[name].where
    if kind == "sink" and name != "function":
        # A path is that of the database, which may move with its tables.
        names = query.sink.place_options[::-1] if name == "place" else (name,)
        return next(
            (query.sink_lines[key] for key in names if key in query.sink_lines),
            query.sink_where,
        )
    if kind in ("mode", "cdc"):
        return query.where
    return project.target.where if kind == "setting" else NOWHERE


def _place_in_code(project: Project, query: Query, was: QueryForm, is_: QueryForm, difference: PlanDifference) -> Where:
    """Return the place of a changed Python function; else of the view, table or query whose text has changed."""
    for name in (*_NAMED.findall(difference.part), *difference.functions):
        where = place_of_code(project, name)
        if where is not None:
            return where
    changed = [name for name, digest in is_.pieces.items() if was.pieces.get(name) != digest]
    changed = changed if was.pieces else []
    tables = [thing for thing in project.upstream(query.transform) if isinstance(thing, Table)]
    if not changed and _TABLE.search(f"{difference.before} {difference.now}") and len(tables) == 1:
        return tables[0].where  # Its rows have changed.
    named = [name for name in changed if name in (*project.views, *project.tables)]
    if len(changed) == 1 and named:
        return _place_of_text(project.inputs()[named[0]])
    return _place_of_text(query)


def _place_of_text(thing: Any) -> Where:
    """Return the place of a view's, a table's or a query's text, else of its declaration."""
    written: Where = getattr(thing, "transform", thing).where
    declared: Where = thing.where
    return written if written.line else declared


def place_of_code(project: Project, name: str) -> Where | None:
    """Return the file and the line of a function or a class of the project, by its module and its name there."""
    modules = {shown_module(candidate.__name__): candidate for candidate in (*sys.modules.values(), *project.modules)}
    parts = name.split(".")
    beginnings = (".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
    module = next((modules[candidate] for candidate in beginnings if candidate in modules), None)
    file = getattr(module, "__file__", None)
    if module is None or not file or not Path(file).resolve().is_relative_to(project.root.resolve()):
        return None
    wanted = name.removeprefix(f"{shown_module(module.__name__)}.")
    try:
        lines = [
            line
            for candidate, line in _definitions(parse_python(Path(file).read_text(encoding="utf-8")), "")
            if candidate == wanted
        ]
    except (OSError, SyntaxError, ValueError):
        return None
    return Where(file=display_path(file), line=lines[0]) if len(lines) == 1 else None


def _definitions(node: ast.AST, inside: str) -> Iterator[tuple[str, int]]:
    """Yield every function and class below `node`, by the name that Python gives it, with its line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            name = f"{inside}{getattr(child, 'name', '<lambda>')}"
            yield name, child.lineno
            yield from _definitions(child, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>.")
        else:
            yield from _definitions(child, inside)
