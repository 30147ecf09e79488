"""A function for rows that changes a variable of the driver is found in its source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from headrace.checks.closures import check_driver_variables, find_changed_variables
from headrace.connectors.console.sink import Console
from headrace.model import PythonTransform, Query

pytestmark = [pytest.mark.plain, pytest.mark.capability("RDD-09")]

MODULE = """
import functools
from collections import defaultdict

total = 0
seen = []
names = {{}}
state = type("State", (), {{}})()
kept = []

def apply(function):
    kept.append(function)
    return function

def wrapped(function):
    @functools.wraps(function)
    def call(*given):
        return function(*given)
    return call

{}
"""
# The function of a query, and the variables of the driver that its functions for rows change.
CHANGED = {
    "the counter of the guide": (
        "def query(counter):\n    def f(x):\n        global total\n        total += x\n    apply(f)",
        ["total"],
    ),
    "a variable of the query's function": (
        "def query(events):\n    n = 0\n    def f(x):\n        nonlocal n\n        n += 1\n    apply(f)",
        ["n"],
    ),
    "a list, by a lambda": ("def query(events):\n    apply(lambda x: seen.append(x) or x)", ["seen"]),
    "a set of the query's function": (
        "def query(events):\n    known = set()\n    apply(lambda x: known.add(x))",
        ["known"],
    ),
    "a dict's entry": ("def f(x):\n    names[x] = names.get(x, 0) + 1\ndef query(events):\n    apply(f)", ["names"]),
    "an attribute": ("def f(x):\n    state.last = x\ndef query(events):\n    apply(f)", ["state"]),
    "an entry that is deleted": ("def f(x):\n    del names[x]\ndef query(events):\n    apply(f)", ["names"]),
    "what a broadcast holds": (
        "def query(book):\n    apply(lambda x: book.value.clear())\n    def f(x):\n"
        "        book.value[x] = 1\n    apply(f)",
        ["book"],
    ),
    "a function that a decorator wraps": (
        "@wrapped\ndef f(x):\n    seen.append(x)\ndef query(events):\n    apply(f)",
        ["seen"],
    ),
    "a counter of Headrace's": ("def query(count):\n    apply(lambda x: count.add(1))", []),
    "variables of its own": (
        "def f(x):\n    seen, n = [], 0\n    def g(y):\n        nonlocal n\n        n += y\n        seen.append(y)\n"
        "    g(x)\n    return seen\ndef query(events):\n    apply(f)",
        [],
    ),
    "a parameter": ("def f(x, into):\n    into.append(x)\n    into[0] = x\ndef query(events):\n    apply(f)", []),
    "while the query is built": ("def query(events):\n    seen.append(1)\n    apply(lambda x: x)", []),
}


def code_of_build(function: Callable[..., Any], given: Any) -> frozenset[CodeType]:
    """The code that runs when a query is built."""
    codes: set[CodeType] = set()
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    try:
        function(given)
    finally:
        sys.setprofile(None)
    return frozenset(codes)


def load_module(tmp_path: Path, text: str) -> ModuleType:
    file = tmp_path / "pipeline.py"
    file.write_text(MODULE.format(text))
    module = ModuleType("pipeline")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", CHANGED)
def test_a_variable_of_the_driver_that_a_function_for_rows_changes_is_found(tmp_path: Path, name: str) -> None:
    text, expected = CHANGED[name]
    module = load_module(tmp_path, text)
    changes = find_changed_variables(
        module.query, lambda file: file.startswith(str(tmp_path)), code_of_build(module.query, None)
    )
    assert [change.variable for change in changes] == expected
    transform = PythonTransform(function=module.query, inputs=())
    query = Query(name="q", transform=transform, sink=Console(), sink_kind="console")
    assert [change.code for change in check_driver_variables(query, changes)] == ["HR810"] * len(expected)
    assert all(
        (tmp_path / "pipeline.py").read_text().splitlines()[change.where.line - 1].count(change.variable)
        for change in changes
    )


def test_where_it_is_not_known_what_ran_in_the_driver_nothing_is_said(tmp_path: Path) -> None:
    module = load_module(tmp_path, CHANGED["a list, by a lambda"][0])
    assert find_changed_variables(module.query, lambda file: True, frozenset()) == ()
