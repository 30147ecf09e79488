"""What the user's functions change on the driver: variables, broadcasts, counters, and the session while they build.

Found in their source: a name that is bound outside, in a module or in a function that runs in the driver, and that is
assigned to, or whose list, set or dict is changed. What is changed in another way, as through a parameter, is not seen.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

from headrace.checks.user_functions import Asked, codes_of
from headrace.errors import Finding, Where
from headrace.model import Continuous, Counter, Project, Query, RealTime, SqlTransform, Table, View
from headrace.user_source import Definition, NoSource, bound_names, definition, own_nodes

_CONTAINERS = (list, dict, set, bytearray, deque)
_MAKERS = {"list", "dict", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict"}
_LITERALS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_CHANGING = {
    *("append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft", "popitem", "clear", "sort"),
    *("add", "discard", "update", "setdefault", "reverse", "subtract"),
}
# What the loader puts before the name of a file.
_LOADED = re.compile(r"^headrace_project_\d+_")
# A longer value of a module's variable is not looked into.
_LONGEST = 10_000
_PLAIN = (bool, int, float, str, bytes, type(None), list, dict, set, tuple)
_NO_STATE = "let it return a DataFrame and leave nothing behind: run, check and verify each call it, and more than once"


@dataclass(frozen=True, kw_only=True)
class Changed:
    """A variable of the driver that a function for rows changes."""

    function: str
    variable: str
    where: Where


def find_changed_variables(
    function: Callable[..., Any], is_own: Callable[[str], bool], executed: frozenset[CodeType]
) -> tuple[Changed, ...]:
    """Return the variables that the functions for rows in `function`, and in what it uses, change.

    executed: the code that ran while the query was built, which is not for rows; without it nothing is found.
    """
    changes: dict[tuple[str, str], Changed] = {}
    in_driver = {(code.co_filename, code.co_firstlineno, code.co_name) for code in executed}
    for code, scope in codes_of(function, is_own) if executed else ():
        if code in executed or code is getattr(function, "__code__", None):
            continue
        for name, line in _find_changes(code, scope, in_driver):
            where = Where(file=code.co_filename, line=line)
            changes.setdefault((code.co_name, name), Changed(function=code.co_name, variable=name, where=where))
    return tuple(changes.values())


def check_driver_variables(query: Query, changes: tuple[Changed, ...]) -> Iterator[Finding]:
    """Report the variables of the driver that the functions for rows of `query` change."""
    for change in changes:
        whose = "a lambda" if change.function == "<lambda>" else f"the function {change.function}"
        yield Finding(
            code="HR810",
            what=f"{whose} of query '{query.name}' changes '{change.variable}', a variable of the driver: each worker "
            "changes a copy of its own, and the driver's stays as it is",
            fix="to count, declare a counter by hr.counter and add to it; to look something up, use hr.broadcast; what "
            "a worker is to remember, functools.lru_cache keeps",
            where=change.where,
        )


def _find_changes(
    code: CodeType, scope: Mapping[str, Any], in_driver: set[tuple[str, int, str]]
) -> Iterator[tuple[str, int]]:
    """Yield the driver's variables that a function itself changes, each with its line."""
    try:
        function = definition(code, scope)
    except NoSource:
        return
    inside = bound_names(function.node)
    own = list(own_nodes(function.node))
    elsewhere = {name for part in own if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names}

    def is_drivers(name: str) -> bool:
        if name in inside:
            return False
        owner = _find_owner(name, function)
        return owner is None or (code.co_filename, owner.line, owner.name) in in_driver

    for part in own:
        if isinstance(part, ast.Name) and isinstance(part.ctx, (ast.Store, ast.Del)):
            if part.id in elsewhere and is_drivers(part.id):
                yield part.id, part.lineno
        elif isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            name = _root_variable(part)
            if name is not None and is_drivers(name):
                yield name, part.lineno
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _CHANGING:
            held = part.func.value
            if isinstance(held, ast.Name) and is_drivers(held.id) and _is_container(held.id, function, scope):
                yield held.id, part.lineno


def _find_owner(name: str, function: Definition) -> Definition | None:
    """Return the function around this one whose variable `name` is; None for one of the module."""
    outer = function.outer
    while outer is not None and name not in bound_names(outer.node):
        outer = outer.outer
    return outer


