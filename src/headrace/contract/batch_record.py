"""One batch as Spark's listener reported it, parsed once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from headrace.contract.sink_values import ChangeCounts
from headrace.contract.source import Lag
from headrace.errors import PlainData
from headrace.units import FIRST, LAST

_REPORTED_BY_WRITER = ("stateStoreSave", "sessionWindowStateStoreSaveExec")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class SourceProgress:
    """One source's share of a batch; `start` and `end` are its JSON offsets, None where it had given nothing yet.

    name: Spark's description, unless the caller knew the sources' names.
    quarantined: how many of the rows did not fit and were set aside.
    null_times: how many of the rows have no event time, null_times_total: in all batches up to this one; None without a
        watermark, or where it is not known. newest_ms: the newest event time, in milliseconds since 1970.
    latest: where the source itself ended when the batch was planned, if Spark says so; not kept.
    lag: what it still holds; None where that is not known.
    """

    name: str
    rows: int
    start: str | None
    end: str | None
    lag: Lag | None = None
    quarantined: int = 0
    null_times: int | None = None
    null_times_total: int | None = None
    newest_ms: int | None = None
    latest: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Leap:
    """The row that moved a watermark past the clock: its source, batch and event time.

    source, batch, time: None where no record has it. place: the row's file, or topic/partition/offset; empty where that
    is not known. Times are in milliseconds since 1970.
    """

    watermark_ms: int
    source: str | None = None
    batch: int | None = None
    time_ms: int | None = None
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class OperatorProgress:
    """One stateful operator in a batch; `bytes` is the memory that its state takes, `commit_ms` what its commit took.

    Its figures are those of one computation, whole where the batch was computed several times as a whole, and by their
    share where parts of it were; `commit_ms` is the sum.

    name: Spark's, with a number where a query has several of the same: `stateStoreSave`, `dedupe 2`.
    """

    name: str
    rows: int | None
    bytes: int
    updated: int
    late: int
    commit_ms: int


@dataclass(frozen=True, kw_only=True)
class BatchRecord(PlainData):
    """What one batch read, kept and took.

    rows: that its offsets hold, of every use of a source, quarantined ones among them; however often, or in part, they
        were computed.
    at: when the batch was triggered, in UTC.
    input_rate, processed_rate: rows a second that arrived and that could be worked off.
    duration_ms: the whole trigger; durations: its parts, by Spark's names. write_ms: how much of `addBatch` the sink
        itself took, as for its transaction, without the rows' computation; None where the sink does not report it.
    skew: the longest task's time as a multiple of the median's, in the stage that took the most; None of a short
        batch, or one without a stage of several tasks.
    watermark: in force in the batch; None for a query without one, or before it first moved.
    state_rows, state_bytes: over all stateful operators; None without state. Rows are None too where the state store
        is set not to count them, and Spark says 0.
    state_hits, state_misses: how many stores were where the batch before had left them, and how many had to be loaded
        from the checkpoint; the HDFS store counts from its opening on. None without state, and for an aggregation
        in RocksDB, whose loads Spark does not report.
    dropped_by_watermark: Spark's own count, which is taken after partial aggregation and so may be too low.
    operators: its stateful operators, in the order of the plan.
    event_min, event_mean, event_max: of the event times that the batch read; None without a watermark, or without rows.
    counters: the totals of the query's counters with this batch, by name.
    leap: what moved its watermark past the clock, as long as it is there.
    changes: what its changes did to the result; None where rows are not applied as changes, or it is not known.
    changed: when the source made the newest of its changes, by the source's clock; None where it does not say.
    """

    query: str
    run_id: str
    batch: int
    at: datetime
    rows: int
    input_rate: float
    processed_rate: float
    duration_ms: int
    durations: Mapping[str, int] = field(default_factory=dict)
    write_ms: int | None = None
    skew: float | None = None
    watermark: datetime | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    state_hits: int | None = None
    state_misses: int | None = None
    dropped_by_watermark: int = 0
    sources: tuple[SourceProgress, ...] = ()
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    backlog: Lag | None = None
    operators: tuple[OperatorProgress, ...] = ()
    event_min: datetime | None = None
    event_mean: datetime | None = None
    event_max: datetime | None = None
    counters: Mapping[str, Any] = field(default_factory=dict)
    leap: Leap | None = None
    changes: ChangeCounts | None = None
    changed: datetime | None = None

    @property
    def change_lag_seconds(self) -> float | None:
        """How long after its newest change was made the batch was in; None where the source does not say when."""
        return None if self.changed is None else (self.at - self.changed).total_seconds() + self.duration_ms / 1000

    @property
    def quarantined(self) -> int:
        """How many of its rows were quarantined."""
        return sum(source.quarantined for source in self.sources)

    @classmethod
    def parse(cls, json_text: str, *, source_names: Sequence[str] = (), rows_tracked: bool = True) -> BatchRecord:
        """Read the JSON of Spark's StreamingQueryProgress, as the JVM or as Python writes it.

        Args:
            json_text: The progress.
            source_names: The names of the sources, in the order of the query's plan, if their number fits; Spark 4.2
                does not report them.
            rows_tracked: Whether the state store counts its rows.
        """
        facts = json.loads(json_text)
        operators = facts.get("stateOperators") or []
        sources = facts.get("sources") or []
        durations = {key: int(value) for key, value in (facts.get("durationMs") or {}).items()}
        loads = [_loads(operator) for operator in operators]
        watermark = _event_time(facts.get("eventTime"), "watermark")
        progress = tuple(_operators(operators, rows_tracked=rows_tracked))
        names = list(source_names) if len(source_names) == len(sources) else [s["description"] for s in sources]
        return cls(
            query=facts.get("name") or str(facts["id"]),
            run_id=facts["runId"],
            batch=facts["batchId"],
            at=_instant(facts["timestamp"]),
            rows=facts.get("numInputRows") or 0,
            input_rate=_rate(facts.get("inputRowsPerSecond")),
            processed_rate=_rate(facts.get("processedRowsPerSecond")),
            duration_ms=durations.get("triggerExecution", facts.get("batchDuration") or 0),
            durations=durations,
            watermark=watermark if watermark is not None and watermark > _EPOCH else None,
            state_rows=_total(operator.rows for operator in progress),
            state_bytes=_total(operator.bytes for operator in progress),
            state_hits=_total(load and load[0] for load in loads),
            state_misses=_total(load and load[1] for load in loads),
            dropped_by_watermark=sum(operator.late for operator in progress),
            sources=tuple(
                SourceProgress(
                    name=name,
                    rows=source.get("numInputRows") or 0,
                    start=_offset(source.get("startOffset")),
                    end=_offset(source.get("endOffset")),
                    latest=_offset(source.get("latestOffset")),
                )
                for name, source in zip(names, sources, strict=True)
            ),
            observed=facts.get("observedMetrics") or {},
            operators=progress,
            event_min=_event_time(facts.get("eventTime"), "min"),
            event_mean=_event_time(facts.get("eventTime"), "avg"),
            event_max=_event_time(facts.get("eventTime"), "max"),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain data, for `--json`; times in ISO 8601."""
        plain = super().as_dict()
        for source in plain["sources"]:
            del source["latest"]
        return {**plain, "change_lag_seconds": self.change_lag_seconds}


