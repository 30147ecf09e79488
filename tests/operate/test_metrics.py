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
from headrace.contract import Lag
from headrace.errors import PlatformError, ProjectError
from headrace.model.operations import Metrics as Settings
from headrace.operate import metrics_server
from headrace.operate.board import Board, Standing
from headrace.operate.metrics import Metrics
from headrace.operate.metrics_server import MetricsServer
from headrace.progress import BatchRecord, OperatorProgress, SourceProgress
from headrace.progress.waiting import waiting_seconds

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
        SourceProgress(name="sales", rows=30, start=None, end="1", lag=Lag(count=50, unit="rows", bytes=700)),
        SourceProgress(name="files", rows=0, start=None, end="1", lag=Lag(count=4, unit="files", bytes=80)),
    ),
    operators=(OperatorProgress(name="stateStoreSave", rows=7, bytes=900, updated=2, late=3, commit_ms=40),),
)


@pytest.fixture
def board() -> Board:
    made = Board()
    made.post("totals", "running", restarts=2)
    made.post("others", "paused", by="me")
    made.due_at = {"totals": time.monotonic() - 900}
    made.refreshed_at["totals"] = {"prices": time.time() - 60}
    return made


@contextmanager
def serving(board: Board, settings: Settings) -> Iterator[tuple[Metrics, str]]:
    metrics = Metrics("p", board, lambda: {"totals": {"missing": 1, "unexpected": 2, "different": 3}})
    server = MetricsServer(settings, board, metrics)
    try:
        yield metrics, f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


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
        metrics.taken(BATCH)
        metrics.taken(replace(BATCH, batch=1, at=NOW - timedelta(seconds=90)))
        _, text = get(f"{url}/metrics")
    found = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name not in ("app", "query"))): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("query") == "totals" and "le" not in sample.labels
    }
    assert {sample.labels["app"] for sample in found.values()} == {"p"}
    values = {name: sample.value for name, sample in found.items() if not name[0].endswith("_created")}
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
        ("headrace_restarts_total",): 2,
        ("headrace_input_rows_total", "sales"): 60,
        ("headrace_input_rows_total", "files"): 0,
        ("headrace_late_rows_total", "stateStoreSave"): 6,
        ("headrace_batch_duration_seconds_count",): 2,
        ("headrace_batch_duration_seconds_sum",): 1.0,
        ("headrace_source_lag_rows", "sales"): 50,
        ("headrace_source_lag_files", "files"): 4,
        ("headrace_source_lag_bytes", "sales"): 700,
        ("headrace_source_lag_bytes", "files"): 80,
        ("headrace_source_lag_seconds", "sales"): pytest.approx(50 / 3),
        ("headrace_state_rows", "stateStoreSave"): 7,
        ("headrace_state_bytes", "stateStoreSave"): 900,
        ("headrace_state_commit_seconds", "stateStoreSave"): 0.04,
        ("headrace_verify_mismatched_rows",): 6,
    }
    assert values["headrace_watermark_lag_seconds",] == pytest.approx(7200, abs=1000)
    assert values["headrace_refresh_age_seconds", "prices"] == pytest.approx(60, abs=30)
    assert values["headrace_overdue_seconds",] == pytest.approx(900, abs=30)


@pytest.mark.parametrize(
    ("state", "down"),
    [
        *dict.fromkeys(("waiting", "running", "stopping", "paused", "finished", "stopped"), 0).items(),
        *dict.fromkeys(("starting", "restarting", "failed"), 1).items(),
    ],
)
def test_a_query_is_down_that_should_run_and_does_not(board: Board, state: Standing, down: float) -> None:
    board.post("totals", state)
    registry = Metrics("p", board, dict).registry
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
        for answering in [each for each in threading.enumerate() if "process_request" in each.name]:
            answering.join(10)
    assert capfd.readouterr().err == ""


