"""The body of a query, view or table: a Python function of its inputs, or one SQL statement over them."""

from __future__ import annotations

import dis
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
        return frozenset(name for code in self._codes() for name in code.co_names)

    def line_of(self, name: str) -> tuple[str, int] | None:
        """The file and the line in which they use something called `name`; None if they do not."""
        for code in self._codes():
            line = code.co_firstlineno
            if name in code.co_names:
                for step in dis.get_instructions(code):
                    line = _line(step) or line
                    if step.argval == name:
                        return code.co_filename, line
        return None

    def _codes(self) -> Iterator[CodeType]:
        seen: set[Any] = set()
        queue: list[Any] = [self.function]
        while queue:
            function = queue.pop()
            if not isinstance(function, FunctionType) or function in seen:
                continue
            seen.add(function)
            codes = list(_with_inner(function.__code__))
            yield from codes
            called = [function.__globals__.get(name) for code in codes for name in code.co_names]
            queue += [each for each in called if getattr(each, "__module__", None) == function.__module__]


@dataclass(frozen=True, kw_only=True)
class SqlTransform:
    """One SELECT; `inputs` are the declared names that it reads, found in the text before any Spark is there."""

    sql: str
    inputs: tuple[str, ...]
    where: Where = NOWHERE

    def __str__(self) -> str:
        return "sql"


Transform: TypeAlias = PythonTransform | SqlTransform


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _line(step: dis.Instruction) -> int | None:
    """The line that an instruction begins or, from Python 3.13 on, is of."""
    found = getattr(step, "line_number", None) or step.starts_line
    return int(found) if found else None
