"""The public names of the package, pinned: a change here is a change for users."""

from __future__ import annotations

import inspect
import re

import pytest

import headrace
from headrace import results
from scripts.reference import REFERENCE

pytestmark = pytest.mark.plain

NAMES = [
    "Project",
    "adopt",
    "apply",
    "available_now",
    "broadcast",
    "change",
    "check",
    "continuous",
    "counter",
    "events",
    "every",
    "inspect",
    "late",
    "load",
    "once",
    "plan",
    "query",
    "real_time",
    "rebuild",
    "repair",
    "repartition",
    "reset",
    "rewind",
    "run",
    "running",
    "sink",
    "source",
    "start",
    "status",
    "table",
    "verify",
    "view",
]


def test_the_public_names_are_these() -> None:
    assert headrace.__all__ == NAMES


@pytest.mark.parametrize("name", headrace.__all__)
def test_a_public_name_has_a_docstring_and_a_heading(name: str) -> None:
    assert inspect.getdoc(getattr(headrace, name))
    page = (REFERENCE / "python-api.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {name}$", page, re.MULTILINE)


def test_a_function_hides_no_package() -> None:
    for name in ("change", "check", "load", "plan", "run", "verify"):
        assert inspect.isfunction(getattr(headrace, name))
    import headrace.checks.structure as structure
    import headrace.planner.verdict as judgement

    assert (structure.__name__, judgement.__name__) == ("headrace.checks.structure", "headrace.planner.verdict")
    assert headrace.run.__name__ == "run"


def test_the_classes_of_results_have_one_public_home() -> None:
    public = {name for name in dir(results) if not name.startswith("_")}
    for name in public:
        assert inspect.getdoc(getattr(results, name))
    given = {
        word
        for name in headrace.__all__
        if inspect.isfunction(function := getattr(headrace, name))
        for word in re.findall(r"results\.(\w+)", str(inspect.signature(function)))
    }
    assert given <= public
    assert len(given) >= 15
