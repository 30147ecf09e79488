"""The metrics of a running application, in Prometheus' units: seconds, bytes, rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.contract import BatchRecord, Lag, Observer
from headrace.control.board import Board
from headrace.errors import import_optional

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import CollectorRegistry

BUCKETS_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
ROWS = ("rows", "records", "messages")
_ROW_COUNTERS = {
    "headrace_input_rows": "Rows that batches have read.",
    "headrace_quarantined_rows": "Rows that did not fit the schema and were set aside; they are among those read.",
    "headrace_untimed_rows": "Rows without event time (NULL), of sources with a watermark; they are among those read.",
    "headrace_late_rows": "Rows dropped as later than the watermark, as Spark counts them: after partial aggregation.",
}

Sample: TypeAlias = tuple[list[str], float]
Verdicts: TypeAlias = Callable[[], Mapping[str, Mapping[str, Any]]]
Lags: TypeAlias = Callable[[Sequence[str], Mapping[str, int]], Mapping[str, Mapping[str, Lag | None]]]


class MetricsObserver(Observer):
    """Takes every batch, and gives the registry that is scraped.

    verdicts: gives the newest verdict of each query, as the history knows it; lags: what the sources of these queries
    hold after these batches, up to which rows are counted. Both are asked at each scrape.
    """

    def __init__(self, app: str, board: Board, verdicts: Verdicts, lags: Lags) -> None:
        client = _client()
        self.app, self._board, self._verdicts, self._asked = app, board, verdicts, lags
        self._last: dict[str, BatchRecord] = {}
        # The first and the last batch with rows since the watermark moved.
        self._standing_since: dict[str, tuple[datetime, datetime]] = {}
        self._guard = threading.Lock()
        self.registry: CollectorRegistry = client.CollectorRegistry(auto_describe=False)
        labels = ("source", "source", "source", "operator")
        self._rows, self._quarantined, self._untimed, self._late = (
            client.Counter(name, help_text, ("app", "query", label), registry=self.registry)
            for (name, help_text), label in zip(_ROW_COUNTERS.items(), labels, strict=True)
        )
        self._changes = client.Counter(
            "headrace_changes",
            "What batches of change data did to the result: inserts, updates, deletes, ignored, truncates.",
            ("app", "query", "effect"),
            registry=self.registry,
        )
        self._durations = client.Histogram(
            "headrace_batch_duration_seconds",
            "Duration of batches.",
            ("app", "query"),
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        self.registry.register(_Collected(self._families))

    def progressed(self, record: BatchRecord) -> None:
        with self._guard:
            last = self._last.get(record.query)
            moved = last is None or last.watermark != record.watermark
            if record.rows and (moved or record.query not in self._standing_since):
                self._standing_since[record.query] = (record.at, record.at)
            elif record.rows:
                self._standing_since[record.query] = (self._standing_since[record.query][0], record.at)
            elif moved:
                self._standing_since.pop(record.query, None)
            self._last[record.query] = record
        self._durations.labels(self.app, record.query).observe(record.duration_ms / 1000)
        for source in record.sources:
            self._rows.labels(self.app, record.query, source.name).inc(source.rows)
            self._quarantined.labels(self.app, record.query, source.name).inc(source.quarantined)
            if source.null_times is not None:
                self._untimed.labels(self.app, record.query, source.name).inc(source.null_times)
        for effect, count in asdict(record.changes).items() if record.changes is not None else ():
            self._changes.labels(self.app, record.query, effect).inc(count)
        for operator in record.operators:
            self._late.labels(self.app, record.query, operator.name).inc(operator.late)

    def take_snapshot(self) -> CollectorRegistry:
        """Collect all figures now, into a registry that asks no source when it is read."""
        families = list(self.registry.collect())
        registry: CollectorRegistry = _client().CollectorRegistry(auto_describe=False)
        registry.register(_Collected(lambda: iter(families)))
        return registry

    def _families(self) -> Iterator[Metric]:
        states = self._board.states()
        with self._guard:
            last = {query: record for query, record in self._last.items() if query in states}
            standing = {query: (end - begin).total_seconds() for query, (begin, end) in self._standing_since.items()}
        up = [([query], float(state.is_up)) for query, state in states.items()]
        yield self._gauge("headrace_query_up", "1 while the query runs, and has worked since it last failed.", (), up)
        down = [([query], float(state.is_down)) for query, state in states.items()]
        help_text = "1 while the query should run and does not: it starts, waits, or has failed and not worked since."
        yield self._gauge("headrace_query_down", help_text, (), down)
        healthy = [([query], float(state.healthy)) for query, state in states.items()]
        help_text = "1 once the query has, since its newest start, committed a batch or found nothing to do."
        yield self._gauge("headrace_query_healthy", help_text, (), healthy)
        paused = [([query], float(state.state == "paused")) for query, state in states.items()]
        yield self._gauge("headrace_query_paused", "1 while the query is paused, else 0.", (), paused)
        help_text = "1 while the query waits for its source or its sink, which does not answer, else 0."
        kinds = [(kind, f"waiting for {kind}") for kind in ("source", "sink")]
        waiting = [([query, kind], float(one.state == word)) for query, one in states.items() for kind, word in kinds]
        yield self._gauge("headrace_query_waiting", help_text, ("on",), waiting)
        restarts = [([query], float(state.restarts)) for query, state in states.items()]
        help_text = "How often the query has failed so that it is started again."
        yield self._family("headrace_restarts", help_text, restarts, kind="Counter")
        retries = [([query], float(self._board.retries.get(query, 0))) for query in states]
        yield self._family("headrace_sink_retries", "How often the sink tried a batch again.", retries, kind="Counter")
        retrying = [([query], float(query in self._board.retrying)) for query in states]
        yield self._gauge("headrace_sink_retrying", "1 while the sink tries a batch again, else 0.", (), retrying)
        yield from self._lags(self._asked(list(states), {query: record.batch for query, record in last.items()}))
        yield from self._states(last)
        yield from self._times(last)
        stands = [([query], standing.get(query, 0.0)) for query, record in last.items() if record.watermark is not None]
        yield self._gauge(
            "headrace_watermark_standing_seconds",
            "For how long batches had rows and the watermark did not move.",
            (),
            stands,
        )
        wrong = [
            (list(of), float(number)) for of, number in _mismatched_rows(self._verdicts()).items() if of[0] in states
        ]
        help_text = "Rows in which the newest verify found the result to differ from the batch query, or another run."
        yield self._gauge("headrace_verify_mismatched_rows", help_text, ("shown_by",), wrong)

    def _lags(self, lags: Mapping[str, Mapping[str, Lag | None]]) -> Iterator[Metric]:
        """Yield the lags of the sources; no sample for one that does not answer, or is stuck."""
        rows, files, sizes, seconds = (list[Sample]() for _ in range(4))
        for query, source, lag in (
            (query, name, lag) for query, by_source in lags.items() for name, lag in by_source.items()
        ):
            if lag is None or lag.at_ms is not None or (lag.problem and not lag.count):
                continue
            labels, waiting = [query, source], lag.waiting_seconds(time.time())
            (rows if lag.unit in ROWS else files).append((labels, float(lag.count)))
            if lag.bytes is not None:
                sizes.append((labels, float(lag.bytes)))
            if waiting is not None:
                seconds.append((labels, waiting))
        yield self._gauge("headrace_source_lag_rows", "Rows that no batch has taken yet.", ("source",), rows)
        yield self._gauge("headrace_source_lag_files", "Files that no batch has taken yet.", ("source",), files)
        yield self._gauge("headrace_source_lag_bytes", "The size of what no batch has taken yet.", ("source",), sizes)
        yield self._gauge(
            "headrace_source_lag_seconds",
            "How long ago the oldest message or file came that no batch has taken yet.",
            ("source",),
            seconds,
        )

    def _states(self, last: Mapping[str, BatchRecord]) -> Iterator[Metric]:
        operators = [(query, operator) for query, record in last.items() for operator in record.operators]
        rows = [
            ([query, operator.name], float(operator.rows)) for query, operator in operators if operator.rows is not None
        ]
        sizes = [([query, operator.name], float(operator.bytes)) for query, operator in operators]
        commits = [([query, operator.name], operator.commit_ms / 1000) for query, operator in operators]
        yield self._gauge("headrace_state_rows", "Rows of the state.", ("operator",), rows)
        yield self._gauge("headrace_state_bytes", "Memory that the state takes.", ("operator",), sizes)
        yield self._gauge(
            "headrace_state_commit_seconds", "Time of the last batch to commit the state.", ("operator",), commits
        )

    def _times(self, last: Mapping[str, BatchRecord]) -> Iterator[Metric]:
        now = datetime.now(timezone.utc)
        lags, batches = [], []
        for query, record in last.items():
            batches.append(([query], record.at.timestamp() + record.duration_ms / 1000))
            if (watermark := record.watermark) is not None:
                lags.append(([query], (now - watermark).total_seconds()))
        help_text = (
            "How long after the source made the newest change of the last batch it was in, by the source's clock."
        )
        changed = [([query], lag) for query, record in last.items() if (lag := record.change_lag_seconds) is not None]
        yield self._gauge("headrace_change_lag_seconds", help_text, (), changed)
        yield self._gauge("headrace_watermark_lag_seconds", "The clock minus the watermark.", (), lags)
        yield self._gauge("headrace_last_batch_timestamp_seconds", "When the last batch was committed.", (), batches)
        overdue = [([query], max(0.0, time.monotonic() - due)) for query, due in self._board.due_at.items()]
        yield self._gauge(
            "headrace_overdue_seconds",
            "How long neither a batch was committed nor a task moved nor Spark had nothing to do, beyond the trigger's "
            "interval.",
            (),
            overdue,
        )
        ages = [
            ([query, table], max(0.0, time.time() - at))
            for query, tables in dict(self._board.refreshed_at).items()
            for table, at in tables.items()
        ]
        yield self._gauge("headrace_refresh_age_seconds", "How long ago a table was computed.", ("table",), ages)

    def _gauge(self, name: str, help_text: str, labels: tuple[str, ...], samples: Sequence[Sample]) -> Any:
        return self._family(name, help_text, samples, labels)

    def _family(
        self, name: str, help_text: str, samples: Sequence[Sample], labels: tuple[str, ...] = (), kind: str = "Gauge"
    ) -> Any:
        make = getattr(require("prometheus_client.core"), f"{kind}MetricFamily")
        family: Any = make(name, help_text, labels=("app", "query", *labels))
        for values, value in samples:
            family.add_metric([self.app, *values], value)
        return family


class _Collected:
    """A collector of families that are made at each scrape."""

    def __init__(self, families: Callable[[], Iterator[Any]]) -> None:
        self.collect = families


def _mismatched_rows(verdicts: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """Return how many rows differ by the newest verdict of each query that has one, from what it was shown by.

    A result that is equal to another run is right, also where the batch query gives other rows.
    """
    return {
        (query, str(verdict.get("shown_by", "batch"))): 0
        if verdict.get("verdict") in ("equal", "open", "late")
        else sum(int(verdict.get(name) or 0) for name in ("missing", "unexpected", "different"))
        for query, verdict in verdicts.items()
    }


def require(module: str) -> Any:
    """Return a module of the packages of metrics; raises PlatformError where it is missing."""
    return import_optional(
        module, f"metrics need the package {module.replace('_', '-')}, which is not installed", "metrics"
    )


def _client() -> Any:
    return require("prometheus_client")
