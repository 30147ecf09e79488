"""The options of a connector: their types, and what may be wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from inspect import get_annotations
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints


@dataclass(frozen=True, kw_only=True)
class OptionError:
    """A fault of a connector's options; the caller adds where it was declared and whose it is."""

    code: str
    what: str
    fix: str = ""
    severity: Literal["error", "warning", "note"] = "error"


@dataclass(frozen=True)
class InProject:
    """Marks the type of an option whose text is looked up in the project: a `path` or an `object`.

    when: the attribute of the connector that says whether the option is one this time; empty: it always is.
    """

    kind: Literal["path", "object"]
    when: str = ""


# A local path; a relative one begins at the project's directory, and the connector is given it whole.
ProjectPath: TypeAlias = Annotated[str, InProject("path")]
# Anything that Python can give; a text `module:name` is replaced by what has that name in the project's Python files.
ProjectObject: TypeAlias = Annotated[Any, InProject("object")]


@cache
def option_type(cls: Any, name: str, *, marked: bool = False) -> Any:
    """The type of one option, `marked` as a path or an object of the project.

    The types of other fields are left alone: they may name what only type checkers import.
    """
    owner = next(each for each in cls.__mro__ if name in get_annotations(each))
    alone = SimpleNamespace(__annotations__={name: get_annotations(owner)[name]})
    return get_type_hints(alone, vars(sys.modules[owner.__module__]), include_extras=marked)[name]


def path_options(connector: Any) -> tuple[str, ...]:
    """The options of `connector` whose type holds a ProjectPath."""
    return tuple(_marked(connector, "path"))


def object_options(connector: Any) -> tuple[str, ...]:
    """The options of `connector` whose type is a ProjectObject."""
    return tuple(_marked(connector, "object"))


def _marked(connector: Any, kind: Literal["path", "object"]) -> Iterator[str]:
    cls: Any = type(connector)
    for option in fields(cls):
        marks = _marks(option_type(cls, option.name, marked=True)) if option.init else ()
        if any(mark.kind == kind and (not mark.when or getattr(connector, mark.when)) for mark in marks):
            yield option.name


def _marks(hint: Any) -> Iterator[InProject]:
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, InProject))
    for part in get_args(hint):
        yield from _marks(part)
