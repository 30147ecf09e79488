"""The metrics and a trace of each batch, sent by OTLP to the collector that OpenTelemetry's variables name."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from headrace.contract import BatchRecord, Observer
from headrace.errors import Finding, PlatformError, import_optional
from headrace.export.metrics import BUCKETS_SECONDS, MetricsObserver

PROTOCOL = "http/protobuf"
CLOSE_SECONDS = 5.0
# A collection asks for each metric by itself, and the registry answers for all of them at once.
_SNAPSHOT_SECONDS = 0.5
_UNITS = {
    "seconds": "s",
    "bytes": "By",
    "rows": "{row}",
    "files": "{file}",
    "restarts": "{restart}",
    "retries": "{retry}",
}
# The phases of a batch, by Spark's names and in its order.
_PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
_LOGGERS = ("opentelemetry.exporter", "opentelemetry.sdk")


class Otlp(Observer):
    """Sends in threads of its own until closed; a collector that is unreachable is reported once until it is back.

    report: receives a finding when nothing can be sent, from one of those threads.
    """

    def __init__(self, metrics: MetricsObserver, report: Callable[[Finding], None]) -> None:
        self._metrics, self._report = metrics, report
        self._away: set[str] = set()
        self._why = _LastMessage()
        self._snapshot: tuple[float, dict[str, Any]] = (0.0, {})
        self._closers: list[Callable[[], Any]] = []
        resource = _require("sdk.resources").Resource.create(_resource(metrics.app))
        self._listen()
        try:
            self._histogram: Any = self._send_metrics(resource) if _is_wanted("METRICS") else None
            self._tracer: Any = self._send_traces(resource) if _is_wanted("TRACES") else None
        except Exception as error:
            self.close()
            if isinstance(error, PlatformError):
                raise
            problem = f"OTLP is not configured correctly: {error}"
            raise PlatformError(code="HR898", what=problem, fix="correct the variables OTEL_*") from error

    def progressed(self, record: BatchRecord) -> None:
        """Take a batch; what is sent of it waits in memory, and what no longer finds room there is dropped."""
        facts = {"app": self._metrics.app, "query": record.query}
        if self._histogram is not None:
            self._histogram.record(record.duration_ms / 1000, facts)
        if self._tracer is not None:
            self._trace(record, {**facts, "batch": record.batch, "rows": record.rows, "run_id": record.run_id})

    def close(self) -> None:
        """Send what waits, for some seconds at most."""

        def close() -> None:
            for closer in self._closers:
                with suppress(Exception):
                    closer()

        closing = threading.Thread(target=close, name="otlp", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._why)
            logging.getLogger(name).propagate = True

    def _send_metrics(self, resource: Any) -> Any:
        sdk, export = _require("sdk.metrics"), _require("sdk.metrics.export")
        exporter = _require("exporter.otlp.proto.http.metric_exporter").OTLPMetricExporter()
        self._report_failures(exporter, "metrics", export.MetricExportResult.SUCCESS)
        reader = export.PeriodicExportingMetricReader(exporter)
        provider = sdk.MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._closers.append(provider.shutdown)
        meter = provider.get_meter("headrace", version("headrace"))
        for family in self._metrics.registry.collect():
            if family.type in ("gauge", "counter"):
                make = getattr(meter, f"create_observable_{family.type}")
                make(
                    otlp_name(family.name),
                    [lambda _, name=family.name: self._observations(name)],
                    unit=unit_of(family.name),
                    description=family.documentation,
                )
        name = "headrace_batch_duration_seconds"
        return meter.create_histogram(
            otlp_name(name),
            unit=unit_of(name),
            description="How long batches took.",
            explicit_bucket_boundaries_advisory=list(BUCKETS_SECONDS),
        )

    def _send_traces(self, resource: Any) -> Any:
        sdk, export = _require("sdk.trace"), _require("sdk.trace.export")
        exporter = _require("exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter()
        self._report_failures(exporter, "traces", export.SpanExportResult.SUCCESS)
        provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self._closers.append(provider.shutdown)
        return provider.get_tracer("headrace", version("headrace"))

    def _observations(self, name: str) -> Iterator[Any]:
        made_at, families = self._snapshot
        if time.monotonic() - made_at > _SNAPSHOT_SECONDS:
            families = {family.name: family for family in self._metrics.registry.collect()}
            self._snapshot = (time.monotonic(), families)
        observation = _require("metrics").Observation
        for sample in families[name].samples:
            if sample.name in (name, f"{name}_total"):
                yield observation(sample.value, sample.labels)

    def _trace(self, record: BatchRecord, facts: dict[str, Any]) -> None:
        trace = _require("trace")
        attributes = {f"headrace.{name}": value for name, value in facts.items()}
        at = int(record.at.timestamp() * 1e9)
        span = self._tracer.start_span(f"batch {record.query}", start_time=at, attributes=attributes)
        inside = trace.set_span_in_context(span)
        for phase, begin, end in phases(record):
            child = self._tracer.start_span(phase, context=inside, start_time=at + int(begin * 1e6))
            child.end(at + int(end * 1e6))
        span.end(at + int(record.duration_ms * 1e6))

    def _report_failures(self, exporter: Any, kind: str, success: Any) -> None:
        """Report failures to send, which the library only logs."""
        export = exporter.export

        def export_and_report(*given: Any, **named: Any) -> Any:
            result = export(*given, **named)
            if result is success:
                self._away.discard(kind)
            elif kind not in self._away:
                self._away.add(kind)
                self._report(_away(kind, exporter._endpoint, self._why.text))
            return result

        exporter.export = export_and_report

    def _listen(self) -> None:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(self._why)
            logger.propagate = False


class _LastMessage(logging.Handler):
    """Keeps why the library could not send."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            self.text = record.getMessage()


def otlp_name(name: str) -> str:
    """Return a metric's name with dots: a collector that writes for Prometheus makes it the same name again."""
    return name.replace("_", ".")


def unit_of(name: str) -> str:
    """Return the unit of a metric, as UCUM writes it."""
    return _UNITS.get(name.rpartition("_")[2], "1")


def phases(record: BatchRecord) -> Iterable[tuple[str, int, int]]:
    """Yield each phase of a batch with the milliseconds from its trigger on; Spark reports how long each took."""
    at = 0
    for phase in _PHASES:
        if (took := record.durations.get(phase)) is not None:
            yield phase, at, at + took
            at += took


def _resource(app: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {"service.version": version("headrace"), "service.instance.id": str(os.getpid())}
    given = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in given:
        attributes["service.name"] = app
    return attributes


def _is_wanted(signal: str) -> bool:
    """Whether the variables ask for metrics or traces; raises PlatformError where they ask for another protocol."""
    if os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip() == "none":
        return False
    asked = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if asked and asked.strip() != PROTOCOL:
        problem = f"the variables OTEL_* ask for the protocol {asked}; only {PROTOCOL} is supported"
        fix = f"set OTEL_EXPORTER_OTLP_PROTOCOL={PROTOCOL}; collectors accept it, usually at port 4318"
        raise PlatformError(code="HR898", what=problem, fix=fix)
    return True


def _away(kind: str, endpoint: str, why: str) -> Finding:
    parts = urlsplit(endpoint)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return Finding(
        code="HR875",
        what=f"the collector at {place} does not accept {kind}" + (f": {why[:300]}" if why else ""),
        fix="start it, or set OTEL_EXPORTER_OTLP_ENDPOINT; the queries keep running without it",
    )


def _require(module: str) -> Any:
    return import_optional(
        f"opentelemetry.{module}", "OTLP needs packages of OpenTelemetry that are not installed", "otlp"
    )
