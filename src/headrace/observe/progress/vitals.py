"""What silence says about a query's health: what should have happened by now, and has not; pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from headrace.contract.batch_record import BatchRecord
from headrace.errors import Finding, Where

# Shorter silences than these happen on any machine that is busy for a while.
SHORTEST_SECONDS = 180.0
SHORTEST_SOURCE_SECONDS = 300.0
# Before so many batches nobody knows what is usual: the first ones start Python, compile, and load what has piled up.
ENOUGH, UNKNOWN_SECONDS = 5, 900.0
TRIGGERS = 10
GAPS = 10


def no_commit(
    query: str, records: Sequence[BatchRecord], *, silent_seconds: float, trigger_seconds: float
) -> Iterator[Finding]:
    """No batch was committed for many times what the longest took, and no task of the running one did anything.

    silent_seconds: since Spark last told of a batch or of having nothing to do, or a task read or wrote rows, or ended.
    """
    longest = max((record.duration_ms for record in records), default=0) / 1000
    step = max(trigger_seconds, longest, 0.1)
    least = SHORTEST_SECONDS if len(records) >= ENOUGH else UNKNOWN_SECONDS
    if silent_seconds > max(least, TRIGGERS * step):
        before = f"; the longest of the last {len(records)} took {_length(longest)}" if records else ""
        yield Finding(
            code="HR880",
            where=Where(file=f"query '{query}'"),
            what=f"no batch was committed and no task moved for {_length(silent_seconds)}{before}",
            fix="look what the batch waits for: a lock of the database, a broker that is away, an executor that is "
            "lost; headrace stop --now breaks it off",
        )


def silent_sources(query: str, records: Sequence[BatchRecord], *, now: datetime) -> Iterator[Finding]:
    """A source that gave rows again and again gives none for much longer than it ever paused.

    now: when Spark last told that it was asked; while a batch runs, no source is.
    """
    names = dict.fromkeys(source.name for record in records for source in record.sources)
    for name in names:
        gave = [record.at for record in records for source in record.sources if source.name == name and source.rows]
        if len(gave) < 3:
            continue
        gap = max((after - before).total_seconds() for before, after in pairwise(gave))
        silent = (now - gave[-1]).total_seconds()
        if silent > max(SHORTEST_SOURCE_SECONDS, GAPS * gap):
            yield Finding(
                code="HR881",
                where=Where(file=f"query '{query}'"),
                what=f"source '{name}' has given no row for {_length(silent)}; before, it paused for {_length(gap)} at "
                "most",
                fix=f"see whether what writes to '{name}' still runs",
            )


def lost_executors(before: Collection[str], now: Collection[str]) -> Iterator[Finding]:
    """Executors that were there at the last look and are not any more."""
    lost = sorted(set(before) - set(now))
    if lost:
        many = "executors were" if len(lost) > 1 else "executor was"
        named = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
        yield Finding(
            code="HR882",
            where=Where(file="Spark"),
            what=f"{len(lost)} {many} lost ({named}); {len(now)} remain",
            fix="look into the worker's log; Spark makes the tasks again on those that remain",
        )


def forgotten(master: str, seconds: float) -> Finding:
    """No master that can be reached knows the application, which has had no executor for so long."""
    return Finding(
        code="HR863",
        where=Where(file="Spark"),
        what=f"the application has had no executor for {_length(seconds)}, and the cluster {master} has forgotten it, "
        "or has no master any more",
        fix="start it again: what was committed is safe; headrace submit --supervise and a service do it by themselves",
    )


def _length(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:,.0f} seconds"