def lagging(*lags: int, rows: int = 100) -> list[BatchRecord]:
    def source(lag: int) -> SourceProgress:
        return SourceProgress(name="s", rows=rows, start=None, end=None, lag=Lag(count=lag, unit="rows"))

    return [replace(BATCH, at=NOW + timedelta(seconds=10 * at), sources=(source(lag),)) for at, lag in enumerate(lags)]


@pytest.mark.parametrize(
    ("records", "seconds"),
    [
        (lagging(), None),
        (lagging(50), None),
        (lagging(50, 0), 0.0),
        (lagging(50, 50, 50), 5.0),  # 10 rows a second arrive, and 50 wait
        (lagging(0, 100, 200), 10.0),  # 20 arrive, 10 are worked off
        (lagging(50, 50, rows=0), None),  # Nothing arrives, and nothing is read.
    ],
)
def test_how_long_rows_wait_follows_from_how_many_wait_and_arrive(
    records: list[BatchRecord], seconds: float | None
) -> None:
    assert waiting_seconds(records, "s") == seconds


@pytest.mark.parametrize(
    ("state", "age", "health", "readiness"),
    [
        ("running", 0, 200, 200),
        ("paused", 0, 200, 200),
        ("restarting", 0, 200, 503),
        ("failed", 0, 200, 503),
        ("running", metrics_server.STALE_SECONDS + 1, 503, 200),
    ],
)
def test_health_is_that_of_the_process_and_readiness_that_of_its_queries(
    board: Board, state: str, age: float, health: int, readiness: int
) -> None:
    board.post("totals", state)  # type: ignore[arg-type]
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
    server = MetricsServer(Settings(port=0, address=address), board, Metrics("p", board, dict))
    try:
        assert get(f"http://[::1]:{server.port}/healthz")[0] == 200
    finally:
        server.close()


def test_a_page_of_another_site_reads_nothing(board: Board) -> None:
    with serving(board, Settings(port=0)) as (_, url):
        assert get(f"{url}/metrics", Host="evil.example:80")[0] == 421
        assert [get(f"{url}/{path}")[0] for path in ("", "metrics?x=1")] == [404, 200]


def test_a_port_that_is_taken_is_one_sentence(board: Board) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PlatformError, match=r"HR871: metrics cannot be served at 127\.0\.0\.1:"):
            MetricsServer(Settings(port=taken.getsockname()[1]), board, Metrics("p", board, dict))


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, board: Board) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PlatformError, match=r"HR870.*\n.*pip install 'headrace\[metrics\]'"):
        Metrics("p", board, dict)


@pytest.mark.parametrize(
    ("yaml", "codes"),
    [
        ("metrics: {port: 9108}", []),
        ("metrics: {port: 9108, address: 0.0.0.0, token: x}", []),
        ("metrics: {port: 9108, address: 0.0.0.0}", ["HR872"]),
        ("metrics: {address: localhost}", ["HR872"]),
        ("metrics: {port: many}", ["HR872"]),
        ("metrics: {port: 9108, user: x}", ["HR103"]),
        ("hooks: [{webhook: 'https://x/y'}, {on: [failure], command: [./a.sh, --now], timeout: 2 s}]", []),
        ("hooks: {webhook: 'https://x/y'}", []),
        ("hooks: [{on: [failures], command: a}]", ["HR873"]),
        ("hooks: [{webhook: x, command: a}]", ["HR873"]),
        ("hooks: [{on: failure}]", ["HR873"]),
        ("hooks: [{webhook: 'ftp://x'}]", ["HR873"]),
        ("hooks: [{command: a, timeout: soon}]", ["HR118"]),
        ("log: {format: json, max_size: 1m, keep: 3}", []),
        ("log: {format: xml}", ["HR874"]),
        ("log: {max_size: 1}", ["HR874"]),
        ("log: {keep: 0}", ["HR874"]),
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
    assert operations.metrics or operations.hooks or operations.log
    assert "token" not in repr(operations)
    assert load(tmp_path, target="prod").target.operations.metrics == Settings(port=1)
