"""Whether the sources of a running query still give rows, as far as they can tell."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.contract import AilingSource
from headrace.errors import Finding
from headrace.model import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 1.0


class Ailments:
    """Asks the sources of one query no more than once a second, and tells each one's ailment once."""

    def __init__(self, sources: Sequence[Source], spark: SparkSession) -> None:
        self.sources = {source.name: source for source in sources if isinstance(source.connector, AilingSource)}
        self.spark = spark
        self.asked_at = 0.0

    def new(self) -> Iterator[Finding]:
        """What has begun to ail since it was last asked."""
        now = time.monotonic()
        if not self.sources or now - self.asked_at < SECONDS:
            return
        self.asked_at = now
        for name, source in list(self.sources.items()):
            assert isinstance(source.connector, AilingSource)
            problem = source.connector.ailment(self.spark)
            if problem is not None:
                del self.sources[name]
                yield Finding(
                    code=problem.code,
                    what=f"source '{name}': {problem.what}",
                    fix=problem.fix,
                    where=source.where,
                    severity=problem.severity,
                )
