"""An optimised plan in a normal form: two plans of one meaning give the same texts.

Columns are traced down to the named columns of the sources; intermediate names, the order of what commutes and unread
columns are removed. What keeps state is separate from what feeds it and from what is made of it; the order of its keys
and values is kept, since Spark's state follows it.
Source: IncrementalExecution, PhysicalAggregation, ExtractEquiJoinKeys and SymmetricHashJoinExec of Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.generations.manifest import OperatorForm, QueryForm
from headrace.planner.expressions import Expressions, conjuncts, not_null_in
from headrace.spark.plans.analysed import ARBITRARY_STATE
from headrace.spark.plans.plan_json import STREAMS, Node, PlanTree, StaticInput

# They change nothing of a row: where rows lie, hints, counts on the way.
_PASSING = {
    "CollectMetrics",
    "LocalLimit",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
    "SubqueryAlias",
    "View",
}
_DEDUPLICATIONS = ("Deduplicate", "DeduplicateWithinWatermark")
# The sides of which a row without a partner gives nothing.
_NEEDED = {
    "Inner": ("left", "right"),
    "Cross": ("left", "right"),
    "LeftSemi": ("left", "right"),
    "LeftOuter": ("right",),
    "LeftAnti": ("right",),
    "RightOuter": ("left",),
}


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of a plan on the way up: its columns by their identity, in order.

    joined: what an inner join joins. strict: the expressions that the conditions let not be NULL.
    """

    source: str
    where: tuple[str, ...] = ()
    output: tuple[tuple[int, str], ...] = ()
    streaming: bool = False
    joined: tuple[str, ...] = ()
    strict: frozenset[str] = frozenset()

    @property
    def sides(self) -> tuple[str, ...]:
        """What an inner join joins, in any order."""
        return self.joined or (self.source,)

    @property
    def rows(self) -> str:
        """The rows: where they come from, and the conditions under which they are taken."""
        conditions = set(self.where) - {f"isNotNull({text})" for text in self.strict}
        return f"{self.source} WHERE {' AND '.join(sorted(conditions))}" if conditions else self.source

    @property
    def columns(self) -> dict[int, str]:
        return dict(self.output)


def normalise(
    tree: PlanTree,
    *,
    complete: bool,
    python: Callable[[int, str], str],
    static: Callable[[StaticInput], str],
) -> QueryForm:
    """Return the form of a query as far as its plan has it, in the normal form.

    complete: whether the query's mode is, in which a limit keeps no state.
    python: what stands for a Python function, by the identity and the name of its expression.
    static: what stands for a bounded input.
    """
    walk = _Walk(tree, complete, python, static)
    # A result is a set of rows: only below a limit or the like does their order count.
    root = tree.root.children[0] if tree.root.name == "Sort" else tree.root
    top = walk.part(root)
    names_by_id = names_in(tree.root)
    columns = tuple((names_by_id.get(column, f"column {at}"), text) for at, (column, text) in enumerate(top.output))
    return QueryForm(
        operators=tuple(walk.operators),
        feed=top.rows,
        columns=columns,
        watermarks=walk.watermarks,
        definitions=walk.expressions.definitions,
    )


