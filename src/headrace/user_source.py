"""The source of the user's functions: their nodes in the syntax tree of their file, and the names that they bind."""

from __future__ import annotations
import __future__

import ast
import linecache
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeAlias

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_Key: TypeAlias = tuple[str, int]


class NoSource(Exception):
    """Why the source of a function is not available, in words."""


@dataclass(frozen=True)
class Definition:
    """A function as it is written.

    line: the first one, that of a decorator too. owner: the class around it, which changes its private names. outer:
    the function around it.
    """

    node: FunctionNode
    name: str
    line: int
    owner: str = ""
    outer: Definition | None = None


@dataclass(frozen=True)
class _File:
    """The functions of a file, as they are written and as they are compiled, by name and first line."""

    written: Mapping[_Key, list[Definition]]
    compiled: Mapping[_Key, list[CodeType]]


# Python 3.11 counts the depth of a tree for all threads together: one of two that parse at once gets a SystemError.
_PARSING = threading.Lock()


def parse(text: str | bytes, name: str = "<unknown>") -> ast.Module:
    """Parse Python, one text at a time (cpython issue 106905). Raises SyntaxError."""
    with _PARSING:
        return ast.parse(text, name)


def definition(code: CodeType, module: Mapping[str, Any]) -> Definition:
    """Find the definition of the function that `code` was compiled from; raise NoSource if there is none.

    module: the globals of the function, whose loader may have the source. A file that was edited after it was loaded
    is not the source of the code: its compiled form must be the code.
    """
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, dict(module)))
    if not text:
        raise NoSource("its source cannot be found")
    try:
        file = _parse(text, code.co_filename, code.co_flags & _FUTURE)
    except (SyntaxError, ValueError, RecursionError):
        raise NoSource("its source has changed since it was loaded") from None
    key = (code.co_name, code.co_firstlineno)
    if code not in file.compiled.get(key, ()):
        raise NoSource("its source has changed since it was loaded")
    candidates = file.written.get(key, [])
    if len(candidates) > 1:
        candidates = list(_around(code, candidates, file.compiled[key]))
    if len(candidates) != 1:
        raise NoSource("several functions stand on its line")
    return candidates[0]


def _around(code: CodeType, candidates: list[Definition], compiled: list[CodeType]) -> Iterator[Definition]:
    """Yield the one with the smallest body around all instructions; Python 3.10, without columns, has an order."""
    positions: Iterable[Any] = code.co_positions() if hasattr(code, "co_positions") else ()
    spans = [span for span in positions if None not in span and span[2:] != (0, 0)]
    if not spans:
        yield from candidates[compiled.index(code) :][:1] if len(compiled) == len(candidates) else ()
        return
    first = min((line, column) for line, _, column, _ in spans)
    last = max((line, column) for _, line, _, column in spans)
    inside = []
    for candidate in candidates:
        body = candidate.node.body if isinstance(candidate.node, ast.Lambda) else candidate.node
        begin, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
        if begin <= first and last <= end:
            inside.append((begin, end, candidate))
    # The later a body begins, the further inside it is.
    yield from (candidate for _, _, candidate in sorted(inside, key=lambda one: one[:2])[-1:])


@lru_cache(maxsize=256)
def _parse(text: str, name: str, flags: int) -> _File:
    written: defaultdict[_Key, list[Definition]] = defaultdict(list)
    _collect(parse(text, name), "", None, written)
    compiled: defaultdict[_Key, list[CodeType]] = defaultdict(list)
    waiting = [compile(text, name, "exec", flags=flags, dont_inherit=True)]
    while waiting:
        code = waiting.pop(0)
        compiled[code.co_name, code.co_firstlineno].append(code)
        waiting[:0] = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return _File(written=written, compiled=compiled)


def _collect(node: ast.AST, owner: str, outer: Definition | None, written: defaultdict[_Key, list[Definition]]) -> None:
    for child in ast.iter_child_nodes(node):
        function = outer
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            line = min(part.lineno for part in (child, *getattr(child, "decorator_list", ())))
            function = Definition(child, getattr(child, "name", "<lambda>"), line, owner, outer)
            written[function.name, line].append(function)
        _collect(child, child.name if isinstance(child, ast.ClassDef) else owner, function, written)


def captured_variables(function: FunctionType, unset: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the variables that a function has captured with their values; `unset` for one without a value yet."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, unset


def own_nodes(node: FunctionNode) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those inside the functions and classes in it."""
    waiting: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, SCOPES):
            waiting += ast.iter_child_nodes(part)


def bound_names(node: FunctionNode) -> set[str]:
    """Return the names of a function's own variables, those of its comprehensions too."""
    names = variables(node)
    stored = {part.id for part in own_nodes(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return {*names.bound, *stored} - names.globals - names.nonlocals


@dataclass(frozen=True)
class BoundNames:
    """The names that a function, a lambda or a class binds, with how often, and those that it takes from other scopes.

    imports: the import statements that bind some of them.
    """

    bound: Mapping[str, int]
    globals: frozenset[str]
    nonlocals: frozenset[str]
    imports: tuple[ast.Import | ast.ImportFrom, ...] = field(default=())

    @property
    def own(self) -> frozenset[str]:
        return frozenset(self.bound) - self.globals - self.nonlocals


def variables(node: ast.AST) -> BoundNames:
    """Return the names that the scope of `node` binds, by statements that are never reached too."""
    walk = _Bindings()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        given = node.args
        for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
            if argument is not None:
                walk.bind(argument.arg)
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
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    self.bind(inner.target.id)
        elif isinstance(node, ast.Global):
            self.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            self.nonlocals.update(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports.append(node)
            for inner in node.names:
                top = inner.name if isinstance(node, ast.ImportFrom) else inner.name.partition(".")[0]
                self.bind(inner.asname or top)
        elif not isinstance(node, ast.arg):
            if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
                self.bind(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest is not None:
                self.bind(node.rest)
            self.generic_visit(node)

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)
