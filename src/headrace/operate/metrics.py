"""The metrics of a running application, in Prometheus' units: seconds, bytes, rows."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import Finding, PlatformError
from headrace.operate.board import DOWN, Board
from headrace.progress import BatchRecord
from headrace.progress.waiting import ROWS, waiting_seconds

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import CollectorRegistry

BUCKETS_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
WINDOW = 20


Sample: TypeAlias = tuple[list[str], float]
Verdicts: TypeAlias = Callable[[], Mapping[str, Mapping[str, Any]]]


class Metrics:
    """Takes every batch, and gives the registry that is scraped.

    verdicts: gives the newest verdict of each query, as the history knows it; asked at each scrape.
    """

    def __init__(self, app: str, board: Board, verdicts: Verdicts) -> None:
        client = _client()
        self.app, self._board, self._verdicts = app, board, verdicts
        self._recent: dict[str, deque[BatchRecord]] = {}
        self._guard = threading.Lock()
        self.registry: CollectorRegistry = client.CollectorRegistry(auto_describe=False)
        self._rows = client.Counter(
            "headrace_input_rows", "Rows that batches have read.", ("app", "query", "source"), registry=self.registry
        )
        self._late = client.Counter(
            "headrace_late_rows",
            "Rows dropped as later than the watermark, as Spark counts them: after partial aggregation.",
            ("app", "query", "operator"),
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

    def taken(self, record: BatchRecord) -> None:
        """Count a batch."""
        with self._guard:
            self._recent.setdefault(record.query, deque(maxlen=WINDOW)).append(record)
        self._durations.labels(self.app, record.query).observe(record.duration_ms / 1000)
        named = sum(source.rows for source in record.sources)
        for source in record.sources:
            # Counted rightly for the batch as a whole, Spark's figures of its sources may be too high.
            rows = source.rows if named == record.rows or not named else source.rows * record.rows / named
            self._rows.labels(self.app, record.query, source.name).inc(rows)
        for operator in record.operators:
            self._late.labels(self.app, record.query, operator.name).inc(operator.late)

    def _families(self) -> Iterator[GaugeMetricFamily]:
        posts = self._board.posts()
        with self._guard:
            recent = {query: list(records) for query, records in self._recent.items() if query in posts}
        up = [([query], float(post.state in ("running", "stopping"))) for query, post in posts.items()]
        yield self._gauge("headrace_query_up", "1 while the query runs, else 0.", (), up)
        down = [([query], float(post.state in DOWN)) for query, post in posts.items()]
        yield self._gauge(
            "headrace_query_down", "1 while the query should run and does not: it starts, or has failed.", (), down
        )
        paused = [([query], float(post.state == "paused")) for query, post in posts.items()]
        yield self._gauge("headrace_query_paused", "1 while the query is paused, else 0.", (), paused)
        yield self._counter(
            "headrace_restarts",
            "How often the query was started again after a failure.",
            [([query], float(post.restarts)) for query, post in posts.items()],
        )
        yield from self._lags(recent)
        yield from self._states(recent)
        yield from self._times(recent)
        wrong = [([query], float(number)) for query, number in _mismatched(self._verdicts()).items() if query in posts]
        yield self._gauge("headrace_verify_mismatched_rows", "Rows that the newest verify found to differ.", (), wrong)

    def _lags(self, recent: Mapping[str, Sequence[BatchRecord]]) -> Iterator[GaugeMetricFamily]:
        rows: list[Sample] = []
        files: list[Sample] = []
        sizes, seconds = [], []
        for query, records in recent.items():
            for source in records[-1].sources:
                if source.lag is None:
                    continue
                labels = [query, source.name]
                (rows if source.lag.unit in ROWS else files).append((labels, float(source.lag.count)))
                if source.lag.bytes is not None:
                    sizes.append((labels, float(source.lag.bytes)))
                waiting = waiting_seconds(records, source.name)
                if waiting is not None:
                    seconds.append((labels, waiting))
        yield self._gauge("headrace_source_lag_rows", "Rows that no batch has taken yet.", ("source",), rows)
        yield self._gauge("headrace_source_lag_files", "Files that no batch has taken yet.", ("source",), files)
        yield self._gauge("headrace_source_lag_bytes", "The size of what no batch has taken yet.", ("source",), sizes)
        yield self._gauge(
            "headrace_source_lag_seconds",
            "How long the oldest waiting row has waited, from what waits and how fast rows arrive.",
            ("source",),
            seconds,
        )

    def _states(self, recent: Mapping[str, Sequence[BatchRecord]]) -> Iterator[GaugeMetricFamily]:
        operators = [(query, each) for query, records in recent.items() for each in records[-1].operators]
        rows = [([query, each.name], float(each.rows)) for query, each in operators if each.rows is not None]
        sizes = [([query, each.name], float(each.bytes)) for query, each in operators]
        commits = [([query, each.name], each.commit_ms / 1000) for query, each in operators]
        yield self._gauge("headrace_state_rows", "Rows of the state.", ("operator",), rows)
        yield self._gauge("headrace_state_bytes", "Memory that the state takes.", ("operator",), sizes)
        yield self._gauge(
            "headrace_state_commit_seconds", "Time of the last batch to commit the state.", ("operator",), commits
        )

    def _times(self, recent: Mapping[str, Sequence[BatchRecord]]) -> Iterator[GaugeMetricFamily]:
        now = datetime.now(timezone.utc)
        lags, batches = [], []
        for query, records in recent.items():
            batches.append(([query], records[-1].at.timestamp() + records[-1].duration_ms / 1000))
            if (watermark := records[-1].watermark) is not None:
                lags.append(([query], (now - watermark).total_seconds()))
        yield self._gauge("headrace_watermark_lag_seconds", "The clock minus the watermark.", (), lags)
        yield self._gauge("headrace_last_batch_timestamp_seconds", "When the last batch was committed.", (), batches)
        overdue = [([query], max(0.0, time.monotonic() - due)) for query, due in self._board.due_at.items()]
        yield self._gauge(
            "headrace_overdue_seconds",
            "How long Spark has told neither of a batch nor of having nothing to do, beyond the trigger's interval.",
            (),
            overdue,
        )
        ages = [
            ([query, table], max(0.0, time.time() - at))
            for query, tables in dict(self._board.refreshed_at).items()
            for table, at in tables.items()
        ]
        yield self._gauge("headrace_refresh_age_seconds", "How long ago a table was computed.", ("table",), ages)

    def _gauge(
        self, name: str, help_text: str, labels: tuple[str, ...], samples: Sequence[tuple[list[str], float]]
    ) -> GaugeMetricFamily:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(name, help_text, labels=("app", "query", *labels))
        for values, value in samples:
            family.add_metric([self.app, *values], value)
        return family

    def _counter(self, name: str, help_text: str, samples: Sequence[tuple[list[str], float]]) -> Any:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(name, help_text, labels=("app", "query"))
        for values, value in samples:
            family.add_metric([self.app, *values], value)
        return family


class _Collected:
    """A collector of families that are made at each scrape."""

    def __init__(self, families: Callable[[], Iterator[Any]]) -> None:
        self.collect = families


def _mismatched(verdicts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How many rows differ by the newest verdict of each query that has one."""
    return {
        query: sum(int(verdict.get(name) or 0) for name in ("missing", "unexpected", "different"))
        for query, verdict in verdicts.items()
    }


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError as error:
        finding = Finding(
            code="HR870",
            what="metrics need the package prometheus-client, which is not installed",
            fix="install the extra: pip install 'headrace[metrics]'",
        )
        raise PlatformError(finding) from error
    return prometheus_client
