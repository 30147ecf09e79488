"""What sources and sinks have in common."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from inspect import get_annotations, isfunction, signature
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args, get_type_hints

from headrace.contract.identity import Identity
from headrace.errors import Finding, ProjectError


@dataclass(frozen=True, kw_only=True)
class OptionError:
    """A fault of a connector's options; the caller adds where it was declared and whose it is."""

    what: str
    fix: str = ""
    code: str = "HR113"
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
    """Return the type of one option, `marked` as a path or an object of the project.

    The types of other fields are left alone: they may name what only type checkers import.
    """
    owner = next(base for base in cls.__mro__ if name in get_annotations(base))
    alone = SimpleNamespace(__annotations__={name: get_annotations(owner)[name]})
    return get_type_hints(alone, vars(sys.modules[owner.__module__]), include_extras=marked)[name]


def path_options(connector: Any) -> tuple[str, ...]:
    """Return the options of `connector` whose type holds a ProjectPath."""
    return tuple(_find_marked(connector, "path"))


def object_options(connector: Any) -> tuple[str, ...]:
    """Return the options of `connector` whose type is a ProjectObject."""
    return tuple(_find_marked(connector, "object"))


def _find_marked(connector: Any, kind: Literal["path", "object"]) -> Iterator[str]:
    cls: Any = type(connector)
    for option in fields(cls):
        marks = _marks(option_type(cls, option.name, marked=True)) if option.init else ()
        if any(mark.kind == kind and (not mark.when or getattr(connector, mark.when)) for mark in marks):
            yield option.name


def _marks(hint: Any) -> Iterator[InProject]:
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, InProject))
    for part in get_args(hint):
        yield from _marks(part)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure of a running query that is known by its message.

    pattern: a regular expression, looked for in the message; `what` takes its groups, as `{name}`.
    """

    code: str
    pattern: str
    what: str
    fix: str

    def find_in(self, message: str) -> OptionError | None:
        """Return what `message` says, if this is its failure."""
        match = re.search(self.pattern, message)
        return OptionError(code=self.code, what=self.what.format(**match.groupdict()), fix=self.fix) if match else None


@dataclass(frozen=True, kw_only=True)
class Jars:
    """Jars for Spark's class path, by their Maven coordinates, and the settings that a session needs to use them.

    name: what `headrace jars` calls them, and the directory that they are kept in.
    alone: coordinates whose own needs are not fetched with them. sources: files of `headrace.spark` in Java, which are
        compiled into a jar next to the others.
    """

    name: str
    coordinates: tuple[str, ...]
    alone: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


class Ability(ABC):  # noqa: B024 - what can be done is abstract in each kind
    """Something that a connector can do beyond its main work; making one asks no system."""


class Connector(ABC):
    """A source or a sink.

    positional: the option that may be given without its name; by default the first that the class declares.
    failures: those that `explain_failure` knows by their message; the first that fits is taken. They are asked last for
        queries that do not declare the connector, too: a function of the user's may use its system by itself.
    place_options: the options that say which directory, table or topic it is.
    tuning_options: those that change neither which rows there are nor what they hold: rate limits, time-outs, where a
        first start begins, what to pass over after a failure. A change of any other option of a query that ran is
        refused until the user has seen what it means.
    lacking: why values of its options are not known here; see `without_values`.
    worker_packages: distributions, by the names that pip knows, that its tasks import on the machines of a cluster.
    row_options: names, in lower case, of the system's own options that decide which rows there are, although the option
        that holds them is one of `tuning_options`.
    row_defaults: values of `row_options` that the connector sets where they are not given.
    """

    place_options: ClassVar[tuple[str, ...]] = ("path", "table")
    tuning_options: ClassVar[tuple[str, ...]] = ()
    row_options: ClassVar[tuple[str, ...]] = ()
    row_defaults: ClassVar[Mapping[str, str]] = {}
    positional: ClassVar[str] = ""
    worker_packages: ClassVar[tuple[str, ...]] = ()
    lacking: ClassVar[tuple[Finding, ...]] = ()
    failures: ClassVar[tuple[Failure, ...]] = ()

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse an option that would hide a member of the contract.

        Raises:
            TypeError: An option has the name of such a member.
        """
        super().__init_subclass__(**more)
        contract = _contracts(cls)
        members = {name for base in contract for name in vars(base)}
        for owner in cls.__mro__:
            for name, kind in get_annotations(owner).items() if owner not in contract else ():
                if name in members and "ClassVar" not in str(kind):
                    raise TypeError(f"the option '{name}' of {cls.__name__} has the name of a member of the contract")

    @property
    @abstractmethod
    def facts(self) -> Any:
        """What it promises."""

    @property
    def jars(self) -> tuple[str | Jars, ...]:
        """The jars that it needs with these options; those that Headrace knows by name, as `headrace jars` lists them.

        Asked before a session is begun.
        """
        return ()

    @property
    def project_path(self) -> str | None:
        """The file, directory or pattern that it reads or writes; by default its option `path`, if it is a ProjectPath.

        By it, a query that reads what it writes is refused, and a project that was moved resumes where it was.
        """
        path = getattr(self, "path", None) if "path" in path_options(self) else None
        return path if isinstance(path, str) and path else None

    @property
    def catalog_table(self) -> str | None:
        """The table of Spark's own catalog that it reads or writes, as `database.table` in lower case; None: none.

        By it, a query that reads a table is started behind the query that writes it.
        """
        return None

    def identity(self) -> Identity | None:
        """Return which thing of which system it reads or writes, in one spelling, without secrets; None: not known.

        By it, two queries that write to one place are refused, and a changed source or sink is reported.
        Plain data for JSON, with a `system` and what distinguishes one thing from another there: `path` and `format` of
        files, `server`, `database` and `table` of a database, `servers` and `topics` of a broker. See `same_place`.
        """
        return None

    def explain_failure(self, message: str) -> OptionError | None:
        """Return what `message`, of Spark with every cause, says of this connector; None: nothing.

        Asked when a query has ended with an error, first of the sources and then of the sink.
        """
        problems = (failure.find_in(message) for failure in self.failures)
        return next((problem for problem in problems if problem is not None), None)


