"""The rows that an operator dropped as late, as values: counted batch by batch, and the first of them listed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from headrace.verify.late_and_open import LateInput
from headrace.verify.lateness import LateBatch
from headrace.verify.verdict import LateRow

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def counts(dropped: LateInput) -> Iterator[LateBatch]:
    """How many rows the operator dropped in each batch that dropped any, in order."""
    for row in dropped.rows.groupBy("batch", _micros("watermark")).count().orderBy("batch").collect():
        yield LateBatch(
            operator=dropped.operator,
            batch=row["batch"],
            watermark=_moment(row["watermark"]),
            rows=row["count"],
        )


def listed(dropped: LateInput, most: int) -> tuple[LateRow, ...]:
    """The first rows that the operator dropped, oldest batch first."""
    if most <= 0:
        return ()
    rows = dropped.rows.select("batch", _micros("watermark"), _micros("time"), "row")
    return tuple(
        LateRow(
            operator=dropped.operator,
            batch=row["batch"],
            watermark=_moment(row["watermark"]),
            time=_moment(row["time"]),
            row=row["row"].asDict(recursive=True),
        )
        for row in rows.orderBy("batch", "time").limit(most).collect()
    )


def _micros(name: str) -> Column:
    """A timestamp as a number, which Python does not move into the machine's own time zone."""
    from pyspark.sql import functions as F

    return F.unix_micros(F.col(name)).alias(name)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
