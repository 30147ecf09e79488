"""What the names in a function's code stand for: globals, captured values, imports, attributes of modules."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from headrace.plan.code.source import FunctionNode

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
            return {each.asname or each.name: _attribute(module, each.name) for each in statement.names}
        return {
            each.asname or each.name.partition(".")[0]: self._module(each.name, 0, whole=each.asname is not None)
            for each in statement.names
        }

    def _module(self, name: str, level: int, *, whole: bool) -> Any:
        """The module that an import statement gives: of `import a.b` it is `a`."""
        full = name
        if level:
            package = self.globals.get("__package__") or str(self.globals.get("__name__", "")).rpartition(".")[0]
            try:
                full = importlib.util.resolve_name("." * level + name, package)
            except ImportError:
                return Unknown(f"the module {'.' * level}{name} cannot be found")
        found = module_named(full, self.owned)
        if whole or "." not in full or isinstance(found, Unknown):
            return found
        return module_named(full.partition(".")[0], self.owned)


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
        for each in arguments_of(node):
            walk.bind(each.arg)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for part in node.generators:
            walk.visit(part.target)
    elif isinstance(node, ast.Lambda):
        walk.visit(node.body)
    else:
        for statement in node.body:  # type: ignore[attr-defined]
            walk.visit(statement)
    return BoundNames(walk.bound, frozenset(walk.globals), frozenset(walk.nonlocals), tuple(walk.imports))


def arguments_of(node: FunctionNode) -> list[ast.arg]:
    """All parameters of a function."""
    found = node.args
    rest = [each for each in (found.vararg, found.kwarg) if each is not None]
    return [*found.posonlyargs, *found.args, *found.kwonlyargs, *rest]


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
            self._all((*node.decorator_list, node.args))
        elif isinstance(node, ast.ClassDef):
            self.bind(node.name)
            self._all((*node.decorator_list, *node.bases, *node.keywords))
        elif isinstance(node, ast.Lambda):
            self.visit(node.args)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
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

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for each in nodes:
            self.visit(each)


def module_named(name: str, owned: Callable[[ModuleType], bool]) -> Any:
    """The module `name`: one of the project is imported if it was not yet, one of a library stays a name."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return Unknown(f"the module {name} cannot be found")
        if not owned(importlib.util.module_from_spec(spec)):
            return Named(name)
        return importlib.import_module(name)
    except Exception as error:  # A module of the project runs when it is imported, and may do anything.
        return Unknown(f"the module {name} cannot be imported: {type(error).__name__}")


def _attribute(thing: Any, name: str) -> Any:
    """An attribute of a module, or of what is known by its name."""
    if isinstance(thing, Unknown):
        return thing
    if isinstance(thing, Named):
        return Named(f"{thing.path}.{name}")
    if name in vars(thing):
        return vars(thing)[name]
    submodule = sys.modules.get(f"{thing.__name__}.{name}")
    return submodule if submodule is not None else Unknown(f"{thing.__name__} has no {name}")


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
