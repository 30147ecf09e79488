"""`distinct()` on a stream refused where it is called: Spark's plan no longer tells it from `dropDuplicates`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.spark.messages import StreamCallError


@contextmanager
def distinct_refused() -> Iterator[None]:
    """Let `distinct()` of a streaming DataFrame raise StreamCallError while the user's function builds its result."""
    from pyspark.sql.classic.dataframe import DataFrame

    plain = DataFrame.distinct

    def distinct(self: Any) -> Any:
        if self.isStreaming:
            raise StreamCallError(
                "HR278",
                "calls distinct on a stream, which would keep every row for ever",
                "use dropDuplicates by the columns that identify a row, the watermark's column among them",
            )
        return plain(self)

    DataFrame.distinct = distinct  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataFrame.distinct = plain  # type: ignore[method-assign]
