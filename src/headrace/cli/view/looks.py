"""What `headrace inspect` found, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.cli.output import counted
from headrace.cli.view.formatting import NOTHING, instant, left, number, size_of

if TYPE_CHECKING:
    from headrace.queries.inspect_checkpoint import CheckpointFacts, Range
    from headrace.verify.inspect_progress import BatchOffsets, SourceOffsets, Watermarks
    from headrace.verify.inspect_state import StateLook

_SHARES = 20


def facts(found: CheckpointFacts) -> Iterator[str]:
    """What a checkpoint holds."""
    yield f"id          {found.id or NOTHING}, generation {found.generation}"
    yield f"batches     {ranges(found.kept)} in the checkpoint, {ranges(found.archived)} in the archive"
    if found.purged:
        yield f"purged      {ranges(found.purged)} by Spark"
    if found.unknown:
        yield f"lost        {ranges(found.unknown)}, which neither has"
    yield f"sources     {', '.join(found.sources)}"
    for each in found.operators:
        parts = counted(each.partitions, "partition")
        yield f"state       operator {each.number} {each.name}: {parts}, stores {', '.join(each.stores)}"
    yield f"sizes       {', '.join(f'{name} {size_of(size)}' for name, size in found.sizes_bytes.items())}"
    if found.set_aside:
        yield f"set aside   generations {', '.join(map(str, found.set_aside))}, kept until headrace change discard"
    for key, value in found.settings.items():
        yield f"setting     {key} = {value}"


def ranges(found: Sequence[Range]) -> str:
    """`0 to 4, 7`."""
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in found) or "none"


def offset_lines(found: BatchOffsets) -> Iterator[str]:
    """What a batch takes."""
    done = "committed" if found.committed else "planned and not committed"
    yield f"{found.query}: batch {found.batch}, {done}; known are {found.first} to {found.last}"
    for source in found.sources:
        yield f"  {source.source} ({source.kind})"
        yield f"    before  {source.start or 'nothing'}"
        yield f"    after   {source.end or 'nothing'}"
        yield from (f"    {line}" for line in _shares(source))
        yield f"    lag     {left(source.lag)}"


def _shares(source: SourceOffsets) -> Iterator[str]:
    for share in source.shares[:_SHARES]:
        if share.end is None:
            yield f"file    {share.name}"
        else:
            count = "" if share.count is None else f": {share.count:,}"
            yield f"part    {share.name} from {share.start or 'its beginning'} to {share.end}{count}"
    if len(source.shares) > _SHARES:
        yield f"        and {number(len(source.shares) - _SHARES)} more, all with --json"


def watermark_lines(found: Watermarks) -> Iterator[str]:
    """How a watermark moved."""
    if not found.sources and found.next_watermark is None:
        yield f"{found.query}: no watermark yet, and no source of it declares one"
        return
    stands = "" if found.since is None else f", where it stands since batch {found.since}"
    yield f"{found.query}: the next batch has the watermark {instant(found.next_watermark)}{stands}"
    for source in found.sources:
        gave = "no row is known of it" if source.last_batch is None else f"last row in batch {source.last_batch}"
        holds = "; it holds the watermark back" if source.holds_back and found.policy == "min" else ""
        yield f"  {source.source}: {source.column} less {source.delay}; {counted(source.rows, 'row')}, {gave}{holds}"
    if len(found.sources) > 1:
        which = "slowest" if found.policy == "min" else "fastest"
        yield f"  of several sources the {which} decides ({found.policy})"
    for window in found.windows:
        needs = " and ".join(f"{name} gives a row of {instant(at)} or later" for name, at in window.needs)
        yield f"  a window of {window.length} that ends {instant(window.ends)} closes when {needs}"
    for batch in found.batches:
        yield f"  batch {batch.batch:>8}  planned {instant(batch.planned)}  watermark {instant(batch.watermark)}"


def state_lines(found: StateLook) -> Iterator[str]:
    """What a query keeps as state."""
    yield f"{found.query}: as batch {found.batch} left it"
    for operator in found.operators:
        yield (
            f"operator {operator.number} {operator.name}: {counted(operator.partitions, 'partition')}, "
            f"{size_of(operator.size_bytes)} of files"
        )
        for part in operator.parts:
            yield f"  {part.name + ': ' if part.name else ''}{counted(part.rows, 'row')}"
            yield f"    key    {part.key}"
            yield f"    value  {part.value}"
            for row in part.sample:
                yield f"    {_flat(row['key'])} -> {', '.join(_flat(row[name]) for name in row if name != 'key')}"


def _flat(value: Any) -> str:
    """`name=a, total=3`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_flat(each)}" for name, each in value.items())
    return instant(value) if isinstance(value, datetime) else str(value)
