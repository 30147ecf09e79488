"""The names that a query's functions use."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.project import PythonTransform

pytestmark = pytest.mark.plain


def helper(frame: Any) -> Any:
    return frame.distinct()


def by_a_function_of_the_module(events: Any) -> Any:
    return helper(events)


def inside(events: Any) -> Any:
    return (lambda frame: frame.distinct())(events)


def by_another_module(events: Any) -> Any:
    return pytest.approx(events)


def itself(events: Any) -> Any:
    return itself(events)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (helper, True),
        (by_a_function_of_the_module, True),
        (inside, True),
        (by_another_module, False),
        (itself, False),
        (print, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_call_is_found_in_the_function_and_in_those_of_its_module(function: Any, calls: bool) -> None:
    assert ("distinct" in PythonTransform(function=function, inputs=("events",)).names()) is calls
