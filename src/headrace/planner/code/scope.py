"""What the names in a function's code stand for, and which of them the code uses."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

from headrace.user_code import import_as

Data: TypeAlias = dict[str, Any]
# With these the names of attributes are no longer known before.
DYNAMIC = (getattr, vars, dir, setattr, delattr, hasattr)
_NAME = re.compile(r"[A-Za-z_]\w{0,99}")
# What each function and class has; a change of it counts only where the code asks for it.
_OWN_NAMES = ("__name__", "__qualname__", "__doc__", "__annotations__")


class Uses:
    """The names that the code uses so far, and the attributes that wait until the code uses their names.

    Nothing else can reach an attribute of a class of the project: so a method that is never called may change.
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
        """Keep an attribute of `node` back until its name is used."""
        self._waiting.append((node, name, value))

    def keep_own_names(self, node: Data, thing: Any) -> None:
        """Keep the names and the documentation of a function or a class back."""
        for name in _OWN_NAMES:
            self.keep(node, name, own_attribute(thing, name))

    def take(self) -> list[tuple[Data, str, Any]]:
        """Return the attributes whose names are used by now."""
        taken = [entry for entry in self._waiting if self._is_used(entry[1])]
        self._waiting = [entry for entry in self._waiting if not self._is_used(entry[1])]
        return taken

    def _is_used(self, name: str) -> bool:
        return name in self._names or (self.dynamic and name not in _OWN_NAMES)

    def finish(self, nodes: list[Data]) -> None:
        """Record the parameters that some call gives a value by name, and the globals that some function sets."""
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


def own_attribute(thing: Any, name: str) -> Any:
    """Return an attribute of a function or a class, the same in each version of Python."""
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

    captured: the values of the variables that it captures and that no function changes.
    owned: whether a module belongs to the project.
    """

    globals: Mapping[str, Any]
    captured: Mapping[str, Any]
    owned: Callable[[ModuleType], bool]

    def lookup(self, name: str) -> Any:
        """Return the value of a global."""
        if name in _OF_THE_MODULE:
            return Named(f"the module's {name}")
        if name in self.globals:
            return self.globals[name]
        return getattr(builtins, name) if hasattr(builtins, name) else Named(f"nothing called {name}")

    def import_values(self, statement: ast.Import | ast.ImportFrom) -> dict[str, Any]:
        """Return the values of the variables that an import statement sets."""
        if isinstance(statement, ast.ImportFrom):
            module = self._module(statement.module or "", statement.level, whole=True)
            return {alias.asname or alias.name: self._part(module, alias.name) for alias in statement.names}
        return {
            alias.asname or alias.name.partition(".")[0]: self._module(alias.name, 0, whole=alias.asname is not None)
            for alias in statement.names
        }

    def _part(self, module: Any, name: str) -> Any:
        """Return what `from module import name` gives: an attribute, or a module of the package."""
        value = _attribute_of(module, name)
        if isinstance(value, Unknown) and isinstance(module, ModuleType) and hasattr(module, "__path__"):
            return self.module_named(f"{module.__name__}.{name}")
        return value

    def _module(self, name: str, level: int, *, whole: bool) -> Any:
        """Return the module that an import statement gives: of `import a.b` it is `a`."""
        full = name
        if level:
            package = self.globals.get("__package__") or str(self.globals.get("__name__", "")).rpartition(".")[0]
            try:
                full = importlib.util.resolve_name("." * level + name, package)
            except ImportError:
                return Unknown(f"the module {'.' * level}{name} cannot be found")
        module = self.module_named(full)
        if whole or "." not in full or isinstance(module, Unknown):
            return module
        return self.module_named(full.partition(".")[0])

    def module_named(self, name: str) -> Any:
        """Return the module `name`: a project's is imported if necessary, a library's stays a name."""
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


def _attribute_of(thing: Any, name: str) -> Any:
    """Return an attribute of a module, or of what is known by its name."""
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
    """Return an attribute of a module: its value if the module belongs to the project, else where it is found."""
    value = _attribute_of(module, name)
    if isinstance(module, ModuleType) and not owned(module) and not isinstance(value, Unknown):
        kept = value is os.environ or value is os.getenv or value is sys.modules
        # One thing has one name, wherever it was imported from.
        by_itself = isinstance(value, (ModuleType, FunctionType, type))
        return value if kept or by_itself else Named(f"{module.__name__}.{name}")
    return value


def is_environment(value: Any) -> bool:
    """Whether a value is the mapping of all environment variables."""
    return isinstance(value, type(os.environ))
