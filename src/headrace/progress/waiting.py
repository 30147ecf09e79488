"""How long what waits in a source has waited, as the last batches tell."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.progress.record import BatchRecord

ROWS = ("rows", "records", "messages")


def waiting_seconds(records: Sequence[BatchRecord], source: str) -> float | None:
    """The seconds since the oldest waiting row of a source arrived; None where it does not count rows.

    By Little's law: what waits, divided by how much arrives a second. What has arrived between two batches is what was
    read meanwhile, and by how much the lag has grown.
    """
    seen = [
        (record.at.timestamp() + record.duration_ms / 1000, each.rows, each.lag.count)
        for record in records
        for each in record.sources
        if each.name == source and each.lag is not None and each.lag.unit in ROWS
    ]
    if not seen:
        return None
    (first_at, _, first_lag), (last_at, _, lag) = seen[0], seen[-1]
    if lag == 0:
        return 0.0
    arrived = sum(rows for _, rows, _ in seen[1:]) + lag - first_lag
    if last_at <= first_at or arrived <= 0:
        return None
    return lag * (last_at - first_at) / arrived
