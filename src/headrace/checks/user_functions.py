"""What a result depends on apart from its rows: clock, chance, and the machine that the user's functions run on.

It is read from their source: the names that a function looks up, and their values in its module. What is reached in
another way, such as through a parameter, is not seen.
"""

from __future__ import annotations

import ast
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache, partial
from importlib import import_module
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from headrace.errors import Finding, Where
from headrace.model import Query
from headrace.model.project import with_inner
from headrace.spark.plans.analysed import PlanFacts
from headrace.spark.plans.determinism import Determinism
from headrace.user_code import is_installed
from headrace.user_source import FunctionNode, NoSource, bound_names, captured_variables, definition, own_nodes

# Calls by their module and class; a name that ends in a dot stands for all that begins so.
_NAMES = {
    "datetime.datetime": ("now", "utcnow", "today"),
    "datetime.date": ("today",),
    "time": ("time", "time_ns", "localtime", "gmtime", "ctime"),
    "uuid": ("uuid1", "uuid4"),
    "os": ("urandom", "getpid"),
    "socket": ("gethostname",),
    "pandas.Timestamp": ("now", "today", "utcnow"),
}
_CLOCK_OR_CHANCE = (
    *(f"{owner}.{name}" for owner, names in _NAMES.items() for name in names),
    *("random.", "secrets.", "numpy.random."),
)
# What only makes a generator whose numbers follow from its seed, or takes one.
_SEEDED = ("random.Random", "random.seed", "numpy.random.default_rng", "numpy.random.RandomState")
_AT_LEAST_ONCE = "a batch that is made again after a crash may give other rows, and verify cannot prove the result"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One call of a clock or of chance: in which function, and whether that runs when the query is built."""

    function: str
    call: str
    where: Where
    at_build: bool


def find_calls(
    function: Callable[..., Any], is_own: Callable[[str], bool], executed: frozenset[CodeType] = frozenset()
) -> tuple[Asked, ...]:
    """Return the calls of clocks and chance in `function` and in what it uses.

    is_own: whether a file is the user's, whose code is followed. executed: the code that ran when the query was built;
    other code runs later, for the rows.
    """
    calls: dict[tuple[str, str], Asked] = {}
    for code, scope in codes_of(function, is_own):
        for call, line in _find_calls(code, scope):
            where = Where(file=code.co_filename, line=line)
            asked = Asked(function=code.co_name, call=call, where=where, at_build=code in executed)
            calls.setdefault((code.co_name, call), asked)
    return tuple(calls.values())


def codes_of(
    function: Callable[..., Any], is_own: Callable[[str], bool]
) -> Iterator[tuple[CodeType, Mapping[str, Any]]]:
    """Yield the code of `function`, of functions inside it, and of those that they use, each with its scope.

    The scope holds the values of the names that the code takes from outside.
    """
    seen = set[int]()
    queue: list[Any] = [function]
    while queue:
        thing = queue.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        queue += _functions_in(thing)
        if not isinstance(thing, FunctionType) or not is_own(thing.__code__.co_filename):
            continue
        scope = {**thing.__globals__, **dict(captured_variables(thing))}
        for code in with_inner(thing.__code__):
            yield code, scope
            queue += [scope[name] for name in (*code.co_names, *code.co_freevars) if name in scope]


@cache
def is_users(file: str) -> bool:
    """Whether a file is the user's: not Python's, not of a package, and not generated."""
    within = PurePath(file).parts
    return not (
        file.startswith("<")
        or is_installed(file)
        or file.startswith((sys.base_prefix + "/lib", str(_STANDARD)))
        or any(part in ("pyspark", "headrace") and "src" in within[:index] for index, part in enumerate(within))
    )


_STANDARD = PurePath(inspect.__file__).parent


def _functions_in(thing: Any) -> list[Any]:
    """Return the functions that `thing` wraps, or has as methods; a UDF of Spark's keeps the user's as `func`."""
    if isinstance(thing, partial):
        return [thing.func]
    if isinstance(thing, MethodType):
        return [thing.__func__]
    if isinstance(thing, type):
        return [member for member in vars(thing).values() if isinstance(member, FunctionType)]
    if isinstance(thing, ModuleType):
        return []
    attributes = getattr(thing, "__dict__", {})
    return [attributes[name] for name in ("func", "__wrapped__") if isinstance(attributes.get(name), FunctionType)]


def _find_calls(code: CodeType, scope: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the names of clocks and random functions that a code looks up, each with its line."""
    try:
        function = definition(code, scope).node
    except NoSource:
        return
    imported = dict(_imported_values(function))
    inside = bound_names(function) - imported.keys()
    names = {**{name: held for name, held in scope.items() if name not in inside}, **imported}

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Attribute):
            return _attribute_of(value(node.value), node.attr)
        return names.get(node.id) if isinstance(node, ast.Name) else None

    looked_up = [node for node in own_nodes(function) if isinstance(node, (ast.Name, ast.Attribute))]
    for node in sorted(looked_up, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node.ctx, ast.Load) and (call := name_of_call(value(node))) is not None:
            yield call, node.lineno


