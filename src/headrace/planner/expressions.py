"""An expression of Spark as a text in a normal form: equal for equal meanings, as far as Spark's optimizer goes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.spark.plans.plan_json import Node

LONG = 160
_COMMUTATIVE = {
    "And": "and",
    "Or": "or",
    "Add": "+",
    "Multiply": "*",
    "BitwiseAnd": "&",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
}
_SYMMETRIC = {"EqualTo": "=", "EqualNullSafe": "<=>", "Greatest": "greatest", "Least": "least"}
_MIRRORED = {"GreaterThan": ("<", True), "GreaterThanOrEqual": ("<=", True), "LessThan": ("<", False)}
_MIRRORED["LessThanOrEqual"] = ("<=", False)
_TRANSPARENT = {"Alias", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "KnownNotContainsNull"}
# Random expressions, with the number of their children that are no seed: another seed means the same.
_CHANCE = {"Rand": 0, "Randn": 0, "Uuid": 0, "Shuffle": 1, "RandStr": 1, "Uniform": 2}
# They are NULL, and a condition does not hold, where one of their operands is.
_STRICT = {
    "Add",
    "Cast",
    "Contains",
    "Divide",
    "EndsWith",
    "EqualTo",
    "GreaterThan",
    "GreaterThanOrEqual",
    "LessThan",
    "LessThanOrEqual",
    "Like",
    "Multiply",
    "Not",
    "RLike",
    "Remainder",
    "StartsWith",
    "Subtract",
    "UnaryMinus",
}
_CASES = ("If", "CaseWhen")
_WHOLE = ("byte", "short", "integer", "long")
_PYTHON = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
# A child by its position, an identity that changes from start to start, or what the optimizer may leave open.
_OMITTED = {
    "child",
    "children",
    "left",
    "right",
    "exprId",
    "jvmId",
    "resultId",
    "qualifier",
    "metadata",
    "explicitMetadata",
    "nonInheritableMetadataKeys",
    "unrequiredChildIndex",
    "nodeId",
    "randomSeed",
    "hideSeed",
    "timeZoneId",
    "nullable",
    "outerAttrs",
    "mayHaveCountBug",
    "needsJoinCondition",
    "hint",
    "stats",
    "origin",
    "udfDeterministic",
    "seed",
}


class Expressions:
    """The texts of one plan's expressions; those that are long stand in `definitions`, by their digest."""

    def __init__(self, python: Callable[[int, str], str], subquery: Callable[[Node], str]) -> None:
        self.definitions: dict[str, str] = {}
        self._python = python
        self._subquery = subquery

    def column(self, source: str, attribute: Node) -> str:
        """Return a column of a source or of a bounded input."""
        return f"{source}.{attribute.arguments['name']} {type_text(attribute.arguments['dataType'])}"

    def text(self, node: Node, columns: Mapping[int, str]) -> str:
        """Return the text of `node`; `columns` are the texts of the attributes that it may read."""
        return self.short(self._text(node, columns))

    def short(self, text: str) -> str:
        """Return `text`, or a name for it if it is long."""
        if len(text) <= LONG:
            return text
        name = f"[{hashlib.sha256(text.encode()).hexdigest()[:12]}]"
        self.definitions[name] = text
        return name

    def aggregates(self, node: Node) -> Iterator[Node]:
        """Yield the aggregate functions of an expression, in Spark's order."""
        if node.name == "AggregateExpression" or node.name == "PythonUDAF":
            yield node
            return
        for child in node.children:
            yield from self.aggregates(child)

    def arguments(self, node: Node, columns: Mapping[int, str]) -> str:
        """Return the arguments of a node as a text."""
        texts = {
            key: self.argument(value, columns)
            for key, value in node.arguments.items()
            if key not in _OMITTED and not (key in ("evalMode", "evalContext") and "TRY" not in str(value))
        }
        return ", ".join(f"{key}={value}" for key, value in texts.items() if value)

    def argument(self, value: Any, columns: Mapping[int, str]) -> str:
        """Return one argument of a node as a text: an expression, a list of them, or a plain value."""
        if isinstance(value, Node):
            return self.text(value, columns)
        if isinstance(value, list):
            return self.short(f"[{', '.join(self.argument(part, columns) for part in value)}]") if value else ""
        if isinstance(value, dict):
            counted = {key: part for key, part in value.items() if key not in _OMITTED}
            if set(counted) <= {"object", "product-class", "class"}:
                return str(next(iter(counted.values()), "")).rstrip("$").rpartition(".")[2]
            return self.short(json.dumps(counted, sort_keys=True))
        return "" if value is None else str(value)

    def _text(self, node: Node, columns: Mapping[int, str]) -> str:
        name = node.name
        if name == "AttributeReference" or name == "OuterReference":
            column = columns.get(int(node.arguments["exprId"]["id"])) if "exprId" in node.arguments else None
            return column if column is not None else f"outer {node.arguments.get('name', '')}"
        if name in _TRANSPARENT:
            return self._text(node.children[0], columns)
        if name == "Literal":
            return _literal(str(node.arguments["value"]), type_text(node.arguments["dataType"]))
        if name == "GetStructField":
            return self._field(node, columns)
        if name in _COMMUTATIVE:
            operands = sorted(self._operands(node, columns))
            if len(operands) == 1:
                return operands[0]
            return f"({f' {_COMMUTATIVE[name]} '.join(operands)}){self._further(node, columns)}"
        below = [self.text(child, columns) for child in node.children]
        if name == "CreateNamedStruct" and (window := self._window(node, below, columns)):
            return window
        if name in _SYMMETRIC:
            return f"{_SYMMETRIC[name]}({', '.join(sorted(below))})"
        if name in _MIRRORED:
            sign, mirrored = _MIRRORED[name]
            return f"({f' {sign} '.join(reversed(below) if mirrored else below)})"
        if name in ("In", "InSet"):
            values = [str(part) for part in node.arguments.get("hset") or ()]
            return _one_of_text(below[0], [*below[1:], *values])
        if name in _CASES:
            return f"case({', '.join(self.text(part, columns) for part in _flatten_cases(node))})"
        if name == "Cast" and (wider := _widen(below[0], type_text(node.arguments["dataType"]))):
            return wider
        if name in _CHANCE:
            return f"{name.lower()}({', '.join(below[: _CHANCE[name]])})"
        if name in _PYTHON:
            function = self._python(int(node.arguments["resultId"]["id"]), str(node.arguments["name"]))
            return f"{function}({', '.join(below)})"
        if name == "AggregateExpression":
            filtered = f" filter {below[1]}" if len(below) > 1 else ""
            return f"{'distinct ' if node.arguments['isDistinct'] else ''}{below[0]}{filtered}"
        if name in ("LambdaFunction", "NamedLambdaVariable"):
            return self._lambda(node, columns)
        if isinstance(node.arguments.get("plan"), Node):
            return f"{name}{self._subquery(node.arguments['plan'])}({', '.join(below)})"
        return f"{_function_name(name)}({', '.join(below)}){self._further(node, columns)}"

    def _operands(self, node: Node, columns: Mapping[int, str]) -> Iterator[str]:
        """Yield the texts of the operands of a commutative operation; `a = 1 or a = 2` is `a in 1, 2`."""
        values: dict[str, list[str]] = {}
        for operand in _flatten(node):
            one, other = operand.children if operand.name == "EqualTo" else (operand, operand)
            if node.name == "Or" and (one.name == "Literal") != (other.name == "Literal"):
                named, literal = (other, one) if one.name == "Literal" else (one, other)
                values.setdefault(self.text(named, columns), []).append(self.text(literal, columns))
            elif (
                node.name == "Or"
                and operand.name == "In"
                and all(item.name == "Literal" for item in operand.children[1:])
            ):
                literals = [self.text(item, columns) for item in operand.children[1:]]
                values.setdefault(self.text(operand.children[0], columns), []).extend(literals)
            else:
                yield self.text(operand, columns)
        for text, listed in values.items():
            alone = f"=({', '.join(sorted([text, *listed]))})"
            yield self.short(alone if len(listed) == 1 else _one_of_text(text, listed))

    def _further(self, node: Node, columns: Mapping[int, str]) -> str:
        arguments = self.arguments(node, columns)
        return f"[{arguments}]" if arguments else ""

    def _field(self, node: Node, columns: Mapping[int, str]) -> str:
        """Return the text of a struct's field: of a source's column only the type of the field itself counts."""
        path, inner = [], node
        while inner.name == "GetStructField":
            path.append(inner)
            inner = inner.children[0]
        fields = [int(part.arguments["ordinal"]) for part in reversed(path)]
        if inner.name == "AttributeReference":
            kind = inner.arguments["dataType"]
            names = []
            for ordinal in fields:
                kind = kind["fields"][ordinal]
                names.append(str(kind["name"]))
                kind = kind["type"]
            whole = self._text(inner, columns)
            bare = whole.removesuffix(f" {type_text(inner.arguments['dataType'])}")
            if bare != whole:
                return f"{bare}.{'.'.join(names)} {type_text(kind)}"
        return f"{self.text(inner, columns)}.{'.'.join(map(str, fields))}"

    def _window(self, node: Node, below: list[str], columns: Mapping[int, str]) -> str:
        """Return the text of a time window, which Spark turned into arithmetic; a digest covers what is not shown."""
        if [part.arguments.get("value") for part in node.children[::2]] != ["start", "end"]:
            return ""
        begin, end = node.children[1], node.children[3]
        read = {self._text(part, columns) for part in begin.walk() if part.name == "AttributeReference"}
        whole = [part for part in begin.walk() if part.name == "PreciseTimestampConversion"]
        if len(read) != 1 or not whole:
            return ""
        slide = [part.children[1] for part in begin.walk() if part.name == "Remainder"]
        size = [part for part in end.walk() if part.name in ("Add", "TimestampAddInterval")]
        lengths = [self._text(part, {}).split()[0] for part in slide[:1]]
        lengths += [self._text(part.children[1], {}).rpartition(" ")[0] for part in size[:1]]
        digest = hashlib.sha256("|".join(below).encode()).hexdigest()[:12]
        return f"window({read.pop()}: {', '.join(lengths)}) [{digest}]"

    def _lambda(self, node: Node, columns: Mapping[int, str]) -> str:
        """Return the text of a lambda function, its variables by their position."""
        if node.name == "NamedLambdaVariable":
            column = columns.get(int(node.arguments["exprId"]["id"]))
            return column if column is not None else f"variable {node.arguments['name']}"
        body, *variables = node.children
        depth = sum(1 for text in columns.values() if text.startswith("variable "))
        bound = {
            int(
                variable.arguments["exprId"]["id"]
            ): f"variable {depth + at} {type_text(variable.arguments['dataType'])}"
            for at, variable in enumerate(variables)
        }
        return f"lambda({len(variables)}: {self.text(body, {**columns, **bound})})"


