"""What a source says of itself, and of what it still holds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What a source promises, where it does not follow from what its class overrides.

    replayable: the same offsets always give the same rows, also in a new process.
    rate_limited: a batch's size can be bounded by an option of the source.
    continuous, real_time: the triggers of these names take it.
    ephemeral: it gives only what comes while the query runs: no start can resume from a checkpoint, and a trigger that
        ends by itself finds nothing.
    """

    replayable: bool
    rate_limited: bool = False
    continuous: bool = False
    real_time: bool = False
    ephemeral: bool = False


def bad_rows_metric(source: str) -> str:
    """The name of the observed metric under which a quarantining source counts its bad rows, as column `rows`."""
    return f"headrace_bad_rows_{source}"


@dataclass(frozen=True, kw_only=True)
class Lag:
    """What a source still holds that no batch has taken yet. `unit` is the field's word: files, rows, messages.

    left_out: how many besides no batch will ever take; changed: how many of them are no longer what a batch has read.
    oldest_ms: when the oldest of it came, in milliseconds since 1970: a message's timestamp, a file's modification
        time; None: not known, or nothing waits.
    at_ms: when it was so; None: just now, or when what it stands in was written.
    """

    count: int
    unit: str
    bytes: int | None = None
    left_out: int = 0
    changed: int = 0
    oldest_ms: int | None = field(default=None, compare=False)
    at_ms: int | None = field(default=None, compare=False)

    def waiting_seconds(self, now: float) -> float | None:
        """How long the oldest has waited at `now`, in seconds since 1970; 0 where nothing waits, None: not known."""
        if not self.count:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, now - self.oldest_ms / 1000)
