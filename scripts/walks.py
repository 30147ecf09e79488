"""How many files a reader passes who follows a start or a plan through the source: `python -m scripts.walks`.

A walk begins at a function and follows, in the order of the source, each call of a function of ours that the syntax
resolves: names, imports, constructors, and methods of values whose class is annotated or was just constructed. A
function is entered once. Calls into the rooms of `CLOSED` are not followed: they answer a question whose name says all.

At 05d3b68e a start was 44 files, 291 stops and 247 returns, a plan 26 files, 127 stops and 101 returns.

files: modules entered; stops: stays in a module, one after another; returns: stays in a module that was left before.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Rooms that are not entered, by their names of today and of before.
CLOSED = ("storage", "spark", "planner", "plan", "checks", "check", "frames", "errors")
# The first of each that the source has.
ENTRIES = {
    "start": ("starter.start.start", "run.start.start"),
    "plan": ("starter.plan.plan", "run.plan.plan"),
}
PACKAGE = "headrace"


class Walk(NamedTuple):
    """What a reader passes."""

    files: int
    stops: int
    returns: int


@dataclass(kw_only=True)
class Module:
    """One file: its definitions, and what its imports name."""

    name: str
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


class Source:
    """The modules of a source tree, with the calls in them resolved as far as the syntax shows."""

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = _module(name, ast.parse(path.read_text(encoding="utf-8")))

    def resolve(self, dotted: str) -> tuple[Module, str] | None:
        """The module and the definition that a dotted name means, through names that are handed on."""
        for _ in range(8):
            place, _, name = dotted.rpartition(".")
            module = self.modules.get(place)
            if module is None:
                return None
            if name in module.functions or name in module.classes:
                return module, name
            if name not in module.imports:
                return None
            dotted = module.imports[name]
        return None

    def method(self, owner: tuple[Module, str], name: str) -> tuple[Module, str, ast.FunctionDef] | None:
        """A method of a class or of its bases, with the module and the class that define it."""
        module, class_name = owner
        definition = module.classes.get(class_name)
        if definition is None:
            return None
        for node in definition.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return module, class_name, node
        for base in definition.bases:
            parent = self.resolve_name(module, base)
            if parent and parent != owner and (inherited := self.method(parent, name)):
                return inherited
        return None

    def resolve_name(self, module: Module, node: ast.expr) -> tuple[Module, str] | None:
        """The definition that a name or an attribute of a module means in `module`."""
        if isinstance(node, ast.Name):
            if node.id in module.functions or node.id in module.classes:
                return module, node.id
            return self.resolve(module.imports[node.id]) if node.id in module.imports else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in module.imports:
            return self.resolve(f"{module.imports[node.value.id]}.{node.attr}")
        return None

    def resolve_annotation(self, module: Module, node: ast.expr | None) -> tuple[Module, str] | None:
        """The class of ours that an annotation names; of a union the first one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp):
            return self.resolve_annotation(module, node.left) or self.resolve_annotation(module, node.right)
        owner = self.resolve_name(module, node) if node is not None else None
        return owner if owner and owner[1] in owner[0].classes else None


