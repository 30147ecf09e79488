"""Each public function judges all that it is given before it does anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace as hr
from headrace import api, arguments
from headrace.errors import CheckFailed, ProjectError
from headrace.model import Project
from headrace.testing import evaluate, fuzz, timeline
from headrace.testing.recording import record_case

pytestmark = pytest.mark.plain

PROJECT = """
name: p
sources: {e: {files: {path: in, format: text}}}
queries: {q: {select: SELECT * FROM e, sink: {files: out}}, r: {select: SELECT * FROM e, sink: {files: out2}}}
"""
OF_THE_API = [function for name, function in vars(api).items() if inspect.isfunction(function) and name[0] != "_"]
OWN = [function for function in OF_THE_API if function.__module__ == "headrace.api"]
LOOKS = [hr.inspect.checkpoint, hr.inspect.offsets, hr.inspect.watermark, hr.inspect.state]
FUNCTIONS = [*OWN, *LOOKS, evaluate, fuzz, timeline, record_case]


class Odd:
    """Something of no type that any function takes."""

    def __repr__(self) -> str:
        raise RuntimeError("it cannot be shown")


def session(jsc: Any) -> Any:
    """What has the class of a session; jsc: None once it was stopped."""
    made = type("SparkSession", (), {"__module__": "pyspark.sql.session"})()
    made.sparkContext = SimpleNamespace(_jsc=jsc)
    return made


NUMBERS = (None, "3", True, 1.5, float("nan"), Odd())
WRONG: dict[str, tuple[Any, ...]] = {
    "Project": (None, "p", {}, Odd()),
    "Query": (None, "q", Odd()),
    "str": (None, "", " ", "a\0b", b"q", 3, ["q"], Odd()),
    "str | os.PathLike[str]": (None, "", "a\0b", 3, ["a"], Odd()),
    "bool": (None, 1, "yes", "", Odd()),
    "int": (*NUMBERS, [1]),
    "float": (None, "3", True, float("nan"), float("inf"), Odd()),
    "datetime": (None, "2024-01-01", 3, datetime(2024, 1, 1), Odd()),
    "tuple[int, int]": (None, 3, "1/3", (1,), (1, 2, 3), (0, 3), (4, 3), (-1, 3), (1, 0), (1.0, 3.0), Odd()),
    "Sequence[str]": (None, "q", b"q", 3, [3], [None], [""], {"q": 1}, Odd()),
    "Mapping[str, str]": (None, "a=b", ["a"], {"a": 1}, {1: "a"}, {"": "a"}, Odd()),
    "Sequence[Mapping[str, str]]": (None, "a=b", {"a": "b"}, ["a"], [{}], [{"a": 1}], [{"": "b"}], Odd()),
    "Trigger": (None, "5 seconds", 5, Odd()),
    "SparkSession": (None, "local", True, session(None), Odd()),
    "SparkSession | bool": ("local", 1, session(None), Odd()),
    "Observer": (None, print, Odd()),
    "Reached": (None, "x", Odd()),
    "StopRequest": (None, "x", Odd()),
    "Choice": (None, "delete", "DROP", "", True, Odd()),
    "PlannedIs": (None, "yes", True, Odd()),
}
NAMES = {"query": ("nope", "Q", "q\n", "x" * 10_000, "\udcff"), "queries": (["nope"], ["q", "nope"], [])}
BOUNDS = {**dict.fromkeys(arguments._LEAST, (-1,)), **dict.fromkeys(arguments._MORE_THAN_ZERO, (0, -1.5))}
BOUNDS |= {name: (0, -1) for name, least in arguments._LEAST.items() if least == 1}


def calls() -> Iterator[Any]:
    for function in FUNCTIONS:
        for name, parameter in inspect.signature(function).parameters.items():
            annotation = str(parameter.annotation)
            form = annotation.removesuffix(" | None")
            wrong = [value for value in WRONG.get(form, ()) if value is not None or form == annotation]
            wrong += [] if function is api.events else NAMES.get(name, ()) if form in ("str", "Sequence[str]") else ()
            wrong += BOUNDS.get(name, ()) if form in ("int", "float") else ()
            if wrong:
                yield pytest.param(function, name, wrong, id=f"{function.__name__}-{name}")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("project")
    (root / "headrace.yml").write_text(PROJECT)
    return hr.load(root, environ={})


def rights(function: Callable[..., Any], project: Project) -> dict[str, Any]:
    """Arguments that the function takes."""
    given: dict[str, Any] = {"project": project, "query": "q", "partitions": 2, "file": "saved", "path": project.root}
    given |= {"spark": session(1), "query": project.queries["q"]} if function is api.start_query else {}
    given |= {"spark": session(1)} if function is api.start else {}
    return {name: given[name] for name in inspect.signature(function).parameters if name in given}


@pytest.mark.parametrize(("function", "name", "wrong"), list(calls()))
def test_no_wrong_argument_is_used(
    function: Callable[..., Any], name: str, wrong: Sequence[Any], project: Project
) -> None:
    for value in wrong:
        with pytest.raises(CheckFailed) as refused:
            function(**{**rights(function, project), name: value})
        (finding, *_) = refused.value.findings
        assert finding.code in ("HR104", "HR113", "HR091")
        assert finding.fix
        assert Path(str(finding.where.file)).name == Path(__file__).name
    assert [file.name for file in project.root.iterdir()] == ["headrace.yml"]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_a_missing_or_an_unknown_argument_is_named(function: Callable[..., Any], project: Project) -> None:
    parameters = inspect.signature(function).parameters
    required = [
        name for name, one in parameters.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    calls = {name: dict[str, Any]() for name in required[:1]}
    if all(one.kind is not one.VAR_KEYWORD for one in parameters.values()):
        calls["unknown"] = {**dict.fromkeys(required), "unknown": 1}
    for name, call in calls.items():
        with pytest.raises(CheckFailed, match=rf"HR104: {function.__name__}: .* argument:? '{name}'") as refused:
            function(**call)
        (finding,) = refused.value.findings
        assert Path(str(finding.where.file)).name == Path(__file__).name
        assert finding.fix == f"its arguments are {', '.join(parameters)}"


def test_every_parameter_of_a_public_function_has_a_form() -> None:
    """But for what a function hands on as it is."""
    free = {"environ", "sink", "reset", "check", "compare", "batch", "given", "inputs", "seed", "spark", "clock"}
    for function in FUNCTIONS:
        for name, parameter in inspect.signature(function).parameters.items():
            form = str(parameter.annotation).removesuffix(" | None")
            assert form in arguments._FORMS or name in free, f"{function.__name__}: {name}: {form}"
        assert inspect.unwrap(function) is not function, function.__name__


def test_all_wrong_arguments_are_reported_at_once(project: Project) -> None:
    with pytest.raises(CheckFailed) as refused:
        hr.late(project, "Q", limit=-1, since_batch="x", replay="yes")  # type: ignore[arg-type]
    assert [finding.code for finding in refused.value.findings] == ["HR091", "HR104", "HR113", "HR104"]
    assert "did you mean 'q'?" in str(refused.value)


def test_names_that_are_given_twice_count_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("headrace.starter.checks.check", lambda _, queries, **__: seen.append(queries))
    hr.check(project, ("q", "r", "q"), spark=False)
    assert seen == [["q", "r"]]


@pytest.mark.parametrize("trigger", [hr.every, hr.continuous, hr.real_time])
@pytest.mark.parametrize(
    "interval", ["", "soon", "-1 s", b"1 s", 5, None, ["1 s"], Odd()], ids=lambda value: type(value)
)
def test_a_trigger_takes_a_length_of_time_alone(trigger: Callable[[Any], object], interval: Any) -> None:
    with pytest.raises(ProjectError, match="HR104"):
        trigger(interval)
