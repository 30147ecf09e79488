"""The source of a function: its node in the syntax tree of its file, and the names that its code uses."""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

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
    """

    def __init__(self, keywords: Collection[str]) -> None:
        self.dynamic = False
        self._names: set[str] = set()
        self._keywords = set(keywords)
        self.any_keyword = False
        self._set: set[str] = set()
        self._waiting: list[tuple[Data, str, Any]] = []

    def add(self, *names: str) -> None:
        """Note names of attributes; a text may be one, for `getattr` and the like."""
        self._names.update(name for name in names if _NAME.fullmatch(name))

    def add_keywords(self, *names: str) -> None:
        """Note names of parameters that values are given to by name."""
        self._keywords.update(names)

    def set_global(self, name: str) -> None:
        """Note a global that some function gives a value to."""
        self._set.add(name)

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
                    data["named"] = [[n, name] for n, name in enumerate(data["names"]) if self._is_keyword(name)]
                if str(data.get("name", "")).startswith("global ") and data["name"][7:] in self._set:
                    data["set"] = data["name"]
                waiting.extend(data.values())
            elif isinstance(data, list):
                waiting.extend(data)

    def _is_keyword(self, name: str) -> bool:
        return self.any_keyword or name in self._keywords


def own(thing: Any, name: str) -> Any:
    """What a function or a class says of itself, alike in each version of Python."""
    try:
        value = getattr(thing, name, None)
    except Exception:  # From Python 3.14 on annotations are computed when they are asked for.
        return None
    return inspect.cleandoc(value) if name == "__doc__" and isinstance(value, str) else value