def not_null_in(node: Node) -> Iterator[Node]:
    """Yield the expressions that cannot be NULL where the condition `node` holds."""
    if node.name in _STRICT:
        for child in node.children:
            yield child
            yield from not_null_in(child)


def conjuncts(condition: Node | None) -> Iterator[Node]:
    """Yield the conditions that must all hold, in Spark's order."""
    if condition is not None and condition.name == "And":
        for child in condition.children:
            yield from conjuncts(child)
    elif condition is not None:
        yield condition


def type_text(data_type: Any) -> str:
    """Return a type as a short text, without nullability and comments."""
    if isinstance(data_type, str):
        # Of an interval the units that its type names do not count, only whether it is made of days or of months.
        if data_type.startswith("interval "):
            return "interval of months" if data_type.split()[1] in ("year", "month") else "interval of days"
        return data_type
    if not isinstance(data_type, dict):
        return json.dumps(data_type)
    kind = data_type.get("type")
    if kind == "struct":
        fields = (f"{field['name']} {type_text(field['type'])}" for field in data_type["fields"])
        return f"struct<{', '.join(fields)}>"
    if kind == "array":
        return f"array<{type_text(data_type['elementType'])}>"
    if kind == "map":
        return f"map<{type_text(data_type['keyType'])}, {type_text(data_type['valueType'])}>"
    return json.dumps(data_type, sort_keys=True)


