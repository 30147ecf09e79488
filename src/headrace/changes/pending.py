"""Which changes of a query were begun, and are to be ended, taken back or made final."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.changes.adopt import Adopt
from headrace.changes.change import Change
from headrace.changes.rebuild import Rebuild
from headrace.changes.reset import Reset
from headrace.changes.rewind import Rewind
from headrace.contract import Mark
from headrace.errors import CheckpointError
from headrace.generations import driver_lock
from headrace.generations.blame import attribute_errors
from headrace.generations.changes import ChangeStatus
from headrace.generations.facts import sink_context
from headrace.generations.log import Directory, LogRecord, find_lost, lost_changes
from headrace.generations.register import layout_of
from headrace.model import Project
from headrace.storage.durable import names_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AnyChange: TypeAlias = Change[Any, Any]
_KINDS: dict[str, type[AnyChange]] = {kind.name: kind for kind in (Rebuild, Rewind, Reset, Adopt)}


def changes(project: Project, query: str, *, spark: SparkSession | None = None) -> list[AnyChange]:
    """The changes of `query` that were begun and of which something is kept; what was cut off first, then the newest.

    The sink is asked only where the log of the query is an older copy. Raises ProjectError and CheckpointError, and
    then what the sink raises.
    """
    pending = [kind(project, query, spark=spark) for kind in _KINDS.values()]
    if (lost := _lost_change(project, query)) is not None:
        pending.append(_LostChange(project, query, lost, spark=spark))
    statuses = [(change, change.status) for change in pending]
    begun = [(status.is_cut_off, status.begun, change) for change, status in statuses if status is not None]
    return [change for _, _, change in sorted(begun, key=lambda entry: entry[:2], reverse=True)]


class _LostChange(Change[Any, Any]):
    """A change that the sink has seen, whose directory is complete, and which the log, an older copy, lacks."""

    _done = "changed"

    def __init__(self, project: Project, query: str, lost: LogRecord, *, spark: SparkSession | None) -> None:
        super().__init__(project, query, spark=spark)
        assert lost.change
        self.name, self.lost = lost.change, lost

    @property
    def status(self) -> ChangeStatus:
        return ChangeStatus(
            query=self.query.name,
            change=self.name,
            phase="lost",
            begun=self.lost.begun,
            is_cut_off=True,
            sentence=f"the log of query '{self.query.name}' is an older copy, which lacks a {self.name} that the sink "
            f"has seen; the directory {self.lost.target} of that is complete; enter it: {self._then('resume')}",
        )

    def _require_no_other(self) -> None:
        """What the older copy of the log has of other changes was over before this one began."""

    def _preview(self) -> Any:
        raise self._refusal(f"its log lacks a {self.name}", f"first {self._then('resume')}")

    def _make_steps(self, reached: Callable[[str], None]) -> Any:
        with self._hold(driver_lock.take(self.project, self.query, rebuilds=True)):
            lost = _lost_change(self.project, self.query.name)
            if lost is None:
                raise self._nothing(f"the log of query '{self.query.name}' lacks no change that its sink has seen")
            places = list(filter(None, map(Directory.parse, names_in(self.live.folder))))
            change = _KINDS[lost.change](self.project, self.query.name, spark=self.spark)
            change.live, change._locks = self.live.at(lost.live), self._locks
            change.record = replace(
                lost,
                # Another process of the newer log may have used any number up to that of a directory.
                number=max(lost.number, self.record.number, *(place.made for place in places)),
                token="",
                tokens={**lost.tokens, str(lost.number): lost.token},
                following=max(lost.following, *(place.generation + 1 for place in places)),
            )
            return change._end(self._alone(reached))

    def _undone(self, reached: Callable[[str], None]) -> Any:
        self._preview()

    _discard_steps = _undone


def _lost_change(project: Project, query: str) -> LogRecord | None:
    """What the query's log lacks of the newest change that the sink has seen. Raises as the sink."""
    declared, lost = project.query(query), list[LogRecord | None]()
    layout, ledger = layout_of(project, declared), declared.sink.ledger
    if ledger is None or not any(lost_changes(layout)):
        return None

    def find(mark: Mark) -> LogRecord | None:
        lost.append(find_lost(layout, mark))
        return lost[-1]

    # A sink that has seen a later change than the log refuses to be read.
    with suppress(CheckpointError), attribute_errors(declared):
        ledger.read_plans(replace(sink_context(project, declared, layout), find_lost=find), sys.maxsize)
    return lost[-1] if lost else None
