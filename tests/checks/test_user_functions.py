"""What Python functions ask of clocks and chance, and what they leave changed, is found without Spark."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace
from headrace.checks.closures import check_side_effects, watch_building
from headrace.checks.user_functions import find_calls, is_users
from headrace.connectors.console.sink import Console
from headrace.loader import load
from headrace.model import PythonTransform, Query

pytestmark = pytest.mark.plain

QUERY = Query(
    name="q",
    transform=PythonTransform(function=lambda: None, inputs=()),
    sink=Console(),
    sink_kind="console",
)
MODULE = """
import datetime as moments
import os
import random
import time
import uuid
from datetime import date, datetime
from functools import partial

dice = random.Random(7)
count = 0
seen = []


def stamped():
    return time.time()


class Follow:
    def handle(self, key):
        return uuid.uuid4()


def marked(function):
    function.func = function
    return function


{}
"""
# The body of a function `f`, and what it asks.
ASKED = {
    "nothing": ("def f(x): return datetime(2026, 1, 1), date.fromisoformat('2026-01-01'), time.sleep", []),
    "a method of a class": ("def f(x): return datetime.now()", ["datetime.datetime.now"]),
    "through a module": ("def f(x): return moments.datetime.utcnow()", ["datetime.datetime.utcnow"]),
    "a day": ("def f(x): return date.today()", ["datetime.date.today"]),
    "chance": ("def f(x): return random.randint(1, x)", ["random.randint"]),
    "a generator of the module's": ("def f(x): return dice.random()", ["random.random"]),
    "a generator with its seed": ("def f(x): return random.Random(x).random()", []),
    "imported inside": ("def f(x):\n    from uuid import uuid1\n    return uuid1()", ["uuid.uuid1"]),
    "a module imported inside": ("def f(x):\n    import secrets as s\n    return s.token_hex()", ["secrets.token_hex"]),
    "a function inside": ("def f(x): return [each for each in map(lambda y: os.urandom(y), x)]", ["os.urandom"]),
    "another function": ("def f(x): return partial(stamped)()", ["time.time"]),
    "a method": ("def f(x): return Follow().handle(x)", ["uuid.uuid4"]),
    "what a decorator wraps": ("@marked\ndef g(x): return time.time_ns()\ndef f(x): return g(x)", ["time.time_ns"]),
    "in a comprehension": ("def f(x): return [time.time() for _ in x]", ["time.time"]),
    "a parameter of the name": ("def f(random): return random.random()", []),
    "a closure": (
        "def outer():\n    clock = time.time\n    def g(x): return clock()\n    return g\nf = outer()",
        ["time.time"],
    ),
}


def module(tmp_path: Path, body: str) -> ModuleType:
    file = tmp_path / "pipeline.py"
    file.write_text(MODULE.format(body))
    made = ModuleType("headrace_project_12_pipeline")
    exec(compile(file.read_text(), str(file), "exec"), vars(made))
    return made


@pytest.mark.parametrize(("body", "calls"), ASKED.values(), ids=ASKED)
def test_a_clock_or_chance_is_found_by_what_stands_for_the_name(tmp_path: Path, body: str, calls: list[str]) -> None:
    uses = find_calls(module(tmp_path, body).f, is_users)
    assert [use.call for use in uses] == calls
    for use in uses:
        line = Path(str(use.where.file)).read_text().splitlines()[int(use.where.line or 0) - 1]
        assert "clock" in line or use.call.rpartition(".")[2] in line


def test_code_of_python_and_of_packages_is_not_followed() -> None:
    assert not any(map(is_users, (random.__file__, pytest.__file__, headrace.__file__, "<string>")))
    assert is_users("/home/me/phones/pipeline.py")


def built(tmp_path: Path, body: str, settings: Callable[[], dict[str, str]] = dict) -> list[tuple[str, str]]:
    """The findings about a function that is called as a build calls it."""
    made = module(tmp_path, body)
    with watch_building(settings, [made], is_users) as seen:
        made.f(1)
    asked = find_calls(made.f, is_users, frozenset(seen.executed))
    return [(finding.code, finding.what) for finding in check_side_effects(QUERY, seen, asked)]


SIDE_EFFECTS: dict[str, tuple[str, str, str]] = {
    "a clock": ("def f(x): return datetime.now()", "HR644", "f of query 'q' calls datetime.datetime.now when"),
    "a helper's clock": ("def f(x): return stamped()", "HR644", "stamped of query 'q' calls time.time when"),
    "a number": ("def f(x):\n    global count\n    count += 1", "HR645", "'q' changes pipeline.count while"),
    "a list": ("def f(x): seen.append(x)", "HR645", "'q' changes pipeline.seen while"),
}


@pytest.mark.parametrize(("body", "code", "words"), SIDE_EFFECTS.values(), ids=SIDE_EFFECTS)
def test_what_a_build_does_to_the_driver_is_found(tmp_path: Path, body: str, code: str, words: str) -> None:
    [(reported, sentence)] = built(tmp_path, body)
    assert (reported, words in sentence) == (code, True)
    assert ("follow another one" in sentence) is (code == "HR644"), "a value that stays makes it another query"


def test_what_runs_later_and_what_changes_nothing_is_no_side_effect(tmp_path: Path) -> None:
    assert built(tmp_path, "def f(x): return lambda y: datetime.now()") == []
    assert built(tmp_path, "def f(x): return [*seen, count]") == []


def test_a_setting_that_the_function_changed_is_reported_and_none_that_the_session_set_for_itself(
    tmp_path: Path,
) -> None:
    before = {"a": "1", "b": "2", "gone": "3"}
    states = iter([before, {**before, "by delta": "6"}, {"a": "1", "b": "4", "new": "5", "by delta": "6"}])
    effects = built(tmp_path, "def f(x): pass", lambda: next(states))
    assert [code for code, _ in effects] == ["HR643"] * 3
    assert [sentence.split(" while")[0] for _, sentence in effects] == [
        "query 'q' sets b to 4",
        "query 'q' takes gone away",
        "query 'q' sets new to 5",
    ]


def test_who_watches_calls_already_is_not_disturbed(tmp_path: Path) -> None:
    def own(*_: Any) -> None:
        """Watch."""

    sys.setprofile(own)
    try:
        assert built(tmp_path, "def f(x): pass") == []
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)


def test_the_variables_of_a_loaded_project_are_named_as_the_user_names_them(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(
        "import headrace as hr\nevents = hr.source.rate()\nbuilt = []\n\n"
        "@hr.query(sink=hr.sink.console())\ndef q(events):\n    built.append(1)\n    return events\n"
    )
    project = load(tmp_path, environ={})
    with watch_building(dict, project.modules, is_users) as seen:
        transform = project.queries["q"].transform
        assert isinstance(transform, PythonTransform)
        transform.function(None)
    assert seen.variables == ("counts.built",)
