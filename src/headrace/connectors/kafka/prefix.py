"""The messages of a committed prefix, as Spark's offsets tell them: partition by partition, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.contract import SourcePrefix
from headrace.errors import Finding, SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FileGroup: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class Span:
    """The offsets that a batch took of a partition: from `start` to before `end`."""

    batch: int
    start: int
    end: int


Ranges: TypeAlias = Mapping[FileGroup, Sequence[Span]]


def ranges(prefix: SourcePrefix) -> dict[FileGroup, list[Span]]:
    """What each batch took of each partition, in order; partitions of which nothing was taken are left out.

    The first batch begins where the source's log says; a partition that came later, at its first message.
    """
    before = beginning(prefix)
    found: dict[FileGroup, list[Span]] = {}
    for batch in prefix.batches:
        if batch.end is None:
            continue
        start = before if batch.start is None else _parsed(batch.start)
        for place, end in _parsed(batch.end).items():
            first = start.get(place, before.get(place, 0))
            if end > first:
                found.setdefault(place, []).append(Span(batch.batch, first, end))
    return found


def mismatch(prefix: SourcePrefix, reads: Callable[[str, int], bool], topics: Sequence[str]) -> str:
    """Why `prefix` cannot be of the partitions for which `reads` says yes, and of all of `topics`; empty if it can."""
    ends = [batch.end for batch in prefix.batches if batch.end is not None]
    try:
        found = _parsed(ends[-1]) if ends else {}
    except (ValueError, AttributeError, TypeError):
        return "its offsets are not those of topics"
    for topic, partition in sorted(found):
        if not reads(topic, partition):
            return f"it read partition {partition} of topic '{topic}', which the source does not name"
    unread = sorted(set(topics) - {topic for topic, _ in found}) if found else []
    return f"it did not read topic '{unread[0]}', which the source names" if unread else ""


def require_kept(wanted: Ranges, earliest: Mapping[FileGroup, int]) -> None:
    """Raise SourceError when messages of the prefix are gone."""
    gone = first_gone(wanted, earliest)
    if gone is not None:
        fix = "verify while the topic still keeps what was read, or let it keep messages longer"
        raise SourceError(Finding(code="HR334", what=f"messages of {gone}", fix=fix))


def first_gone(wanted: Ranges, earliest: Mapping[FileGroup, int]) -> str | None:
    """The first partition whose messages are not all there any more, in words; None: all are."""
    for (topic, partition), spans in wanted.items():
        first = earliest.get((topic, partition))
        if first is None or first > spans[0].start:
            gone = "the topic is gone" if first is None else f"the first one there is {first}"
            return f"topic '{topic}', partition {partition}, were read from offset {spans[0].start} on, and {gone}"
    return None


def waiting(end: str, latest: str) -> int:
    """How many offsets lie between two positions; those of transactions' own marks among them."""
    taken = _parsed(end)
    return sum(max(0, offset - taken.get(place, 0)) for place, offset in _parsed(latest).items())


def beginning(prefix: SourcePrefix) -> dict[FileGroup, int]:
    """Where the first batch of the prefix began, as far as the source's log tells."""
    return _parsed(prefix.log[0][0]) if prefix.log.get(0) else {}


def by_topic(offsets: Mapping[FileGroup, int]) -> dict[str, dict[int, int]]:
    """Offsets as the option `starting_offsets` takes them."""
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[partition] = offset
    return found


def partitions(wanted: Ranges) -> dict[str, list[int]]:
    """The partitions of each topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(wanted):
        found.setdefault(topic, []).append(partition)
    return found


def as_json(offsets: Mapping[FileGroup, int]) -> str:
    """Offsets as Spark writes them."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(found)


def with_batch(frame: DataFrame, wanted: Ranges, column: str) -> DataFrame:
    """`frame` with one more column, last: the batch that each message came in."""
    from pyspark.sql.types import LongType, StructField, StructType

    ends = {place: ([span.end for span in spans], [span.batch for span in spans]) for place, spans in wanted.items()}

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            topics, numbers = batch.column("topic").to_pylist(), batch.column("partition").to_pylist()
            offsets = batch.column("offset").to_numpy()
            found = np.zeros(batch.num_rows, dtype="int64")
            for place in set(zip(topics, numbers, strict=True)):
                mask = np.fromiter(
                    ((topic, at) == place for topic, at in zip(topics, numbers, strict=True)), dtype=bool
                )
                limits, taken = ends[place]
                found[mask] = np.array(taken)[np.searchsorted(np.array(limits), offsets[mask], side="right")]
            yield pa.record_batch([*batch.columns, pa.array(found)], names=[*batch.schema.names, column])

    schema = StructType([*frame.schema.fields, StructField(column, LongType())])
    return frame.mapInArrow(number, schema)


def _parsed(text: str) -> dict[FileGroup, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, rest in json.loads(text).items()
        for partition, offset in rest.items()
    }
