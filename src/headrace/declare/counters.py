"""`counter`: a named value that the tasks of a query add to."""

from __future__ import annotations

import sys
from typing import Any

from headrace.declare import location as place
from headrace.declare.declarations import DeclaredCounter
from headrace.declare.faults import report
from headrace.errors import Finding


def counter(zero: Any = 0, *, param: Any = None, name: str | None = None) -> DeclaredCounter:
    """Declare a counter, which begins with `zero`; a query's function asks for it by name, and its rows `add` to it.

    What is added in a batch counts once, when the batch is committed: neither a task that is tried again nor a batch
    that is broken off and made again counts twice. param: adds values of a type of your own, by `zero(value)` and
    `addInPlace(one, other)`, as an AccumulatorParam of Spark's.
    """
    where = place.of_frame(sys._getframe(1))
    if name is not None and not isinstance(name, str):
        report(Finding(code="HR117", what=f"the name {name!r} is no text", fix="write it in quotes", where=where))
        name = str(name)
    if param is None and (isinstance(zero, bool) or not isinstance(zero, (int, float, complex))):
        what = f"a counter that begins with a value of type {type(zero).__name__} does not know how to add to it"
        fix = "begin with a number, or give a param with zero(value) and addInPlace(one, other)"
        report(Finding(code="HR801", what=what, fix=fix, where=where))
    lacking = [
        each for each in ("zero", "addInPlace") if param is not None and not callable(getattr(param, each, None))
    ]
    if lacking:
        what = f"the param of a counter has no {' and no '.join(lacking)}"
        fix = "give an object of a class with zero(value) and addInPlace(one, other)"
        report(Finding(code="HR801", what=what, fix=fix, where=where))
    return DeclaredCounter(zero=zero, param=param, name=name, where=where)
