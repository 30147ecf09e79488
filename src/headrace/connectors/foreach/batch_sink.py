"""Give each batch of the result, as a DataFrame, to the user's own function in the driver."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.connectors.foreach.sink import name_of, not_found, takes, waits
from headrace.contract import OUTPUT_MODES, OptionError, OutputMode, ProjectObject, Sink, SinkContext, SinkFacts
from headrace.errors import NOWHERE, Finding, HeadraceError, SinkError, Where, first_line
from headrace.spark.jvm.gateway import working_directory
from headrace.spark.messages.refusals import condition_of, is_from_spark, with_directories
from headrace.spark.stream.foreach_batch import ForEachBatch, compute_all
from headrace.user_code import innermost, is_installed, serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class ForeachBatch(Sink):
    """Each batch goes to `function(frame, batch)`: its rows as a DataFrame that is not a stream, and its number.

    Source: Structured Streaming guide, "ForeachBatch". The function may write the frame to several places. A batch
    whose commit is missing, as after a crash, comes again: with the same number, and with the same rows if sources and
    plan allow it. A parameter named `again` says whether the batch was begun before.

    function: in YAML the text `module:name`, which names it in one of the project's Python files.
    cache: keep the frame while the function works, so that a second use does not compute it again.
    idempotent: the user's word that a batch which comes again changes nothing, as where the function skips or replaces
        what it wrote under the same number.

    A query that keeps state needs every partition of every batch computed. What the function leaves out is computed
    after it; with `cache` off that is all of it.
    """

    function: ProjectObject
    cache: bool = True
    idempotent: bool = False

    @property
    def facts(self) -> SinkFacts:
        return SinkFacts(
            modes=frozenset(OUTPUT_MODES),
            transactional=False,
            idempotent=self.idempotent,
            begins_anywhere=True,
            columns_by_name=False,  # The user's function may read a row by position.
        )

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        given = self.function
        yield from waits(given)
        if isinstance(given, str):
            yield from not_found(given)
        elif isinstance(given, type) or not callable(given):
            fault = f"{name_of(given)} is not a function"
            yield OptionError(code="HR415", what=fault, fix="give a function of the batch's DataFrame and its number")
        elif not takes(given, object(), 0, **({"again": False} if _asks_again(given) else {})):
            fault = f"the function {name_of(given)} cannot be called with a DataFrame and a number"
            fix = f"write it as: def {name_of(given)}(frame, batch), or with a third parameter `again`"
            yield OptionError(code="HR415", what=fault, fix=fix)

    def open(self, frame: DataFrame, context: SinkContext) -> ForEachBatch[_Caller]:
        return ForEachBatch(_Caller(self, context))


class _Caller:
    """Calls the function for the batches of one start."""

    def __init__(self, sink: ForeachBatch, context: SinkContext) -> None:
        self.sink = sink
        self.context = context
        self.asks_again = _asks_again(sink.function)
        checkpoint = Checkpoint(context.checkpoint)
        planned, committed = checkpoint.last_batch, checkpoint.last_committed
        # The batch that was planned and not committed: the first of this start, and perhaps known to the function.
        is_open = planned is not None and planned > (-1 if committed is None else committed)
        self.begun_before = planned if is_open else None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        again = {"again": batch == self.begun_before} if self.asks_again else {}
        if self.sink.cache:
            frame.persist()
        try:
            self.context.on_boundary("before-transaction", batch)
            self._call(frame, batch, again)
            if Checkpoint(self.context.checkpoint).is_stateful:
                # Spark commits the state of a batch only if every partition of it is computed.
                compute_all(frame)
            self.context.on_boundary("after-transaction", batch)
        finally:
            if self.sink.cache:
                frame.unpersist()
            else:
                # How often, and how much of it, the function had computed is not known.
                self.context.on_computed(batch, False)

    def _call(self, frame: DataFrame, batch: int, again: dict[str, bool]) -> None:
        try:
            with serving(self.context.query, batch):
                self.sink.function(frame, batch, **again)
        except HeadraceError as error:
            self.context.on_error(error)
            raise
        except (Exception, SystemExit) as error:
            if is_from_spark(error) and condition_of(error) != "PATH_NOT_FOUND":
                raise  # What Spark says is read where the query's end is reported.
            reason = first_line(error)
            finding = Finding(
                code="HR417",
                what=f"query '{self.context.query}': the function {name_of(self.sink.function)} failed at batch "
                f"{batch} with {type(error).__name__}{': ' if reason else ''}{reason}",
                fix="correct it at that line and start again: the batch, which was not committed, is given to it again",
                where=_line(error),
            )
            for root in self.context.roots[:1]:
                finding = with_directories(finding, error, root, working_directory(frame.sparkSession))
            self.context.on_error(SinkError(finding))
            raise SinkError(finding) from None


def _asks_again(function: Any) -> bool:
    try:
        return "again" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _line(error: BaseException) -> Where:
    """The innermost line of the fault's trace that is neither of an installed package nor of Python itself."""
    library = os.path.dirname(os.__file__)
    place = innermost(
        error, lambda file: file != __file__ and not is_installed(file) and not file.startswith((library, "<"))
    )
    if place is None:
        return NOWHERE
    shown = os.path.relpath(place[0])
    return Where(file=place[0] if shown.startswith("..") else shown, line=place[1])
