"""The connectors and the observers that are installed, found by their entry points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import get_annotations
from typing import Any, Literal, TypeAlias

from headrace.contract import Failure, Jars, Observer, Sink, Source
from headrace.errors import PlatformError

ConnectorKind = Literal["source", "sink"]
Kind: TypeAlias = ConnectorKind | Literal["observer"]
_CONTRACTS: dict[Kind, type[Any]] = {"source": Source, "sink": Sink, "observer": Observer}


@cache
def _entries(kind: Kind) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"headrace.{kind}s")}


def list_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of what is installed of a kind."""
    return tuple(sorted(_entries(kind)))


def connector(kind: Kind, name: str) -> type[Any]:
    """Return the class of a connector or an observer registered as `name`; raises KeyError if there is none.

    Raises PlatformError when it is registered but cannot be imported, as when its extra is not installed, or when it
    does not extend the contract.
    """
    entry = _entries(kind)[name]
    try:
        loaded: Any = entry.load()
    except ImportError as error:
        raise PlatformError(
            code="HR011",
            what=f"the {kind} '{name}' cannot be imported: {error}",
            fix=f"install what it needs: pip install '{_package(entry)}'",
        ) from error
    base = _CONTRACTS[kind]
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        problem = f"the {kind} '{name}', which is '{entry.value}', does not extend headrace.contract.{base.__name__}"
        fix = "install a version of its distribution that was made for this version of Headrace"
        raise PlatformError(code="HR432", what=problem, fix=fix)
    return loaded


def _package(entry: EntryPoint) -> str:
    """Return what to install for a connector: an extra of Headrace, or the distribution that brought it along."""
    distribution = None if entry.dist is None else entry.dist.name
    return f"headrace[{entry.name}]" if distribution in (None, "headrace") else str(distribution)


def _connectors() -> Iterator[type[Any]]:
    for kind in ("source", "sink"):
        for name in list_names(kind):
            with suppress(PlatformError):
                yield connector(kind, name)


def declared_jars() -> dict[str, Jars]:
    """Return the jars that installed connectors declare themselves, whatever their options are."""
    declared = (kind.jars for kind in _connectors() if isinstance(kind.jars, tuple))
    return {jar.name: jar for jars in declared for jar in jars if isinstance(jar, Jars)}


def known_failures() -> tuple[Failure, ...]:
    """Return what all installed connectors know of how queries fail, each once."""
    return tuple(dict.fromkeys(failure for kind in _connectors() for failure in kind.failures))


def option_names(kind: ConnectorKind, name: str) -> tuple[str, ...]:
    """Return the options of a connector, first the one that may be given without its name.

    Then its own in the order of their declaration, and those that it shares with others.

    Raises as `connector` does.
    """
    return options_of(connector(kind, name))


def options_of(cls: type[Any]) -> tuple[str, ...]:
    """Return the options of the connector `cls`, in the order of `option_names`."""
    own = get_annotations(cls)
    options = [option.name for option in fields(cls) if option.init]
    return tuple(sorted(options, key=lambda option: (option != cls.positional, option not in own)))


def required_options(cls: Any) -> list[str]:
    """Return the options of a connector that have no default."""
    return [field.name for field in fields(cls) if field.init and field.default is field.default_factory is MISSING]
