"""The rows that a query dropped as late: how many, in which batches, and the first of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import Finding
from headrace.verify.late_and_open import LateInput
from headrace.verify.verdict import LateRow, counted, plain

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class OperatorLateRows:
    """How many rows one operator dropped in one batch, and the watermark that they were behind."""

    operator: str
    batch: int
    watermark: datetime
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """The count as plain data."""
        return {
            "operator": self.operator,
            "batch": self.batch,
            "watermark": plain(self.watermark),
            "rows": self.rows,
        }


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What bringing late rows back has changed: rows of the result written and deleted, for so many late rows."""

    late: int
    written: int
    deleted: int

    def as_dict(self) -> dict[str, Any]:
        """The change as plain data."""
        return {"late": self.late, "written": self.written, "deleted": self.deleted}


@dataclass(frozen=True, kw_only=True)
class Lateness:
    """The rows that a query dropped as late in its committed batches, counted at the operators.

    batch: the last committed batch; since: the first one that was looked at. batches: the counts, of each operator and
    batch that dropped any. rows: the first rows, oldest batch first. replayed: the last batch whose late rows were
    brought back into the result. replay: what this very call brought back. exported: the files that hold the late rows,
    in the form in which their sources gave them. findings: what cannot be determined.
    """

    query: str
    batch: int | None
    since: int = 0
    batches: tuple[OperatorLateRows, ...] = ()
    rows: tuple[LateRow, ...] = ()
    replayed: int | None = None
    replay: Replayed | None = None
    exported: tuple[Path, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def count(self) -> int:
        """How many rows were dropped."""
        return sum(each.rows for each in self.batches)

    @property
    def exit_code(self) -> int:
        """0 when the rows could be determined, 1 otherwise."""
        return 1 if any(finding.severity == "error" for finding in self.findings) else 0

    @property
    def sentence(self) -> str:
        """The count in one line."""
        if self.exit_code:
            return f"it cannot be determined which rows came late: {self.findings[0].what}"
        since = f" since batch {self.since}" if self.since else ""
        dropped = f"{counted(self.count, 'row')} dropped as late{since}, up to batch {self.batch}"
        if self.replayed is None:
            return dropped
        return f"{dropped}; those up to batch {self.replayed} were brought back into the result"

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain data; `rows` are left out, since each is a line of its own with `--json`."""
        return {
            "query": self.query,
            "batch": self.batch,
            "since": self.since,
            "count": self.count,
            "sentence": self.sentence,
            "batches": [each.as_dict() for each in self.batches],
            "replayed": self.replayed,
            "replay": self.replay.as_dict() if self.replay else None,
            "exported": [str(path) for path in self.exported],
            "findings": [finding.as_dict() for finding in self.findings],
        }


def counts(dropped: LateInput) -> Iterator[OperatorLateRows]:
    """How many rows the operator dropped in each batch that dropped any, in order."""
    for row in dropped.rows.groupBy("batch", _micros("watermark")).count().orderBy("batch").collect():
        yield OperatorLateRows(
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