def _literal(value: str, type_: str) -> str:
    if type_ == "string":
        return repr(value)
    return value if type_ == "integer" else f"{value} {type_}"


def _flatten_cases(node: Node) -> Iterator[Node]:
    """Yield the conditions and values of a CASE and its ELSE; a CASE in the ELSE continues it."""
    *cases, last = node.children
    yield from cases
    if len(node.children) % 2 == 0:
        yield last
    elif last.name in _CASES:
        yield from _flatten_cases(last)
    elif not (last.name == "Literal" and last.arguments["value"] is None):  # It is NULL without ELSE as well.
        yield last


def _widen(text: str, kind: str) -> str:
    """Return the text of a column cast to a wider integer, which changes no value; empty for anything else."""
    column, _, narrow = text.rpartition(" ")
    whole = column and narrow in _WHOLE and kind in _WHOLE and _WHOLE.index(narrow) < _WHOLE.index(kind)
    return f"{column} {kind}" if whole and "(" not in text else ""


def _one_of_text(named: str, values: list[str]) -> str:
    return f"({named} in {', '.join(sorted(set(values)))})"


def _flatten(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.name == node.name and child.arguments.get("evalContext") == node.arguments.get("evalContext"):
            yield from _flatten(child)
        else:
            yield child


def _function_name(name: str) -> str:
    return {"Count": "count", "Sum": "sum", "Max": "max", "Min": "min", "Average": "avg", "Subtract": "minus"}.get(
        name, name[:1].lower() + name[1:]
    )
