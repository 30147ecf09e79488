"""What the names in a function's steps stand for: globals, captured values, imports, attributes of modules."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from headrace.plan.bytecode import Step, is_class_body, nested, null_beside, parameters, stored, without

VALUE = "VALUE"
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME")
_OF_THE_MODULE = ("__name__", "__file__", "__package__", "__spec__", "__loader__", "__builtins__", "__doc__")
_PYTHON = sys.version_info[:2]
_READS = ("get", "pop", "setdefault", "__getitem__", "__contains__")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


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
    shown: Mapping[str, str] = field(default_factory=dict)

    def lookup(self, name: str) -> Any:
        """The value of a global."""
        if name in _OF_THE_MODULE:
            return Named(f"the module's {name}")
        if name in self.globals:
            return self.globals[name]
        return getattr(builtins, name) if hasattr(builtins, name) else Named(f"nothing called {name}")


def resolved(code: CodeType, steps: list[Step], scope: Scope) -> tuple[list[Step], Scope]:
    """`steps` with values in the place of names, and the scope of the functions inside."""
    steps, imported = _imports(code, steps, scope)
    shown = {name: f"the import {name}" for name in imported}
    inner = Scope(scope.globals, {**scope.captured, **imported}, scope.owned, {**scope.shown, **shown})
    own = set(stored(code, "STORE_NAME")) if is_class_body(code) else set()
    for step in steps:
        if step.op == "LOAD_CONST":
            step.op = VALUE
        elif step.op == "LOAD_GLOBAL" or (step.op == "LOAD_NAME" and step.arg not in own):
            _becomes(step, scope.lookup(step.arg), f"global {step.arg}")
        elif step.op in ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF") and step.arg in imported:
            _becomes(step, imported[step.arg], shown[step.arg])
        elif (
            step.op in ("LOAD_DEREF", "LOAD_CLASSDEREF") and step.arg in code.co_freevars and step.arg in inner.captured
        ):
            _becomes(step, inner.captured[step.arg], inner.shown.get(step.arg, f"captured value `{step.arg}`"))
    return _environment(_lookups(_methods(_attributes(steps, scope.owned)))), inner


def _becomes(step: Step, value: Any, shown: str) -> None:
    step.op, step.arg, step.shown = VALUE, value, shown


def _imports(code: CodeType, steps: list[Step], scope: Scope) -> tuple[list[Step], dict[str, Any]]:
    """`steps` without the imports into variables that nothing else is put into, and what these variables hold."""
    names = [name for each in nested(code) for name in stored(each, *_STORES, "DELETE_FAST", "DELETE_DEREF")]
    fixed = set() if is_class_body(code) else {name for name in names if names.count(name) == 1}
    fixed -= {name for group in parameters(code) for name in group} | set(code.co_freevars)
    imported: dict[str, Any] = {}
    gone: set[int] = set()
    for index, step in enumerate(steps):
        if step.op != "IMPORT_NAME":
            continue
        level, wanted = steps[index - 2].arg, steps[index - 1].arg
        module = _module(step.arg, level, wanted is not None, scope)
        found = _bound(steps, index, module)
        if found is not None and set(found[0]) <= fixed:
            imported.update(found[0])
            gone.update(range(index - 2, found[1]))
        else:
            _becomes(step, module, f"module {step.arg}")
    return without(steps, gone), imported


def _bound(steps: list[Step], index: int, module: Any) -> tuple[dict[str, Any], int] | None:
    """The variables that an import statement gives values to, and where its steps end; None if it is more than that."""
    stack, bound = [module], dict[str, Any]()
    position = index + 1
    while stack and position < len(steps):
        step = steps[position]
        if step.op == "IMPORT_FROM":
            stack.append(_attribute(stack[-1], step.arg))
        elif step.op == "ROT_TWO" or (step.op == "SWAP" and step.bits == 2):
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif step.op == "POP_TOP":
            stack.pop()
        elif step.op in _STORES:
            bound[step.arg] = stack.pop()
        else:
            return None
        position += 1
    return (bound, position) if bound else None


def _module(name: str, level: int, whole: bool, scope: Scope) -> Any:
    """The module that an import statement gives: of `import a.b` it is `a`."""
    full = name
    if level:
        package = scope.globals.get("__package__") or str(scope.globals.get("__name__", "")).rpartition(".")[0]
        try:
            full = importlib.util.resolve_name("." * level + name, package)
        except ImportError:
            return Unknown(f"the module {'.' * level}{name} cannot be found")
    found = module_named(full, scope.owned)
    if whole or "." not in full or level:
        return found
    top = module_named(full.partition(".")[0], scope.owned)
    return top if not isinstance(found, Unknown) else found


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
    if isinstance(module, ModuleType) and not owned(module):
        kept = found is os.environ or found is os.getenv or found is sys.modules
        # One thing has one name, wherever it was imported from.
        by_itself = isinstance(found, (ModuleType, FunctionType, type))
        return found if kept or by_itself else Named(f"{module.__name__}.{name}")
    return found


def _attributes(steps: list[Step], owned: Callable[[ModuleType], bool]) -> list[Step]:
    """`steps` with `module.name` and `mapping["key"]` read."""
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found and not step.is_target else None
        if before is None or before.op != VALUE or not before.shown:
            found.append(step)
        elif step.op in _ATTRIBUTES and isinstance(before.arg, (ModuleType, Named)):
            value = attribute_of(before.arg, step.arg, owned)
            if isinstance(value, Unknown):
                found.append(step)
                continue
            shown = f"{before.shown.removeprefix('global ').removeprefix('the import ')}.{step.arg}"
            _becomes(before, value, shown)
            step.after = before
            if step.op == "LOAD_METHOD":
                found[-1:] = null_beside(before)
        else:
            found.append(step)
        _subscripts(found)
        _module_by_name(found, owned)
    return found


def _methods(steps: list[Step]) -> list[Step]:
    """`steps` with the method of a value called as such: of what its module imports a compiler calls an attribute."""
    gone: set[int] = set()
    for index, step in enumerate(steps):
        if step.op != VALUE or step.is_target:
            continue
        last = index
        while last + 1 < len(steps) and steps[last + 1].op == "LOAD_ATTR" and not steps[last + 1].is_target:
            last += 1
        beside = index - 1 if _PYTHON < (3, 13) else last + 1
        if last > index and 0 <= beside < len(steps) and steps[beside].op == "PUSH_NULL":
            steps[last].op = "LOAD_METHOD"
            gone.add(beside)
    return without(steps, gone)


def _lookups(steps: list[Step]) -> list[Step]:
    """`steps` with the mappings marked that are only looked up."""
    for index, step in enumerate(steps):
        if step.op != VALUE or type(step.arg) is not dict or step.arg is sys.modules:
            continue
        following = [*steps[index + 1 : index + 3], step, step]
        by_method = following[0].op in _ATTRIBUTES and following[0].arg in ("get", "__getitem__", "__contains__")
        by_key = following[0].op in (VALUE, "LOAD_FAST", "LOAD_DEREF") and following[1].op == "BINARY_SUBSCR"
        if by_method or by_key or following[0].op == "CONTAINS_OP":
            step.arg = Lookup(step.arg)
    return steps


def _module_by_name(found: list[Step], owned: Callable[[ModuleType], bool]) -> None:
    """Read a module in the place of a call of `importlib.import_module` with a constant name."""
    if found[-1].op not in ("CALL", "CALL_FUNCTION") or found[-1].arg != 1 or len(found) < 3:
        return
    steps = found[-4:-1] if any(each.op == "PUSH_NULL" for each in found[-4:-2]) else found[-3:-1]
    values = [each for each in steps if each.op == VALUE]
    if len(values) != 2 or values[0].arg is not importlib.import_module or type(values[1].arg) is not str:
        return
    if any(each.is_target for each in (*steps[1:], found[-1])):
        return
    head, gone = steps[0], [*steps[1:], found[-1]]
    _becomes(head, module_named(values[1].arg, owned), f"the import {values[1].arg}")
    for step in gone:
        step.after = head
    del found[-len(gone) :]


def _subscripts(found: list[Step]) -> None:
    """Read one entry in the place of a whole mapping of the project's."""
    if len(found) < 3 or found[-1].op not in ("BINARY_SUBSCR",) or found[-1].is_target or found[-2].is_target:
        return
    mapping, key = found[-3], found[-2]
    if mapping.op != VALUE or not mapping.shown or type(mapping.arg) is not dict or key.op != VALUE:
        return
    if type(key.arg) in (str, int) and key.arg in mapping.arg:
        _becomes(mapping, mapping.arg[key.arg], f"{mapping.shown}[{key.arg!r}]")
        for step in found[-2:]:
            step.after = mapping
        del found[-2:]


