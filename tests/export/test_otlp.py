"""A collector of OpenTelemetry gets the metrics of Prometheus and a trace of each batch, and may be away."""

from __future__ import annotations

import gzip
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import load
from headrace.control.board import Board
from headrace.errors import Finding, PlatformError
from headrace.export import otlp
from headrace.export.metrics import MetricsObserver
from headrace.export.otlp import Otlp
from headrace.runner.supervise import run
from services.process import free_port
from tests.runner.projects import write_project
from tests.runner.test_run import FRUIT, TOTALS
from tests.waiting import until

from .test_metrics import BATCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")
collected_metrics: Any = import_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
collected_traces: Any = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass
class Collector:
    """What a collector does with a request: it decodes it."""

    url: str = ""
    metrics: list[Any] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    resources: list[dict[str, str]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            asked = collected_metrics.ExportMetricsServiceRequest.FromString(body).resource_metrics
            self.metrics += [metric for request in asked for scope in request.scope_metrics for metric in scope.metrics]
        else:
            assert path == "/v1/traces"
            asked = collected_traces.ExportTraceServiceRequest.FromString(body).resource_spans
            self.spans += [span for request in asked for scope in request.scope_spans for span in scope.spans]
        self.resources += [
            {fact.key: fact.value.string_value for fact in request.resource.attributes} for request in asked
        ]

    def points(self) -> dict[tuple[str, str, str], Any]:
        """The newest point of each metric, by its name, its unit and its labels other than app and query."""
        points = {}
        for metric in self.metrics:
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                labels = {attribute.key: attribute.value.string_value for attribute in point.attributes}
                assert labels.pop("app")
                assert labels.pop("query")
                points[metric.name, metric.unit, "".join(labels.values())] = point
        return points


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.headers.append(self.headers.get("x-key", ""))
            collector.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.spark
def test_a_collector_has_the_metrics_and_a_trace_of_each_batch_of_a_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    (root / "headrace.yml").write_text("name: p\ntelemetry: {otlp: true}\n")
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=swordfish")
        assert run(load(root), spark=spark).exit_code == 0
    assert set(collector.headers) == {"swordfish"}
    assert {resource["service.name"] for resource in collector.resources} == {"p"}
    points = collector.points()
    assert points["headrace.input.rows", "{row}", "events"].as_double == 3
    assert points["headrace.source.lag.files", "{file}", "events"].as_double == 0
    assert points["headrace.state.rows", "{row}", "stateStoreSave"].as_double == 2
    assert points["headrace.query.up", "1", ""].as_double == 0, "the run has ended"
    assert points["headrace.batch.duration.seconds", "s", ""].count == 2
    batches = [span for span in collector.spans if span.name == "batch totals"]
    numbers = [{fact.key: fact.value.int_value for fact in span.attributes}["headrace.batch"] for span in batches]
    assert numbers == [0, 1]
    inside = {span.name: span for span in collector.spans if span.parent_span_id == batches[1].span_id}
    assert inside.keys() >= {"latestOffset", "addBatch", "commitOffsets"}
    assert all(
        batches[1].start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        for span in inside.values()
    )


@pytest.mark.plain
def test_names_and_units_are_those_that_a_collector_turns_into_those_of_prometheus() -> None:
    registry = MetricsObserver("p", Board(), dict, lambda *_: {}).registry
    names = [family.name for family in registry.collect()]
    assert {name for name in names if otlp.unit_of(name) == "1"} == {
        "headrace_sink_retrying",
        "headrace_changes",
        *(f"headrace_query_{state}" for state in ("up", "down", "healthy", "waiting", "paused")),
    }
    assert all(otlp.otlp_name(name).replace(".", "_") == name for name in names)


@pytest.mark.plain
def test_a_collector_that_is_away_keeps_no_query_waiting_and_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"http://me:swordfish@127.0.0.1:{free_port()}"
    monkeypatch.setenv(ENDPOINT, place)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setattr(otlp, "CLOSE_SECONDS", 1.0)
    findings: list[Finding] = []
    sent = Otlp(MetricsObserver("p", Board(), dict, lambda *_: {}), findings.append)
    begun = time.monotonic()
    for _ in range(500):
        sent.progressed(BATCH)
    assert time.monotonic() - begun < 10, "an attempt takes a second"
    until("word of both", lambda: len(findings) == 2)
    sent.close()
    kinds = {finding.what.split(" does not accept ")[1].partition(":")[0] for finding in findings}
    assert kinds == {"metrics", "traces"}
    assert [finding.code for finding in findings] == ["HR875"] * 2
    assert "swordfish" not in str(findings)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "ask for the protocol grpc"),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "OTLP is not configured correctly: max_queue_size"),
    ],
)
def test_variables_that_ask_for_what_is_not_there_are_reported_before_the_start(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlatformError, match=words) as caught:
        Otlp(MetricsObserver("p", Board(), dict, lambda *_: {}), print)
    assert caught.value.findings[0].code == "HR898"


@pytest.mark.plain
def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(PlatformError) as caught:
        Otlp(MetricsObserver("p", Board(), dict, lambda *_: {}), print)
    assert caught.value.findings[0].code == "HR011"
