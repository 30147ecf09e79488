"""The late rows of a running query, brought into their files behind its batches, in a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.contract import BatchRecord
from headrace.errors import Finding, HeadraceError
from headrace.generations.log import QueryLayout
from headrace.model import Project, Query
from headrace.runner.source_health import SeenBatches
from headrace.spark.jvm.session_conf import activate
from headrace.spark.messages.refusals import finding_of, is_from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Writes the files of a range of committed batches; what is there stays. An outer room knows which rows are late.
WriteLate: TypeAlias = "Callable[[Project, Query, QueryLayout, SparkSession, range], None]"
# How long the end of a query waits for them; what is missing then is written at the next start.
WAIT_SECONDS = 120.0
_LOOK_SECONDS = 0.1


@dataclass(kw_only=True)
class LateOutput:
    """Sees to it that each committed batch of one query is looked at, once it is, for rows that it dropped as late.

    A batch of which Spark counts none has none: it drops a row, if perhaps many in one, only where it counts. A batch
    that fails to be looked at is looked at again with the next one, or at the next start. hurries: whether the run is
    to stop now.
    """

    project: Project
    query: Query
    layout: QueryLayout
    spark: SparkSession
    write: WriteLate
    hurries: Callable[[], bool]
    _is_due: bool = True
    _looking: threading.Thread | None = None
    _failed: list[str] = field(default_factory=list)
    _seen: SeenBatches = field(init=False)

    def __post_init__(self) -> None:
        self._seen = SeenBatches(self.layout.late)

    def batch_done(self, record: BatchRecord) -> None:
        """Take note of a batch that was committed."""
        if record.dropped_by_watermark or self._is_due or self._looking or self._seen.last != record.batch - 1:
            self._is_due = True
        else:
            self._seen.last = record.batch

    def step(self) -> Iterator[Finding]:
        """Begin to look at what is due, if no look is under way; what kept the last one from its end is reported."""
        if self._looking is not None and not self._looking.is_alive():
            self._looking = None
            yield from self._report()
        if self._is_due and self._looking is None and not self.hurries():
            self._is_due = False
            self._looking = threading.Thread(target=self._look, name=f"late rows of {self.query.name}", daemon=True)
            self._looking.start()

    def close(self) -> Iterator[Finding]:
        """Look at all that the query has committed, which has ended."""
        ends = time.monotonic() + WAIT_SECONDS
        self._wait(ends)
        self._is_due = True
        yield from self.step()
        self._wait(ends)
        yield from self._report()

    def catch_up(self) -> None:
        """Look at every committed batch that was not looked at yet. Raises HeadraceError."""
        committed = Checkpoint(self.layout.checkpoint).last_committed
        if committed is None or committed <= self._seen.last:
            return
        try:
            self.write(self.project, self.query, self.layout, self.spark, range(self._seen.last + 1, committed + 1))
        except Exception as error:
            if not is_from_spark(error):
                raise
            raise HeadraceError(finding_of(error, where=self.query.where, subject="reading them again")) from error
        self._seen.last = committed

    def _look(self) -> None:
        activate(self.spark)
        try:
            self.catch_up()
        except HeadraceError as error:
            self._failed.append(error.findings[0].what)
        except Exception as error:  # It would end this thread silently, and a query that runs well is not to end by it.
            self._failed.append(f"{type(error).__name__}: {error}")

    def _wait(self, ends: float) -> None:
        while self._looking is not None and self._looking.is_alive():
            if self.hurries() or time.monotonic() > ends:
                self._failed.append("the run is to stop" if self.hurries() else f"{WAIT_SECONDS:.0f} s were too few")
                return
            self._looking.join(_LOOK_SECONDS)

    def _report(self) -> Iterator[Finding]:
        failed, self._failed = self._failed, []
        for why in failed[-1:]:
            fault = (
                f"late rows of query '{self.query.name}' from batch {self._seen.last + 1} on were not written: {why}"
            )
            fix = "nothing, if that passes: the next batch or start writes them"
            yield Finding(code="HR683", what=fault, fix=fix, where=self.query.where)
