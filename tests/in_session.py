"""The command line in a session that is there: its commands would start one of their own, and stop it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

from headrace import api

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def lend(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what the commands call run in `spark` where they name no session: `main([...])` is then the whole command.

    `spark=False` stays as it is.
    """
    for name, function in list(vars(api).items()):
        if callable(function) and function.__module__ == api.__name__ and "spark" in signature(function).parameters:
            monkeypatch.setattr(api, name, _lent(function, spark))


def _lent(function: Callable[..., Any], spark: SparkSession) -> Callable[..., Any]:
    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        if named.get("spark") is None:
            named["spark"] = spark
        return function(*given, **named)

    return called
