"""Give each row of the result to the user's own function or object, on Spark's workers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import contract
from headrace.errors import SinkError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, kw_only=True, eq=False)
class Foreach(contract.Sink):
    """Each row goes to `function`: a function of a row, or an object (or its class) with a method `process(row)`.

    Source: Structured Streaming guide, "Foreach". For each partition of each batch a worker gets a copy of the object
    and calls `open(partition_id, epoch_id)`, if there is one; only if that returns True, `process(row)` for each row;
    and then in any case `close(error)`, if there is one, with the exception that `process` raised, or None. So
    connections are opened in `open`, not in `__init__`. Spark does not promise that a batch which comes again has the
    same partitions, so that (partition_id, epoch_id) does not identify what was written before.

    function: in YAML the text `module:name`, which names it in one of the project's Python files.
    idempotent: the user's word that a row which comes again changes nothing, as where it is written by its key.
    """

    failures: ClassVar[tuple[contract.Failure, ...]] = (
        contract.Failure(
            code="HR417",
            pattern=r"OpenReturnedNone",
            what="the method `open` of its foreach sink's object returned None, so that no row would be processed",
            fix="return True from open, or False where the rows are to be left out",
        ),
    )
    function: contract.ProjectObject
    idempotent: bool = False

    @property
    def facts(self) -> contract.SinkFacts:
        return contract.SinkFacts(
            modes=frozenset(contract.OUTPUT_MODES),
            transactional=False,
            idempotent=self.idempotent,
            continuous=True,
            real_time=True,
            begins_anywhere=True,
            columns_by_name=False,  # The user's function may read a row by position.
        )

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        given = self.function
        yield from waits(given)
        if isinstance(given, str):
            yield from not_found(given)
        elif hasattr(given, "process"):
            yield from _unfit_methods(given)
        elif isinstance(given, type) or not callable(given):
            fault = f"{name_of(given)} is not a function and has no method process(row)"
            yield contract.OptionError(
                code="HR415", what=fault, fix="give a function of one row, or an object with process(row)"
            )
        elif not takes(given, object()):
            fault = f"the function {name_of(given)} cannot be called with one row"
            yield contract.OptionError(code="HR415", what=fault, fix=f"write it as: def {name_of(given)}(row)")

    def open(self, frame: DataFrame, context: contract.SinkContext) -> ForeachWriter:
        """Refuse what cannot travel to the workers; Spark would say so by a trace of its pickler."""
        from pyspark import cloudpickle

        receiver = self.function
        if hasattr(receiver, "process"):
            # What is callable too would lose its life cycle with Spark.
            receiver = Receiver(receiver() if isinstance(receiver, type) else receiver)
        try:
            cloudpickle.dumps(receiver)  # type: ignore[no-untyped-call]
        except Exception as error:
            fault = f"{name_of(self.function)}, which query '{context.query}' gives its rows to, "
            fault += f"cannot be sent to the workers: {first_line(error) or type(error).__name__}"
            fix = "open files and connections in the method open(partition_id, epoch_id), not before"
            raise SinkError(code="HR416", what=fault, fix=fix) from error
        return ForeachWriter(receiver)


@dataclass(frozen=True)
class ForeachWriter(contract.Writer):
    """Spark's own foreach sink."""

    receiver: Any

    def attach(self, stream_writer: DataStreamWriter) -> DataStreamWriter:
        return stream_writer.foreach(self.receiver)


class OpenReturnedNone(TypeError):
    """`open` said neither that the rows are to be processed nor that they are not."""


class Receiver:
    """The user's object as Spark calls it; an `open` without a return would leave out every row silently."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Whether the rows of this partition are to be processed."""
        if not hasattr(self.target, "open"):
            return True
        answer = self.target.open(partition_id, epoch_id)
        if answer is None:
            raise OpenReturnedNone(f"the method open of {type(self.target).__name__} returned None")
        return bool(answer)

    def process(self, row: Any) -> None:
        self.target.process(row)

    def close(self, error: Exception | None) -> None:
        """Clean up, whether the rows were processed, left out, or broken off."""
        if hasattr(self.target, "close"):
            self.target.close(error)


def _unfit_methods(given: Any) -> Iterator[contract.OptionError]:
    name = name_of(given)
    own = (object(),) if isinstance(given, type) else ()
    if isinstance(given, type) and not takes(given):
        fix = "give the object in place of its class, or let __init__ take nothing"
        yield contract.OptionError(code="HR415", what=f"the class {name} cannot be made without arguments", fix=fix)
    for method, names in (("open", ("partition_id", "epoch_id")), ("process", ("row",)), ("close", ("error",))):
        member = getattr(given, method, None)
        if (member is not None or method == "process") and not (callable(member) and takes(member, *own, *names)):
            fix = f"write it as: def {method}(self, {', '.join(names)})"
            fault = f"the method {method} of {name} cannot be called as the sink does"
            yield contract.OptionError(code="HR415", what=fault, fix=fix)


def name_of(given: Any) -> str:
    """Return the name of the function, class or object in messages."""
    return str(getattr(given, "__name__", None) or type(given).__name__)


def not_found(given: Any) -> Iterator[contract.OptionError]:
    """The fault of a text that names nothing; a text that does was replaced when the project was loaded."""
    fix = "write module:name; a file that does not mention headrace is to be listed under `modules`"
    fault = f"'{given}' names no function or object of the project's Python files"
    yield contract.OptionError(code="HR415", what=fault, fix=fix)


def waits(given: Any) -> Iterator[contract.OptionError]:
    """The fault of an async function, whose call does nothing until somebody awaits it."""
    for function in (given, *(getattr(given, method, None) for method in ("open", "process", "close"))):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            fault = f"{name_of(function)} is an async function, and nothing awaits it"
            yield contract.OptionError(code="HR415", what=fault, fix="write def in place of async def")


def takes(function: Any, *arguments: Any, **named: Any) -> bool:
    """Whether `function` can be called so; a built-in without a signature is believed."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
