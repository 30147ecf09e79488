"""How many rows the batches of a query took, where Spark's own count cannot be had or is not right.

Spark counts what the tasks of a batch read, and tells it after the batch was committed. So there is no count of a batch
whose driver died in between, and none of a batch that a sink skips because it holds it. The count is too high where a
sink computed the batch more than once, or tasks ran again as their executor was lost. It is too low where the plan lets
the reader leave rows or files out: by a filter that was pushed down. The rows are those
that lie between the batch's offsets, and there they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeAlias

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.prefix import committed_prefix
from headrace.checkpoint.sources import source_of
from headrace.contract import SourcePrefix
from headrace.errors import CheckpointError, SourceError
from headrace.model import Project
from headrace.observe.progress import BatchRecord, SourceProgress
from headrace.run.running import Running
from headrace.spark.messages.refusals import is_from_spark
from headrace.spark.plans.plan_text import reads_all
from headrace.spark.stream.work import task_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 100
"""So many batches at most are read again for their count."""
_BATCH = "__headrace_batch"


def rightly_counted(project: Project, running: Running, record: BatchRecord, spark: SparkSession) -> BatchRecord:
    """The record with the rows that the batch's offsets hold, however often and however far they were computed."""
    computed = running.computed
    whole = [each for batch in sorted(computed) if batch <= record.batch for each in computed.pop(batch)]
    # Held by the sink already, or found to be of no use by the optimizer.
    unread = any(source.start != source.end and not source.rows for source in record.sources)
    disturbances, running.disturbances = running.disturbances, task_failures(spark)
    if running.reads_all is None and record.rows:
        running.reads_all = reads_all(running.handle)
    if all(whole) and not unread and disturbances == running.disturbances and running.reads_all is not False:
        times = max(1, len(whole))
        return _corrected(record, {source.name: (source.rows // times, 0) for source in record.sources})
    found = _rows_of(project, running, [record.batch], spark)
    return _corrected(record, found[record.batch]) if found else record


def missed_records(
    project: Project, running: Running, batches: Sequence[int], spark: SparkSession
) -> Iterator[BatchRecord]:
    """What is known of committed batches that nobody told of; how long they took is not."""
    found = _rows_of(project, running, batches[-MOST:], spark)
    if not found:
        return
    entries = Archive(running.layout.archive).entries(min(found))
    shares = _shares(project, running, min(found), max(found))
    for batch, rows in found.items():
        entry = entries.get(batch)
        if entry is None:
            continue
        yield BatchRecord(
            query=running.query.name,
            run_id=str(running.handle.runId),
            batch=batch,
            at=_instant(entry.timestamp_ms),
            rows=sum(count for count, _ in rows.values()),
            input_rate=0.0,
            processed_rate=0.0,
            duration_ms=0,
            watermark=_instant(entry.watermark_ms) if entry.watermark_ms else None,
            sources=tuple(
                SourceProgress(
                    name=name, rows=rows[name][0], quarantined=rows[name][1], start=share.start, end=share.end
                )
                for name, prefix in shares.items()
                for share in prefix.batches
                if share.batch == batch
            ),
        )


Counts: TypeAlias = Mapping[str, tuple[int, int]]


def _rows_of(project: Project, running: Running, batches: Sequence[int], spark: SparkSession) -> dict[int, Counts]:
    """The rows that each use of a source gave to each of `batches`, and those of them that were quarantined.

    Empty where they can no longer be had.
    """
    sources = {source.name: source.connector for source in project.sources_of(running.query)}
    if not batches or not all(source.readable_as_batch for source in sources.values()):
        return {}
    try:
        shares = _shares(project, running, min(batches), max(batches))
        found = {batch: dict.fromkeys(shares, (0, 0)) for batch in batches}
        for name, whole in shares.items():
            source = sources[source_of(name)]
            part = SourcePrefix(batches=tuple(each for each in whole.batches if each.batch in found), log=whole.log)
            good = source.read(spark, part, batch_column=_BATCH).groupBy(_BATCH).count().collect()
            rejected = source.rejected_rows(spark, part)
            bad = dict(map(tuple, rejected.groupBy("batch").count().collect())) if rejected is not None else {}
            for batch, rows in {**dict.fromkeys(bad, 0), **dict(map(tuple, good))}.items():
                found[batch][name] = (rows + bad.get(batch, 0), bad.get(batch, 0))
    except (SourceError, CheckpointError):
        return {}
    except Exception as error:
        if not is_from_spark(error):
            raise
        return {}
    return dict(found)


def _shares(project: Project, running: Running, since: int, through: int) -> dict[str, SourcePrefix]:
    names = [source.name for source in project.sources_of(running.query)]
    checkpoint, archive = Checkpoint(running.layout.checkpoint), Archive(running.layout.archive)
    return committed_prefix(checkpoint, archive, names, through, since=since)


def _corrected(record: BatchRecord, counts: Counts) -> BatchRecord:
    """The record with the rows that its sources gave, and the rates that follow."""
    sources = tuple(
        replace(source, rows=counts[source.name][0], quarantined=max(source.quarantined, counts[source.name][1]))
        if source.name in counts
        else source
        for source in record.sources
    )
    total = sum(source.rows for source in sources)
    seconds = record.duration_ms / 1000
    if total == record.rows:
        return replace(record, sources=sources)
    return replace(
        record,
        rows=total,
        input_rate=record.input_rate * total / record.rows if record.rows else 0.0,
        processed_rate=total / seconds if seconds else 0.0,
        sources=sources,
    )


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