def _module(name: str, tree: ast.Module) -> Module:
    module = Module(name=name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            place = (node.module or "")[len(PACKAGE) :].lstrip(".")
            for alias in node.names:
                module.imports[alias.asname or alias.name] = f"{place}.{alias.name}".lstrip(".")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            module.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
    return module


class Reader:
    """One walk through a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.trail: list[str] = []
        self._entered: set[int] = set()

    def walk(self, entry: str) -> Walk:
        """Follow `entry`, a dotted name in the package, to its end."""
        target = self.source.resolve(entry)
        if target is None:
            raise SystemExit(f"{entry} is not a function of the source")
        module, name = target
        self._enter(module, None, module.functions[name])
        stays = [name for before, name in zip(["", *self.trail], self.trail, strict=False) if name != before]
        return Walk(len(set(stays)), len(stays), len(stays) - len(set(stays)))

    def _enter(self, module: Module, owner: tuple[Module, str] | None, function: ast.FunctionDef) -> None:
        if id(function) in self._entered or module.name.split(".")[0] in CLOSED:
            return
        self._entered.add(id(function))
        self.trail.append(module.name)
        types = self._parameters(module, owner, function)
        for node in _in_order(function):
            if isinstance(node, ast.Call):
                self._follow(module, types, node)
                self.trail.append(module.name)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                if made := self._type_of(module, types, node.value):
                    types[node.targets[0].id] = made
            elif (
                isinstance(node, ast.withitem)
                and isinstance(node.optional_vars, ast.Name)
                and (made := self._type_of(module, types, node.context_expr))
            ):
                types[node.optional_vars.id] = made

    def _parameters(
        self, module: Module, owner: tuple[Module, str] | None, function: ast.FunctionDef
    ) -> dict[str, tuple[Module, str]]:
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        types = {arg.arg: kind for arg in arguments if (kind := self.source.resolve_annotation(module, arg.annotation))}
        return types | ({"self": owner} if owner else {})

    def _follow(self, module: Module, types: dict[str, tuple[Module, str]], call: ast.Call) -> None:
        target = self.source.resolve_name(module, call.func)
        if target is not None:
            place, name = target
            if name in place.functions:
                self._enter(place, None, place.functions[name])
                return
            for special in ("__init__", "__post_init__"):
                if method := self.source.method(target, special):
                    self._enter(method[0], target, method[2])
        elif (
            isinstance(call.func, ast.Attribute)
            and (owner := self._type_of(module, types, call.func.value))
            and (method := self.source.method(owner, call.func.attr))
        ):
            self._enter(method[0], owner, method[2])

    def _type_of(
        self, module: Module, types: dict[str, tuple[Module, str]], node: ast.expr
    ) -> tuple[Module, str] | None:
        """The class of ours that an expression gives, as far as annotations say."""
        if isinstance(node, ast.Name):
            return types.get(node.id) or self._class(self.source.resolve_name(module, node))
        if isinstance(node, ast.Attribute):
            owner = self._type_of(module, types, node.value)
            return self._attribute(owner, node.attr) if owner else self._class(self.source.resolve_name(module, node))
        if isinstance(node, ast.Call):
            if target := self.source.resolve_name(module, node.func):
                place, name = target
                if name in place.functions:
                    return self.source.resolve_annotation(place, place.functions[name].returns)
                return target
            if (
                isinstance(node.func, ast.Attribute)
                and (owner := self._type_of(module, types, node.func.value))
                and (method := self.source.method(owner, node.func.attr))
            ):
                return self.source.resolve_annotation(method[0], method[2].returns)
        return None

    @staticmethod
    def _class(target: tuple[Module, str] | None) -> tuple[Module, str] | None:
        return target if target and target[1] in target[0].classes else None

    def _attribute(self, owner: tuple[Module, str], name: str) -> tuple[Module, str] | None:
        module, class_name = owner
        for node in module.classes[class_name].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return self.source.resolve_annotation(module, node.annotation)
        if method := self.source.method(owner, name):  # a property
            return self.source.resolve_annotation(method[0], method[2].returns)
        return None


def _in_order(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, arguments of a call before the call, inner functions included."""
    for statement in function.body:
        yield from _after_children(statement)


def _after_children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from _after_children(child)
    yield node


def walks(root: Path) -> dict[str, Walk]:
    """Each walk of `ENTRIES` through the package in `root`."""
    source = Source(root)
    return {
        name: Reader(source).walk(next(entry for entry in entries if source.resolve(entry)))
        for name, entries in ENTRIES.items()
    }


if __name__ == "__main__":
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src" / PACKAGE
    for name, walk in walks(directory).items():
        print(f"{name}: {walk.files} files, {walk.stops} stops, {walk.returns} returns")
