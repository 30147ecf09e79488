"""The syntax tree of one function as data, with numbers in the place of its variables' names.

What stands in the tree for a value, be it a constant, a global or what the function has captured, is a hole; the values
are listed apart, in the tree's order.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import io
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any, TypeAlias, cast

from headrace import user_source
from headrace.planner.code import scope
from headrace.planner.code.normal_body import normalise_body

Data: TypeAlias = dict[str, Any]
HOLE = "VALUE"
_ANY_ARGUMENTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
# Those whose results depend on the names of variables.
_SEES_VARIABLES = (locals, vars, eval, exec, dir)
_LOG = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"})
_READS = ("get", "pop", "setdefault", "__getitem__", "__contains__")
_LOOKUPS = ("get", "__getitem__", "__contains__")
_FILE_READERS = ("read_text", "read_bytes")
# Functions of libraries that read the file that their first argument names.
_READERS = ("numpy.load", "numpy.genfromtxt", "numpy.fromfile")
# Of no effect, or not the same in every version of Python.
_LEFT_OUT = ("ctx", "kind", "type_comment", "type_params", "lineno", "str")


class LoadedValues:
    """What one root function and the functions inside it load, in the order of the tree.

    free: the variables that it captures. outer: those of them that some function changes, in the order of their use.
    """

    def __init__(
        self, encode: Callable[[Any], Data], uses: scope.Uses, scope: scope.Scope, free: Collection[str]
    ) -> None:
        self.encode, self.uses, self.scope, self.free = encode, uses, scope, free
        self.entries: list[Data] = []
        self.outer: list[str] = []


def list_tree(definition: user_source.Definition, values: LoadedValues) -> Data:
    """Return the tree of a root function; what it loads is put into `values`."""
    owner = definition.owner.lstrip("_")
    return _Tree(definition.node, values, None, f"_{owner}" if owner else "").function()


class _Tree:
    """One scope: a function, a class or a comprehension inside the root function, or that itself."""

    def __init__(self, node: ast.AST, values: LoadedValues, outer: _Tree | None, mangled: str) -> None:
        self._node, self._values, self._outer, self._mangled = node, values, outer, mangled
        self._depth: int = 0 if outer is None else outer._depth + 1
        self._is_class = isinstance(node, ast.ClassDef)
        self._numbers: dict[str, str] = {}
        self._variables: user_source.BoundNames = user_source.variables(node)
        self._sees_variables = False
        self._imported: dict[str, Any] = {} if self._is_class else dict(self._fixed_imports())

    # ------------------------------------------------------------------------------------------------ the scopes

    def function(self) -> Data:
        """Return the data of a function: its parameters by their place, and its body."""
        node = cast(user_source.FunctionNode, self._node)
        arguments = node.args
        positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        for number, name in enumerate(positional):
            self._numbers[name] = f"{self._depth}:{number}"
        self._numbers |= {argument.arg: f"{self._depth}:{argument.arg}=" for argument in arguments.kwonlyargs}
        for stars, rest in (("*", arguments.vararg), ("**", arguments.kwarg)):
            if rest is not None:
                self._numbers[rest.arg] = f"{self._depth}:{stars}"
        data: Data = {"positional": len(positional), "names": positional}
        data["keyword"] = sorted(argument.arg for argument in arguments.kwonlyargs)
        data["rest"] = [arguments.vararg is not None, arguments.kwarg is not None]
        data["flags"] = _kinds(node)
        if arguments.posonlyargs:
            data["positional only"] = len(arguments.posonlyargs)
        data["body"] = self._block(normalise_body(node))
        if self._sees_variables:
            data["variables"] = sorted(map(list, self._numbers.items()))
        return data

    def _inner(self, node: ast.AST) -> _Tree:
        return _Tree(node, self._values, self, "" if isinstance(node, ast.ClassDef) else self._mangled)

    def _fixed_imports(self) -> Iterator[tuple[str, Any]]:
        """Yield what the import statements give to the variables that nothing else is put into."""
        changed = {name for part in ast.walk(self._node) if isinstance(part, ast.Nonlocal) for name in part.names}
        for statement in self._variables.imports:
            for name, value in self._values.scope.import_values(statement).items():
                if self._variables.bound.get(name) == 1 and name in self._variables.own - changed:
                    yield name, value

    def _place(self, name: str) -> tuple[str, Any]:
        """Return what a name stands for: `variable` and its number, `value` and what it holds, or `global`."""
        if name in self._variables.globals:
            return "global", name
        if name in self._variables.own:
            if name in self._imported:
                return "value", (self._imported[name], f"the import {name}")
            if self._is_class:
                return "variable", f"class {name}"
            return "variable", self._numbers.setdefault(name, f"{self._depth}:local {len(self._numbers)}")
        outer = self._outer
        while outer is not None and outer._is_class:
            outer = outer._outer
        if outer is not None:
            return outer._place(name)
        values = self._values
        if name in values.scope.captured:
            return "value", (values.scope.captured[name], f"captured value `{name}`")
        if name in values.free:
            if name not in values.outer:
                values.outer.append(name)
            return "variable", f"outer {values.outer.index(name)}"
        return "global", name

    # ------------------------------------------------------------------------------------------------ statements

    def _block(self, statements: Sequence[ast.stmt]) -> list[Any]:
        return [part for statement in statements for part in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> Iterator[Any]:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, value in self._values.scope.import_values(node).items():
                if name not in self._imported:
                    yield ["Assign", [self._store(name)], self._hole(value, f"the import {name}")]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [self.expression(part) for part in node.decorator_list]
            yield ["Assign", [self._store(node.name)], [*decorators, self._function(node)]]
        elif isinstance(node, ast.ClassDef):
            yield ["Assign", [self._store(node.name)], self._class(node)]
        elif isinstance(node, ast.Expr) and self._is_log_call(node.value):
            call = cast(ast.Call, node.value)
            for part in (*call.args, *(keyword.value for keyword in call.keywords)):
                if not _is_plain(part):
                    yield ["Expr", self.expression(part)]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            yield ["Assign", [self.expression(part) for part in node.targets], [self._function(node.value)]]
        elif isinstance(node, (ast.For, ast.AsyncFor)):  # Its iterable is seen first, as in a comprehension.
            parts = [self.expression(node.iter), self.expression(node.target)]
            yield [type(node).__name__, *parts, self._block(node.body), self._block(node.orelse)]
        else:
            yield self._generic(node)

    def _is_log_call(self, node: ast.expr) -> bool:
        """Whether a call only writes to a log or to the worker's output."""
        if not isinstance(node, ast.Call):
            return False
        callee = self._static(node.func)
        if callee is not None and callee[0] is print:
            return True
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in _LOG:
            return False
        logger = node.func.value
        if isinstance(logger, ast.Call):
            made = self._static(logger.func)
            return made is not None and made[0] is logging.getLogger
        held = self._static(logger)
        return held is not None and (isinstance(held[0], logging.Logger) or held[0] is logging)

    def _class(self, node: ast.ClassDef) -> list[Any]:
        decorators = [self.expression(part) for part in node.decorator_list]
        bases = [self.expression(part) for part in (*node.bases, *node.keywords)]
        inside = self._inner(node)
        self._values.uses.add(*inside._variables.bound)
        return ["class", decorators, bases, inside._block(normalise_body(node))]

    def _function(self, node: user_source.FunctionNode) -> list[Any]:
        given = (*node.args.defaults, *node.args.kw_defaults)
        defaults = [None if default is None else self.expression(default) for default in given]
        return ["function", defaults, self._inner(node).function()]

    # ----------------------------------------------------------------------------------------------- expressions

    def expression(self, node: ast.AST) -> Any:
        """Return the data of an expression, with a hole for a value that is known before it runs."""
        static = self._static(node)
        if static is not None:
            value, shown = static
            if scope.is_environment(value):
                value = scope.Environment(None)
            return self._hole(value, shown)
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None and (data := method(node)) is not None:
            return data
        return self._generic(node)

    def _generic(self, node: ast.AST) -> list[Any]:
        data: list[Any] = [type(node).__name__]
        for name, value in ast.iter_fields(node):
            if name in _LEFT_OUT or value is None or value == []:
                continue
            if name in ("name", "rest") and isinstance(value, str):  # Of an `except` or a pattern.
                data.append([name, self._store(value)])
            elif isinstance(value, list):
                is_block = value and isinstance(value[0], ast.stmt)
                data.append([name, self._block(value) if is_block else [self._part(element) for element in value]])
            else:
                data.append([name, self._part(value)])
        return data

    def _part(self, value: Any) -> Any:
        if isinstance(value, (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)):
            return type(value).__name__
        return self.expression(value) if isinstance(value, ast.AST) else value

    def _hole(self, value: Any, shown: str = "") -> str:
        values = self._values
        self._sees_variables |= any(value is function for function in _SEES_VARIABLES)
        data: Data = {"value": values.encode(value)}
        if shown:
            data["name"] = shown
        values.entries.append(data)
        return HOLE

    def _store(self, name: str) -> Any:
        kind, place = self._place(name)
        if kind == "global":
            self._values.uses.set_globals.add(place)
            return ["global", place]
        if kind == "value":  # An import that an except or a loop repeats.
            return ["import", name]
        if self._is_class and str(place).startswith("class "):
            self._values.uses.add(name)
        return place

    def _name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return self._store(node.id)
        return self._place(node.id)[1]

    def _attribute(self, node: ast.Attribute) -> Any:
        name = self._private(node.attr)
        self._values.uses.add(name)
        self._values.uses.dynamic |= name in ("__dict__", "__getattribute__")
        return ["Attribute", self.expression(node.value), name, type(node.ctx).__name__]

    def _private(self, name: str) -> str:
        is_private = name.startswith("__") and not name.endswith("__")
        return f"{self._mangled}{name}" if is_private and self._mangled else name

    def _subscript(self, node: ast.Subscript) -> Any:
        held = self._static(node.value)
        if held is None:
            return None
        value, shown = held
        if scope.is_environment(value):
            return [HOLE, self._variable_of(node.slice, shown), type(node.ctx).__name__]
        if type(value) is dict:
            hole = self._hole(scope.Lookup(value), shown)
            return ["Subscript", hole, self.expression(node.slice), type(node.ctx).__name__]
        return None

    def _compare(self, node: ast.Compare) -> Any:
        held = self._static(node.comparators[0])
        if held is None or len(node.ops) > 1 or not isinstance(node.ops[0], ast.In):
            return None
        value, shown = held
        if scope.is_environment(value):
            return ["In", self._variable_of(node.left, shown)]
        if type(value) is dict:
            return ["In", self.expression(node.left), self._hole(scope.Lookup(value), shown)]
        return None

    def _call(self, node: ast.Call) -> Any:
        function = node.func
        callee = self._static(function)
        if callee is not None and (given := self._by_parameter(callee[0], node)) is not None:
            called = self.expression(function)
            # If some code gives the name to another function, how the call is written counts.
            self._values.entries[-1]["call"] = [len(node.args), [keyword.arg for keyword in node.keywords]]
            return ["Call", called, [None if value is None else self.expression(value) for value in given]]
        for keyword in node.keywords:
            if keyword.arg is None:
                self._values.uses.any_keyword = True
            else:
                self._values.uses.add(keyword.arg)
                self._values.uses.keywords.add(keyword.arg)
        if callee is not None and callee[0] is os.getenv:
            variable = self._variable_of(node.args[0] if node.args else None, callee[1])
            return ["getenv", variable, self._arguments(node, 1)]
        if callee is not None and (file := self._file_opened_by(callee[0], node)) is not None:
            return ["Call", self.expression(function), self._hole(file), self._arguments(node, 0)]
        if isinstance(function, ast.Attribute):
            return self._method(node, function)
        return None

    def _by_parameter(self, function: Any, node: ast.Call) -> list[ast.expr | None] | None:
        """Return what a call gives to each parameter of a project's function, None for its default; None: not certain.

        The arguments must stand in the order of the parameters, in which they are computed.
        """
        if type(function) is not FunctionType or function.__code__.co_flags & _ANY_ARGUMENTS:
            return None
        module, code = sys.modules.get(function.__module__), function.__code__
        if module is not None and not self._values.scope.owned(module):
            return None
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        pairs = [*zip(names[: code.co_argcount], node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
        by_name = names[code.co_posonlyargcount :]
        given = {name: value for name, value in pairs if name in by_name or value in node.args}
        defaults = function.__defaults__ or ()
        optional = dict(zip(names[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True))
        optional |= function.__kwdefaults__ or {}
        is_sure = len(given) == len(node.args) + len(node.keywords) and set(names) == {*given, *optional}
        if not is_sure or list(given) != [name for name in names if name in given]:
            return None
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return None
        values = [None if _is_default(given.get(name), optional.get(name, ...)) else given[name] for name in names]
        while values and values[-1] is None:
            values.pop()
        return values

    def _method(self, node: ast.Call, function: ast.Attribute) -> Any:
        """Return the data of a method call on a known value of which only a part counts."""
        held = self._static(function.value)
        path = self._path(function.value)
        reads = function.attr in _FILE_READERS or (function.attr == "open" and path is not None)
        if reads and not _writes(node, 0):
            return ["Call", self._attribute(function), self._hole(scope.OpenedFile(path)), self._arguments(node, 0)]
        if held is None:
            return None
        value, shown = held
        if scope.is_environment(value) and function.attr in _READS:
            key = self._variable_of(node.args[0] if node.args else None, shown)
            return ["Call", function.attr, key, self._arguments(node, 1)]
        if type(value) is dict and function.attr in _LOOKUPS:
            self._values.uses.add(function.attr)
            return ["Call", function.attr, self._hole(scope.Lookup(value), shown), self._arguments(node, 0)]
        return None

    def _arguments(self, node: ast.Call, first: int) -> list[Any]:
        return [self.expression(argument) for argument in (*node.args[first:], *node.keywords)]

    def _variable_of(self, key: ast.AST | None, shown: str) -> str:
        """Return a hole for the environment variable that is read by `key`."""
        static = None if key is None else self._static(key)
        name = static[0] if static is not None and isinstance(static[0], str) else None
        return self._hole(scope.Environment(name), shown)

    def _file_opened_by(self, function: Any, node: ast.Call) -> scope.OpenedFile | None:
        """Return the file that a call reads; None for a call that reads none."""
        first = node.args[0] if node.args else None
        if function in (builtins.open, io.open, os.open):
            return None if _writes(node, 1) else scope.OpenedFile(None if first is None else self._path(first))
        name = function.path if isinstance(function, scope.Named) else ""
        if isinstance(function, FunctionType):
            name = f"{function.__module__}.{function.__name__}"
        is_reader = name.startswith(_READERS) or (name.startswith("pandas.") and ".read_" in name)
        path = self._path(first) if is_reader and first is not None else None
        return None if path is None or "://" in path else scope.OpenedFile(path)

    def _path(self, node: ast.AST) -> str | None:
        """Return the path that an expression is known to give."""
        static = self._static(node)
        if static is not None:
            return str(static[0]) if isinstance(static[0], (str, PurePath)) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = self._path(node.left), self._path(node.right)
            return None if None in parts else os.path.join(*cast("tuple[str, str]", parts))
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            made = self._static(node.func)
            if made is not None and isinstance(made[0], type) and issubclass(made[0], PurePath):
                return self._path(node.args[0])
        return None

    def _lambda(self, node: ast.Lambda) -> Any:
        return [self._function(node)]

    def _comprehension_of(self, node: Any) -> Any:
        """Return the data of a comprehension, whose first iterable is computed outside."""
        first = self.expression(node.generators[0].iter)
        inside = self._inner(node)
        parts = []
        for number, generator in enumerate(node.generators):
            iterable = first if number == 0 else inside.expression(generator.iter)
            conditions = [inside.expression(condition) for condition in generator.ifs]
            parts.append([iterable, inside.expression(generator.target), conditions, generator.is_async])
        names = ("key", "value") if isinstance(node, ast.DictComp) else ("elt",)
        return [type(node).__name__, parts, *(inside.expression(getattr(node, name)) for name in names)]

    _listcomp = _setcomp = _dictcomp = _generatorexp = _comprehension_of

    def _namedexpr(self, node: ast.NamedExpr) -> Any:
        scope = self
        while isinstance(scope._node, user_source.COMPREHENSIONS) and scope._outer is not None:
            scope = scope._outer
        return ["Assign", scope._store(node.target.id), self.expression(node.value)]

    def _matchclass(self, node: ast.MatchClass) -> None:
        self._values.uses.add(*node.kwd_attrs)

    # ----------------------------------------------------------------------------- what is known before it runs

    def _static(self, node: ast.AST) -> tuple[Any, str] | None:
        """Return the value that an expression has in every run of the code, and what it is called there."""
        if isinstance(node, ast.Constant):
            return node.value, ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            kind, place = self._place(node.id)
            if kind == "variable":
                return None
            return place if kind == "value" else (self._values.scope.lookup(place), f"global {place}")
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            return self._known_attribute(node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            held, key = self._static(node.value), self._static(node.slice)
            if held is None or key is None or type(held[0]) is not dict or not held[1]:
                return None
            entries, shown = held
            is_entry = type(key[0]) in (str, int) and key[0] in entries
            return (entries[key[0]], f"{shown}[{key[0]!r}]") if is_entry else None
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
            made = self._static(node.func)
            name = self._static(node.args[0]) if made is not None and made[0] is importlib.import_module else None
            if name is not None and type(name[0]) is str:
                return self._values.scope.module_named(name[0]), f"the import {name[0]}"
        return None

    def _known_attribute(self, node: ast.Attribute) -> tuple[Any, str] | None:
        held = self._static(node.value)
        if held is None or not held[1] or not isinstance(held[0], (ModuleType, scope.Named)):
            return None
        value = scope.attribute_of(held[0], node.attr, self._values.scope.owned)
        if isinstance(value, scope.Unknown):
            return None
        return value, f"{held[1].removeprefix('global ').removeprefix('the import ')}.{node.attr}"


def _kinds(node: user_source.FunctionNode) -> int:
    """Whether a function is a coroutine, and whether it is a generator, though its `yield` may never be reached."""
    yields = any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in user_source.own_nodes(node))
    return 2 * isinstance(node, ast.AsyncFunctionDef) + yields


def _is_default(given: ast.expr | None, default: Any) -> bool:
    """Whether a parameter gets its default, by no argument or by a constant that is the same."""
    if given is None:
        return True
    same = isinstance(given, ast.Constant) and type(given.value) is type(default) and repr(given.value) == repr(default)
    return same and isinstance(default, (type(None), bool, int, float, str, bytes))


def _is_plain(node: ast.AST) -> bool:
    """Whether computing an expression has no side effect."""
    calls = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Starred, *user_source.COMPREHENSIONS)
    return not any(isinstance(part, calls) for part in ast.walk(node))


def _writes(node: ast.Call, position: int) -> bool:
    """Whether a call opens a file to write it, by the mode that stands in the call."""
    modes = [keyword.value for keyword in node.keywords if keyword.arg == "mode"] + node.args[position : position + 1]
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else "r"
    return isinstance(mode, str) and not mode.startswith("r")
