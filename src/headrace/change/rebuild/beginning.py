"""A rebuild begun: whether the query can be rebuilt, from what, and what its new result will lack."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.change.plans import readers
from headrace.change.rebuild import history
from headrace.change.rebuild.work import RebuildWork
from headrace.checkpoint import Checkpoint
from headrace.errors import CheckFailed, Finding
from headrace.queries.blame import reset_command
from headrace.queries.changes import RebuildRecord, require_whole
from headrace.queries.layout import QueryLayout, latest_generation
from headrace.queries.sink_location import former_location
from headrace.run.plan import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def begin(work: RebuildWork, spark: SparkSession, since: datetime | None, *, accept_partial: bool) -> RebuildRecord:
    """Enter the record of a rebuild that begins; raises where there is nothing to rebuild, or not from all of it."""
    number = latest_generation(work.project.storage, work.query.name)
    former = QueryLayout(work.project.storage, work.query.name, number)
    require_whole(former)
    if Checkpoint(former.checkpoint).last_batch is None:
        raise work.refused("it has never run", f"run it: headrace run {work.query.name}")
    if elsewhere := former_location(work.project, work.query, former):
        fix = f"name the former sink again, or reset it: {reset_command(work.query)}"
        raise work.refused(f"its batches were written to {elsewhere}, which is not its sink any more", fix)
    live = [each.name for each in work.project.sources_of(work.query) if each.connector.facts.ephemeral]
    if live:
        why = f"its source '{live[0]}' gives only what comes while it runs"
        raise work.refused(why, f"reset it: {reset_command(work.query)}")
    if since is not None:
        return _begun_at(work, since, number, spark)
    missing = list(history.gone(work.project, work.query, former, spark))
    if missing and not accept_partial:
        kept = "the former rows are kept after the swap, and can be copied, until --discard"
        raise CheckFailed(
            [
                Finding(
                    code="HR574",
                    what=f"the result of query '{work.query.name}' cannot be rebuilt as a whole: {each}",
                    fix=f"put it back; or take what is there: {work.command('--accept-partial')}; {kept}",
                    where=work.query.where,
                )
                for each in missing
            ]
        )
    notes = [f"the new result will not have all of the former one: {each}" for each in missing]
    notes += _readers(work)
    (judgement,) = plan(work.project, [work.query.name], spark=spark, connect=False)
    if judgement.verdict == "same" and not judgement.notes:
        notes.append("the query is what ran, so that its result is computed once more as it was")
    return RebuildRecord.begun(number, tuple(notes)).enter(work.project.storage, work.query.name)


def _begun_at(work: RebuildWork, since: datetime, number: int, spark: SparkSession) -> RebuildRecord:
    """The record of a rebuild that reads what came from a time on."""
    if unable := history.timeless(work.project, work.query, since, spark):
        why = f"its source '{unable[0]}' cannot be read from a time on"
        raise work.refused(why, f"let it be read from the beginning: {work.command()}")
    text = since.isoformat()
    note = f"the new result has only what came from {text} on"
    record = RebuildRecord.begun(number, (note, *_readers(work)), since=text)
    return record.enter(work.project.storage, work.query.name)


def _readers(work: RebuildWork) -> Iterator[str]:
    for name in readers(work.project, work.query):
        yield f"query '{name}' reads the result, and would get the new one beside the former; rebuild it as well"
