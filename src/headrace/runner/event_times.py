"""What the event times of a batch say: how many are NULL, and which one moved the watermark past the clock."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.checkpoint.sources import SourceNames, source_of
from headrace.contract import BatchRecord, Leap, bad_rows_metric
from headrace.spark.plans.plan_rewrite import BATCH
from headrace.spark.stream.event_times import METRIC, SOURCE_TIME
from headrace.units import instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.contract import SourcePrefix
    from headrace.model import NamedSource

# The clocks of senders and of this machine differ by less, and such a watermark is soon behind the clock again.
LEAST_MS = 60_000
_PLACE = "__headrace_place"


def name_sources(record: BatchRecord, names: SourceNames) -> BatchRecord:
    """Return the record, with the names of now of its sources and of what was observed of them."""
    now = {source.name: names.now(source.name) for source in record.sources}
    metrics = {metric(name): metric(new) for name, new in now.items() for metric in (METRIC.__add__, bad_rows_metric)}
    sources = tuple(replace(source, name=now[source.name]) for source in record.sources)
    observed = {metrics.get(metric, metric): counts for metric, counts in record.observed.items()}
    return replace(record, sources=sources, observed=observed)


def take_observed(record: BatchRecord, times: int | None) -> BatchRecord:
    """Return the record with what its plan observed of times, its rows having been computed `times` times.

    None: it is not known how often, and so neither is the number of NULL times.
    """
    observed, sources = dict(record.observed), []
    if (changes := observed.pop(SOURCE_TIME, None)) is not None and changes["newest"] is not None:
        record = replace(record, changed=instant(changes["newest"] / 1000))
    for source in record.sources:
        counts = observed.pop(METRIC + source.name, None)
        if counts is not None:
            nulls = None if times is None else int(counts["nulls"] or 0) // times
            source = replace(source, null_times=nulls, newest_ms=counts["newest"])
            if counts["nulls"]:  # Spark takes them for times of 1970.
                oldest = None if counts["oldest"] is None else instant(counts["oldest"] / 1000)
                record = replace(record, event_min=oldest, event_mean=None)
        sources.append(source)
    return replace(record, observed=observed, sources=tuple(sources))


def follow_on(record: BatchRecord, before: BatchRecord | None) -> BatchRecord:
    """Return the record of a batch with what continues from the batch before: NULL times in all, and the leap."""
    totals, sources = {source.name: source.null_times_total for source in before.sources} if before else {}, []
    for source in record.sources:
        total, nulls = totals.get(source.name), source.null_times
        sources.append(replace(source, null_times_total=total if nulls is None else (total or 0) + nulls))
    return replace(record, sources=tuple(sources), leap=_leap(record, before))


def _leap(record: BatchRecord, before: BatchRecord | None) -> Leap | None:
    """What moved the watermark of `record` past the clock by more than its delay; the first row that did so stays."""
    clock = round(record.at.timestamp() * 1000)
    mark = None if record.watermark is None else round(record.watermark.timestamp() * 1000)
    if mark is None or mark - clock <= LEAST_MS:
        return None
    if before is not None and before.leap is not None:
        return replace(before.leap, watermark_ms=mark)
    # Of several sources the one decides by which the watermark is where it is.
    sources = before.sources if before is not None else ()
    passing = [(time, source.name) for source in sources if (time := source.newest_ms) is not None and time >= mark]
    if before is None or not passing:
        return Leap(watermark_ms=mark)
    newest, name = min(passing)
    if mark - clock <= newest - mark:
        return None
    return Leap(watermark_ms=mark, source=source_of(name), batch=before.batch, time_ms=newest)


def place_of(leap: Leap, source: NamedSource, prefix: SourcePrefix, spark: SparkSession) -> str:
    """Return where the row of `leap` lies, by reading its batch again; empty where that cannot be done."""
    from pyspark.sql import functions as F

    # The warning matters more than its place.
    with suppress(Exception):
        if source.watermark is not None and leap.time_ms is not None and source.connector.readable_as_batch:
            rows = source.connector.read_placed(spark, prefix, batch_column=BATCH, place_column=_PLACE)
            time = F.unix_millis(F.col(source.watermark.column))
            row = rows.where(time.eqNullSafe(leap.time_ms)).select(_PLACE).head()
            return str(row[0] or "") if row else ""
    return ""