def _environment(steps: list[Step]) -> list[Step]:
    """`steps` with the environment variables that they read by name."""
    for index, step in enumerate(steps):
        if step.op != VALUE or not _is_environment(step.arg):
            continue
        rest = (each for each in steps[index + 1 :] if each.op != "PUSH_NULL")
        key = next(rest, None)
        if key is not None and key.op in _ATTRIBUTES and key.arg in _READS:
            key = next(rest, None)
        if key is None or key.op != VALUE or not isinstance(key.arg, str):
            following = steps[index + 1 : index + 2]
            key = steps[index - 1] if index and following and following[0].op == "CONTAINS_OP" else None
        known = key is not None and key.op == VALUE and isinstance(key.arg, str)
        step.arg = Environment(key.arg if known and key is not None else None)
    return steps


def _is_environment(value: Any) -> bool:
    return isinstance(value, type(os.environ)) or value is os.getenv


def captured_values(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function has captured and neither it nor a function inside it changes; what is not there yet is left."""
    code = function.__code__
    changed = {name for each in nested(code) for name in stored(each, "STORE_DEREF", "DELETE_DEREF")}
    # A variable of the same name that a function inside has for itself changes nothing here.
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name not in changed:
            try:
                yield name, cell.cell_contents
            except ValueError:
                yield name, Unknown(f"the captured value {name} is not set")
