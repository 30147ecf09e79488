"""What the ways of a rebuild share: its record, the right to run the query, and why a way is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.change.rebuild.shadow import exchange
from headrace.change.rebuild.values import Done, RebuildResult
from headrace.errors import CheckFailed, Finding
from headrace.queries import driver_lock
from headrace.queries.changes import Phase, RebuildRecord
from headrace.queries.driver_lock import DriverLock
from headrace.queries.layout import QueryLayout, latest_generation
from headrace.queries.sink_location import former_location, table_before
from headrace.run.sink_work import SinkWork, require_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.5
_STOP = "stop it by Ctrl-C or SIGTERM, and give the command again, or give it with --wait: nothing is lost meanwhile"


class RebuildWork(SinkWork):
    """One command's work on the rebuild of one query."""

    def record(self) -> RebuildRecord | None:
        """The record of the rebuild, if there is one."""
        return RebuildRecord.of(self.project.storage, self.query.name)

    def required(self, *phases: Phase) -> RebuildRecord:
        """The record, which has to be at one of `phases`; raises CheckFailed."""
        record = self.record()
        if record is None:
            what = f"there is no rebuild of query '{self.query.name}'"
            raise CheckFailed(Finding(code="HR582", what=what, where=self.query.where))
        if record.phase not in phases:
            raise self.in_the_way(record)
        self.require_same_sink(record)
        return record

    def require_same_sink(self, record: RebuildRecord) -> None:
        """Raise CheckFailed if the results of the rebuild lie where the sink writes no more."""
        former = QueryLayout(self.project.storage, self.query.name, record.former)
        if elsewhere := former_location(self.project, self.query, former):
            why = f"its sink was {elsewhere} when the rebuild began, and is another one now"
            raise self.refused(why, "name the former sink again")

    def require_newest(self, record: RebuildRecord) -> None:
        """Raise CheckFailed if the query was reset since."""
        newest = latest_generation(self.project.storage, self.query.name)
        if newest > record.generation:
            why = f"it was reset since, and is generation {newest} now"
            fix = f"take that back first: headrace reset {self.query.name} --undo"
            raise self.refused(why, f"{fix}; or delete the former one: {self.command('--discard')}", done="rolled back")

    def require_possible(self) -> None:
        """Raise CheckFailed for a query whose result cannot be exchanged."""
        exchange(self.query)
        record = self.record()
        if record is None:
            return
        number = latest_generation(self.project.storage, self.query.name)
        if record.phase in ("swapping", "rolling-back"):
            number = record.former  # Of the other one a part may lie there.
        layout = QueryLayout(self.project.storage, self.query.name, number)
        if table_before(self.project, self.query, layout) is not None:
            why = "its table is to be renamed, and what the rebuild has made has the former name"
            raise self.refused(why, f"name the table as before; or abandon the rebuild: {self.command('--abandon')}")

    def streaming_session(self) -> SparkSession:
        """The session in which queries run, begun when it is asked for."""
        from headrace.build.project_session import session

        if self.spark is None:
            self.spark, self.own_session = session(self.project), True
        return self.spark

    @contextmanager
    def stopped(self, wait: bool) -> Iterator[None]:
        """Hold the right to run the query, so that nobody else does."""
        lock = self._lock(wait)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _lock(self, wait: bool) -> DriverLock | None:
        while True:
            try:
                lock = driver_lock.take(self.project, self.query)
                if lock is None:
                    require_stopped(self.project, self.query, code="HR526", fix=_STOP)
                return lock
            except CheckFailed as error:
                if not wait:
                    error.findings = tuple(replace(each, fix=_STOP) for each in error.findings)
                    raise
            time.sleep(_LOOK_SECONDS)

    # ----------------------------------------------------------------------------------------------- refusals

    def in_the_way(self, record: RebuildRecord) -> CheckFailed:
        """The refusal of a way, since the rebuild is at another phase."""
        whose, number = f"the rebuild of query '{self.query.name}'", record.former
        said: dict[Phase, tuple[str, str]] = {
            "building": (
                f"{whose} was not swapped in",
                f"{self.command()}; or give it up: {self.command('--abandon')}",
            ),
            "swapping": (f"the swap of {whose} was cut off", f"end it: {self.command('--yes')}"),
            "swapped": (
                f"{whose} is done, and generation {number} is kept",
                f"delete that: {self.command('--discard')}; or bring it back: {self.command('--roll-back')}",
            ),
            "rolling-back": (f"the roll-back of {whose} was cut off", f"end it: {self.command('--roll-back')}"),
            "abandoning": (f"{whose} was being abandoned", f"end that: {self.command('--abandon')}"),
            "discarding": (f"generation {number} is being discarded", f"end that: {self.command('--discard')}"),
        }
        what, fix = said[record.phase]
        return CheckFailed(Finding(code="HR571", what=what, fix=fix, where=self.query.where))

    def refused(self, why: str, fix: str, *, done: str = "rebuilt") -> CheckFailed:
        """The refusal of a way for this query."""
        what = f"query '{self.query.name}' cannot be {done}: {why}"
        return CheckFailed(Finding(code="HR580", what=what, fix=fix, where=self.query.where))

    def command(self, option: str = "") -> str:
        """The command of a way."""
        return f"headrace rebuild {self.query.name} {option}".rstrip()

    def result(self, done: Done, generation: int) -> RebuildResult:
        """What the command has done, and the generation that the query is now."""
        return RebuildResult(query=self.query.name, done=done, generation=generation)
