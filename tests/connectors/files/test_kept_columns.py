"""The expressions over a source's columns are made once for each Spark context."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.connectors.values import rows as file_rows
from headrace.connectors.values.rows import reuse_columns

pytestmark = pytest.mark.plain


def test_they_are_made_once_for_a_context_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_rows, "_known", {})
    one, other = (SimpleNamespace(sparkContext=object()) for _ in range(2))
    made: list[str] = []

    def make(name: str) -> Any:
        made.append(name)
        return [name]

    asked: list[tuple[Any, str]] = [(one, "a"), (one, "b"), (one, "a"), (other, "a"), (other, "a"), (one, "a")]
    columns: list[Any] = [reuse_columns(spark, key, partial(make, key)) for spark, key in asked]
    assert columns == [(key,) for _, key in asked]
    assert made == ["a", "b", "a", "a"]
    monkeypatch.setattr(file_rows, "_MOST", 2)
    for key in "cdef":
        reuse_columns(one, key, partial(make, key))  # type: ignore[arg-type]
    assert list(file_rows._known) == ["e", "f"]
