"""The public names of the package, pinned: a change here is a change for users."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from operator import attrgetter

import pytest

import headrace
from headrace import api, errors, results
from scripts.reference import REFERENCE

pytestmark = pytest.mark.plain

NAMES = [
    "Project",
    "adopt",
    "apply",
    "available_now",
    "broadcast",
    "cdc",
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
    "preview",
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


def public_functions() -> list[Callable[..., object]]:
    """The functions of `headrace`, of `headrace.api` and of `headrace.inspect`."""
    names = [*headrace.__all__, *(f"inspect.{name}" for name in headrace.inspect.__all__)]
    things = [*(attrgetter(name)(headrace) for name in names), *vars(api).values()]
    modules = ("headrace.api", "headrace.inspect")
    own = [thing for thing in things if inspect.isfunction(thing) and thing.__module__ in modules]
    return list({thing.__name__: thing for thing in own if not thing.__name__.startswith("_")}.values())


@pytest.mark.parametrize("function", public_functions(), ids=lambda function: function.__name__)
def test_a_public_function_documents_its_arguments_its_result_and_its_errors(function: Callable[..., object]) -> None:
    text = inspect.getdoc(function) or ""
    sections = dict(re.findall(r"^(Args|Returns|Yields|Raises):\n((?:(?: {4}.*)?\n?)+)", text, re.MULTILINE))
    parameters = inspect.signature(function).parameters
    assert re.findall(r"^ {4}(\w+): ", sections["Args"], re.MULTILINE) == list(parameters)
    assert sections.get("Returns") or sections.get("Yields")
    raised = re.findall(r"^ {4}(\w+): ", sections["Raises"], re.MULTILINE)
    assert raised
    assert all(issubclass(getattr(errors, name), errors.HeadraceError) for name in raised)


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
