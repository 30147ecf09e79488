"""Whether the sources of a running query still give rows, all that they hold, as far as they can tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.errors import Finding
from headrace.model import NamedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 1.0
# To list a large directory takes its time.
LEFT_OUT_SECONDS = 10.0
LEFT_OUT_SHARE = 0.05


class SourceHealth:
    """Asks the sources of one query no more than once a second, and tells once what each one's health check says.

    left_out: what the sources hold and will never give; asked more rarely, told once, and at the end what is new.
    """

    def __init__(
        self,
        sources: Sequence[NamedSource],
        spark: SparkSession,
        left_out: Callable[[], Iterable[Finding]] = tuple,
    ) -> None:
        self.sources = {source.name: source for source in sources}
        self.spark = spark
        self.asked_at = 0.0
        self.left_out = left_out
        self.reported: tuple[Finding, ...] = ()
        self.look_at = 0.0

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
        found = tuple(self.left_out())
        ended = time.monotonic()
        self.look_at = ended + max(LEFT_OUT_SECONDS, (ended - begun) / LEFT_OUT_SHARE)
        yield from (finding for finding in found if finding not in self.reported)
        self.reported = found