def _operators(operators: Iterable[Mapping[str, Any]], *, rows_tracked: bool) -> Iterator[OperatorProgress]:
    met: dict[str, int] = {}
    for operator in operators:
        name = str(operator.get("operatorName") or "state")
        met[name] = met.get(name, 0) + 1
        times = _times_computed(operator)
        yield OperatorProgress(
            name=name if met[name] == 1 else f"{name} {met[name]}",
            rows=round(operator["numRowsTotal"] / times) if rows_tracked else None,
            bytes=round(operator["memoryUsedBytes"] / times),
            updated=round((operator.get("numRowsUpdated") or 0) / times),
            late=round((operator.get("numRowsDroppedByWatermark") or 0) / times),
            commit_ms=int(operator.get("commitTimeMs") or 0),
        )


def _times_computed(operator: Mapping[str, Any]) -> float:
    """How often an operator's partitions were computed in the batch, on average: its figures are sums over all times.

    Source: StateStoreWriter.setStoreMetrics; SymmetricHashJoinStateManager, which has four stores for a partition, or
    one by its newest format.
    """
    stores, once = operator.get("numStateStoreInstances") or 0, operator.get("numShufflePartitions") or 0
    if operator.get("operatorName") == "symmetricHashJoin" and stores >= 4 * once:
        once *= 4
    elif operator.get("operatorName") == "globalLimit":
        once = 1
    return max(1.0, stores / once) if once else 1.0


def _event_time(event_time: Mapping[str, str] | None, name: str) -> datetime | None:
    text = (event_time or {}).get(name)
    return _instant(text) if text else None


def _instant(text: str) -> datetime:
    if text[0] in "+-":  # Of years that Python does not know.
        return LAST if text[0] == "+" else FIRST
    # Python 3.10 does not read the Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)


def _loads(operator: Mapping[str, Any]) -> tuple[int, int] | None:
    """How many of an operator's stores were at hand, and how many were loaded; None if Spark does not report it."""
    metrics = operator.get("customMetrics") or {}
    if "loadedMapCacheMissCount" in metrics:
        return int(metrics["loadedMapCacheHitCount"]), int(metrics["loadedMapCacheMissCount"])
    # The operator that reads loads the store, and only that which writes reports.
    if "rocksdbNumLoadedFromDfs" not in metrics or operator["operatorName"] in _REPORTED_BY_WRITER:
        return None
    loaded = int(metrics["rocksdbNumLoadedFromDfs"])
    return max(0, int(operator.get("numStateStoreInstances") or 0) - loaded), loaded


def _total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if there are no numbers or one of them is not known."""
    values = list(numbers)
    return sum(value for value in values if value is not None) if values and None not in values else None


def _rate(value: Any) -> float:
    """Return a rate; 0 for none, NaN and Infinity, which Spark writes where it divides by no time."""
    number = float(value) if value is not None else 0.0
    return number if math.isfinite(number) else 0.0


def _offset(value: Any) -> str | None:
    """Return the offset's text as the checkpoint has it; JSON that is nested in a report becomes text again."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
