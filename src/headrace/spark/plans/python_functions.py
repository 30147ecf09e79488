"""The Python functions that a plan executes, which Spark keeps as bytes that it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.spark.jvm.gateway import java_session
from headrace.spark.plans.analysed import sequence

# A table function is known as a generator alone; all other expressions with functions are of the first pattern.
_PATTERNS = ("PYTHON_UDF", "GENERATOR")


@dataclass(frozen=True, kw_only=True)
class PythonFunction:
    """A Python function of a plan.

    function: the copy that Spark's workers get; of a table function its class.
    eval_type: Spark's number of how it is called (`PythonEvalType`).
    return_type: the type of what it returns, as Spark's JSON.
    """

    name: str
    function: Any
    eval_type: int
    return_type: str


def functions(plan: Any) -> dict[int, PythonFunction]:
    """The Python functions of the JVM's logical plan `plan`, in pre-order.

    Each by the identity of its expression's result, by which it is found in the plan's JSON.
    """
    functions: dict[int, PythonFunction] = {}
    walk = _Walk()
    for expression in walk.plan(plan):
        result_id = int(expression.resultId().id())
        if result_id not in functions:
            is_table = expression.getClass().getSimpleName() == "PythonUDTF"
            functions[result_id] = PythonFunction(
                name=str(expression.name()),
                function=_function(expression.func(), walk.context),
                eval_type=int(expression.evalType()),
                return_type=str((expression.elementSchema() if is_table else expression.dataType()).json()),
            )
    return functions


def data_source(spark: Any, name: str) -> Any:
    """The class of a data source that is written in Python and registered in the session."""
    manager = java_session(spark).sessionState().dataSourceManager()
    return _function(manager.lookupDataSource(name).dataSourceCls(), spark.sparkContext)


class _Walk:
    """Goes through a plan's expressions, into those alone that hold Python."""

    def __init__(self) -> None:
        from pyspark import SparkContext

        spark_context: Any = SparkContext
        self.context = spark_context._active_spark_context
        jvm = self.context._jvm.org.apache.spark.sql.catalyst
        self._patterns = [getattr(jvm.trees.TreePattern, name)() for name in _PATTERNS]
        self._subquery = jvm.trees.TreePattern.PLAN_EXPRESSION()

    def plan(self, node: Any) -> Iterator[Any]:
        """The expressions with functions of a plan, from the result downwards."""
        if not self._holds(node):
            return
        for expression in sequence(node.expressions()):
            yield from self._expression(expression)
        for child in sequence(node.children()):
            yield from self.plan(child)

    def _expression(self, expression: Any) -> Iterator[Any]:
        if not self._holds(expression):
            return
        if expression.getClass().getSimpleName() in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            yield expression
        if expression.nodePatterns().contains(self._subquery):
            yield from self.plan(expression.plan())
        for child in sequence(expression.children()):
            yield from self._expression(child)

    def _holds(self, node: Any) -> bool:
        return any(node.containsPattern(pattern) for pattern in self._patterns)


def _function(held: Any, context: Any) -> Any:
    """The function of the JVM's PythonFunction."""
    from pyspark.serializers import CloudPickleSerializer

    loads: Callable[[bytes], Any] = CloudPickleSerializer().loads
    pickled = bytes(held.command().unsafeArray())
    with _broadcasts(held, context):
        loaded = loads(pickled)
        if type(loaded).__name__ == "Broadcast":  # A command of more than a megabyte.
            loaded = loads(loaded.value)
    return loaded[0] if isinstance(loaded, tuple) else loaded


@contextmanager
def _broadcasts(held: Any, context: Any) -> Iterator[None]:
    """Let the broadcast values of a function be found while it is unpickled, as in a worker."""
    from pyspark.core.broadcast import Broadcast, _broadcastRegistry

    added = []
    for variable in held.broadcastVars() or ():
        copy: Any = Broadcast.__new__(Broadcast)
        copy._jbroadcast, copy._python_broadcast, copy._sc = variable, variable.value(), context
        copy._path, copy._pickle_registry = str(variable.value().path()), None
        number = int(variable.id())
        if number not in _broadcastRegistry:
            _broadcastRegistry[number] = copy
            added.append(number)
    try:
        yield
    finally:
        for number in added:
            del _broadcastRegistry[number]
