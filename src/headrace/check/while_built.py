"""What a query's functions do to the driver while the query is built: which code runs, and what it leaves changed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

from headrace.check.user_functions import Asked
from headrace.errors import Finding
from headrace.model import Query

# What the loader puts before the name of a file.
_LOADED = re.compile(r"^headrace_project_\d+_")
# A longer value of a module's variable is not looked into.
_LONGEST = 10_000
_PLAIN = (bool, int, float, str, bytes, type(None), list, dict, set, tuple)
_NO_STATE = "let it return a DataFrame and leave nothing behind: run, check and verify each call it, and more than once"


@dataclass(kw_only=True)
class Watched:
    """What was seen. settings: of Spark, those that another value was left for, with both values (None: not set).

    variables: of the project's modules, those that were changed, as `module.name`.
    """

    executed: set[CodeType] = field(default_factory=set)
    settings: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    variables: tuple[str, ...] = ()


@contextmanager
def watched(
    settings: Callable[[], Mapping[str, str]], modules: Iterable[ModuleType], is_own: Callable[[str], bool]
) -> Iterator[Watched]:
    """Look on while queries are built in this thread; `settings` gives those of the session as they are now.

    A debugger, or a measurement of coverage, that watches calls itself is left in its place.
    """
    found = Watched()
    former, modules = settings(), tuple(modules)
    variables = dict(_variables(modules))

    def call(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and is_own(frame.f_code.co_filename):
            found.executed.add(frame.f_code)

    before = sys.getprofile()
    if before is None:
        sys.setprofile(call)
    try:
        yield found
    finally:
        if before is None:
            sys.setprofile(None)
        now = settings()
        names = sorted(former.keys() | now.keys())
        found.settings = {
            name: (former.get(name), now.get(name)) for name in names if former.get(name) != now.get(name)
        }
        found.variables = tuple(
            dict.fromkeys(name for name, value in _variables(modules) if variables.get(name) != value)
        )


def side_effects(query: Query, found: Watched, asked: Sequence[Asked]) -> Iterator[Finding]:
    """The findings about what the functions of `query` did while it was built."""
    for name, (_, value) in found.settings.items():
        yield Finding(
            code="HR643",
            what=f"query '{query.name}' sets {name} to {value} while it is built, which every query of the session "
            "gets from then on, and one whose checkpoint holds another value never"
            if value is not None
            else f"query '{query.name}' takes {name} away while it is built, for every query of the session",
            fix="declare the setting for the project or the target: spark: {KEY: VALUE}",
            where=query.where,
        )
    for each in asked:
        if each.at_build:
            yield Finding(
                code="HR644",
                what=f"{each.function} of query '{query.name}' calls {each.call} when the query is built: the value "
                "stays the same until the query is started again, and is another one then",
                fix="for the time of a batch use F.current_timestamp(), for a number by chance F.rand(); a value that "
                "is meant to stay belongs into the project as a variable",
                where=each.where,
            )
    if found.variables:
        yield Finding(
            code="HR645",
            what=f"query '{query.name}' changes {', '.join(found.variables[:3])} while it is built",
            fix=_NO_STATE,
            where=query.where,
        )


def _variables(modules: Iterable[ModuleType]) -> Iterator[tuple[str, str]]:
    """The plain values of the modules' variables, as texts that are equal as long as nothing is changed."""
    for module in modules:
        for name, value in list(vars(module).items()):
            if name.startswith("__") or not isinstance(value, _PLAIN):
                continue
            if not isinstance(value, (list, dict, set, tuple, str, bytes)) or len(value) <= _LONGEST:
                yield f"{_LOADED.sub('', module.__name__)}.{name}", _text(value)


def _text(value: Any) -> str:
    """A value as a text; of the objects in a container only which they are."""
    if isinstance(value, (list, tuple, set)):
        return f"{type(value).__name__}:{[_shallow(each) for each in value]}"
    if isinstance(value, dict):
        return f"dict:{[(_shallow(key), _shallow(each)) for key, each in value.items()]}"
    return repr(value)


def _shallow(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, bytes, type(None))) else str(id(value))
