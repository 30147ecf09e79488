"""The value of one option of a connector: brought to the option's type, or refused with what it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from headrace.contract import option_type
from headrace.errors import nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_EXAMPLES = {
    "schema": "write one text: 'id BIGINT, at TIMESTAMP'",
    "bootstrap_servers": "write one text: 'host1:9092,host2:9092'",
    "starting_offsets": "write earliest, latest, or {topic: {0: 100, 1: 100}}",
    "assign": "write {topic: [0, 1]}",
    "port": "write a number from 1 to 65535",
    "starting_timestamp": "write milliseconds since 1970 for kafka, or a text as '2026-01-31 12:00:00'",
}
_WORDS: dict[Any, tuple[str, str]] = {
    str: ("a text", "one text, in quotes if need be"),
    int: ("a whole number", "for example 100"),
    float: ("a number", "for example 60"),
    bool: ("true or false", "one of the two"),
}


class OptionValueError(ValueError):
    """A value is not of its option's type; the message says what the option takes, and never repeats the value."""

    def __init__(self, takes: str, fix: str) -> None:
        super().__init__(takes)
        self.fix = fix


def read_option(cls: Any, name: str, value: Any) -> Any:
    """Return `value` as the type of the option `name`.

    Raises:
        OptionValueError: It is not of that type.
    """
    hint = option_type(cls, name)
    if isinstance(value, Mapping) and get_args(hint) == (str, str):
        value = {key: _text(item) for key, item in value.items()}
    if isinstance(value, str) and "\0" in value:
        raise OptionValueError("a text without a null character", "remove \\0 from the text")
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionValueError("a number that is finite", "write for example 60")
    if not _fits(hint, value):  # what fits as it is does without pydantic, whose import takes a tenth of a second
        value = _convert(cls, name, value)
    return tuple(value) if isinstance(value, list) else value


def _convert(cls: Any, name: str, value: Any) -> Any:
    from pydantic import ValidationError

    takes, fix = _describe_expected(option_type(cls, name), value)
    fix = _EXAMPLES.get(name, fix)
    if isinstance(value, bool):
        raise OptionValueError(f"{takes}, not true or false", fix)
    try:
        return _adapter(cls, name).validate_python(value)
    except ValidationError:
        raise OptionValueError(takes, fix) from None


def option_schema(cls: Any, name: str) -> dict[str, Any]:
    """Return the JSON Schema of one option's values; empty where its type has none."""
    from pydantic import PydanticUserError

    try:
        return _adapter(cls, name).json_schema()
    except PydanticUserError:
        return {}


@cache
def _adapter(cls: Any, name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(option_type(cls, name))


def _fits(hint: Any, value: Any) -> bool:
    """Whether `value` is of the type `hint` as it stands; False may also mean that only pydantic knows."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(part, value) for part in parts)
    if origin is Literal:
        return value in parts
    if origin in (tuple, list, Sequence):
        items = isinstance(value, (list, tuple)) and (origin is not tuple or parts[1:] == (...,))
        return items and all(_fits(parts[0], item) for item in value)
    return hint in (Any, object, type(value))


def _text(value: Any) -> Any:
    """Return a number or a switch as a text, as Spark's own options are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _describe_expected(hint: Any, value: Any) -> tuple[str, str]:
    """Return what an option of the type `hint` takes, and what to write in place of `value`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        expected = [_describe_expected(part, value) for part in parts if part is not type(None)]
        lists = [item for item in expected if item[0].startswith("a list")]
        fits = lists if isinstance(value, str) and lists and str not in parts else expected
        return " or ".join(item[0] for item in expected), fits[0][1]
    if origin is Literal:
        named = [str(part) for part in parts if part != ""]
        words = ", ".join(named[:-1]) + (" or " if named[1:] else "") + named[-1]
        near = nearest(str(value), map(str, parts)) if isinstance(value, str) else ""
        return f"one of {words}" if named[1:] else words, near if near.startswith(
            "did"
        ) else f"write {'one of them' if named[1:] else words}"
    if origin in (tuple, list, Sequence):
        inside = value if isinstance(value, str) and value.isidentifier() else "a, b"
        whole = parts[:1] == (int,)
        return f"a list of {'whole numbers' if whole else 'texts'}", f"write [{'0, 1' if whole else inside}]"
    if origin is not None and issubclass(origin, Mapping):
        return "keys and values", "write {key: value}"
    words, example = _WORDS.get(hint, ("another value", "a value of that kind"))
    return words, f"write {example}"
