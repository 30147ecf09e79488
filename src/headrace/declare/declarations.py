"""Sources, sinks, views, tables and queries as a Python file declares them, before they are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeAlias, TypeVar

from headrace.declare.faults import fault, is_collecting
from headrace.errors import NOWHERE, HeadraceError, Where, nearest
from headrace.model import Duration, Trigger, Watermark
from headrace.model.project import QuerySettings
from headrace.model.trigger import EXAMPLE, Restart, parse_restart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Word = TypeVar("Word", bound=str)
Fault: TypeAlias = Callable[[str, str, str, Where], None]  # code, what, fix and where
Starter: TypeAlias = Callable[..., "StreamingQuery"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredSource:
    """A source as declared: the options are raw, with `${VAR}` in them, until the project is loaded.

    arguments: what was given by position; it fills the connector's first options.
    lines: where single options stand, where that is known better than `where`.
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()
    watermark: Watermark | None = None
    name: str | None = None
    renamed_from: tuple[str, ...] = ()
    where: Where = NOWHERE
    lines: Mapping[str, Where] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredSink:
    """A sink as declared, with raw options like those of a source."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[Any, ...] = ()
    where: Where = NOWHERE
    lines: Mapping[str, Where] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredTransform(Generic[P, R]):
    """A function that was decorated; calling it calls the function, unchanged, and its signature is the function's.

    inputs: the parameter names, but for `spark`, which asks for the session itself.
    description: the first paragraph of the function's docstring, on one line.
    scope: declared things that the surrounding function had in sight, if it was not declared in a module.
    """

    function: Callable[P, R]
    name: str
    inputs: tuple[str, ...] = ()
    wants_spark: bool = False
    where: Where = NOWHERE
    description: str = ""
    scope: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Let `inspect` and `help` see the function: on the instance, for the class has a signature of its own."""
        object.__setattr__(self, "__wrapped__", self.function)
        object.__setattr__(self, "__doc__", self.function.__doc__)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        return self.function(*arguments, **named)

    @property
    def __name__(self) -> str:
        return self.name

    def in_sight(self, name: str) -> Any:
        """Return what `name` means where the function was written, or None."""
        return self.scope.get(name) or getattr(self.function, "__globals__", {}).get(name)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredView(DeclaredTransform[P, R]):
    """A view as declared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredTable(DeclaredTransform[P, R]):
    """A table as declared."""

    refresh: Duration | None = None
    broadcast: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredCounter:
    """A counter as declared."""

    zero: Any = 0
    param: Any = None
    name: str | None = None
    where: Where = NOWHERE

    def add(self, term: Any) -> None:
        """Refuse: only the counter that a query's function gets as a parameter counts.

        Raises:
            HeadraceError: Always (HR802).
        """
        raise HeadraceError(
            code="HR802",
            what="the declaration of a counter is added to, where nothing is counted",
            fix="let the query's function have a parameter with the counter's name, and add to that",
            where=self.where,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredSettings(QuerySettings):
    """What is declared of a query apart from its rows; without a sink only where a fault has been reported.

    late: the sink of the rows that it drops as late.
    """

    sink: DeclaredSink | None = None
    late: DeclaredSink | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class DeclaredQuery(DeclaredSettings, DeclaredTransform[P, R]):
    """A query as declared.

    starter: what `start` calls; None until an outer room has set it, by `set_starter`.
    """

    starter: ClassVar[Starter | None] = None

    def start(
        self,
        spark: SparkSession,
        *,
        trigger: Trigger | str | None = None,
        root: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> StreamingQuery:
        """Start the query in the caller's session.

        Args:
            spark: The session.
            trigger: In place of the declared one.
            root: The directory that relative paths and storage start from (None: the working directory).
            environ: The variables of `${VAR}` (None: the process's own).

        Returns:
            Spark's StreamingQuery.

        Raises:
            ProjectError: The declarations have faults.
            HeadraceError: The query cannot be started.
        """
        if is_collecting():
            message = f"query '{self.name}' is started by the file that declares it, while the project is loaded"
            fix = "put the start under: if __name__ == '__main__':"
            fault("HR121", message, fix, self.where)
            return None  # type: ignore[return-value]  # The project is not loaded, and nothing uses it.
        if self.starter is None:
            problem = "no part of Headrace that starts queries was imported"
            raise HeadraceError(code="HR122", what=problem, fix="import headrace")
        return self.starter(spark, trigger=trigger, root=root, environ=environ)


Declared: TypeAlias = (
    DeclaredSource | DeclaredView[..., Any] | DeclaredTable[..., Any] | DeclaredQuery[..., Any] | DeclaredCounter
)
DECLARED = (DeclaredSource, DeclaredView, DeclaredTable, DeclaredQuery, DeclaredCounter)


def former_names(given: Any, whose: str, where: Where) -> tuple[str, ...]:
    """Return one name, or several, the newest first; what is not a valid name is reported."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if all(isinstance(name, str) and name.strip() for name in names):
        return names
    message = f"{whose}: renamed_from {given!r} is neither a name nor a list of names"
    fault("HR113", message, 'write renamed_from="its_old_name"', where)
    return ()


def choose_word(given: Any, words: tuple[Word, ...], says: str, where: Where, fault: Fault) -> Word:
    """Return the word that is given; the first of `words` for another, which is a fault that `says` begins."""
    if given not in words:
        fault("HR104", f"{says} '{given}'", nearest(str(given), words), where)
    return given if given in words else words[0]


def restart_policy(given: Any, whose: str, where: Where, fault: Fault) -> Restart:
    """Return the policy that a mapping or a word declares; what is wrong with it is a fault."""
    policy, faults = parse_restart(given)
    for wrong in faults:
        fault("HR104", f"{whose}: {wrong}", f"write for example {EXAMPLE}", where)
    return policy
