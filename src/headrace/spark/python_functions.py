"""The Python functions that a plan executes, which Spark keeps as bytes that it cannot read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PythonFunction:
    """A Python function of a plan.

    position: its place among those of the plan, in pre-order.
    result_id: the identity of the expression's result, None where the expression has none.
    eval_type: Spark's number of how it is called (`PythonEvalType`).
    return_type: the type of what it returns, as Spark's JSON.
    """

    position: int
    result_id: int | None
    name: str
    function: Any
    eval_type: int
    return_type: str


def functions(plan: Any) -> dict[int, PythonFunction]:
    """The Python functions of the JVM's logical plan `plan`, by the identity of their results."""
    raise NotImplementedError