def _root_variable(node: ast.expr) -> str | None:
    """Return the variable that `a[b].c` begins with."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_container(name: str, function: Definition, scope: Mapping[str, Any]) -> bool:
    """Whether a variable holds something that such a method changes; a counter, say, has an `add` too."""
    owner = _find_owner(name, function)
    if owner is None:
        return isinstance(scope.get(name), _CONTAINERS)
    for part in own_nodes(owner.node):
        if isinstance(part, (ast.Assign, ast.AnnAssign)):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                value = part.value
                made = value.func if isinstance(value, ast.Call) else None
                called = made.id if isinstance(made, ast.Name) else made.attr if isinstance(made, ast.Attribute) else ""
                if isinstance(value, _LITERALS) or called in _MAKERS:
                    return True
    return False


def check_shared_variables(project: Project) -> Iterator[Finding]:
    """Report SELECTs and functions that ask for a broadcast or a counter and cannot have it."""
    broadcasts = {name: table for name, table in project.tables.items() if table.broadcast}
    values: dict[str, Table | Counter] = {**broadcasts, **project.counters}
    things: list[Table | View | Query] = [*project.tables.values(), *project.views.values(), *project.queries.values()]
    for thing in things:
        transform = thing.transform
        for name in transform.inputs:
            if name in values and isinstance(transform, SqlTransform):
                yield Finding(
                    code="HR800",
                    what=f"the SELECT of {thing.whose} reads '{name}', which is a {values[name].word} and has no rows",
                    fix="write the SELECT as a Python function that asks for it, or make it a table",
                    where=transform.where,
                )
    for table in project.tables.values():
        for name in table.transform.inputs:
            if name in project.counters:
                yield table.finding(
                    "HR802",
                    f"asks for the counter '{name}', and is computed outside batches",
                    "count in the function of a query or of a view",
                )
    for query in project.queries.values():
        counters = project.counters_of(query)
        if counters and isinstance(query.trigger, (Continuous, RealTime)):
            yield query.finding(
                "HR802",
                f"asks for the counter '{counters[0].name}' and has the trigger "
                f"{query.trigger}, whose tasks report nothing before the query ends",
                "use the trigger every('1 second'), or leave the counter out",
            )


@dataclass(kw_only=True)
class Watched:
    """What was seen. settings: of Spark, those that another value was left for, with both values (None: not set).

    variables: of the project's modules, those that were changed, as `module.name`.
    """

    executed: set[CodeType] = field(default_factory=set)
    settings: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    variables: tuple[str, ...] = ()


@contextmanager
def watch_building(
    settings: Callable[[], Mapping[str, str]], modules: Iterable[ModuleType], is_own: Callable[[str], bool]
) -> Iterator[Watched]:
    """Watch what happens while queries are built in this thread; `settings` gives the session's current ones.

    A debugger, or a measurement of coverage, that watches calls itself stays in its place.
    """
    watch = Watched()
    former, modules = settings(), tuple(modules)
    variables = dict(_plain_variables(modules))

    # What the session and its connectors set for themselves, as Delta does with its first plan, is not a query's.
    begun: list[Mapping[str, str]] = []

    def call(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and is_own(frame.f_code.co_filename):
            if not begun:
                begun.append(settings())
            watch.executed.add(frame.f_code)

    before = sys.getprofile()
    if before is None:
        sys.setprofile(call)
    try:
        yield watch
    finally:
        if before is None:
            sys.setprofile(None)
        now = settings()
        if before is None:
            former = begun[0] if begun else now
        names = sorted(former.keys() | now.keys())
        watch.settings = {
            name: (former.get(name), now.get(name)) for name in names if former.get(name) != now.get(name)
        }
        watch.variables = tuple(
            dict.fromkeys(name for name, value in _plain_variables(modules) if variables.get(name) != value)
        )


def check_side_effects(query: Query, watch: Watched, asked: Sequence[Asked]) -> Iterator[Finding]:
    """Report what the functions of `query` changed or read while it was built."""
    for name, (_, value) in watch.settings.items():
        problem = f"takes {name} away while it is built, for every query of the session"
        if value is not None:
            problem = (
                f"sets {name} to {value} while it is built, which every query of the session gets from then on, and "
            )
            problem += "one whose checkpoint holds another value never"
        yield query.finding("HR643", problem, "declare the setting for the project or the target: spark: {KEY: VALUE}")
    for call in asked:
        if call.at_build:
            yield Finding(
                code="HR644",
                what=f"{call.function} of query '{query.name}' calls {call.call} when the query is built: the value "
                "stays until the query is started again, and the rows from then on follow another one",
                fix="for the time of a batch use F.current_timestamp(), for a number by chance F.rand(); a value that "
                "is meant to stay belongs into the project as a variable",
                where=call.where,
            )
    if watch.variables:
        yield query.finding("HR645", f"changes {', '.join(watch.variables[:3])} while it is built", _NO_STATE)


def _plain_variables(modules: Iterable[ModuleType]) -> Iterator[tuple[str, str]]:
    """Yield the plain values of the modules' variables, as texts that are equal as long as nothing is changed."""
    for module in modules:
        for name, value in list(vars(module).items()):
            if name.startswith("__") or not isinstance(value, _PLAIN):
                continue
            if not isinstance(value, (list, dict, set, tuple, str, bytes)) or len(value) <= _LONGEST:
                yield f"{_LOADED.sub('', module.__name__)}.{name}", _as_text(value)


def _as_text(value: Any) -> str:
    """Return a value as a text; of the objects in a container only their identity."""
    if isinstance(value, (list, tuple, set)):
        return f"{type(value).__name__}:{[_shallow_text(part) for part in value]}"
    if isinstance(value, dict):
        return f"dict:{[(_shallow_text(key), _shallow_text(part)) for key, part in value.items()]}"
    return repr(value)


def _shallow_text(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, bytes, type(None))) else str(id(value))
