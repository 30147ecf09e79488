"""What Prometheus reads of a running application, and who may read it."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace.api import load
from headrace.contract import BatchRecord, Lag, OperatorProgress, SourceProgress
from headrace.contract.observer import QueryState, State
from headrace.control.board import Board
from headrace.errors import PlatformError, ProjectError
from headrace.export import metrics_server
from headrace.export.metrics import MetricsObserver, require
from headrace.export.metrics_server import serve_metrics
from headrace.model.operations import Metrics as Settings

pytestmark = pytest.mark.plain

NOW = datetime.now(timezone.utc)
BATCH = BatchRecord(
    query="totals",
    run_id="r",
    batch=0,
    at=NOW - timedelta(seconds=100),
    rows=30,
    input_rate=3.0,
    processed_rate=20.0,
    duration_ms=500,
    watermark=NOW - timedelta(hours=2),
    sources=(
        SourceProgress(name="sales", rows=30, quarantined=2, null_times=3, start=None, end="1"),
        SourceProgress(name="files", rows=0, start=None, end="1", lag=Lag(count=0, unit="files", bytes=0)),
    ),
    operators=(OperatorProgress(name="stateStoreSave", rows=7, bytes=900, updated=2, late=3, commit_ms=40),),
)


# What the sources answer: one counts rows, one had an answer an hour ago, one gives none.
LAGS: dict[str, dict[str, Lag | None]] = {
    "totals": {
        "sales": Lag(count=50, unit="rows", bytes=700, oldest_ms=int((NOW.timestamp() - 300) * 1000)),
        "files": Lag(count=4, unit="files", bytes=80),
        "away": Lag(count=0, unit="messages", at_ms=int((NOW.timestamp() - 3600) * 1000)),
        "rate": None,
    }
}


@pytest.fixture
def board() -> Board:
    made = Board()
    made.post(QueryState(query="totals", state="running", restarts=2, healthy=True))
    made.post(QueryState(query="others", state="paused", by="me"))
    made.due_at = {"totals": time.monotonic() - 900}
    made.retries, made.retrying = {"totals": 4}, frozenset({"totals"})
    made.refreshed_at["totals"] = {"prices": time.time() - 60}
    return made


@contextmanager
def serving(board: Board, settings: Settings) -> Iterator[tuple[MetricsObserver, str]]:
    metrics = MetricsObserver(
        "p", board, lambda: {"totals": {"missing": 1, "unexpected": 2, "different": 3}}, lambda *_: LAGS
    )
    with serve_metrics(settings, board, metrics) as port:
        yield metrics, f"http://127.0.0.1:{port}"


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_every_figure_is_there_in_base_units_with_its_labels(board: Board) -> None:
    with serving(board, Settings(port=0)) as (metrics, url):
        metrics.progressed(BATCH)
        changed = NOW - timedelta(seconds=101)
        metrics.progressed(replace(BATCH, batch=1, at=NOW - timedelta(seconds=90), changed=changed))
        _, text = get(f"{url}/metrics")
    samples = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name not in ("app", "query"))): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("query") == "totals" and "le" not in sample.labels
    }
    assert {sample.labels["app"] for sample in samples.values()} == {"p"}
    values = {name: sample.value for name, sample in samples.items() if not name[0].endswith("_created")}
    timed = (
        "headrace_watermark_lag_seconds",
        "headrace_last_batch_timestamp_seconds",
        "headrace_refresh_age_seconds",
        "headrace_overdue_seconds",
    )
    assert {name: value for name, value in values.items() if name[0] not in timed} == {
        ("headrace_query_up",): 1,
        ("headrace_query_paused",): 0,
        ("headrace_query_down",): 0,
        ("headrace_query_healthy",): 1,
        ("headrace_query_waiting", "source"): 0,
        ("headrace_query_waiting", "sink"): 0,
        ("headrace_restarts_total",): 2,
        ("headrace_sink_retries_total",): 4,
        ("headrace_sink_retrying",): 1,
        # Both batches had rows, and the watermark did not move in the ten seconds between them.
        ("headrace_watermark_standing_seconds",): 10,
        ("headrace_input_rows_total", "sales"): 60,
        ("headrace_input_rows_total", "files"): 0,
        ("headrace_quarantined_rows_total", "sales"): 4,
        ("headrace_quarantined_rows_total", "files"): 0,
        ("headrace_late_rows_total", "stateStoreSave"): 6,
        ("headrace_batch_duration_seconds_count",): 2,
        ("headrace_batch_duration_seconds_sum",): 1.0,
        ("headrace_source_lag_rows", "sales"): 50,
        ("headrace_source_lag_files", "files"): 4,
        ("headrace_source_lag_bytes", "sales"): 700,
        ("headrace_source_lag_bytes", "files"): 80,
        ("headrace_source_lag_seconds", "sales"): pytest.approx(time.time() - NOW.timestamp() + 300, abs=30),
        ("headrace_state_rows", "stateStoreSave"): 7,
        ("headrace_state_bytes", "stateStoreSave"): 900,
        ("headrace_state_commit_seconds", "stateStoreSave"): 0.04,
        ("headrace_untimed_rows_total", "sales"): 6,
        ("headrace_verify_mismatched_rows", "batch"): 6,
        # From the change to the end of its batch, which took half a second.
        ("headrace_change_lag_seconds",): 11.5,
    }
    assert values["headrace_watermark_lag_seconds",] == pytest.approx(7200, abs=1000)
    assert values["headrace_refresh_age_seconds", "prices"] == pytest.approx(60, abs=30)
    assert values["headrace_overdue_seconds",] == pytest.approx(900, abs=30)


@pytest.mark.parametrize(
    ("state", "shown_by", "rows"),
    [
        ("mismatch", "batch", 3),
        ("mismatch", "rerun", 3),
        ("undecided", "batch", 3),
        ("equal", "rerun", 0),
        ("open", "batch", 0),
    ],
)
def test_rows_that_only_the_batch_query_gives_are_no_mismatch(
    board: Board, state: str, shown_by: str, rows: int
) -> None:
    verdict = {"verdict": state, "shown_by": shown_by, "missing": 2, "unexpected": 1, "different": 0}
    metrics = MetricsObserver("p", board, lambda: {"totals": verdict}, lambda *_: {})
    samples = [sample for family in metrics.take_snapshot().collect() for sample in family.samples]
    mismatches = [sample for sample in samples if sample.name == "headrace_verify_mismatched_rows"]
    assert [(sample.labels["shown_by"], sample.value) for sample in mismatches] == [(shown_by, rows)]


def test_lags_are_asked_after_the_batches_whose_rows_are_counted(board: Board) -> None:
    asked: list[object] = []
    metrics = MetricsObserver("p", board, dict, lambda names, counted: asked.append((names, counted)) or {})
    metrics.progressed(replace(BATCH, batch=7))
    metrics.take_snapshot()
    assert asked == [(["totals", "others"], {"totals": 7})]


@pytest.mark.parametrize(
    ("state", "down"),
    [
        *dict.fromkeys(("waiting", "running", "stopping", "paused", "finished", "stopped"), 0).items(),
        *dict.fromkeys(("starting", "restarting", "failed", "waiting for source", "waiting for sink"), 1).items(),
    ],
)
def test_a_query_is_down_that_should_run_and_does_not(board: Board, state: State, down: float) -> None:
    board.post(QueryState(query="totals", state=state))
    registry = MetricsObserver("p", board, dict, lambda *_: {}).registry
    assert registry.get_sample_value("headrace_query_down", {"app": "p", "query": "totals"}) == down


def test_a_reader_that_goes_away_is_nothing_to_talk_about(board: Board, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(board, Settings(port=0)) as (metrics, url):
        asked, may_answer = threading.Event(), threading.Event()

        def slowly(_: object) -> list[Metric]:
            asked.set()
            assert may_answer.wait(10)
            return []

        metrics.registry.register(type("Slow", (), {"collect": slowly, "describe": lambda _: []})())
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert asked.wait(10)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        may_answer.set()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("state", "age", "health", "readiness"),
    [
        ("running", 0, 200, 200),
        ("paused", 0, 200, 200),
        ("restarting", 0, 200, 503),
        ("failed", 0, 200, 503),
        ("waiting for source", 0, 200, 503),
        ("waiting for sink", 0, 200, 503),
        ("running", metrics_server.STALE_SECONDS + 1, 503, 200),
    ],
)
def test_health_is_that_of_the_process_and_readiness_that_of_its_queries(
    board: Board, state: State, age: float, health: int, readiness: int
) -> None:
    board.post(QueryState(query="totals", state=state))
    board.beat_at -= age
    with serving(board, Settings(port=0)) as (_, url):
        assert [get(f"{url}/{path}")[0] for path in ("healthz", "readyz")] == [health, readiness]
        assert json.loads(get(f"{url}/readyz")[1])["queries"] == {"totals": state, "others": "paused"}


def test_who_has_no_token_learns_only_whether_all_is_well(board: Board) -> None:
    with serving(board, Settings(port=0, address="0.0.0.0", token="swordfish")) as (_, url):
        codes = [
            get(f"{url}/metrics", **headers)[0]
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer swordfish"})
        ]
        assert codes == [401, 401, 200]
        assert get(f"{url}/readyz") == (200, '{"ok": true}\n')


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("address", ["::", "::1"])
def test_metrics_are_served_by_ipv6(board: Board, address: str) -> None:
    metrics = MetricsObserver("p", board, dict, lambda *_: {})
    with serve_metrics(Settings(port=0, address=address), board, metrics) as port:
        assert get(f"http://[::1]:{port}/healthz")[0] == 200


def test_a_page_of_another_site_reads_nothing(board: Board) -> None:
    with serving(board, Settings(port=0)) as (_, url):
        assert get(f"{url}/metrics", Host="evil.example:80")[0] == 421
        assert [get(f"{url}/{path}")[0] for path in ("", "metrics?x=1")] == [404, 200]


def test_a_port_that_is_taken_is_one_sentence(board: Board) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings, metrics = Settings(port=taken.getsockname()[1]), MetricsObserver("p", board, dict, lambda *_: {})
        with (
            pytest.raises(PlatformError, match=r"HR892: metrics cannot be served at 127\.0\.0\.1:"),
            serve_metrics(settings, board, metrics),
        ):
            pass


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, board: Board) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PlatformError, match=r"HR011.*\n.*pip install 'headrace\[metrics\]'"):
        MetricsObserver("p", board, dict, lambda *_: {})
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(PlatformError, match=r"HR011: metrics need the package uvicorn"):
        require("uvicorn")


@pytest.mark.parametrize(
    ("yaml", "codes"),
    [
        ("metrics: {port: 9108}", []),
        ("metrics: {port: 9108, address: 0.0.0.0, token: x}", []),
        ("metrics: {port: 9108, address: 0.0.0.0}", ["HR104"]),
        ("metrics: {address: localhost}", ["HR104"]),
        ("metrics: {port: many}", ["HR104"]),
        ("metrics: {port: 9108, user: x}", ["HR103"]),
        ("hooks: [{webhook: 'https://x/y'}, {on: [failure], command: [./a.sh, --now], timeout: 2 s}]", []),
        ("hooks: {webhook: 'https://x/y'}", []),
        ("hooks: [{on: [failures], command: a}]", ["HR873"]),
        ("hooks: [{webhook: x, command: a}]", ["HR873"]),
        ("hooks: [{on: failure}]", ["HR873"]),
        ("hooks: [{webhook: 'ftp://x'}]", ["HR873"]),
        ("hooks: [{command: a, timeout: soon}]", ["HR104"]),
        ("log: {format: json, max_size: 1m, keep: 3}", []),
        ("log: {format: xml}", ["HR104"]),
        ("log: {max_size: 1}", ["HR104"]),
        ("log: {keep: 0}", ["HR104"]),
        ("exit_on_failure: true", []),
        ("exit_on_failure: at once", ["HR104"]),
    ],
)
def test_what_is_declared_of_operations_is_read_or_refused(tmp_path: Path, yaml: str, codes: list[str]) -> None:
    text = "name: p\nsources: {e: {rate: {}}}\nqueries: {q: {select: SELECT * FROM e, sink: console}}\n"
    (tmp_path / "headrace.yml").write_text(f"{text}{yaml}\ntargets: {{dev: {{}}, prod: {{metrics: {{port: 1}}}}}}\n")
    if codes:
        with pytest.raises(ProjectError) as caught:
            load(tmp_path)
        assert [finding.code for finding in caught.value.findings] == codes
        return
    operations = load(tmp_path).target.operations
    assert operations.metrics or operations.hooks or operations.log or operations.exit_on_failure
    assert "token" not in repr(operations)
    assert load(tmp_path, target="prod").target.operations.metrics == Settings(port=1)