class _Walk:
    """One walk over a plan, from the result down; operators are numbered in the order in which they are met."""

    def __init__(
        self,
        tree: PlanTree,
        complete: bool,
        python: Callable[[int, str], str],
        static: Callable[[StaticInput], str],
    ) -> None:
        self.operators: list[OperatorForm] = []
        self.watermarks: dict[str, int] = {}
        self.expressions = Expressions(python, self._subquery)
        self._inputs = tree.inputs
        # The plan lists the delays of its watermarks from the result downwards.
        marks = [node for node in tree.root.walk() if node.name == "EventTimeWatermark"]
        self._delays = {id(node): delay for node, delay in zip(marks, tree.delays, strict=True)}
        self._complete = complete
        self._static = static
        self._uses: Counter[str] = Counter()

    def part(self, node: Node) -> _Part:
        if node.name in STREAMS or not node.children:
            return self._leaf(node)
        if node.streaming and (kind := self._state_kind(node)):
            return self._stateful(node, kind)
        if node.name in _PASSING:
            return self.part(node.children[0])
        method = getattr(self, f"_{node.name.lower()}", None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        if node.name in PYTHON_PROJECTIONS:
            return self._python_projection(node)
        return self._other(node)

    # ------------------------------------------------------------------------------------------- without a state

    def _leaf(self, node: Node) -> _Part:
        columns = node.arguments.get("output") or ()
        named = self._inputs[id_of(columns[0])] if columns else StaticInput(kind=node.name)
        source = named if isinstance(named, str) else self._of_its_own(self._static(named))
        output = [(id_of(column), self.expressions.column(source, column)) for column in columns]
        return _Part(source=source, output=tuple(output), streaming=isinstance(named, str))

    def _of_its_own(self, table: str) -> str:
        """Return a name for one use of a bounded input: joined twice, it has two sets of columns."""
        self._uses[table] += 1
        return table if self._uses[table] == 1 else f"{table}, use {self._uses[table]}"

    def _project(self, node: Node) -> _Part:
        below = self.part(node.children[0])
        columns = below.columns
        output = [
            (id_of(expression), self.expressions.text(expression, columns))
            for expression in node.arguments["projectList"]
        ]
        return replace(below, output=tuple(output))

    def _filter(self, node: Node) -> _Part:
        below = self.part(node.children[0])
        conditions = list(conjuncts(node.arguments["condition"]))
        taken = [text for condition in conditions if (text := self.expressions.text(condition, below.columns))]
        strict = below.strict | self._strict(conditions, below.columns)
        return replace(below, where=(*below.where, *taken), strict=strict)

    def _eventtimewatermark(self, node: Node) -> _Part:
        below = self.part(node.children[0])
        self.watermarks[below.columns[id_of(node.arguments["eventTime"])]] = self._delays[id(node)]
        return below

    def _python_projection(self, node: Node) -> _Part:
        below = self.part(node.children[0])
        results = zip(node.arguments["resultAttrs"], node.arguments["udfs"], strict=True)
        more = [(id_of(attribute), self.expressions.text(udf, below.columns)) for attribute, udf in results]
        return replace(below, output=(*below.output, *more))

    def _union(self, node: Node) -> _Part:
        """Return a union: its sides in any order; a column is what each side gives for it."""
        parts = [self.part(child) for child in node.children]
        parts.sort(key=lambda part: (part.rows, sorted(text for _, text in part.output)))
        source = self.expressions.short(f"union of {' and '.join(f'({part.rows})' for part in parts)}")
        columns = [[text for _, text in part.output] for part in parts]
        named = [id_of(attribute) for attribute in attributes_of(node.children[0])]
        output = [
            (attribute, self.expressions.short(f"{source} {' | '.join(texts)}"))
            for attribute, *texts in zip(named, *columns, strict=True)
        ]
        return _Part(source=source, output=tuple(output), streaming=any(part.streaming for part in parts))

    def _join(self, node: Node) -> _Part:
        left, right = (self.part(child) for child in node.children)
        kind, columns = join_type_of(node), {**left.columns, **right.columns}
        conditions = list(conjuncts(node.arguments.get("condition")))
        on = [self.expressions.text(condition, columns) for condition in conditions]
        # What is joined is not NULL where the join's own conditions say so.
        implied, needed = self._strict(conditions, columns), _NEEDED.get(kind, ())
        left = replace(left, strict=left.strict | implied) if "left" in needed else left
        right = replace(right, strict=right.strict | implied) if "right" in needed else right
        where: tuple[str, ...] = ()
        joined: tuple[str, ...] = ()
        if kind in ("Inner", "Cross"):
            joined, where = (*left.sides, *right.sides), (*left.where, *right.where, *on)
            source = self.expressions.short(" join ".join(sorted(joined)))
        else:
            source = self.expressions.short(f"{left.rows} {kind} join {right.rows} on {' AND '.join(sorted(on))}")
        given = left.output if kind in ("LeftSemi", "LeftAnti") else (*left.output, *right.output)
        if "exists" in node.arguments.get("joinType", {}):
            given = left.output
        strict = left.strict | right.strict if joined else frozenset()
        return _Part(
            source=source, where=where, output=tuple(given), joined=joined, strict=strict, streaming=node.streaming
        )

    def _strict(self, conditions: Sequence[Node], columns: dict[int, str]) -> frozenset[str]:
        """Return what is not NULL where all conditions hold."""
        return frozenset(
            self.expressions.text(expression, columns) for one in conditions for expression in not_null_in(one)
        )

    def _aggregate(self, node: Node) -> _Part:
        """Return an aggregation of a bounded input; that of a stream keeps state."""
        below = self.part(node.children[0])
        keys = [
            self.expressions.text(expression, below.columns) for expression in node.arguments["groupingExpressions"]
        ]
        source = self.expressions.short(f"{below.rows} by ({', '.join(sorted(keys))})")
        made = node.arguments["aggregateExpressions"]
        output = [(id_of(expression), self.expressions.text(expression, below.columns)) for expression in made]
        return _Part(source=source, output=tuple(output), streaming=below.streaming)

    def _other(self, node: Node) -> _Part:
        """Return a node of an unknown kind by its arguments."""
        parts = [self.part(child) for child in node.children]
        columns = {column: text for part in parts for column, text in part.output}
        new = [attribute for attribute in attributes_of(node) if id_of(attribute) not in columns]
        fresh = {id_of(attribute): f"${at}" for at, attribute in enumerate(new)}
        arguments = self.expressions.arguments(node, {**columns, **fresh})
        below = ", ".join(part.rows for part in parts)
        source = self.expressions.short(f"{node.name}({arguments}) of {below}")
        made = {id_of(column): f"{source} column {at}" for at, column in enumerate(new)}
        if any(key in node.arguments for key in ("output", "outputAttrs", "outAttributes", "outputExpressions")):
            output = [(id_of(column), {**columns, **made}[id_of(column)]) for column in attributes_of(node)]
        else:
            output = [*columns.items(), *made.items()]
        return _Part(source=source, output=tuple(output), streaming=node.streaming)

    def _subquery(self, node: Node) -> str:
        """Return a query inside an expression."""
        part = self.part(node)
        return f"({part.rows}: {', '.join(text for _, text in part.output)})"

    # ---------------------------------------------------------------------------------------------- with a state

    def _state_kind(self, node: Node) -> str:
        if node.name == "Aggregate":
            return "aggregation"
        if node.name in _DEDUPLICATIONS:
            return "deduplication" if node.name == "Deduplicate" else "deduplication within the watermark"
        if node.name == "Join" and all(child.streaming for child in node.children):
            return "join of streams"
        if node.name in ("GlobalLimit", "Offset") and not self._complete:
            return "limit"
        return "arbitrary state" if any(name in node.name for name in ARBITRARY_STATE) else ""

    def _stateful(self, node: Node, kind: str) -> _Part:
        number = len(self.operators)
        self.operators.append(OperatorForm(kind=kind, keys=()))
        parts = [self.part(child) for child in node.children]
        method = {
            "aggregation": self._aggregation,
            "join of streams": self._join_of_streams,
            "arbitrary state": self._arbitrary_state,
            "limit": self._limit,
        }.get(kind, self._deduplication)
        operator, output = method(node, kind, parts, f"operator {number}")
        self.operators[number] = operator
        return _Part(source=f"operator {number}", output=tuple(output), streaming=True)

    def _aggregation(self, node: Node, kind: str, parts: list[_Part], source: str) -> Any:
        (below,) = parts
        columns = below.columns
        made = node.arguments["aggregateExpressions"]
        functions = [
            self.expressions.text(expression, columns)
            for result in made
            for expression in self.expressions.aggregates(result)
        ]
        keys = tuple(self.expressions.text(expression, columns) for expression in node.arguments["groupingExpressions"])
        values = tuple(dict.fromkeys(functions))
        operator = OperatorForm(kind=kind, keys=keys, values=values, feeds=(below.rows,))
        return operator, [(id_of(expression), self.expressions.text(expression, columns)) for expression in made]

    def _deduplication(self, node: Node, kind: str, parts: list[_Part], source: str) -> Any:
        (below,) = parts
        keys = tuple(below.columns[id_of(key)] for key in node.arguments["keys"])
        return OperatorForm(kind=kind, keys=keys, feeds=(below.rows,)), below.output

    def _join_of_streams(self, node: Node, kind: str, parts: list[_Part], source: str) -> Any:
        left, right = parts
        keys, residual = [], []
        for condition in conjuncts(node.arguments.get("condition")):
            pair = self._equal_sides(condition, left, right)
            if pair is None:
                residual.append(self.expressions.text(condition, {**left.columns, **right.columns}))
            else:
                keys.append(" = ".join(pair))
        further = {"type": join_type_of(node)} | (
            {"condition": " AND ".join(sorted(set(residual)))} if residual else {}
        )
        values = (*(f"left: {text}" for _, text in left.output), *(f"right: {text}" for _, text in right.output))
        operator = OperatorForm(
            kind=kind, keys=tuple(keys), values=values, further=further, feeds=(str(left.rows), str(right.rows))
        )
        given = left.output if further["type"] in ("LeftSemi", "LeftAnti") else (*left.output, *right.output)
        return operator, given

    def _equal_sides(self, condition: Node, left: _Part, right: _Part) -> tuple[str, str] | None:
        """Return the left and the right key of an equality that joins rows of the two sides."""
        if condition.name not in ("EqualTo", "EqualNullSafe"):
            return None
        sign = "" if condition.name == "EqualTo" else "null-safe "
        one, other = condition.children
        for first, second in ((one, other), (other, one)):
            if read_by(first) <= set(left.columns) and read_by(second) <= set(right.columns):
                return sign + self.expressions.text(first, left.columns), self.expressions.text(second, right.columns)
        return None

    def _arbitrary_state(self, node: Node, kind: str, parts: list[_Part], source: str) -> Any:
        columns = {attribute: text for part in parts for attribute, text in part.output}
        made = attributes_of(node)
        fresh = {id_of(attribute): f"${at}" for at, attribute in enumerate(made)}
        function = node.arguments.get("functionExpr")
        keys = [columns[id_of(attribute)] for attribute in node.arguments.get("groupingAttributes") or ()]
        if "groupingAttributesLen" in node.arguments:
            keys = [text for _, text in parts[0].output[: int(node.arguments["groupingAttributesLen"])]]
        left_out = {"functionExpr", "groupingAttributes"}
        further = {
            key: text
            for key, value in node.arguments.items()
            if key not in left_out
            and not isinstance(value, int)
            and (text := self.expressions.argument(value, {**columns, **fresh}))
        }
        if function is not None:
            further["function"] = self.expressions.text(function, columns)
        values = tuple(text for part in parts for _, text in part.output)
        feeds = tuple(part.rows for part in parts)
        operator = OperatorForm(kind=kind, keys=tuple(keys), values=values, further=further, feeds=feeds)
        return operator, [(id_of(attribute), f"{source} column {at}") for at, attribute in enumerate(made)]

    def _limit(self, node: Node, kind: str, parts: list[_Part], source: str) -> Any:
        (below,) = parts
        number: Node = node.arguments.get("limitExpr") or node.arguments["offsetExpr"]
        further = {"rows": self.expressions.text(number, {})}
        return OperatorForm(kind=kind, keys=(), further=further, feeds=(below.rows,)), below.output


PYTHON_PROJECTIONS = ("ArrowEvalPython", "BatchEvalPython")


def id_of(expression: Node) -> int:
    """Return the id of a named expression, unique in its plan."""
    return int(expression.arguments["exprId"]["id"])


def attributes_of(node: Node) -> Sequence[Node]:
    """Return the attributes that a node creates, as far as its arguments name them."""
    for key in ("output", "outputAttrs", "outAttributes", "outputAttributes", "generatorOutput", "outputExpressions"):
        attributes = node.arguments.get(key)
        if isinstance(attributes, list) and attributes and all(isinstance(attribute, Node) for attribute in attributes):
            return attributes
    for key in ("projectList", "aggregateExpressions"):
        if key in node.arguments:
            return node.arguments[key]  # type: ignore[no-any-return]
    if node.name in PYTHON_PROJECTIONS:
        return [*attributes_of(node.children[0]), *node.arguments["resultAttrs"]]
    if node.name == "Join":
        return [attribute for child in node.children for attribute in attributes_of(child)]
    return attributes_of(node.children[0]) if node.children else ()


def names_in(root: Node) -> dict[int, str]:
    """Return the names of all attributes of a plan."""
    by_id: dict[int, str] = {}
    for node in root.walk():
        for value in node.arguments.values():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Node) and "exprId" in part.arguments and "name" in part.arguments:
                    by_id.setdefault(id_of(part), str(part.arguments["name"]))
    return by_id


def read_by(expression: Node) -> set[int]:
    return {id_of(node) for node in expression.walk() if node.name == "AttributeReference"}


def join_type_of(node: Node) -> str:
    described = node.arguments.get("joinType")
    name = (
        str(described.get("object") or described.get("product-class") or described.get("class"))
        if isinstance(described, dict)
        else ""
    )
    return name.rstrip("$").rpartition(".")[2]
