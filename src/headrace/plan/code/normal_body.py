"""The body of a function in one form for all ways of writing it that cannot be told apart while it runs.

Constants are folded; documentation, hints, `pass` and what is never reached are gone; the `not` of a condition has
turned its branches round; what follows a branch that ends stands in the other one, so that an `else` that is not needed
makes no difference; a conditional value that is given to a variable or returned is an `if`.
Functions and classes inside stay as they are: each has a body of its own.
"""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

Body: TypeAlias = list[ast.stmt]
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_LONGEST = 4_096


def normal_body(node: ast.AST) -> Body:
    """The statements of a function, a lambda or a class in the normal form."""
    if isinstance(node, ast.Lambda):
        body: Body = [ast.Return(value=copy.deepcopy(node.body))]
    else:
        body = copy.deepcopy(cast(ast.FunctionDef, node).body)
    body = [_Folded().visit(statement) for statement in body]
    return _block(body, None if isinstance(node, ast.ClassDef) else _NOTHING, hints=isinstance(node, ast.ClassDef))


_NOTHING = ast.Return(value=ast.Constant(value=None))
_AGAIN = ast.Continue()


def _block(statements: Sequence[ast.stmt], end: ast.stmt | None, *, hints: bool = False) -> Body:
    """Statements in the normal form. end: what comes after the last one, if it is not written; hints: those count."""
    found: Body = []
    for index, each in enumerate(statements):
        statement = _as_if(_without_hint(each) if not hints else each)
        if statement is None:
            continue
        if isinstance(statement, ast.If):
            return [*found, *_branches(statement, statements[index + 1 :], end)]
        if isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant) and not statement.test.value:
            return [*found, *_block([*statement.orelse, *statements[index + 1 :]], end)]
        _inside(statement)
        found.append(statement)
        if isinstance(statement, _ENDS):
            return found
    return found if end is None else [*found, end]


def _inside(statement: ast.stmt) -> None:
    """Bring the blocks inside a statement into the normal form."""
    if isinstance(statement, _SCOPES):
        return
    loops = isinstance(statement, (ast.For, ast.AsyncFor, ast.While))
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if isinstance(inner, list):
            setattr(statement, name, _block(inner, _AGAIN if loops and name == "body" else None))
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        part.body = _block(part.body, None)


def _without_hint(statement: ast.stmt) -> ast.stmt | None:
    if isinstance(statement, ast.AnnAssign):
        if statement.value is None:
            return None
        return ast.Assign(targets=[statement.target], value=statement.value)
    return statement


def _as_if(statement: ast.stmt | None) -> ast.stmt | None:
    """The statement, as an `if` where its value is a conditional one; None for one without an effect."""
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


def _branches(statement: ast.If, rest: Sequence[ast.stmt], end: ast.stmt | None) -> Body:
    """An `if` and what follows it."""
    test, then, other = statement.test, _effective(statement.body), _effective(statement.orelse)
    while not other and len(then) == 1 and isinstance(then[0], ast.If) and not _effective(then[0].orelse):
        test, then = _both(test, then[0].test), _effective(then[0].body)
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, then, other = test.operand, other, then
    if isinstance(test, ast.Constant):
        return _block([*(then if test.value else other), *rest], end)
    if _ends(then):
        return [ast.If(test, _block(then, None), _block(other if _ends(other) else [*other, *rest], end))]
    if _ends(other):
        return [ast.If(test, _block([*then, *rest], end), _block(other, None))]
    following = _block(rest, end)
    if len(following) == 1 and isinstance(following[0], _ENDS):
        return [ast.If(test, _block(then, following[0]), _block(other, following[0]))]
    return [ast.If(test, _block(then, None), _block(other, None)), *following]


def _effective(statements: Sequence[ast.stmt]) -> Body:
    found = (_as_if(_without_hint(each)) for each in statements)
    return [each for each in found if each is not None]


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Whether what stands behind the statements is never reached."""
    return any(
        isinstance(each, _ENDS) or (isinstance(each, ast.If) and _ends(each.body) and _ends(each.orelse))
        for each in map(_as_if, statements)
    )


def _both(first: ast.expr, second: ast.expr) -> ast.expr:
    return _flat(ast.BoolOp(op=ast.And(), values=[first, second]))


def _flat(node: ast.BoolOp) -> ast.BoolOp:
    values: list[ast.expr] = []
    for each in node.values:
        same = isinstance(each, ast.BoolOp) and type(each.op) is type(node.op)
        values += cast(ast.BoolOp, each).values if same else [each]
    return ast.BoolOp(op=node.op, values=values)


class _Folded(ast.NodeTransformer):
    """Expressions with what Python computes before it runs them, and in one spelling."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _SCOPES):
            return node
        return super().visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _computed(node, node.op, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _computed(node, node.op, node.operand)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return _flat(node)

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
            if isinstance(last, ast.List) and all(isinstance(each, ast.Constant) for each in last.elts):
                node.comparators[-1] = _constant(tuple(cast(ast.Constant, each).value for each in last.elts))
            elif isinstance(last, ast.Set) and isinstance(getattr(last.elts[0], "value", None), frozenset):
                node.comparators[-1] = last.elts[0]
        positive = {ast.NotIn: ast.In, ast.IsNot: ast.Is}.get(cast(Any, type(node.ops[0])))
        if positive is None or len(node.ops) > 1:
            return node
        node.ops = [positive()]
        return ast.UnaryOp(op=ast.Not(), operand=node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and all(isinstance(each, ast.Constant) for each in node.elts):
            return _constant(tuple(cast(ast.Constant, each).value for each in node.elts))
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        """Of a set of constants the order does not count."""
        self.generic_visit(node)
        if all(isinstance(each, ast.Constant) for each in node.elts):
            return ast.Set(elts=[_constant(frozenset(cast(ast.Constant, each).value for each in node.elts))])
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self.generic_visit(node)
        values: list[ast.expr] = []
        for each in node.values:
            last = values[-1] if values else None
            if isinstance(each, ast.Constant) and not each.value:
                continue
            if isinstance(each, ast.Constant) and isinstance(last, ast.Constant):
                values[-1] = ast.Constant(value=f"{last.value!s}{each.value!s}")
            else:
                values.append(each)
        if all(isinstance(each, ast.Constant) for each in values):
            return ast.Constant(value=cast(ast.Constant, values[0]).value if values else "")
        return ast.JoinedStr(values=values)


def _constant(value: Any) -> ast.Constant:
    return ast.Constant(value=value)


def _computed(node: ast.expr, op: ast.AST, *operands: ast.expr) -> ast.expr:
    """The constant that an operation on constants gives, if that is a short one; else the node."""
    values: list[Any] = [each.value for each in operands if isinstance(each, ast.Constant)]
    compute = _OPERATIONS.get(type(op))
    if compute is None or len(values) < len(operands):
        return node
    if isinstance(op, (ast.Pow, ast.LShift, ast.Mult)) and not all(
        isinstance(each, (int, float)) and abs(each) < 1 << 32 for each in values
    ):
        return node
    if isinstance(op, (ast.Pow, ast.LShift)) and values[-1] > _LONGEST:
        return node
    try:
        result = compute(*values)
    except Exception:  # It fails as well when it runs, if it does.
        return node
    if isinstance(result, (int, float, complex, bool)) or (isinstance(result, (str, bytes)) and len(result) < _LONGEST):
        return ast.Constant(value=result)
    return node
