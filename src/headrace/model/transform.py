"""The body of a query, view or table: a Python function of its inputs, or one SQL statement over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class SqlTransform:
    """One SELECT; `inputs` are the declared names that it reads, found in the text before any Spark is there."""

    sql: str
    inputs: tuple[str, ...]
    where: Where = NOWHERE

    def __str__(self) -> str:
        return "sql"


Transform: TypeAlias = PythonTransform | SqlTransform
