"""A project and the things declared in it."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from headrace import contract
from headrace.errors import NOWHERE, OF_THE_CATALOGUE, Finding, ProjectError, Where, nearest
from headrace.findings import Severity
from headrace.markup import table, whole
from headrace.model.change_data import ChangeData
from headrace.model.operations import Operations
from headrace.model.trigger import Default, Restart, Trigger
from headrace.redaction import redacted
from headrace.storage.location import is_remote, locate, scheme_of
from headrace.units import Duration

_Thing = TypeVar("_Thing")


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """How late a row of a source may come: `column` minus `delay` is what Spark waits for."""

    column: str
    delay: Duration

    def __str__(self) -> str:
        return f"{self.column}, {self.delay}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Declaration:
    """Something that is declared under a name, and the word that messages call it by."""

    _word: ClassVar[str]
    name: str
    where: Where = NOWHERE

    @property
    def word(self) -> str:
        """What messages call it."""
        return self._word

    @property
    def whose(self) -> str:
        """Its word and its name, with which sentences about it begin."""
        return f"{self.word} '{self.name}'"

    def finding(self, code: str, what: str, fix: str = "", *, severity: Severity = OF_THE_CATALOGUE) -> Finding:
        """What was found of it, at its place; `what` is the sentence without its subject."""
        return Finding(code=code, what=f"{self.whose} {what}", fix=fix, where=self.where, severity=severity)


@dataclass(frozen=True, kw_only=True)
class NamedSource(Declaration):
    """A named unbounded input. `kind` is the entry point's name, for people; nothing is decided by it.

    renamed_from: the names that it had before, the newest first. lines: where single options stand, if that is known.
    """

    _word = "source"
    kind: str
    connector: contract.Source
    watermark: Watermark | None = None
    renamed_from: tuple[str, ...] = ()
    lines: Mapping[str, Where] = field(default_factory=dict, compare=False, repr=False)

    def at(self, option: str) -> Where:
        """Where an option is declared; else where the source is."""
        return self.lines.get(option, self.where)


@dataclass(frozen=True, kw_only=True)
class PythonTransform:
    """A function of DataFrames, injected by parameter name; `spark` asks for the session itself."""

    function: Callable[..., Any] = field(compare=False)
    inputs: tuple[str, ...]
    wants_spark: bool = False
    where: Where = NOWHERE

    def __str__(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def names(self) -> frozenset[str]:
        """The globals, methods and attributes that the function uses, and the functions of its module that it calls."""
        return frozenset(name for code in self._codes() for name in code.co_names)

    def line_of(self, name: str) -> tuple[str, int] | None:
        """The file and the line in which they use something called `name`; None if they do not."""
        for code in self._codes():
            line = code.co_firstlineno
            if name in code.co_names:
                for step in dis.get_instructions(code):
                    # From Python 3.13 on, `starts_line` is not a number.
                    line = getattr(step, "line_number", None) or step.starts_line or line
                    if step.argval == name:
                        return code.co_filename, line
        return None

    def _codes(self) -> Iterator[CodeType]:
        seen: set[Any] = set()
        queue: list[Any] = [self.function]
        while queue:
            function = queue.pop()
            if not isinstance(function, FunctionType) or function in seen:
                continue
            seen.add(function)
            codes = list(with_inner(function.__code__))
            yield from codes
            called = [function.__globals__.get(name) for code in codes for name in code.co_names]
            queue += [callee for callee in called if getattr(callee, "__module__", None) == function.__module__]


@dataclass(frozen=True, kw_only=True)
class SqlTransform:
    """One SELECT; `inputs` are the declared names that it reads, found in the text before any Spark is there."""

    sql: str
    inputs: tuple[str, ...]
    where: Where = NOWHERE

    def __str__(self) -> str:
        return "sql"


Transform: TypeAlias = PythonTransform | SqlTransform


@dataclass(frozen=True, kw_only=True)
class Table(Declaration):
    """A named bounded input, computed by a function of Spark or a SELECT.

    refresh: how often it is recomputed while a query that reads it runs; None: at the start alone.
    broadcast: its function gives a value of Python's in place of rows, of which each worker gets a copy.
    """

    transform: Transform
    refresh: Duration | None = None
    broadcast: bool = False

    @property
    def word(self) -> str:
        return "broadcast" if self.broadcast else "table"


@dataclass(frozen=True, kw_only=True)
class Counter(Declaration):
    """A named value that the tasks of queries add to; each query has its own, which begins with `zero`.

    param: adds two values of a type of the user's, as an AccumulatorParam of Spark's does; None for numbers.
    """

    _word = "counter"
    zero: Any = field(default=0, compare=False)
    param: Any = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class View(Declaration):
    """A named transformation without a sink, inlined where it is used."""

    _word = "view"
    transform: Transform


OnChange: TypeAlias = Literal["refuse", "forward"]
ON_CHANGE: tuple[OnChange, ...] = get_args(OnChange)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuerySettings(Declaration):
    """What is declared of a query apart from its rows and its sinks.

    on_change: what a change does that only rows from then on follow: the start is refused, or goes forward.
    renamed_from: the names that it had before, the newest first.
    restart: when the application starts it again after a failure that passes by itself; None: by the default policy,
        and never where its trigger comes to an end.
    state_budget_bytes: the memory that its state may take before the application warns of it.
    cdc: how its rows, which are changes, change the table of its sink; None: they are rows of the result.
    delete_when: a condition of Spark SQL over the result's columns: a row that meets it is deleted from the table.
    """

    _word = "query"
    mode: contract.OutputMode = "append"
    trigger: Trigger = field(default_factory=Default)
    description: str = ""
    on_change: OnChange = "refuse"
    renamed_from: tuple[str, ...] = ()
    restart: Restart | None = None
    state_budget_bytes: int | None = None
    cdc: ChangeData | None = None
    delete_when: str | None = None


@dataclass(frozen=True, kw_only=True)
class Query(QuerySettings):
    """A function of its inputs to a DataFrame, with a sink, an output mode and a trigger.

    late: the query that brings the rows that it drops as late to a sink of their own; None: they are dropped.
    sink_where, sink_lines: where the sink is declared, and single options of it, if that is known.
    """

    transform: Transform
    sink: contract.Sink
    sink_kind: str
    late: str | None = None
    sink_where: Where = field(default=NOWHERE, compare=False, repr=False)
    sink_lines: Mapping[str, Where] = field(default_factory=dict, compare=False, repr=False)

    def sink_at(self, option: str) -> Where:
        """Where an option of the sink is declared; else where the query is."""
        return self.sink_lines.get(option, self.where)


Durability: TypeAlias = Literal["power_loss", "process"]
DURABILITIES: tuple[Durability, ...] = get_args(Durability)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A named set of settings: where Spark runs, where storage is, and what of Spark's settings to override.

    state_store: the settings, by Spark's keys, that queries keep their state with.
    worker_packages: the archive of what workers lack, as `headrace cluster pack` makes it.
    shared_paths: directories that all machines of a cluster see by the same path, as a mounted one.
    checkpoint_durability: what a checkpoint survives without being restored from the sink's ledger: the end of the
    process, or the machine's loss of power too.
    operations: how a running application is watched.
    lines: where its storage and single settings are declared, if that is known.
    """

    name: str = "dev"
    master: str | None = None
    storage: str = ".headrace"
    spark: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    state_store: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    worker_packages: str | None = None
    shared_paths: tuple[str, ...] = ()
    checkpoint_durability: Durability = "power_loss"
    operations: Operations = field(default_factory=Operations)
    lacking: tuple[Finding, ...] = ()
    where: Where = NOWHERE
    lines: Mapping[str, Where] = field(default_factory=dict, compare=False, repr=False)

    def at(self, key: str) -> Where:
        """Where a setting, or the storage, is declared; else where the target is."""
        return self.lines.get(key, self.where)

    def require_settings(self) -> None:
        """Raise ProjectError where the target was loaded without the variables of its settings of Spark."""
        if self.lacking:
            raise ProjectError(self.lacking)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """How a project was read from its files.

    again: reads it again, in the same way. target: as it is declared. variables: the values of those that it names.
    """

    again: Callable[[], Project] = field(repr=False)
    target: Target
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Project:
    """Everything declared in one directory, seen from one target.

    Attributes:
        name: The name of the project.
        root: The directory of the project.
        target: The target from which the project is seen.
        sources: The declared sources by name.
        tables: The declared tables and broadcasts by name.
        views: The declared views by name.
        counters: The declared counters by name.
        queries: The declared queries by name.
        secrets: The secret values in the declarations, each with the text that stood for it.
        secret_files: The files that some of the secrets came from, as the project names them.
        modules: The project's own modules, which Spark's Python workers cannot import: their functions are sent by
            value.
        rebuilds: The query whose rebuild uses the project in this form; empty otherwise.
        local: The `local_storage` of that rebuild.
        loaded: How the project was read; None if a program made it.
    """

    name: str
    root: Path
    target: Target = field(default_factory=Target)
    sources: Mapping[str, NamedSource] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    counters: Mapping[str, Counter] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    secret_files: tuple[str, ...] = field(default=(), repr=False, compare=False)
    modules: tuple[ModuleType, ...] = field(default=(), repr=False, compare=False)
    rebuilds: str = ""
    local: Path | None = field(default=None, repr=False, compare=False)
    loaded: Loaded | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<project '{self.name}': sources {', '.join(self.sources)}; queries {', '.join(self.queries)}>"

    def _repr_html_(self) -> str:
        """Show its graph in a notebook: what each query reads, and where its result goes."""
        rows = [
            (", ".join(query.transform.inputs), name, query.mode, query.trigger, query.sink_kind)
            for name, query in self.queries.items()
        ]
        inputs = [
            *((name, source.kind, str(source.watermark or "")) for name, source in self.sources.items()),
            *((name, "table", ", ".join(item.transform.inputs)) for name, item in self.tables.items()),
            *((name, "view", ", ".join(item.transform.inputs)) for name, item in self.views.items()),
        ]
        title = f"project {self.name}, target {self.target.name}"
        graph = table(("reads", "query", "mode", "trigger", "writes into"), rows, title=title)
        return whole(graph + table(("input", "kind", "watermark, or what it reads"), inputs))

    @property
    def is_rebuild(self) -> bool:
        """Whether it is the project as a rebuild of one of its queries sees it."""
        return bool(self.rebuilds)

    def redacted(self, text: str) -> str:
        """`text` with every secret of the project replaced by what stood for it."""
        return redacted(text, self.secrets)

    def redacted_finding(self, finding: Finding) -> Finding:
        """`finding`, as it may be shown and stored: messages of Spark or a database can hold a secret."""
        return finding.reword(what=self.redacted(finding.what), fix=self.redacted(finding.fix))

    @property
    def storage(self) -> Path:
        """The storage directory; a relative one lies in the project. Raises PlatformError for a store without package.

        It holds all that the result depends on, and may lie beyond this machine.
        """
        if scheme_of(self.target.storage) is not None:
            self.target.require_settings()
        return locate(self.root, self.target.storage, self.target.spark)

    @property
    def local_storage(self) -> Path:
        """Where the history, the log and the sockets of this machine's drivers are: the storage, if it is local."""
        if self.local is not None:
            return self.local
        beyond = self.root / ".headrace" / "targets" / self.target.name
        if self.target.lacking and scheme_of(self.target.storage) is not None:
            return beyond
        storage = self.storage
        return beyond if is_remote(storage) else storage

    def query(self, name: str) -> Query:
        """The query of this name; raises ProjectError when there is none."""
        if name in self.queries:
            return self.queries[name]
        raise ProjectError(code="HR091", what=f"no query is named '{name}'", fix=nearest(name, self.queries))

    def inputs(self) -> dict[str, NamedSource | Table | View]:
        """Every name of something with rows, or a value, that a transformation may ask for."""
        return {**self.sources, **self.tables, **self.views}

    def counters_of(self, query: Query) -> tuple[Counter, ...]:
        """The counters that the functions of `query`, and of the views that feed it, ask for."""
        asked = dict.fromkeys(name for transform in self.transforms_of(query) for name in transform.inputs)
        return tuple(self.counters[name] for name in asked if name in self.counters)

    def only(self, names: Collection[str]) -> Project:
        """The project as if these queries, what they read, and those that take their late rows were all of it."""
        late = {self.queries[name].late for name in names if name in self.queries}
        queries = {name: query for name, query in self.queries.items() if name in names or name in late}
        read = {thing.name for query in queries.values() for thing in self.upstream(query.transform)}
        read |= {counter.name for query in queries.values() for counter in self.counters_of(query)}

        def select(things: Mapping[str, _Thing]) -> dict[str, _Thing]:
            return {name: thing for name, thing in things.items() if name in read}

        return replace(
            self,
            queries=queries,
            sources=select(self.sources),
            tables=select(self.tables),
            views=select(self.views),
            counters=select(self.counters),
        )

    def upstream(self, transform: Transform) -> Iterator[NamedSource | Table | View]:
        """What `transform` reads, directly or through views and tables, each once, nearest first."""
        inputs, seen, queue = self.inputs(), set[str](), list(transform.inputs)
        while queue:
            name = queue.pop(0)
            if name in seen or name not in inputs:
                continue
            seen.add(name)
            thing = inputs[name]
            yield thing
            if not isinstance(thing, NamedSource):
                queue.extend(thing.transform.inputs)

    def transforms_of(self, query: Query) -> tuple[Transform, ...]:
        """What computes `query`, and the views that feed it."""
        views = (thing.transform for thing in self.upstream(query.transform) if isinstance(thing, View))
        return (query.transform, *views)

    def code(self, query: Query) -> dict[str, str]:
        """The code of the query, and of the views and tables that feed it, by their names."""
        feeding = {
            thing.name: thing.transform for thing in self.upstream(query.transform) if hasattr(thing, "transform")
        }
        return {name: code_of(transform) for name, transform in {query.name: query.transform, **feeding}.items()}

    def calls(self, query: Query, name: str) -> bool:
        """Whether a Python function of the query, or of a view that feeds it, uses something called `name`."""
        return any(isinstance(part, PythonTransform) and name in part.names() for part in self.transforms_of(query))

    def sources_of(self, query: Query) -> tuple[NamedSource, ...]:
        """The sources that feed `query`, in the order in which they are met."""
        return tuple(thing for thing in self.upstream(query.transform) if isinstance(thing, NamedSource))

    def connectors_of(self, query: Query) -> tuple[contract.Connector, ...]:
        """The sources of `query` and its sink."""
        return (*(source.connector for source in self.sources_of(query)), query.sink)

    def writers_for(self, query: Query) -> tuple[Query, ...]:
        """The queries whose sinks write tables of Spark's catalog that `query` reads as streams; whose late rows."""
        late = tuple(other for other in self.queries.values() if other.late == query.name)
        read = {source.connector.catalog_table for source in self.sources_of(query)} - {None}
        if not read:  # Asked for each query of a project, of which few read tables.
            return late
        return (*late, *(other for other in self.queries.values() if other.sink.catalog_table in read))

    def refreshed_tables_of(self, query: Query) -> tuple[Table, ...]:
        """The tables that feed `query` and are recomputed while it runs, each after those that it reads itself."""
        tables = [thing for thing in self.upstream(query.transform) if isinstance(thing, Table) and thing.refresh]
        return tuple(sorted(tables, key=lambda table: len(list(self.upstream(table.transform)))))


def paths_of(connector: contract.Connector) -> Iterator[tuple[str, str]]:
    """The paths that a source or a sink names, each with its option."""
    for option in contract.path_options(connector):
        value = getattr(connector, option)
        yield from ((option, str(path)) for path in (value if isinstance(value, (list, tuple)) else [value]) if path)


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


def code_of(transform: Transform) -> str:
    """The SQL or Python of a transformation, as it is written."""
    if isinstance(transform, SqlTransform):
        return transform.sql.strip()
    try:
        return inspect.getsource(transform.function).rstrip()
    except (OSError, TypeError):  # Defined by a program, or its file is gone.
        return str(transform)
