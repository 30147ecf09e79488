"""The source of a function: its node in the syntax tree of its file, and what the names in its code stand for."""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import importlib.util
import inspect
import linecache
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from headrace.user_code import import_as

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_Key: TypeAlias = tuple[str, int]
Data: TypeAlias = dict[str, Any]
# With these the names of attributes are no longer known before.
DYNAMIC = (getattr, vars, dir, setattr, delattr, hasattr)
_NAME = re.compile(r"[A-Za-z_]\w{0,99}")
# What each function and class has; a change of it counts only where the code asks for it.
_OWN_NAMES = ("__name__", "__qualname__", "__doc__", "__annotations__")


class NoSource(Exception):
    """Why the source of a function is not to be had, in words."""


@dataclass(frozen=True)
class Definition:
    """A function as it is written. owner: the class around it, by which Python changes its private names."""

    node: FunctionNode
    owner: str


@dataclass(frozen=True)
class _File:
    """The functions of a file, as they are written and as they are compiled, by name and first line."""

    written: Mapping[_Key, list[Definition]]
    compiled: Mapping[_Key, list[CodeType]]


def definition(code: CodeType, module: Mapping[str, Any]) -> Definition:
    """The definition of the function that `code` was compiled from; raises NoSource.

    module: the globals of the function, whose loader may have the source. A file that was edited after it was loaded
    is not that of the code: its compiled form must be the code.
    """
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, dict(module)))
    if not text:
        raise NoSource("its source cannot be found")
    try:
        file = _parsed(text, code.co_filename, code.co_flags & _FUTURE)
    except (SyntaxError, ValueError, RecursionError):
        raise NoSource("its source has changed since it was loaded") from None
    key = (code.co_name, code.co_firstlineno)
    if code not in file.compiled.get(key, ()):
        raise NoSource("its source has changed since it was loaded")
    found = file.written.get(key, [])
    if len(found) > 1:
        found = list(_around(code, found, file.compiled[key]))
    if len(found) != 1:
        raise NoSource("several functions stand on its line")
    return found[0]


def _around(code: CodeType, candidates: list[Definition], compiled: list[CodeType]) -> Iterator[Definition]:
    """The one whose body is the smallest around all instructions; Python 3.10, which keeps no columns, has an order."""
    positions: Iterable[Any] = code.co_positions() if hasattr(code, "co_positions") else ()
    spans = [each for each in positions if None not in each and each[2:] != (0, 0)]
    if not spans:
        yield from candidates[compiled.index(code) :][:1] if len(compiled) == len(candidates) else ()
        return
    first = min((line, column) for line, _, column, _ in spans)
    last = max((line, column) for _, line, _, column in spans)
    inside = []
    for each in candidates:
        body = each.node.body if isinstance(each.node, ast.Lambda) else each.node
        begin, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
        if begin <= first and last <= end:
            inside.append((begin, end, each))
    # The later one begins, the further inside it is.
    yield from (each for _, _, each in sorted(inside, key=lambda found: found[:2])[-1:])


@lru_cache(maxsize=256)
def _parsed(text: str, name: str, flags: int) -> _File:
    tree = ast.parse(text, name)
    written: defaultdict[_Key, list[Definition]] = defaultdict(list)
    _collect(tree, "", written)
    compiled: defaultdict[_Key, list[CodeType]] = defaultdict(list)
    waiting = [compile(text, name, "exec", flags=flags, dont_inherit=True)]
    while waiting:
        code = waiting.pop(0)
        compiled[code.co_name, code.co_firstlineno].append(code)
        waiting[:0] = [each for each in code.co_consts if isinstance(each, CodeType)]
    return _File(written=written, compiled=compiled)


