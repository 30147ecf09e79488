"""How a query stands, as another terminal sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from headrace.contract import Lag
from headrace.contract.query_state import QueryState, State
from headrace.errors import Finding


@dataclass(frozen=True, kw_only=True)
class QueryStatus:
    """One query's newest run and batch.

    now: its state, as every other place shows it; `killed` when its process is gone and did not say how it ended.
    batch and what follows: of the newest batch of any run; None before the first.
    state_rows: None also where the state store does not count them; `state_bytes` is known then.
    state_hits, state_misses: how many stores of the state were at hand, and how many had to be loaded.
    rows_total: over all batches that the history keeps account of, a batch that was run again counted once.
    rows_quarantined: how many of them did not fit the schema and were set aside.
    lags: what each source holds that no batch has taken, backlog: their sum; None: not known. A status that
        `headrace.status` gives has asked the sources, and where one does not answer has the time of what was known.
    error: what it failed of, until it has worked again, or what is wrong though it continues.
    error_pid: the process whose error that is: this run's or that of the run before.
    fenced: whether that process ended because a newer driver runs the query.
    last_seen: the newest sign of life.
    counters: what the query's counters come to with the newest batch, by name.
    """

    query: str
    now: QueryState
    pid: int
    run: int
    generation: int
    mode: str
    trigger: str
    sink: str
    batch: int | None
    rows_total: int
    rows_quarantined: int = 0
    input_rate: float | None
    processed_rate: float | None
    watermark: datetime | None
    batch_ms: int | None
    state_rows: int | None
    state_bytes: int | None = None
    state_hits: int | None = None
    state_misses: int | None = None
    backlog: Lag | None
    lags: Mapping[str, Lag | None] = field(default_factory=dict)
    error: Finding | None
    error_pid: int | None = None
    fenced: bool = False
    verdict: dict[str, Any] | None
    started: datetime
    last_seen: datetime
    counters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """The word of its state."""
        return self.now.state

    @property
    def in_trouble(self) -> bool:
        """Whether it has failed and not worked since, or a newer driver has ended it."""
        return self.now.in_trouble or self.fenced

    def as_dict(self) -> dict[str, Any]:
        """The status as plain data, for `--json`; times in ISO 8601."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "now"}
        plain |= {**self.now.as_dict(), "in_trouble": self.in_trouble}
        for name in ("watermark", "started", "last_seen"):
            plain[name] = plain[name].isoformat() if plain[name] else None
        plain["error"] = self.error.as_dict() if self.error else None
        plain["backlog"] = asdict(self.backlog) if self.backlog else None
        plain["lags"] = {name: asdict(lag) if lag else None for name, lag in self.lags.items()}
        return plain


@dataclass(frozen=True, kw_only=True)
class Minute:
    """What the batches that began in one minute did together.

    duration_ms, longest_ms: of all of them, and of the longest. late: as Spark counts. lag, state_rows, state_bytes,
    watermark: of the last.
    """

    at: datetime
    batches: int
    rows: int
    duration_ms: int
    longest_ms: int
    late: int
    lag: int | None
    state_rows: int | None
    state_bytes: int | None
    watermark: datetime | None

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Minute:
        """The minute of a row of the store."""
        facts = {name: row[name] for name in cls.__dataclass_fields__ if name not in ("at", "watermark")}
        mark = row["watermark"]
        return cls(
            **facts,
            at=datetime.fromtimestamp(row["minute"] * 60, tz=timezone.utc),
            watermark=None if mark is None else datetime.fromtimestamp(mark, tz=timezone.utc),
        )

    def as_dict(self) -> dict[str, Any]:
        """The minute as plain data."""
        return {
            **asdict(self),
            "at": self.at.isoformat(),
            "watermark": self.watermark.isoformat() if self.watermark else None,
        }


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a query, or to the application where `query` is None; `detail` is plain data."""

    id: int
    at: datetime
    query: str | None
    run: int | None
    kind: str
    detail: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The event as plain data."""
        return {**asdict(self), "at": self.at.isoformat()}
