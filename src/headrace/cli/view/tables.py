"""The tables of `run` and `status`: one row a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.view import formatting
from headrace.cli.view.fitting import Fitting
from headrace.contract import BatchRecord
from headrace.contract.observer import QueryState

if TYPE_CHECKING:
    from headrace.contract import BatchWork
    from headrace.observe.history import QueryStatus
    from headrace.queries.inspect_checkpoint import StoredStatus

# The words of a verdict that 0.1.0 left in a history.
_SINCE = {"wrong": "mismatch", "pending": "open"}


@dataclass(kw_only=True)
class Row:
    """A query as the live table shows it.

    now: its state, once it is known. last, busy: the last batch, and the last one that had rows. work: how far the
    running batch is, where that is known.
    """

    query: str
    now: QueryState | None = None
    rows: int = 0
    quarantined: int = 0
    last: BatchRecord | None = None
    busy: BatchRecord | None = None
    work: BatchWork | None = None

    def take(self, record: BatchRecord) -> None:
        self.rows, self.last, self.work = self.rows + record.rows, record, None
        self.quarantined += record.quarantined
        self.busy = record if record.rows else self.busy


def live_table(rows: Iterable[Row]) -> Fitting:
    """Every query of a run with its last batch."""
    table = Fitting("query", "state", "batch", "rows in", "rows/s", "duration", "watermark", "state rows", "lag")
    for row in rows:
        batch, *others = formatting.figures(row.last)
        table.add(
            row.query,
            row.now.state if row.now else "waiting",
            batch,
            formatting.rows_in(row.rows, row.quarantined) if row.last else formatting.NOTHING,
            formatting.batch_rate(row.busy),
            *others,
            level=row.now.level if row.now else "idle",
            besides=(row.now.trouble if row.now else "")
            or (f"running batch: {formatting.inside(row.work)}" if row.work else ""),
        )
    return table


def stored_table(statuses: Sequence[StoredStatus]) -> Fitting:
    """Every query of a project as its storage tells of it."""
    table = Fitting("query", "generation", "driver", "planned", "committed", "committed at", "watermark")
    for each in statuses:
        table.add(
            each.query,
            str(each.generation),
            each.driver or formatting.NOTHING,
            formatting.number(each.planned),
            formatting.number(each.committed),
            formatting.instant(each.committed_at),
            formatting.instant(each.watermark),
        )
    return table


def status_table(queries: Iterable[str], statuses: Sequence[QueryStatus]) -> Fitting:
    """Every query of a project as the history knows it; one that never ran says so."""
    figures = (
        *("batch", "rows in", "rows/s", "duration", "verdict", "trigger", "sink", "seen", "restarts", "watermark"),
        *("state rows", "cache hits", "lag"),
    )
    table = Fitting("query", "state", *figures)
    known = {status.query: status for status in statuses}
    for name in dict.fromkeys([*queries, *known]):
        status = known.get(name)
        if status is None:
            table.add(name, "never started", *[formatting.NOTHING] * len(figures))
            continue
        timed = bool(status.batch_ms)  # A batch that nobody told of is known without its time.
        table.add(
            name,
            status.state,
            formatting.number(status.batch),
            formatting.rows_in(status.rows_total, status.rows_quarantined),
            formatting.rate(status.processed_rate if timed else None),
            formatting.duration(status.batch_ms if timed else None),
            _verdict(status),
            status.trigger,
            status.sink,
            formatting.instant(status.last_seen),
            formatting.number(status.now.restarts),
            formatting.instant(status.watermark),
            formatting.state_rows(status),
            formatting.loads(status),
            formatting.lags_left(status),
            level="bad" if status.in_trouble else status.now.level,
        )
    return table


def _verdict(status: QueryStatus) -> str:
    """What verify said last, of how many batches, and of which rows alone: `equal (batch 23, part 3 of 10)`."""
    if not status.verdict:
        return formatting.NOTHING
    batch = status.verdict.get("batch")
    word = str(status.verdict.get("verdict") or status.verdict.get("state", ""))
    of = ", ".join(filter(None, ("" if batch is None else f"batch {batch:,}", status.verdict.get("scope"))))
    return _SINCE.get(word, word) + (of and f" ({of})")
