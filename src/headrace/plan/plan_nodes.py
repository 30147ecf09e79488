"""What the nodes of a plan give: their columns, by identity and by name."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.spark.plans.plan_json import Node

PYTHON_PROJECTIONS = ("ArrowEvalPython", "BatchEvalPython")


def identity(expression: Node) -> int:
    """What tells a named expression from all others of its plan."""
    return int(expression.arguments["exprId"]["id"])


def given_by(node: Node) -> Sequence[Node]:
    """The attributes that a node makes anew, as far as its arguments name them."""
    for key in ("output", "outputAttrs", "outAttributes", "outputAttributes", "generatorOutput", "outputExpressions"):
        found = node.arguments.get(key)
        if isinstance(found, list) and found and all(isinstance(each, Node) for each in found):
            return found
    if "projectList" in node.arguments:
        return node.arguments["projectList"]  # type: ignore[no-any-return]
    if "aggregateExpressions" in node.arguments:
        return node.arguments["aggregateExpressions"]  # type: ignore[no-any-return]
    if node.name in PYTHON_PROJECTIONS:
        return [*given_by(node.children[0]), *node.arguments["resultAttrs"]]
    if node.name == "Join":
        return [each for child in node.children for each in given_by(child)]
    return given_by(node.children[0]) if node.children else ()


def gives_anew(node: Node) -> bool:
    """Whether a node gives only what it makes itself."""
    return any(key in node.arguments for key in ("output", "outputAttrs", "outAttributes", "outputExpressions"))


def names(root: Node) -> dict[int, str]:
    """The names of all that a plan's nodes give."""
    found: dict[int, str] = {}
    for node in root.walk():
        for value in node.arguments.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Node) and "exprId" in each.arguments and "name" in each.arguments:
                    found.setdefault(identity(each), str(each.arguments["name"]))
    return found


def reads(expression: Node) -> set[int]:
    return {identity(node) for node in expression.walk() if node.name == "AttributeReference"}


def join_type(node: Node) -> str:
    told = node.arguments.get("joinType")
    name = str(told.get("object") or told.get("product-class") or told.get("class")) if isinstance(told, dict) else ""
    return name.rstrip("$").rpartition(".")[2]
