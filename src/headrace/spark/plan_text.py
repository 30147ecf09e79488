"""The plans of a running query's last batch, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def plan_text(query: StreamingQuery) -> str:
    """The logical and the physical plans; PySpark's own `explain` prints them, to the output of the whole process."""
    return str(query._jsq.explainInternal(True))
