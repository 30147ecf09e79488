"""What a user gives a sink to call: judged without running it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from headrace.contract import OptionError


def name_of(given: Any) -> str:
    """How a message calls the function, class or object."""
    return str(getattr(given, "__name__", None) or type(given).__name__)


def not_found(given: Any) -> Iterator[OptionError]:
    """The fault of a text that names nothing; a text that does was replaced when the project was loaded."""
    if isinstance(given, str):
        yield OptionError(
            code="HR415",
            what=f"'{given}' names no function or object of the project's Python files",
            fix="write module:name; a file that does not mention headrace is to be listed under `modules`",
        )


def waits(given: Any) -> Iterator[OptionError]:
    """The fault of an async function, whose call does nothing until somebody awaits it."""
    for function in (given, *(getattr(given, method, None) for method in ("open", "process", "close"))):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what = f"{name_of(function)} is an async function, and nothing awaits it"
            yield OptionError(code="HR415", what=what, fix="write def in place of async def")


def takes(function: Any, *arguments: Any, **named: Any) -> bool:
    """Whether `function` can be called so; a built-in that does not tell is believed."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
