"""The connectors that are installed, found by their entry points."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import get_annotations
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from headrace.contract import Failure, Jars, Sink, Source, option_type
from headrace.errors import Finding, PlatformError, Where, nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ConnectorKind = Literal["source", "sink"]


@cache
def _entries(kind: ConnectorKind) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"headrace.{kind}s")}


def known(kind: ConnectorKind) -> tuple[str, ...]:
    """The names of the installed connectors of a kind."""
    return tuple(sorted(_entries(kind)))


def connector(kind: ConnectorKind, name: str) -> type[Any]:
    """The connector class registered as `name`; raises KeyError if there is none.

    Raises PlatformError when it is registered but cannot be imported, as when its extra is not installed, or when it
    does not extend the contract.
    """
    entry = _entries(kind)[name]
    try:
        loaded: Any = entry.load()
    except ImportError as error:
        raise PlatformError(
            Finding(
                code="HR011",
                what=f"the {kind} '{name}' cannot be imported: {error}",
                fix=f"install what it needs: pip install '{_package(entry)}'",
            )
        ) from error
    base = Source if kind == "source" else Sink
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        what = f"the {kind} '{name}', which is '{entry.value}', does not extend headrace.contract.{base.__name__}"
        fix = "install a version of its distribution that was made for this version of Headrace"
        raise PlatformError(Finding(code="HR432", what=what, fix=fix))
    return loaded


def _package(entry: EntryPoint) -> str:
    """What to install for a connector: an extra of Headrace, or the distribution that brought it along."""
    found = None if entry.dist is None else entry.dist.name
    return f"headrace[{entry.name}]" if found in (None, "headrace") else str(found)


def declared_jars() -> dict[str, Jars]:
    """The jars that installed connectors declare themselves, whatever their options are."""
    found: dict[str, Jars] = {}
    for kind in ("source", "sink"):
        for name in known(kind):
            with suppress(PlatformError):
                jars = connector(kind, name).jars
                found |= {each.name: each for each in jars if isinstance(each, Jars)} if isinstance(jars, tuple) else {}
    return found


def known_failures() -> tuple[Failure, ...]:
    """What all installed connectors know of how queries fail, each once."""
    found: list[Failure] = []
    for kind in ("source", "sink"):
        for name in known(kind):
            with suppress(PlatformError):
                found += connector(kind, name).failures
    return tuple(dict.fromkeys(found))


def option_names(kind: ConnectorKind, name: str) -> tuple[str, ...]:
    """The options of a connector, first the one that may be given without its name.

    Then its own in the order of their declaration, and those that it shares with others.

    Raises as `connector` does.
    """
    return options_of(connector(kind, name))


def options_of(cls: type[Any]) -> tuple[str, ...]:
    """The options of the connector `cls`, in the order of `option_names`."""
    own = get_annotations(cls)
    options = [option.name for option in fields(cls) if option.init]
    return tuple(sorted(options, key=lambda option: (option != cls.positional, option not in own)))


def build(
    kind: ConnectorKind,
    name: str,
    options: Mapping[str, Any],
    where: Where,
    *,
    lines: Mapping[str, Where] | None = None,
    unresolved: Collection[str] = (),
) -> tuple[Any | None, list[Finding]]:
    """The connector that `options` describe, or None and every fault of them; nothing of the connector is run.

    `lines` tells where single options stand, if that is known; `unresolved` are options that were given but whose
    values are not known, so that they are not also reported as missing. No finding repeats a value; it may be secret.
    """
    if name not in known(kind):
        near = nearest(name, known(kind))
        opposite: ConnectorKind = "sink" if kind == "source" else "source"
        if name in known(opposite):
            near = f"'{name}' is a {opposite}; a {kind} is one of {', '.join(known(kind))}"
        return None, [Finding(code="HR110", what=f"there is no {kind} '{name}'", fix=near, where=where)]
    try:
        cls = connector(kind, name)
    except PlatformError as error:
        return None, [finding.but(where=where) for finding in error.findings]
    names = option_names(kind, name)
    places = lines or {}
    findings = [
        Finding(
            code="HR111",
            what=f"the {kind} '{name}' has no option '{option}'",
            fix=nearest(option, names),
            where=places.get(option, where),
        )
        for option in options
        if option not in names
    ]
    given = {option: value for option, value in options.items() if option in names}
    built, faults = _validated(cls, given)
    # A missing option that a misspelt one was meant for is reported with that one alone.
    meant = " ".join(finding.fix for finding in findings if finding.fix.startswith("did you mean"))
    for option, code, what, fix in faults:
        if option in unresolved or (code == "HR112" and f"'{option}'" in meant):
            continue
        whose = f"the {kind} '{name}'"
        what = f"{whose} lacks its option '{option}'" if code == "HR112" else f"{whose}: {what}"
        fix = fix or f"give '{option}'; the options are {', '.join(names)}"
        findings.append(Finding(code=code, what=what, fix=fix, where=places.get(option, where)))
    return (None if findings or unresolved else built), findings


def _validated(cls: Any, options: Mapping[str, Any]) -> tuple[Any | None, list[tuple[str, str, str, str]]]:
    """The instance, or the faults as (option, code, what, fix)."""
    faults = [(name, "HR112", "", "") for name in required(cls) if name not in options]
    values: dict[str, Any] = {}
    for name, value in options.items():
        try:
            values[name] = _converted(cls, name, value)
        except ValueError as error:
            what, fix = taken_by(option_type(cls, name), value)
            fix = _EXAMPLES.get(name, fix)
            faults.append((name, "HR113", f"option '{name}' takes {what}{error}", fix))
    if faults:
        return None, faults
    try:
        return cls(**values), []
    except ValueError as error:
        return None, [("", "HR113", str(error), "correct the options that are named")]


def required(cls: Any) -> list[str]:
    """The options of a connector that have no default."""
    return [each.name for each in fields(cls) if each.init and each.default is each.default_factory is MISSING]


def _converted(cls: Any, name: str, value: Any) -> Any:
    """`value` as the option's type; raises ValueError, which may say more but does not repeat the value."""
    hint = option_type(cls, name)
    if isinstance(value, Mapping) and get_args(hint) == (str, str):
        value = {key: _text(item) for key, item in value.items()}
    if isinstance(value, bool) and not _fits(hint, value):
        raise ValueError(", not true or false")
    if not _fits(hint, value):  # what fits as it is does without pydantic, whose import takes a tenth of a second
        from pydantic import ValidationError

        try:
            value = _adapter(cls, name).validate_python(value)
        except ValidationError:
            raise ValueError("") from None
    return tuple(value) if isinstance(value, list) else value