def _collect(node: ast.AST, owner: str, written: defaultdict[_Key, list[Definition]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = min(each.lineno for each in (child, *getattr(child, "decorator_list", ())))
            written[getattr(child, "name", "<lambda>"), first].append(Definition(child, owner))
        _collect(child, child.name if isinstance(child, ast.ClassDef) else owner, written)


class Uses:
    """What is known of names so far, and the attributes that wait until the code uses their names.

    Nothing else can reach an attribute of a class of the project: so a method that nobody calls may change.
    keywords: the parameters that values are given to by name. set_globals: the globals that some function sets.
    """

    def __init__(self, keywords: Collection[str]) -> None:
        self.dynamic = False
        self._names: set[str] = set()
        self.keywords = set(keywords)
        self.any_keyword = False
        self.set_globals: set[str] = set()
        self._waiting: list[tuple[Data, str, Any]] = []

    def add(self, *names: str) -> None:
        """Note names of attributes; a text may be one, for `getattr` and the like."""
        self._names.update(name for name in names if _NAME.fullmatch(name))

    def keep(self, node: Data, name: str, value: Any) -> None:
        """Let an attribute of `node` wait until its name is used."""
        self._waiting.append((node, name, value))

    def keep_own_names(self, node: Data, thing: Any) -> None:
        """Let the names and the documentation of a function or a class wait."""
        for name in _OWN_NAMES:
            self.keep(node, name, own(thing, name))

    def take(self) -> list[tuple[Data, str, Any]]:
        """The attributes whose names are used by now."""
        taken = [each for each in self._waiting if self._is_used(each[1])]
        self._waiting = [each for each in self._waiting if not self._is_used(each[1])]
        return taken

    def _is_used(self, name: str) -> bool:
        return name in self._names or (self.dynamic and name not in _OWN_NAMES)

    def finish(self, nodes: list[Data]) -> None:
        """Keep the names of parameters that some call gives a value by name, and of globals that some function sets."""
        waiting: list[Any] = list(nodes)
        while waiting:
            data = waiting.pop()
            if isinstance(data, dict):
                if "positional" in data:
                    given = set(data["names"]) if self.any_keyword else self.keywords
                    data["named"] = [[n, name] for n, name in enumerate(data["names"]) if name in given]
                if str(data.get("name", "")).startswith("global ") and data["name"][7:] in self.set_globals:
                    data["set"] = data["name"]
                written = data.pop("call", None)
                if written is not None and re.split(r"[ .]", data["name"])[-1] in self.set_globals:
                    data["written"] = written
                waiting.extend(data.values())
            elif isinstance(data, list):
                waiting.extend(data)


def own(thing: Any, name: str) -> Any:
    """What a function or a class says of itself, alike in each version of Python."""
    try:
        value = getattr(thing, name, None)
    except Exception:  # From Python 3.14 on annotations are computed when they are asked for.
        return None
    return inspect.cleandoc(value) if name == "__doc__" and isinstance(value, str) else value


_OF_THE_MODULE = ("__name__", "__file__", "__package__", "__spec__", "__loader__", "__builtins__", "__doc__")


@dataclass(frozen=True)
class Named:
    """What an installed library holds, known by where it is found."""

    path: str


@dataclass(frozen=True)
class Unknown:
    """What cannot be looked at, and why."""

    why: str


@dataclass(frozen=True)
class Environment:
    """An environment variable; None: one whose name the code computes."""

    name: str | None


@dataclass(frozen=True)
class OpenedFile:
    """A file that the code opens; None: one whose name the code computes."""

    path: str | None


@dataclass(frozen=True)
class Lookup:
    """A mapping of which the code asks for entries by their keys alone, so that their order does not count."""

    entries: Mapping[Any, Any]


@dataclass(frozen=True)
class Scope:
    """What a function's names mean around it.

    captured: the values of the variables that it captures and that nobody changes.
    owned: whether a module belongs to the project.
    """

    globals: Mapping[str, Any]
    captured: Mapping[str, Any]
    owned: Callable[[ModuleType], bool]

    def lookup(self, name: str) -> Any:
        """The value of a global."""
        if name in _OF_THE_MODULE:
            return Named(f"the module's {name}")
        if name in self.globals:
            return self.globals[name]
        return getattr(builtins, name) if hasattr(builtins, name) else Named(f"nothing called {name}")

    def imported(self, statement: ast.Import | ast.ImportFrom) -> dict[str, Any]:
        """The values of the variables that an import statement sets."""
        if isinstance(statement, ast.ImportFrom):
            module = self._module(statement.module or "", statement.level, whole=True)
            return {each.asname or each.name: self._part(module, each.name) for each in statement.names}
        return {
            each.asname or each.name.partition(".")[0]: self._module(each.name, 0, whole=each.asname is not None)
            for each in statement.names
        }

    def _part(self, module: Any, name: str) -> Any:
        """What `from module import name` gives: an attribute, or a module of the package that is not imported yet."""
        found = _attribute(module, name)
        if isinstance(found, Unknown) and isinstance(module, ModuleType) and hasattr(module, "__path__"):
            return self.module_named(f"{module.__name__}.{name}")
        return found

    def _module(self, name: str, level: int, *, whole: bool) -> Any:
        """The module that an import statement gives: of `import a.b` it is `a`."""
        full = name
        if level:
            package = self.globals.get("__package__") or str(self.globals.get("__name__", "")).rpartition(".")[0]
            try:
                full = importlib.util.resolve_name("." * level + name, package)
            except ImportError:
                return Unknown(f"the module {'.' * level}{name} cannot be found")
        found = self.module_named(full)
        if whole or "." not in full or isinstance(found, Unknown):
            return found
        return self.module_named(full.partition(".")[0])

    def module_named(self, name: str) -> Any:
        """The module `name`: one of the project is imported if it was not yet, one of a library stays a name."""
        if name in sys.modules:
            return sys.modules[name]
        try:
            with import_as(str(self.globals.get("__file__", ""))):
                spec = importlib.util.find_spec(name)
                if spec is None:
                    return Unknown(f"the module {name} cannot be found")
                if not self.owned(importlib.util.module_from_spec(spec)):
                    return Named(name)
                return importlib.import_module(name)
        except Exception as error:  # A module of the project runs when it is imported, and may do anything.
            return Unknown(f"the module {name} cannot be imported: {type(error).__name__}")


@dataclass(frozen=True)
class BoundNames:
    """The names that a function, a lambda or a class binds itself, with how often, and those that it says are not its
    own. imports: the import statements that bind some of them."""

    bound: Mapping[str, int]
    globals: frozenset[str]
    nonlocals: frozenset[str]
    imports: tuple[ast.Import | ast.ImportFrom, ...] = field(default=())

    @property
    def own(self) -> frozenset[str]:
        return frozenset(self.bound) - self.globals - self.nonlocals


def variables(node: ast.AST) -> BoundNames:
    """The names that the scope of `node` binds, whether the statements that do are ever reached or not."""
    walk = _Bindings()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        given = node.args
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if each is not None:
                walk.bind(each.arg)
    if isinstance(node, COMPREHENSIONS):
        for part in node.generators:
            walk.visit(part.target)
    elif isinstance(node, ast.Lambda):
        walk.visit(node.body)
    else:
        for statement in node.body:  # type: ignore[attr-defined]
            walk.visit(statement)
    return BoundNames(walk.bound, frozenset(walk.globals), frozenset(walk.nonlocals), tuple(walk.imports))


class _Bindings(ast.NodeVisitor):
    """Collects what one scope binds; scopes inside bind for themselves."""

    def __init__(self) -> None:
        self.bound: dict[str, int] = {}
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.imports: list[ast.Import | ast.ImportFrom] = []

    def bind(self, name: str) -> None:
        self.bound[name] = self.bound.get(name, 0) + 1

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self.bind(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.bind(node.name)
            self._visit_all((*node.decorator_list, node.args))
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name)
            self._visit_all((*node.decorator_list, *node.bases, *node.keywords))
        elif isinstance(node, ast.Lambda):
            self.visit(node.args)
        elif isinstance(node, COMPREHENSIONS):
            # Its variables are its own, but for those of `:=`.
            for each in ast.walk(node):
                if isinstance(each, ast.NamedExpr):
                    self.bind(each.target.id)
        elif isinstance(node, ast.Global):
            self.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.nonlocals.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports.append(node)
            for each in node.names:
                top = each.name if isinstance(node, ast.ImportFrom) else each.name.partition(".")[0]
                self.bind(each.asname or top)
        elif not isinstance(node, ast.arg):
            if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
                self.bind(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest is not None:
                self.bind(node.rest)
            self.generic_visit(node)

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for each in nodes:
            self.visit(each)


def _attribute(thing: Any, name: str) -> Any:
    """An attribute of a module, or of what is known by its name."""
    if isinstance(thing, Unknown):
        return thing
    if isinstance(thing, Named):
        return Named(f"{thing.path}.{name}")
    if name in vars(thing):
        return vars(thing)[name]
    submodule = sys.modules.get(f"{thing.__name__}.{name}")
    if submodule is not None:
        return submodule
    # What the module computes for a name that it has not: the code of the function decides.
    return vars(thing).get("__getattr__", Unknown(f"{thing.__name__} has no {name}"))


def attribute_of(module: Any, name: str, owned: Callable[[ModuleType], bool]) -> Any:
    """An attribute of a module: its value if the module belongs to the project, else where it is found."""
    found = _attribute(module, name)
    if isinstance(module, ModuleType) and not owned(module) and not isinstance(found, Unknown):
        kept = found is os.environ or found is os.getenv or found is sys.modules
        # One thing has one name, wherever it was imported from.
        by_itself = isinstance(found, (ModuleType, FunctionType, type))
        return found if kept or by_itself else Named(f"{module.__name__}.{name}")
    return found


def is_environment(value: Any) -> bool:
    """Whether a value is the mapping of all environment variables."""
    return isinstance(value, type(os.environ))


def captured_values(function: FunctionType, node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What a function has captured and neither it nor a function inside it changes; what is not there yet is left."""
    changed = {name for each in ast.walk(node) if isinstance(each, ast.Nonlocal) for name in each.names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in changed:
            try:
                yield name, cell.cell_contents
            except ValueError:
                yield name, Unknown(f"the captured value {name} is not set")
