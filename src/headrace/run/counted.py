"""How many rows the batches of a query took, where Spark's own count cannot be had or is not right.

Spark counts what the tasks of a batch read, and tells it after the batch was committed. So there is no count of a batch
whose driver died in between, none of a batch that a sink skips because it holds it, and too high a one where a sink
computed the batch more than once. The rows are those that lie between the batch's offsets, and there they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.archive import Archive
from headrace.checkpoint.prefix import committed_prefix
from headrace.contract import SourcePrefix
from headrace.errors import CheckpointError, SourceError
from headrace.model import Project
from headrace.progress import BatchRecord, SourceProgress
from headrace.run.running import Running
from headrace.spark.messages import is_from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 100
"""So many batches at most are read again for their count."""
_BATCH = "__headrace_batch"


def rightly_counted(
    project: Project, running: Running, record: BatchRecord, spark: SparkSession, *, first: bool
) -> BatchRecord:
    """The record with the rows that the batch took, however often its sink computed them.

    first: the batch may be one that the sink held already when its driver died, and has now skipped.
    """
    computed = running.computed
    whole = [each for batch in sorted(computed) if batch <= record.batch for each in computed.pop(batch)]
    skipped = first and not record.rows and any(source.start != source.end for source in record.sources)
    if all(whole) and not skipped:
        times = max(1, len(whole))
        return _corrected(record, {source.name: source.rows // times for source in record.sources})
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
            rows=sum(rows.values()),
            input_rate=0.0,
            processed_rate=0.0,
            duration_ms=0,
            watermark=_instant(entry.watermark_ms) if entry.watermark_ms else None,
            sources=tuple(
                SourceProgress(name=name, rows=rows[name], start=share.start, end=share.end)
                for name, prefix in shares.items()
                for share in prefix.batches
                if share.batch == batch
            ),
        )


def _rows_of(
    project: Project, running: Running, batches: Sequence[int], spark: SparkSession
) -> dict[int, Mapping[str, int]]:
    """The rows that each source gave to each of `batches`; empty where they can no longer be had."""
    sources = project.sources_of(running.query)
    if not batches or not all(source.connector.readable_as_batch for source in sources):
        return {}
    found: dict[int, dict[str, int]] = {batch: {source.name: 0 for source in sources} for batch in batches}
    try:
        shares = _shares(project, running, min(batches), max(batches))
        for source in sources:
            whole = shares[source.name]
            part = SourcePrefix(batches=tuple(each for each in whole.batches if each.batch in found), log=whole.log)
            frame = source.connector.read(spark, part, batch_column=_BATCH)
            for row in frame.groupBy(_BATCH).count().collect():
                found[row[0]][source.name] = row[1]
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


def _corrected(record: BatchRecord, rows: Mapping[str, int]) -> BatchRecord:
    """The record with the rows that its sources gave, and the rates that follow."""
    total = sum(rows.values())
    if total == record.rows:
        return record
    seconds = record.duration_ms / 1000
    return replace(
        record,
        rows=total,
        input_rate=record.input_rate * total / record.rows if record.rows else 0.0,
        processed_rate=total / seconds if seconds else 0.0,
        sources=tuple(replace(source, rows=rows.get(source.name, source.rows)) for source in record.sources),
    )


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
