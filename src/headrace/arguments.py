"""What the public functions are given, judged before anything is done: one finding for each wrong argument."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from headrace.contract import Observer
from headrace.declare.faults import where_of_frame
from headrace.errors import NOWHERE, CheckFailed, Finding, Where, nearest
from headrace.model import TRIGGERS, Project, Query

P = ParamSpec("P")
R = TypeVar("R")

_MOST_SHOWN = 60


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and _is_text(os.fspath(value))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value)) and all(isinstance(v, str) for v in value.values())


def _is_list(value: Any, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(is_right, value))


def _is_part(value: Any) -> bool:
    return _is_list(value, _is_whole) and len(value) == 2 and 1 <= value[0] <= value[1]


def _is_session(value: Any) -> bool:
    """Whether it is a session of Spark that was not stopped; nothing is imported to see it."""
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__]
    return "pyspark.sql.session.SparkSession" in names and getattr(value.sparkContext, "_jsc", None) is not None


# By the annotation of a parameter: what an argument must be, and what to write.
_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "Project": (lambda value: isinstance(value, Project), "a project: headrace.load(path)"),
    "Query": (lambda value: isinstance(value, Query), "a query of the project: project.query(name)"),
    "str": (_is_text, "a text that is not empty"),
    "str | os.PathLike[str]": (_is_path, "a path, as a text or a pathlib.Path"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "datetime": (
        lambda value: isinstance(value, datetime) and value.utcoffset() is not None,
        "a datetime with a time zone: datetime(2024, 5, 1, tzinfo=timezone.utc)",
    ),
    "tuple[int, int]": (_is_part, "a number and how many there are: (3, 10) is the third of ten"),
    "Sequence[str]": (lambda value: _is_list(value, _is_text), "a list of names"),
    "Mapping[str, str]": (_is_mapping, "a mapping of texts: {'action': 'open'}"),
    "Sequence[Mapping[str, str]]": (
        lambda value: _is_list(value, lambda key: _is_mapping(key) and bool(key)),
        "a list of mappings of texts: [{'action': 'open'}]",
    ),
    "Trigger": (lambda value: isinstance(value, TRIGGERS), "a trigger: headrace.every('5 seconds')"),
    "SparkSession": (_is_session, "a session of Spark that was not stopped: SparkSession.builder.getOrCreate()"),
    "SparkSession | bool": (
        lambda value: isinstance(value, bool) or _is_session(value),
        "a session of Spark, or False",
    ),
    "Observer": (lambda value: isinstance(value, Observer), "an observer: a subclass of headrace.contract.Observer"),
    "Reached": (callable, "a function"),
    "StopRequest": (lambda value: callable(getattr(value, "ask", None)), "a headrace.runner.stop.StopRequest"),
    "Choice": (lambda value: value in ("keep", "drop"), "'keep' or 'drop'"),
    "PlannedIs": (lambda value: value in ("written", "not-written"), "'written' or 'not-written'"),
}
# By the name of a parameter: the least that it may be.
_LEAST = {
    **dict.fromkeys(("limit", "since_batch", "batch", "to_batch"), 0),
    **dict.fromkeys(("partitions", "verify_parts", "runs"), 1),
}
_MORE_THAN_ZERO = ("verify_every", "seconds")
# The history keeps the events of queries that are gone.
_OF_FORMER_QUERIES = ("events",)


def judge_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function be called with arguments that it can use, and raise CheckFailed for others.

    What an argument must be is read off the annotation of its parameter; one that has its default is not looked at, and
    names of queries that are given twice count once.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            problem, fix = f"{function.__name__}: {error}", f"its arguments are {', '.join(signature.parameters)}"
            finding = Finding(code="HR104", what=problem, fix=fix, where=_caller(sys._getframe(1)))
            raise CheckFailed([finding]) from None
        project = given.arguments.get("project")
        findings = [
            finding
            for name, value in given.arguments.items()
            for finding in _judge(function.__name__, signature.parameters[name], value, project)
        ]
        if findings:
            where = _caller(sys._getframe(1))
            raise CheckFailed([finding.reword(where=where) for finding in findings])
        if given.arguments.get("queries"):
            given.arguments["queries"] = list(dict.fromkeys(given.arguments["queries"]))
        return function(*given.args, **given.kwargs)

    return call


def _judge(function: str, parameter: inspect.Parameter, value: Any, project: Any) -> Iterator[Finding]:
    name, annotation = parameter.name, str(parameter.annotation)
    form = annotation.removesuffix(" | None")
    if form not in _FORMS or (value is None and form != annotation) or value is parameter.default:
        return
    is_right, wanted = _FORMS[form]
    if not is_right(value):
        problem = f"{function}: {name} is {_show_value(value)}"
        yield Finding(code="HR104", what=problem, fix=f"give {wanted}")
    elif name in _LEAST and value < _LEAST[name]:
        yield Finding(code="HR113", what=f"{function}: {name} is {value}", fix=f"give {_LEAST[name]} or more")
    elif name in _MORE_THAN_ZERO and value <= 0:
        yield Finding(code="HR113", what=f"{function}: {name} is {value}", fix="give more than 0")
    elif name == "queries" and not value:
        fix = "name one, or leave `queries` out for all of them"
        yield Finding(code="HR113", what=f"{function}: queries names no query", fix=fix)
    elif name in ("query", "queries") and isinstance(project, Project) and function not in _OF_FORMER_QUERIES:
        for query in [value] if isinstance(value, str) else () if isinstance(value, Query) else value:
            if query not in project.queries:
                yield Finding(code="HR091", what=f"no query is named '{query}'", fix=nearest(query, project.queries))


def _show_value(value: Any) -> str:
    """Return a value as Python writes it, if that is short, or its type."""
    try:
        text = repr(value)
    except Exception:
        text = ""
    return text if 0 < len(text) <= _MOST_SHOWN else f"a value of type {type(value).__name__}"


def _caller(frame: FrameType | None) -> Where:
    """Return the line that called, unless the package itself did."""
    is_own = frame is None or str(frame.f_globals.get("__name__", "")).partition(".")[0] == "headrace"
    return NOWHERE if frame is None or is_own else where_of_frame(frame)
