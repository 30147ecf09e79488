"""The body of a query, view or table: a Python function of its inputs, or one SQL statement over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from headrace.errors import NOWHERE, Where


@dataclass(frozen=True, kw_only=True)
class PythonTransform:
    """A function of DataFrames, injected by parameter name; `spark` asks for the session itself."""

    function: Callable[..., Any] = field(compare=False)
    inputs: tuple[str, ...]
    wants_spark: bool = False
    where: Where = NOWHERE

    def __str__(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def names(self) -> frozenset[str]:
        """The globals, methods and attributes that the function uses, and the functions of its module that it calls."""
        found: set[str] = set()
        seen: set[Any] = set()
        queue: list[Any] = [self.function]
        while queue:
            function = queue.pop()
            if not isinstance(function, FunctionType) or function in seen:
                continue
            seen.add(function)
            used = {name for code in _codes(function.__code__) for name in code.co_names}
            found |= used
            called = [function.__globals__.get(name) for name in used]
            queue += [each for each in called if getattr(each, "__module__", None) == function.__module__]
        return frozenset(found)


@dataclass(frozen=True, kw_only=True)
class SqlTransform:
    """One SELECT; `inputs` are the declared names that it reads, found in the text before any Spark is there."""

    sql: str
    inputs: tuple[str, ...]
    where: Where = NOWHERE

    def __str__(self) -> str:
        return "sql"


Transform: TypeAlias = PythonTransform | SqlTransform


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