def option_schema(cls: Any, name: str) -> dict[str, Any]:
    """The JSON Schema of one option's values; empty where its type has none."""
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
    """Whether `value` is of the type `hint` as it stands; False may also mean that only pydantic can tell."""
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
    """A number or a switch among Spark's own options, which are texts, as one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def taken_by(hint: Any, value: Any) -> tuple[str, str]:
    """What an option of the type `hint` takes, and what to write in place of `value`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        found = [taken_by(part, value) for part in parts if part is not type(None)]
        lists = [each for each in found if each[0].startswith("a list")]
        fits = lists if isinstance(value, str) and lists and str not in parts else found
        return " or ".join(each[0] for each in found), fits[0][1]
    if origin is Literal:
        words = ", ".join(map(str, parts[:-1])) + (" or " if parts[1:] else "") + str(parts[-1])
        near = nearest(str(value), map(str, parts)) if isinstance(value, str) else ""
        return f"one of {words}" if parts[1:] else words, near if near.startswith("did") else "write one of them"
    if origin in (tuple, list, Sequence):
        inside = value if isinstance(value, str) and value.isidentifier() else "a, b"
        whole = parts[:1] == (int,)
        return f"a list of {'whole numbers' if whole else 'texts'}", f"write [{'0, 1' if whole else inside}]"
    if origin is not None and issubclass(origin, Mapping):
        return "keys and values", "write {key: value}"
    words, example = _WORDS.get(hint, ("another value", "a value of that kind"))
    return words, f"write {example}"


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
