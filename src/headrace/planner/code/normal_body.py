"""The body of a function in one form for all ways of writing it that behave the same.

Constants are folded; documentation, hints, `pass` and unreachable code are removed; the `not` of a condition swaps its
branches; what follows a branch that ends is moved into the other one, so that an unneeded `else` makes no difference; a
conditional value that is assigned or returned becomes an `if`. Functions and classes inside stay as they are: each has
a body of its own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from headrace.user_source import SCOPES

Body: TypeAlias = list[ast.stmt]
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_LONGEST = 4_096


def normalise_body(node: ast.AST) -> Body:
    """Return the statements of a function, a lambda or a class in the normal form."""
    if isinstance(node, ast.Lambda):
        body: Body = [ast.Return(value=copy.deepcopy(node.body))]
    else:
        body = copy.deepcopy(cast(ast.FunctionDef, node).body)
    body = [_Folded().visit(statement) for statement in body]
    return _normalise_block(
        body, None if isinstance(node, ast.ClassDef) else _NOTHING, hints=isinstance(node, ast.ClassDef)
    )


_NOTHING = ast.Return(value=ast.Constant(value=None))
_AGAIN = ast.Continue()


def _normalise_block(statements: Sequence[ast.stmt], end: ast.stmt | None, *, hints: bool = False) -> Body:
    """Return statements in the normal form.

    end: what follows the last one implicitly. hints: whether type hints count.
    """
    body: Body = []
    for index, written in enumerate(statements):
        statement = _as_if(_without_hint(written) if not hints else written)
        if statement is None:
            continue
        if isinstance(statement, ast.If):
            return [*body, *_normalise_if(statement, statements[index + 1 :], end)]
        if isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant) and not statement.test.value:
            return [*body, *_normalise_block([*statement.orelse, *statements[index + 1 :]], end)]
        _normalise_inside(statement)
        body.append(statement)
        if isinstance(statement, _ENDS):
            return body
    return body if end is None else [*body, end]


def _normalise_inside(statement: ast.stmt) -> None:
    """Bring the blocks inside a statement into the normal form."""
    if isinstance(statement, SCOPES):
        return
    loops = isinstance(statement, (ast.For, ast.AsyncFor, ast.While))
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if isinstance(inner, list):
            setattr(statement, name, _normalise_block(inner, _AGAIN if loops and name == "body" else None))
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        part.body = _normalise_block(part.body, None)


def _without_hint(statement: ast.stmt) -> ast.stmt | None:
    if not isinstance(statement, ast.AnnAssign):
        return statement
    return None if statement.value is None else ast.Assign(targets=[statement.target], value=statement.value)


def _as_if(statement: ast.stmt | None) -> ast.stmt | None:
    """Return the statement, as an `if` if its value is conditional; None for one without an effect."""
    if isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    ):
        return None
    if isinstance(statement, ast.Return):
        if isinstance(statement.value, ast.IfExp):
            chosen = statement.value
            return ast.If(chosen.test, [ast.Return(chosen.body)], [ast.Return(chosen.orelse)])
        return statement if statement.value is not None else _NOTHING
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.IfExp):
        chosen, targets = statement.value, statement.targets
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            return ast.If(chosen.test, [ast.Assign(targets, chosen.body)], [ast.Assign(targets, chosen.orelse)])
    return statement


def _normalise_if(statement: ast.If, rest: Sequence[ast.stmt], end: ast.stmt | None) -> Body:
    """Return an `if` and what follows it in the normal form."""
    test, then, other = statement.test, _effective_statements(statement.body), _effective_statements(statement.orelse)
    while not other and len(then) == 1 and isinstance(then[0], ast.If) and not _effective_statements(then[0].orelse):
        test, then = (
            _flatten(ast.BoolOp(op=ast.And(), values=[test, then[0].test])),
            _effective_statements(then[0].body),
        )
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, then, other = test.operand, other, then
    if isinstance(test, ast.Constant):
        return _normalise_block([*(then if test.value else other), *rest], end)
    if _never_continues(then):
        return [
            ast.If(
                test,
                _normalise_block(then, None),
                _normalise_block(other if _never_continues(other) else [*other, *rest], end),
            )
        ]
    if _never_continues(other):
        return [ast.If(test, _normalise_block([*then, *rest], end), _normalise_block(other, None))]
    following = _normalise_block(rest, end)
    if len(following) == 1 and isinstance(following[0], _ENDS):
        return [ast.If(test, _normalise_block(then, following[0]), _normalise_block(other, following[0]))]
    return [ast.If(test, _normalise_block(then, None), _normalise_block(other, None)), *following]


def _effective_statements(statements: Sequence[ast.stmt]) -> Body:
    effective = (_as_if(_without_hint(statement)) for statement in statements)
    return [statement for statement in effective if statement is not None]


def _never_continues(statements: Sequence[ast.stmt]) -> bool:
    """Whether what stands behind the statements is never reached."""
    return any(
        isinstance(statement, _ENDS)
        or (isinstance(statement, ast.If) and _never_continues(statement.body) and _never_continues(statement.orelse))
        for statement in map(_as_if, statements)
    )


def _flatten(node: ast.BoolOp) -> ast.BoolOp:
    values: list[ast.expr] = []
    for value in node.values:
        same = isinstance(value, ast.BoolOp) and type(value.op) is type(node.op)
        values += cast(ast.BoolOp, value).values if same else [value]
    return ast.BoolOp(op=node.op, values=values)


class _Folded(ast.NodeTransformer):
    """Expressions with what Python computes before it runs them, and in one spelling."""

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _fold(node, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _fold(node, node.operand)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return _flatten(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        while isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            node = ast.IfExp(node.test.operand, node.orelse, node.body)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        last = node.comparators[-1]
        if isinstance(node.ops[-1], (ast.In, ast.NotIn)) and isinstance(last, (ast.List, ast.Set)):
            if isinstance(last, ast.List):
                node.comparators[-1] = _constant_of(tuple, last.elts) or last
            elif isinstance(last, ast.Set) and isinstance(getattr(last.elts[0], "value", None), frozenset):
                node.comparators[-1] = last.elts[0]
        positive = {ast.NotIn: ast.In, ast.IsNot: ast.Is}.get(cast(Any, type(node.ops[0])))
        if positive is None or len(node.ops) > 1:
            return node
        node.ops = [positive()]
        return ast.UnaryOp(op=ast.Not(), operand=node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        return (_constant_of(tuple, node.elts) if isinstance(node.ctx, ast.Load) else None) or node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        """Fold a set of constants, whose order does not count."""
        self.generic_visit(node)
        constant = _constant_of(frozenset, node.elts)
        return node if constant is None else ast.Set(elts=[constant])

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self.generic_visit(node)
        values: list[ast.expr] = []
        for part in node.values:
            last = values[-1] if values else None
            if isinstance(part, ast.Constant) and not part.value:
                continue
            if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
                values[-1] = ast.Constant(value=f"{last.value!s}{part.value!s}")
            else:
                values.append(part)
        if all(isinstance(part, ast.Constant) for part in values):
            return ast.Constant(value=cast(ast.Constant, values[0]).value if values else "")
        return ast.JoinedStr(values=values)


def _constant_of(kind: Callable[[list[Any]], Any], elements: Sequence[ast.expr]) -> ast.Constant | None:
    """Return the container if all elements are constants."""
    values = [element.value for element in elements if isinstance(element, ast.Constant)]
    return ast.Constant(value=kind(values)) if len(values) == len(elements) else None


def _fold(node: ast.BinOp | ast.UnaryOp, *operands: ast.expr) -> ast.expr:
    """Return the constant that an operation on constants gives, if it is a short one; else the node."""
    values: list[Any] = [operand.value for operand in operands if isinstance(operand, ast.Constant)]
    if len(values) < len(operands):
        return node
    if isinstance(node.op, (ast.Pow, ast.LShift, ast.Mult)) and not all(
        isinstance(value, (int, float)) and abs(value) < 1 << 32 for value in values
    ):
        return node
    if isinstance(node.op, (ast.Pow, ast.LShift)) and values[-1] > _LONGEST:
        return node
    try:
        result = eval(compile(ast.fix_missing_locations(ast.Expression(node)), "", "eval"), {})
    except Exception:  # It fails as well when it runs, if it does.
        return node
    is_short = isinstance(result, (str, bytes)) and len(result) < _LONGEST
    return ast.Constant(value=result) if is_short or isinstance(result, (int, float, complex)) else node
