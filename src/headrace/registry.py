"""The connectors that are installed, found by their entry points."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from headrace.errors import EnvironmentFault, Finding, Where, nearest

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

    Raises EnvironmentFault when it is registered but cannot be imported, as when its extra is not installed.
    """
    entry = _entries(kind)[name]
    try:
        loaded: type[Any] = entry.load()
    except ImportError as fault:
        raise EnvironmentFault(
            Finding(
                code="HR011",
                what=f"the {kind} '{name}' cannot be imported: {fault}",
                fix=f"install what it needs: pip install 'headrace[{name}]'",
            )
        ) from fault
    return loaded


def option_names(kind: ConnectorKind, name: str) -> tuple[str, ...]:
    """The options of a connector in the order of their declaration; raises as `connector` does."""
    return tuple(option.name for option in fields(connector(kind, name)) if option.init)


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
        return None, [Finding(code="HR110", what=f"there is no {kind} '{name}'", fix=near, where=where)]
    try:
        cls = connector(kind, name)
    except EnvironmentFault as fault:
        return None, [replace(finding, where=where) for finding in fault.findings]
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
    for option, code, what in faults:
        if option in unresolved:
            continue
        whose = f"the {kind} '{name}'"
        what = f"{whose} lacks its option '{option}'" if code == "HR112" else f"{whose}: {what}"
        fix = "" if code == "HR112" else "see the option's type in the connector's reference page"
        fix = fix or f"give '{option}'; the options are {', '.join(names)}"
        findings.append(Finding(code=code, what=what, fix=fix, where=places.get(option, where)))
    return (None if findings or unresolved else built), findings


@cache
def _adapter(cls: type[Any]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _validated(cls: Any, options: Mapping[str, Any]) -> tuple[Any | None, list[tuple[str, str, str]]]:
    """The instance, or the faults as (option, code, what); pydantic is imported here, for it takes its time."""
    from pydantic import ValidationError

    faults: list[tuple[str, str, str]] = []
    built: Any | None = None
    try:
        built = _adapter(cls).validate_python(dict(options))
    except ValidationError as error:
        seen: set[str] = set()
        for fault in error.errors(include_url=False, include_input=False, include_context=False):
            path = [str(step) for step in fault["loc"]]
            option = path[0] if path else ""
            if option in seen and option:
                continue
            seen.add(option)
            if fault["type"] == "missing" and len(path) == 1:
                faults.append((option, "HR112", ""))
            else:
                faults.append((option, "HR113", _sentence(option, fault["type"], fault["msg"])))
    truths = {option for option, value in options.items() if isinstance(value, bool)}
    faulty = {option for option, _, _ in faults}
    for option in sorted(truths - faulty - _taking_truths(cls)):
        faults.append((option, "HR113", f"option '{option}' should not be true or false"))
    return (None if faults else built), faults


@cache
def _taking_truths(cls: type[Any]) -> frozenset[str]:
    """The options whose types take true and false as such, not as the numbers one and zero."""
    hints = get_type_hints(cls)
    return frozenset(option.name for option in fields(cls) if _takes_truth(hints[option.name]))


def _takes_truth(hint: Any) -> bool:
    return hint in (bool, Any, object) or any(_takes_truth(part) for part in get_args(hint))


def _sentence(option: str, kind: str, message: str) -> str:
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    return f"option '{option}' {message.removeprefix('Input ')}"
