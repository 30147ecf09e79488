"""What a running query did not get of its sources: rows that were quarantined, and what they will never give."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.sources import SourceNames, committed_prefix
from headrace.contract import BatchRecord, SourcePrefix, bad_rows_metric
from headrace.errors import Finding, HeadraceError, SourceError
from headrace.generations.log import QueryLayout
from headrace.model import NamedSource
from headrace.spark.jvm.session_conf import in_thread
from headrace.spark.messages.refusals import finding_of
from headrace.storage.durable import replacing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READS = 3


@dataclass(kw_only=True)
class QuarantineFiles:
    """The rows of one query's sources that were quarantined. Written again, a batch's file holds the same rows.

    written: by batch and source, how many.
    """

    layout: QueryLayout
    sources: tuple[NamedSource, ...]
    names: SourceNames
    spark: SparkSession
    written: dict[int, dict[str, int]] = field(default_factory=dict)

    def catch_up(self) -> Iterator[Finding]:
        """Write what a run that died left unwritten: every committed batch after the last one seen to."""
        committed = Checkpoint(self.layout.checkpoint).last_committed
        if not self.quarantining() or committed is None:
            return
        seen = SeenBatches(self.layout.quarantine)
        if seen.last < committed:
            yield from self._write(range(seen.last + 1, committed + 1))
            self.written.clear()
            seen.last = committed

    def batch_done(self, record: BatchRecord) -> Iterator[Finding]:
        """See to one committed batch; rows are read again where its progress counted bad ones, or has no count."""
        if not self.quarantining():
            return
        metrics = {source.name: record.observed.get(bad_rows_metric(source.name)) for source in self.quarantining()}
        counted = {name: int(metric.get("rows") or 0) for name, metric in metrics.items() if metric is not None}
        if any(counted.values()) or (record.rows and len(counted) < len(metrics)):
            yield from self._write(range(record.batch, record.batch + 1), counted)
        SeenBatches(self.layout.quarantine).last = record.batch

    def quarantining(self) -> tuple[NamedSource, ...]:
        """The sources that set rows aside at all."""
        return tuple(source for source in self.sources if source.connector.quarantines)

    def _write(self, batches: range, counted: Mapping[str, int] = MappingProxyType({})) -> Iterator[Finding]:
        checkpoint, archive = Checkpoint(self.layout.checkpoint), Archive(self.layout.archive)
        prefixes = committed_prefix(checkpoint, archive, self.names, batches[-1], since=batches[0])
        for source in self.quarantining():
            whole = prefixes[source.name]
            part = SourcePrefix(
                batches=tuple(entry for entry in whole.batches if entry.batch in batches), log=whole.log
            )
            expected = counted.get(source.name, 0)
            rejected = self._read_rejected(source, part, expected)
            for batch, rows in rejected.items():
                path = self.layout.quarantine / self.names.in_spark(source.name) / f"{batch}.jsonl"
                self.written.setdefault(batch, {})[source.name] = len(rows)
                _write_whole(path, "".join(json.dumps(row, default=str) + "\n" for row in rows))
                yield Finding(
                    code="HR305",
                    what=f"{len(rows)} rows of source '{source.name}' in batch {batch} do not fit the schema; "
                    f"they are in {path}",
                    fix=source.connector.again,
                    where=source.where,
                )
            missing = expected - sum(map(len, rejected.values()))
            if missing > 0:
                yield Finding(
                    code="HR305",
                    what=f"{missing} of the {expected} rows of source '{source.name}' that batch {batches[-1]} counted "
                    "as not fitting the schema did not come when they were read again; they are not in its quarantine",
                    fix="look whether what the batch read is there as it was",
                    where=source.where,
                )

    def _read_rejected(
        self, source: NamedSource, part: SourcePrefix, counted: int
    ) -> dict[int, list[dict[str, object]]]:
        """The rows by their batch, read again where fewer come than the batch has `counted`. Raises SourceError."""
        for left in reversed(range(_READS)):
            by_batch: dict[int, list[dict[str, object]]] = {}
            try:
                frame = source.connector.rejected_rows(self.spark, part)
                for row in frame.orderBy("batch", "file").toLocalIterator() if frame is not None else ():
                    by_batch.setdefault(row["batch"], []).append(row.asDict())
            except HeadraceError:
                raise
            except Exception as error:
                # Spark archives a file with a later batch, which may be between the look at it and the reading.
                if not left:
                    raise SourceError(
                        finding_of(error, where=source.where, subject=f"source '{source.name}'")
                    ) from error
                continue
            if left and sum(map(len, by_batch.values())) < counted:
                continue
            return by_batch
        raise AssertionError("the last reading returns or raises")


@dataclass
class SeenBatches:
    """How far the batches of a query were seen to, as a directory keeps it; `last` is -1 before the first."""

    folder: Path

    @property
    def last(self) -> int:
        try:
            return int((self.folder / ".seen").read_text())
        except (OSError, ValueError):
            return -1

    @last.setter
    def last(self, batch: int) -> None:
        _write_whole(self.folder / ".seen", str(batch))


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, private=True) as file:
        file.write(text)


SECONDS = 1.0
# To list a large directory takes its time.
LEFT_OUT_SECONDS = 10.0
LEFT_OUT_SHARE = 0.05


class SourceHealth:
    """Asks the sources of one query no more than once a second, and reports once what each one's health check says.

    left_out: what the sources hold and do not give; asked more rarely, reported once, and at the end what is new.
    compare: finds what was done to the query from outside, so that it must end; None: nothing can be.
    """

    def __init__(
        self,
        sources: Sequence[NamedSource],
        spark: SparkSession,
        left_out: Callable[[], Iterable[Finding]] = tuple,
        compare: Callable[[], HeadraceError | None] | None = None,
    ) -> None:
        self.sources = {source.name: source for source in sources}
        self.spark = spark
        self.asked_at = 0.0
        self.left_out = left_out
        self.reported: tuple[Finding, ...] = ()
        self.look_at = 0.0
        self.compare = compare
        self.compared: Future[HeadraceError | None] | None = None
        self.compare_at = time.monotonic() + LEFT_OUT_SECONDS

    def end_cause(self) -> HeadraceError | None:
        """What was done to the query from outside; systems are asked in a thread, which may wait long for them."""
        now = time.monotonic()
        if self.compared is None and self.compare is not None and now >= self.compare_at:
            self.compared = in_thread(self.spark, self.compare, lambda: None, name="headrace-source-ids")
        if self.compared is None or not self.compared.done():
            return None
        answer, self.compared, self.compare_at = self.compared, None, now + LEFT_OUT_SECONDS
        return None if answer.exception() else answer.result()

    def new(self, *, begun: bool) -> Iterator[Finding]:
        """What is gone wrong since it was last asked; `begun`: the query has made a batch."""
        now = time.monotonic()
        if now - self.asked_at < SECONDS:
            return
        self.asked_at = now
        for name, source in list(self.sources.items()) if begun else ():
            problem = source.connector.health(self.spark)
            if problem is not None:
                del self.sources[name]
                yield Finding(
                    code=problem.code,
                    what=f"source '{name}': {problem.what}",
                    fix=problem.fix,
                    where=source.where,
                    severity=problem.severity,
                )
        if not self.reported and now >= self.look_at:
            yield from self.last()

    def last(self) -> Iterator[Finding]:
        """What the sources will never give, unless just that was reported before."""
        begun = time.monotonic()
        findings = tuple(self.left_out())
        ended = time.monotonic()
        self.look_at = ended + max(LEFT_OUT_SECONDS, (ended - begun) / LEFT_OUT_SHARE)
        yield from (finding for finding in findings if finding not in self.reported)
        self.reported = findings
