"""The committed prefix of a query's sources as batch DataFrames, each row with its batch and late watermark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.checkpoint import Archive, BatchWatermarks, Checkpoint, committed_prefix, watermarks
from headrace.contract import SourcePrefix
from headrace.model import Project, Query, Source
from headrace.model.layout import QueryLayout
from headrace.spark.exact_json import WHOLE_UTC
from headrace.spark.plan_rewrite import BATCH, LATE, MARK, ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ = "headrace_prefix_of_"
# A row as JSON that a reader with the source's schema takes for the same row.
ROW_OPTIONS = WHOLE_UTC


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """What the batches 0 to `through` of a query read, and the watermarks that they ran under.

    named: whether each row knows its source, its number there, and itself as JSON (ORIGIN, hidden as the others are).
    """

    through: int
    sources: Mapping[str, SourcePrefix]
    watermarks: Mapping[int, BatchWatermarks]
    named: bool = False
    label: str = ""

    @property
    def evict_ms(self) -> int:
        """The watermark that the last batch closed groups by."""
        return self.watermarks[self.through].evict_ms

    def part(self, first: int, last: int) -> Prefix:
        """What the batches `first` to `last` read of it."""
        sources = {
            name: replace(source, batches=tuple(each for each in source.batches if first <= each.batch <= last))
            for name, source in self.sources.items()
        }
        return replace(self, sources=sources, label=f"_from_{first}")

    def read(self, spark: SparkSession, source: Source, *, dated: bool, use: str = "") -> DataFrame:
        """The prefix of `source`, marked in its plan; if `dated`, BATCH and LATE lie hidden below the mark.

        use: the name of a further use of the source. The rows that are read are counted under the observed metric READ
        + the use's name + `label`.
        """
        from pyspark.sql import functions as F

        use = use or source.name
        prefix = self.sources.get(use, self.sources[source.name])
        raw = source.connector.read(spark, prefix, batch_column=BATCH if dated else None)
        visible = [name for name in raw.columns if name != BATCH]
        late = [self.watermarks[batch].late_ms * 1000 for batch in sorted(self.watermarks)]
        # One folded literal however many batches there are, and no join.
        table = F.from_json(F.lit(json.dumps(late)), "array<bigint>")
        counted = raw.observe(READ + use + self.label, F.count(F.lit(1)).alias("rows"))
        known = counted.withColumn(LATE, F.get(table, F.col(BATCH).cast("int"))) if dated else counted
        if dated and self.named:
            line = F.to_json(F.struct(*[F.col(f"`{name}`") for name in visible]), ROW_OPTIONS)
            number = F.monotonically_increasing_id()
            origin = F.struct(F.lit(use).alias("source"), number.alias("number"), line.alias("line"))
            known = known.withColumn(ORIGIN, origin)
        return known.select(*[known[f"`{name}`"] for name in visible]).alias(MARK + use)


def since_batch(prefix: Prefix, batch: int) -> Prefix:
    """What the batches from `batch` on read; enough for what is reported row by row."""
    sources = {
        name: replace(source, batches=tuple(each for each in source.batches if each.batch >= batch))
        for name, source in prefix.sources.items()
    }
    return replace(prefix, sources=sources)


def prefix_of(project: Project, query: Query, layout: QueryLayout, through: int) -> Prefix:
    """The committed prefix of `query` up to and with batch `through`.

    Raises CheckpointError when the checkpoint and its archive do not reach that far.
    """
    checkpoint, archive = Checkpoint(layout.checkpoint), Archive(layout.archive)
    names = [source.name for source in project.sources_of(query)]
    return Prefix(
        through=through,
        sources=committed_prefix(checkpoint, archive, names, through),
        watermarks=watermarks(checkpoint, archive, through),
    )