def _imported_values(function: FunctionNode) -> Iterator[tuple[str, Any]]:
    """Yield what the import statements of a function give to its variables."""
    for node in own_nodes(function):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = _module(node.module)
            yield from ((alias.asname or alias.name, _attribute_of(module, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, _module(alias.name if alias.asname else top)


def _module(name: str) -> ModuleType | None:
    """Return a module that code imports: one that is loaded, or one of Python's own with a clock or chance in it."""
    ours = any(call.startswith(f"{name}.") for call in _CLOCK_OR_CHANCE) and name in sys.stdlib_module_names
    return sys.modules.get(name) or (import_module(name) if ours else None)


def _attribute_of(thing: Any, name: str) -> Any:
    """Return an attribute of a module, a class or a random generator; asking other objects may run any code."""
    if isinstance(thing, (ModuleType, type, random.Random)) or type(thing).__module__.startswith("numpy.random"):
        return getattr(thing, name, None)
    return None


def name_of_call(thing: Any) -> str | None:
    """Return the name of the clock or random function that `thing` is."""
    if thing is None or isinstance(thing, (ModuleType, type)) or not callable(thing):
        return None
    name = _full_name(thing)
    is_listed = any(name == listed or (listed[-1] == "." and name.startswith(listed)) for listed in _CLOCK_OR_CHANCE)
    return name if is_listed and name not in _SEEDED else None


def _full_name(thing: Any) -> str:
    owner = getattr(thing, "__self__", None)
    if isinstance(owner, type):
        whose = next((base for base in (datetime, date) if issubclass(owner, base)), owner)
        module = whose.__module__.split(".")[0] if whose.__module__.startswith("pandas") else whose.__module__
        return f"{module}.{whose.__name__}.{thing.__name__}"
    if isinstance(owner, random.Random):
        return f"random.{thing.__name__}"
    if type(owner).__module__.startswith("numpy.random"):
        return f"numpy.random.{thing.__name__}"
    module = getattr(thing, "__module__", None) or ""
    return f"{'os' if module == 'posix' else module.lstrip('_')}.{getattr(thing, '__name__', '')}"


def check_chance(query: Query, facts: PlanFacts) -> Iterator[Finding]:
    """Report expressions that Spark itself knows to be indeterminate."""
    if facts.indeterminate:
        yield query.finding(
            "HR241",
            f"is not deterministic: {', '.join(facts.indeterminate[:3])}: {_AT_LEAST_ONCE}",
            "compute it from the row's own columns, so that a batch made again after a crash gives the same rows; "
            "for the time of the batch write current_timestamp()",
        )


def check_clock_and_order(query: Query, facts: PlanFacts, facts_of_order: Determinism) -> Iterator[Finding]:
    """Report what does not affect exactly once, but makes another run give another answer."""
    if clocks := [clock for clock in facts_of_order.clocks if clock not in facts.indeterminate]:
        yield query.finding(
            "HR640",
            f"asks for the time by {', '.join(clocks[:3])}: a batch that is made again keeps "
            "its time, so that it stays exactly once, but verify cannot compute it again",
            "where verify is to prove the result, take the time from a column of the source",
        )
    ordered = [*facts_of_order.by_order, *facts_of_order.limits]
    if ordered:
        yield query.finding(
            "HR641",
            f"depends on the order in which rows come, by {', '.join(ordered[:3])}: each row "
            "is counted once, but a batch that is made again may give another value, and verify judges by another run",
            "sort what is collected (sort_array), or choose and sort by columns in which no two rows are equal",
        )


def check_calls(query: Query, asked: Sequence[Asked]) -> Iterator[Finding]:
    """Report functions of the user's that read a clock or chance, which Spark takes for deterministic."""
    for call in asked:
        if not call.at_build:
            yield Finding(
                code="HR241",
                what=f"the function {call.function} of query '{query.name}' calls {call.call}, so that it is not "
                f"deterministic: {_AT_LEAST_ONCE}",
                fix="compute it from the row's own columns; a number by chance can be a hash of them",
                where=call.where,
            )
