"""The decorators that make functions of DataFrames known to a project, their triggers, and counters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

from headrace.contract import OUTPUT_MODES, OutputMode
from headrace.declare.change_data import CDC_KEYS, DELETE_WHEN_FIX, condition, read_change_data
from headrace.declare.declarations import (
    DECLARED,
    DeclaredCounter,
    DeclaredQuery,
    DeclaredSink,
    DeclaredTable,
    DeclaredView,
    choose_word,
    former_names,
    restart_policy,
)
from headrace.declare.faults import check_name, fault, where_of_frame, where_of_function
from headrace.errors import Where, nearest
from headrace.model import TRIGGERS, AvailableNow, Continuous, Default, Duration, Every, Once, RealTime, Trigger
from headrace.model.project import ON_CHANGE, OnChange
from headrace.units import parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Body = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")
Rows = TypeVar("Rows", bound="DataFrame")
Read = TypeVar("Read")
_TRIGGER = "write every('5 seconds'), continuous('1 second'), real_time('5 minutes') or available_now"
available_now = AvailableNow()
once = Once()
WORDS: dict[str, Trigger] = {"default": Default(), "available-now": available_now, "once": once}
# Those that take a length of time, by the word before it.
TIMED: dict[str, type[Every] | type[Continuous] | type[RealTime]] = {
    "every": Every,
    "continuous": Continuous,
    "real_time": RealTime,
}


class RestartPolicy(TypedDict, total=False):
    """When a query is started again after a failure that passes by itself; see `restart` in the configuration."""

    limit: int | None
    pause: str
    longest_pause: str
    quiet: str


class DeclaresQuery(Protocol):
    """The signature of `query` for type checkers: its sink is needed, and the function keeps its signature."""

    def __call__(
        self,
        *,
        sink: DeclaredSink,
        mode: OutputMode = "append",
        trigger: Trigger | str | None = None,
        name: str | None = None,
        on_change: OnChange = "refuse",
        renamed_from: str | Sequence[str] = (),
        restart: RestartPolicy | Literal["never"] | None = None,
        state_budget: str | int | None = None,
        late: DeclaredSink | None = None,
        delete_when: str | None = None,
    ) -> Callable[[Callable[P, Rows]], DeclaredQuery[P, Rows]]: ...


def _query(
    function: Body | None = None,
    /,
    *,
    sink: DeclaredSink | None = None,
    mode: OutputMode = "append",
    trigger: Trigger | str | None = None,
    name: str | None = None,
    on_change: OnChange = "refuse",
    renamed_from: str | Sequence[str] = (),
    restart: Mapping[str, Any] | str | None = None,
    state_budget: str | int | None = None,
    late: DeclaredSink | None = None,
    delete_when: str | None = None,
    frame: FrameType | None = None,
) -> Any:
    """Declare a function of its inputs to a DataFrame as a query, whose result goes to `sink`.

    Args:
        function: The function, where the decorator stands without brackets.
        sink: Where the result goes, as `hr.sink.sqlite("out.db", table="counts")`.
        mode: The output mode: append, update or complete.
        trigger: When a batch is made, as `hr.every("5 seconds")`; without it, as soon as the last one is done.
        name: The query's name; by default the function's.
        on_change: `forward` lets it start after a change that only rows from then on follow; others are always refused.
        renamed_from: The name that it had before, or several, the newest first: its checkpoint and result stay.
        restart: When the application starts it again after a failure that passes by itself, as
            `{"limit": 8, "pause": "1 second"}`, or "never".
        state_budget: The memory that its state may take before the application warns of it, as "2g".
        late: The sink of the rows that it drops as late, each exactly once; a query `NAME_late` writes them.
        delete_when: In update mode, a condition over the result's columns, as "closed": a row that meets it is deleted
            from the table by its key.
        frame: Where it is declared; by default the caller's.

    Returns:
        The declared query; calling it calls the function.

    Raises:
        ProjectError: An argument is wrong. While a project is loaded, its faults are reported together.
    """
    frame = frame or sys._getframe(1)
    if isinstance(function, DeclaredSink):
        message = "the sink is given by position, where a decorator has the function"
        fault("HR117", message, "write @hr.query(sink=hr.sink.console())", where_of_frame(frame))
        sink, function = function, None

    def declare(body: Body) -> DeclaredQuery[..., Any]:
        common = _common(body, name, frame)
        where, whose = common["where"], f"query '{common['name']}'"
        if not isinstance(sink, DeclaredSink):
            lacks = "has no sink" if sink is None else "has a sink that is none of the declared kinds"
            fix = "write @hr.query(sink=hr.sink.console()), or another sink's name for console"
            fault("HR112", f"{whose} {lacks}", fix, where)
        if late is not None and not isinstance(late, DeclaredSink):
            fix = 'write for example late=hr.sink.sqlite("late.db", table="late_rows")'
            fault("HR112", f"{whose}, late, is not a sink", fix, where)
        return DeclaredQuery(
            **common,
            sink=sink if isinstance(sink, DeclaredSink) else None,
            late=late if isinstance(late, DeclaredSink) else None,
            mode=choose_word(mode, OUTPUT_MODES, f"{whose} has no output mode", where, fault),
            on_change=choose_word(on_change, ON_CHANGE, f"{whose} has no on_change", where, fault),
            trigger=_read(trigger, _trigger, whose, _TRIGGER, where) or Default(),
            renamed_from=former_names(renamed_from, whose, where),
            restart=None if restart is None else restart_policy(restart, whose, where, fault),
            state_budget_bytes=_read(
                state_budget,
                lambda size: parse_size(str(size)),
                f"{whose}, state_budget",
                "write for example state_budget='2g'",
                where,
            ),
            delete_when=_read(delete_when, condition, f"{whose}, delete_when", DELETE_WHEN_FIX, where),
        )

    return declare if function is None else declare(function)


def _no_function() -> None:
    """Stand for something that was decorated and is not a function; its fault has been reported."""


def _common(body: Body, name: str | None, frame: FrameType) -> dict[str, Any]:
    """Return what every decorated function has, and report faults of its parameters."""
    where = where_of_function(body, where_of_frame(frame))
    called = str(name or getattr(body, "__name__", type(body).__name__))
    check_name(name, where, f"write name='{called}', or a better one")
    if inspect.isclass(body) or not callable(body):
        message = f"'{called}' is not a function, but {'a class' if inspect.isclass(body) else type(body).__name__}"
        fault("HR117", message, "decorate a function of its inputs: def", where)
        body = _no_function
    if wrong := _unusual_kind(body):
        fix = "write def in place of async def" if wrong.startswith("an async") else "return the DataFrame"
        fault("HR117", f"'{called}' is {wrong}", fix, where)
    inputs = tuple(_parameters(body, called, where))
    seen = {} if frame.f_locals is frame.f_globals else frame.f_locals
    return {
        "function": body,
        "name": called,
        "inputs": tuple(parameter for parameter in inputs if parameter != "spark"),
        "wants_spark": "spark" in inputs,
        "where": where,
        "description": " ".join((getattr(body, "__doc__", None) or "").strip().split("\n\n")[0].split()),
        "scope": {name: thing for name, thing in seen.items() if isinstance(thing, DECLARED)},
    }


def _unusual_kind(body: Body) -> str:
    """Name the kind of a function that returns a coroutine or a generator; empty for one that returns its value."""
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        return "an async function, which nothing awaits"
    return "a generator, which yields in place of returning" if inspect.isgeneratorfunction(body) else ""


def _parameters(body: Body, called: str, where: Where) -> list[str]:
    names: list[str] = []
    for parameter in inspect.signature(body).parameters.values():
        star = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        wrong = ""
        if star:
            wrong = f"'{star}{parameter.name}' names no input"
        elif parameter.default is not parameter.empty:
            wrong = f"the parameter '{parameter.name}' has a default, so it names no input"
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            wrong = f"the parameter '{parameter.name}' is positional only, but inputs are given by name"
        else:
            names.append(parameter.name)
        if wrong:
            fix = "give each parameter the plain name of a source, view or table, or `spark` for the session"
            fault("HR117", f"'{called}': {wrong}", fix, where)
    return names


def _read(given: Any, parse: Callable[[Any], Read], whose: str, fix: str, where: Where) -> Read | None:
    """Parse an argument; a ValueError is reported."""
    try:
        return None if given is None else parse(given)
    except ValueError as error:
        fault("HR104", f"{whose}: {error}", fix, where)
        return None


def _trigger(given: Any) -> Trigger:
    if isinstance(given, TRIGGERS):
        return given
    if not isinstance(given, str):
        raise ValueError("a trigger is neither a text nor made by every()")
    return parse_trigger(given)


def parse_trigger(text: str) -> Trigger:
    """Return the trigger that `text` names or whose interval it is.

    Raises:
        ValueError: It is neither, said in a sentence.
    """
    word = text.strip().lower().replace("_", "-").replace(" ", "-")
    if word in WORDS:
        return WORDS[word]
    first, _, rest = text.strip().partition(" ")
    if first.lower() in TIMED and not any(character.isdigit() for character in rest):
        raise ValueError(f"'{rest.strip()}' is not a length of time")
    if not any(character.isdigit() for character in text):
        near = nearest(word, [word_ for word_ in WORDS if word_ != "once"])  # which Spark has deprecated
        raise ValueError(f"there is no trigger '{text}'" + (f"; {near}" if near.startswith("did you mean") else ""))
    if (kind := TIMED.get(first.lower().replace("-", "_"))) is not None:
        return kind(Duration.parse(rest))
    return Every(Duration.parse(text))


query: DeclaresQuery = _query


def cdc(
    *,
    sink: DeclaredSink,
    keys: Sequence[str],
    sequence_by: str | Sequence[str] | None = None,
    apply_as_deletes: str | None = None,
    apply_as_truncates: str | None = None,
    column_list: Sequence[str] | None = None,
    except_column_list: Sequence[str] | None = None,
    stored_as_scd_type: Literal[1, 2] = 1,
    track_history_column_list: Sequence[str] | None = None,
    track_history_except_column_list: Sequence[str] | None = None,
    ignore_null_updates: bool = False,
    keep_deletes: str | None = None,
    start_column: str | None = None,
    end_column: str | None = None,
    trigger: Trigger | str | None = None,
    name: str | None = None,
    on_change: OnChange = "refuse",
    renamed_from: str | Sequence[str] = (),
    restart: RestartPolicy | Literal["never"] | None = None,
) -> Callable[[Callable[P, Rows]], DeclaredQuery[P, Rows]]:
    """Declare a function of rows whose changes are applied to a table: inserts, updates and deletes by key.

    The function sees the rows of the changed table, not the changes. It may select, compute and filter; a row that no
    longer passes a filter is deleted. Of two changes of a key the one with the greater sequence holds, however they
    come.

    Args:
        sink: The table, as `hr.sink.postgres("${DB}", table="customers")`.
        keys: The columns of the result by which a row is found.
        sequence_by: The column of the source by whose values changes are ordered; with type 1 also several, which are
            compared one after the other. Debezium's changes have an order themselves.
        apply_as_deletes: A condition over the source's columns, as `"op = 'DELETE'"`: such a row deletes its key.
        apply_as_truncates: A condition as well: such a row deletes all rows that are older.
        column_list: The columns of the result that are written; by default all.
        except_column_list: The columns that are not written.
        stored_as_scd_type: 1 keeps the newest row of each key; 2 keeps its history.
        track_history_column_list: With type 2, the columns of which another value begins a new row; by default all.
        track_history_except_column_list: With type 2, the columns that are changed in place.
        ignore_null_updates: Whether a NULL leaves what is stored.
        keep_deletes: How long a delete is remembered, so that an older change that arrives later is ignored; by default
            7 days.
        start_column: With type 2, the column with the sequence from which a row held; by default `__START_AT`.
        end_column: The column with the sequence up to which it held, NULL in the current row; `__END_AT`.
        trigger: When a batch is made; without it, as soon as the last one is done.
        name: The query's name; by default the function's.
        on_change: `forward` lets it start after a change that only rows from then on follow.
        renamed_from: The name that it had before, or several, the newest first.
        restart: When the application starts it again after a failure that passes by itself.

    Returns:
        The declared query; calling it calls the function.

    Raises:
        ProjectError: An argument is wrong. While a project is loaded, its faults are reported together.
    """
    given = {option: value for option, value in locals().items() if option in CDC_KEYS}
    given = {option: list(value) if isinstance(value, tuple) else value for option, value in given.items()}
    frame = sys._getframe(1)
    declare = _query(
        sink=sink,
        mode="update",
        trigger=trigger,
        name=name,
        on_change=on_change,
        renamed_from=renamed_from,
        restart=restart,
        frame=frame,
    )

    def declare_changes(body: Body) -> Any:
        declared = declare(body)
        changes = read_change_data(given, declared.whose, declared.where, fault)
        return replace(declared, cdc=changes, sink=declared.sink if changes else None)

    return declare_changes


@overload
def view(function: Callable[P, Rows], /) -> DeclaredView[P, Rows]: ...


@overload
def view(*, name: str | None = None) -> Callable[[Callable[P, Rows]], DeclaredView[P, Rows]]: ...


def view(function: Body | None = None, /, *, name: str | None = None) -> Any:
    """Declare a function of its inputs to a DataFrame as a view, inlined where its name is asked for.

    Args:
        function: The function, where the decorator stands without brackets.
        name: The view's name; by default the function's.

    Raises:
        ProjectError: An argument is wrong. While a project is loaded, its faults are reported together.
    """
    frame = sys._getframe(1)

    def declare(body: Body) -> DeclaredView[..., Any]:
        return DeclaredView(**_common(body, name, frame))

    return declare if function is None else declare(function)


@overload
def table(function: Callable[P, Rows], /) -> DeclaredTable[P, Rows]: ...


@overload
def table(
    *, name: str | None = None, refresh: Trigger | str | None = None
) -> Callable[[Callable[P, Rows]], DeclaredTable[P, Rows]]: ...


def table(function: Body | None = None, /, *, name: str | None = None, refresh: Trigger | str | None = None) -> Any:
    """Declare a function to a bounded DataFrame as a table.

    It is computed at the start of each query that reads it.

    Args:
        function: The function, where the decorator stands without brackets.
        name: The table's name; by default the function's.
        refresh: The interval at which it is computed again while the query runs, as `every("10 minutes")`.

    Raises:
        ProjectError: An argument is wrong. While a project is loaded, its faults are reported together.
    """
    return _table(function, name, refresh, sys._getframe(1), broadcast=False)


@overload
def broadcast(function: Callable[P, R], /) -> DeclaredTable[P, R]: ...


@overload
def broadcast(
    *, name: str | None = None, refresh: Trigger | str | None = None
) -> Callable[[Callable[P, R]], DeclaredTable[P, R]]: ...


def broadcast(function: Body | None = None, /, *, name: str | None = None, refresh: Trigger | str | None = None) -> Any:
    """Declare a function to a value of Python's, such as a dict, in which functions for rows look things up.

    A query that asks for it by name gets a broadcast variable of Spark's: each worker gets one copy, which is its
    `.value`.

    Args:
        function: The function, where the decorator stands without brackets.
        name: The value's name; by default the function's.
        refresh: The interval at which it is computed again while the query runs.

    Raises:
        ProjectError: An argument is wrong. While a project is loaded, its faults are reported together.
    """
    return _table(function, name, refresh, sys._getframe(1), broadcast=True)


def _table(
    function: Body | None, name: str | None, refresh: Trigger | str | None, frame: FrameType, *, broadcast: bool
) -> Any:
    def declare(body: Body) -> DeclaredTable[..., Any]:
        common = _common(body, name, frame)
        whose = f"{'broadcast' if broadcast else 'table'} '{common['name']}'"
        length = _read(refresh, _refresh, whose, "write refresh=every('10 minutes')", common["where"])
        return DeclaredTable(**common, refresh=length, broadcast=broadcast)

    return declare if function is None else declare(function)


def _refresh(given: Any) -> Duration:
    if isinstance(given, Every):
        return given.interval
    if not isinstance(given, str):
        raise ValueError("its refresh is neither a text nor made by every()")
    return Duration.parse(given)


def counter(zero: Any = 0, *, param: Any = None, name: str | None = None) -> DeclaredCounter:
    """Declare a counter; a query's function asks for it by name, and its rows `add` to it.

    What is added in a batch counts once, when the batch is committed: neither a task that is tried again nor a batch
    that is interrupted and made again counts twice.

    Args:
        zero: The value that it begins with.
        param: Adds values of a type of your own, by `zero(value)` and `addInPlace(one, other)`, as an AccumulatorParam
            of Spark's.
        name: The counter's name; by default that of the variable that holds it.

    Raises:
        ProjectError: `zero` is not a number and there is no `param`, or `param` lacks a method.
    """
    where = where_of_frame(sys._getframe(1))
    name = check_name(name, where)
    if param is None and (isinstance(zero, bool) or not isinstance(zero, (int, float, complex))):
        message = f"a counter that begins with a value of type {type(zero).__name__} does not know how to add to it"
        fix = "begin with a number, or give a param with zero(value) and addInPlace(one, other)"
        fault("HR801", message, fix, where)
    lacking = [
        method for method in ("zero", "addInPlace") if param is not None and not callable(getattr(param, method, None))
    ]
    if lacking:
        message = f"the param of a counter has no {' and no '.join(lacking)}"
        fix = "give an object of a class with zero(value) and addInPlace(one, other)"
        fault("HR801", message, fix, where)
    return DeclaredCounter(zero=zero, param=param, name=name, where=where)


def every(interval: str) -> Trigger:
    """Make a batch at a fixed interval: `every("5 seconds")`.

    Raises:
        ProjectError: The text is not a length of time.
    """
    return _timed_trigger("every", interval)


def continuous(checkpoint: str) -> Trigger:
    """Process rows one by one, without batches, with a checkpoint at this interval: `continuous("1 second")`.

    Raises:
        ProjectError: The text is not a length of time.
    """
    return _timed_trigger("continuous", checkpoint)


def real_time(batch: str) -> Trigger:
    """Process rows one by one, in batches of this length, at least 5 seconds: `real_time("5 minutes")`.

    Raises:
        ProjectError: The text is not a length of time.
    """
    return _timed_trigger("real_time", batch)


def _timed_trigger(word: str, interval: str) -> Trigger:
    where = where_of_frame(sys._getframe(2))
    try:
        return TIMED[word](Duration.parse(interval))
    except (ValueError, AttributeError, TypeError) as error:
        message = str(error) if isinstance(error, ValueError) else "the interval of a trigger is not a text"
        fault("HR104", message, f"write {word}('5 seconds')", where)
        return Default()