# A member of the contract that has one of these as a parameter asks the connector's system.
_ASKING = {"spark", "context", "session", "prefix", "limit", "generation"}
_Connector = TypeVar("_Connector", bound=Connector)
_Given = TypeVar("_Given")


def without_values(connector: _Connector, lacking: Sequence[Finding]) -> _Connector:
    """Return `connector`, whose options lack values here, so that asking its system raises ProjectError."""
    members = (item for contract in _contracts(type(connector)) for item in vars(contract).items())
    named = {name for name, member in members if isinstance(member, property)}
    abilities = {name: _guard(type(connector), name, lacking) for name in named}
    return _refuse_use(connector, lacking, {"identity": lambda _: None, "lacking": tuple(lacking), **abilities})


def _guard(cls: type, name: str, lacking: Sequence[Finding]) -> property:
    """Return the property `name` of `cls`, whose abilities refuse too."""

    def value(self: Any) -> Any:
        given = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
        given = given.fget(self) if isinstance(given, property) and given.fget is not None else given
        return _refuse_use(given, lacking, {}) if isinstance(given, Ability) else given

    return property(value)


def _refuse_use(given: _Given, lacking: Sequence[Finding], members: Mapping[str, Any]) -> _Given:
    """Return a copy of `given`, with `members`, that raises ProjectError where it would ask a system."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise ProjectError(lacking)

    cls = type(given)
    refused = {
        name: refuse
        for contract in _contracts(cls)
        for name, member in vars(contract).items()
        if isfunction(member) and not name.startswith("_") and _ASKING & set(signature(member).parameters)
        if overrides(given, name)
    }
    made = type(cls.__name__, (cls,), {**refused, **members, "__module__": cls.__module__})
    refusing: _Given = object.__new__(made)
    vars(refusing).update(vars(given))
    return refusing


def _contracts(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.startswith(__package__)]


def overrides(connector: object, member: str) -> bool:
    """Return whether the class of `connector` has a member of its own in place of the contract's default."""
    owner = next(base for base in type(connector).__mro__ if member in vars(base))
    return not owner.__module__.startswith(__package__)
