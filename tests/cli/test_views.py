"""What a run shows: tables, bars, plain lines and JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace.cli.view import view_for
from headrace.cli.view.formatting import duration, format_lag, number, sentence, size_of
from headrace.cli.view.lines import JsonLines, Lines
from headrace.cli.view.live import Bars, LiveTable
from headrace.cli.view.show import LiveShow, PlainShow, panel
from headrace.cli.view.tables import Row, live_table, status_table
from headrace.contract import BatchRecord, BatchWork, Lag, Outcome, QueryStart
from headrace.contract.observer import QueryState
from headrace.control.board import RunResult
from headrace.demo.flow import Tally
from headrace.demo.starter import write_project
from headrace.errors import Finding
from headrace.history import QueryStatus
from headrace.history.lag import lag
from tests.registered import layout_in

pytestmark = pytest.mark.plain

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
RECORD = BatchRecord(
    query="clicks",
    run_id="r",
    batch=23,
    at=NOON,
    rows=4000,
    input_rate=4100.0,
    processed_rate=22222.2,
    duration_ms=180,
    watermark=NOON - timedelta(hours=2),
    state_rows=120,
    backlog=Lag(count=3, unit="files", bytes=1_500_000),
)
START = QueryStart(
    query="clicks", run_id="r", generation=1, trigger="", mode="append", sink="memory", checkpoint=Path("checkpoint")
)
FAULT = Finding(code="HR601", what="it broke", fix="fix it")
FAILED = Outcome(query="clicks", state="failed", finding=FAULT, batches=3, rows=12_000)
STATUS = QueryStatus(
    query="clicks",
    now=QueryState(query="clicks", state="killed", restarts=4),
    pid=1,
    run=2,
    generation=1,
    mode="update",
    trigger="every 1 second",
    sink="sqlite",
    batch=23,
    rows_total=92_000,
    input_rate=4100.0,
    processed_rate=22222.2,
    watermark=NOON,
    batch_ms=180,
    state_rows=120,
    backlog=None,
    error=None,
    verdict=None,
    started=NOON,
    last_seen=NOON,
)


def render(thing: Any, width: int = 160) -> str:
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as shown:
        console.print(thing)
    return shown.get()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (number(1234567), "1,234,567"),
        (number(None), "-"),
        (duration(180), "180 ms"),
        (duration(2500), "2.5 s"),
        (duration(200_000), "3 min 20 s"),
        (format_lag(Lag(count=1, unit="files")), "1 file"),
        (format_lag(Lag(count=1, unit="files", at_ms=1_767_268_800_000)), "1 file as of 2026-01-01 12:00:00"),
        (format_lag(Lag(count=3, unit="files", bytes=1_500_000)), "3 files (1.5 MB)"),
        (
            format_lag(Lag(count=0, unit="files", left_out=3, changed=1)),
            "0 files, 2 left out, 1 changed after being read",
        ),
        (size_of(999), "999 B"),
    ],
)
def test_figures_are_short(text: str, value: str) -> None:
    assert text == value


def test_a_batch_is_one_line() -> None:
    assert sentence(RECORD) == (
        "clicks batch 23: 4,000 rows, 22,222 rows/s, 180 ms, watermark 2026-01-01 10:00:00, state 120 rows,"
        " lag 3 files (1.5 MB)"
    )
    bare = replace(RECORD, watermark=None, state_rows=None, backlog=None)
    assert sentence(bare, batches=3, rows=9) == "clicks batches 21 to 23: 9 rows, 22,222 rows/s, 180 ms"


def test_the_live_table_shows_each_query_with_its_last_batch() -> None:
    row = Row(query="clicks", now=QueryState(query="clicks", state="running"))
    row.take(replace(RECORD, batch=22))
    row.take(RECORD)
    row.take(replace(RECORD, rows=0, processed_rate=0.0))
    shown = render(live_table([row, Row(query="[red]taps")]))
    clicks = next(line for line in shown.splitlines() if line.lstrip().startswith("clicks"))
    assert " ".join(clicks.split()) == "clicks running 23 8,000 22,222 180 ms 2026-01-01 10:00:00 120 3 files (1.5 MB)"
    assert "[red]taps" in shown


STACKED = """\
action_counts  running
  batch 23, rows in 4,000,
  rows/s 22,222, duration 180 ms,
  watermark 2026-01-01 10:00:00,
  state rows 120, lag 3 files (1.5 MB)
orders  running
  running batch: 3 of 20 tasks, 12,000
    rows read, 12.3 s
taps  failed
"""
IN_COLUMNS = """\
query          state    batch  rows in  rows/s  duration  watermark
action_counts  running     23    4,000  22,222    180 ms  2026-01-01 10:00:00
  state rows 120, lag 3 files (1.5 MB)
orders         running      -        -       -         -  -
  running batch: 3 of 20 tasks, 12,000 rows read, 12.3 s
taps           failed       -        -       -         -  -
"""
WIDE = """\
query          state    batch  rows in  rows/s  duration  watermark            state rows  lag
action_counts  running     23    4,000  22,222    180 ms  2026-01-01 10:00:00         120  3 files (1.5 MB)
orders         running      -        -       -         -  -                             -  -
  running batch: 3 of 20 tasks, 12,000 rows read, 12.3 s
taps           failed       -        -       -         -  -                             -  -
"""


@pytest.mark.parametrize(("width", "expected"), [(40, STACKED), (80, IN_COLUMNS), (160, WIDE)], ids=[40, 80, 160])
def test_a_table_fits_its_terminal_and_cuts_no_figure_off(width: int, expected: str) -> None:
    running, failed = QueryState(query="q", state="running"), QueryState(query="q", state="failed")
    counts = Row(query="action_counts", now=running)
    counts.take(RECORD)
    orders = Row(query="orders", now=running, work=BatchWork(tasks_done=3, tasks=20, rows=12_000, seconds=12.3))
    shown = render(live_table([counts, orders, Row(query="taps", now=failed)]), width)
    assert "\n".join(line.rstrip() for line in shown.splitlines()) + "\n" == expected


@pytest.mark.parametrize(
    ("lines", "shown"),
    [(None, 21), (21, 21), (20, 11), (11, 11), (6, 6)],
    ids=["no bound", "all", "no figures below", "just so", "some"],
)
def test_a_low_terminal_leaves_out_figures_first_and_then_counts_queries(lines: int | None, shown: int) -> None:
    rows = [Row(query=f"q{number}") for number in range(10)]
    for row in rows:
        row.take(RECORD)
    table = live_table(rows)
    table.most_lines = lines
    output = render(table, 80).splitlines()
    assert len(output) == shown
    assert (output[-1].strip() == "and 6 queries more") == (lines == 6)


@pytest.mark.parametrize(
    ("rows", "rate", "milliseconds", "shown"),
    [
        (4000, 22222.2, 180, "4,000 rows, 22,222 rows/s, 180 ms"),
        (1, 0.4, 2500, "1 row, 0.4 rows/s, 2.5 s"),
        (7000, 0.0, 3500, "7,000 rows, 2,000 rows/s, 3.5 s"),
        (7000, 0.0, 0, "7,000 rows, 0 ms"),
        (0, 0.0, 90, "0 rows, 90 ms"),
    ],
)
def test_a_rate_is_never_0_for_a_batch_with_rows(rows: int, rate: float, milliseconds: int, shown: str) -> None:
    record = replace(RECORD, rows=rows, processed_rate=rate, duration_ms=milliseconds)
    assert f": {shown}, " in sentence(record)


@pytest.mark.parametrize("view", [LiveTable, Bars], ids=["table", "bars"])
@pytest.mark.parametrize("width", [40, 160], ids=str)
def test_a_terminal_says_from_the_first_second_what_the_run_is_at(view: Any, width: int, tmp_path: Path) -> None:
    from headrace.api import load

    write_project(tmp_path / "phones", event_files=5)
    project = load(tmp_path / "phones")
    query = project.queries["action_counts"]
    clock = Clock()
    console = Console(width=width, markup=False, highlight=False)
    shows = (
        LiveTable(console, [query.name], clock) if view is LiveTable else Bars(project, console, [query.name], clock)
    )

    def shown() -> str:
        return " ".join(render(shows.render(), width).split())

    assert shown().startswith(("- starting Spark (0 s)", "starting Spark (0 s)"))
    assert "action_counts" in shown()
    clock.now = 20.0
    shows.preparing("waiting for the executors of spark://m:7077", None)
    assert "starting Spark: waiting for the executors of spark://m:7077 (20 s)" in shown()
    clock.now = 75.0
    shows.preparing("making its plan", query.name)
    assert "starting action_counts: making its plan (1 min 15 s)" in shown()
    # Of several that start together, each with its own step.
    assert "making its plan" in shown().partition("(1 min 15 s)")[2]
    shows.starting(query.name)
    assert "starting action_counts (1 min 15 s)" in shown()
    shows.started(replace(START, query=query.name))
    assert "Ctrl-C stops after the running batches" in shown()
    shows.working(query.name, BatchWork(tasks_done=1, tasks=5, rows=800, seconds=2.0))
    assert "running batch: 1 of 5 tasks, 800 rows read, 2.0 s" in shown()
    shows.stopping(now=False)
    assert "finishing the running batches; Ctrl-C again stops at once" in shown()
    shows.starting(query.name)
    assert "finishing" in shown(), "a stop is not hidden by what continues"
    shows.stopping(now=True)
    assert "stopping at once" in shown()
    shows.progressed(replace(RECORD, query=query.name))
    assert "running batch:" not in shown()


def test_plain_lines_show_the_start_a_long_batch_and_a_stop(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Lines(clock) as lines:
        lines.preparing("waiting for the executors of spark://m:7077", None)
        # A query that fails is started again and again.
        for step in ("reading its checkpoint", "making its plan") * 3:
            lines.preparing(step, "clicks")
        for seconds in (1, 5, 11, 15, 22):
            clock.now = float(seconds)
            lines.working("clicks", BatchWork(tasks_done=seconds, tasks=30, rows=1, seconds=float(seconds)))
        lines.stopping(now=False)
        lines.stopping(now=True)
    assert [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()] == [
        "starting Spark",
        "waiting for the executors of spark://m:7077",
        "clicks: reading its checkpoint",
        "clicks: making its plan",
        "clicks is in a batch: 11 of 30 tasks, 1 row read, 11.0 s",
        "clicks is in a batch: 22 of 30 tasks, 1 row read, 22.0 s",
        "finishing the running batches; Ctrl-C again stops at once",
        "stopping at once; what a batch has begun is made again at the next start",
    ]


def test_the_status_table_shows_what_never_ran_too() -> None:
    shown = render(status_table(["clicks", "taps"], [STATUS])).splitlines()
    clicks = next(line for line in shown if line.lstrip().startswith("clicks"))
    assert clicks.split()[1:4] == ["killed", "23", "92,000"]
    assert "4" in clicks.split()
    assert any(line.lstrip().startswith("taps") and "never started" in line for line in shown)


def test_status_shows_trigger_sink_and_the_last_verdict() -> None:
    verdict = {"verdict": "equal", "batch": 22}
    shown = render(status_table([], [replace(STATUS, verdict=verdict)]))
    for figure in ("every 1 second", "sqlite", "equal (batch 22)"):
        assert figure in shown
    of_a_part = render(status_table([], [replace(STATUS, verdict={**verdict, "scope": "part 3 of 10"})]))
    assert "part 3 of 10)" in of_a_part
    untimed = render(status_table([], [replace(STATUS, processed_rate=0.0, batch_ms=0)]))
    assert "0 ms" not in untimed


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_once_a_second_and_leave_no_row_out(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Lines(clock) as lines:
        for batch in range(10):
            clock.now = batch * 0.4
            lines.progressed(replace(RECORD, batch=batch, rows=10))
        lines.ended(replace(FAILED, state="stopped", finding=None))
    printed = capsys.readouterr()
    assert printed.out == ""
    batches = [line.split("clicks ", 1)[1].split(" rows,")[0] for line in printed.err.splitlines()[1:-1]]
    assert batches == [
        "batch 0: 10",
        "batches 1 to 3: 30",
        "batches 4 to 6: 30",
        "batches 7 to 9: 30",
    ]


def test_plain_lines_never_lose_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(Clock()) as lines:
        lines.progressed(RECORD)
        lines.progressed(replace(RECORD, batch=24))
        lines.ended(FAILED)
        lines.note(Finding(code="HR680", what="it falls behind", severity="warning"))
    errors = capsys.readouterr().err
    assert "clicks batch 24" in errors
    assert "headrace HR601: it broke\n  fix: fix it\n" in errors
    assert "headrace HR680 (warning): it falls behind\n" in errors


def test_every_json_line_is_an_object_and_the_last_is_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonLines() as lines:
        lines.progressed(RECORD)
        lines.note(FAULT)
        lines.ended(FAILED)
    lines.summary(RunResult(outcomes=(FAILED,)))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in events] == ["batch", "note", "ended", "result"]
    assert BatchRecord.from_dict({key: value for key, value in events[0].items() if key != "event"}) == RECORD
    assert events[-1]["exit_code"] == 1
    assert events[-1]["outcomes"][0]["finding"]["code"] == "HR601"


def test_a_reader_that_goes_away_stops_the_run_as_sigterm_does() -> None:
    script = (
        "import signal; from tests.cli.test_views import *\n"
        "asked = []; signal.signal(signal.SIGTERM, lambda *_: asked.append(1))\n"
        "lines = JsonLines(); lines.progressed(RECORD); input()\n"
        "for _ in range(3): lines.progressed(RECORD)\n"
        "raise SystemExit(40 + len(asked))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["batch"] == 23
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.wait(timeout=30) == 41


def test_a_query_that_a_deploy_has_added_has_a_bar_although_the_project_of_the_start_lacks_it(tmp_path: Path) -> None:
    from headrace.api import load

    write_project(tmp_path / "phones")
    shows = Bars(load(tmp_path / "phones"), Console(width=120), [], Clock())
    shows.started(replace(START, query="added"))
    assert "added" in render(shows.render(), 120)


@pytest.mark.parametrize(("ends", "view"), [(True, Bars), (False, LiveTable)], ids=["bars", "table"])
def test_a_terminal_gets_bars_when_there_is_an_end_and_a_table_when_there_is_none(
    ends: bool, view: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.api import load

    write_project(tmp_path / "phones")
    project = load(tmp_path / "phones")
    assert isinstance(view_for(project, ["action_counts"], ends=ends, as_json=False), Lines)
    assert isinstance(view_for(project, ["action_counts"], ends=ends, as_json=True), JsonLines)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(view_for(project, ["action_counts"], ends=ends, as_json=False), view)


def test_the_live_table_lets_failures_scroll_by_and_the_summary_is_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = Console(width=160, stderr=True, force_terminal=True, markup=False, highlight=False)
    with LiveTable(console) as live:
        live.progressed(RECORD)
        live.changed(QueryState(query="clicks", state="failed", cause=FAULT))
        live.ended(FAILED)
        assert "failed" in render(live.render())
    live.summary(RunResult(outcomes=(FAILED,)))
    printed = capsys.readouterr()
    assert "headrace HR601: it broke" in printed.err
    assert printed.out == "clicks: failed after 3 batches with 12,000 rows (HR601)\n"


def test_bars_are_as_long_as_what_the_sources_hold_at_the_start(tmp_path: Path) -> None:
    from headrace.api import load

    write_project(tmp_path / "phones", event_files=5)
    project = load(tmp_path / "phones")
    query = project.queries["action_counts"]
    layout = layout_in(project.storage, query.name)
    waiting = lag(project, query, layout)
    assert waiting is not None
    assert (waiting.count, waiting.unit) == (5, "files")
    console = Console(width=160, force_terminal=True, markup=False, highlight=False)
    with console.capture(), Bars(project, console) as bars:
        bars.started(replace(START, query=query.name))
        bars.progressed(replace(RECORD, query=query.name, backlog=Lag(count=2, unit="files")))
        (task,) = bars._progress.tasks
        assert (task.completed, task.total) == (3, 5)
        assert task.fields["figures"] == "batch 23, 4,000 rows, 22,222 rows/s, 180 ms, 2 files left"
        bars.progressed(replace(RECORD, query=query.name, batch=24, rows=0, processed_rate=0.0, duration_ms=820))
        assert task.fields["figures"].startswith("batch 24, 4,000 rows, 4,000 rows/s, 1.0 s, "), "over all batches"
        bars.ended(Outcome(query=query.name, state="finished"))
        assert task.finished


TALLY = Tally(landed=61_000, rows=44_000, batches=2, starts=2, state="running", last=RECORD)


def test_the_panel_of_the_demo_shows_every_figure() -> None:
    shown = render(panel(TALLY))
    for name, value in (
        ("rows landed", "61,000"),
        ("rows in", "44,000"),
        ("batch", "23"),
        ("rows/s", "22,222"),
        ("batch time", "180 ms"),
        ("watermark", "2026-01-01 10:00:00"),
        ("state rows", "120"),
        ("lag", "3 files (1.5 MB)"),
    ):
        assert f"{name} " in shown
        assert value in shown
    assert "driver running, start 2" in shown


@pytest.mark.parametrize("show", [PlainShow, LiveShow], ids=["lines", "panel"])
def test_the_demo_prints_the_same_with_and_without_a_terminal(
    show: type[PlainShow], capsys: pytest.CaptureFixture[str]
) -> None:
    with show() as audience:
        audience.say("driver killed with SIGKILL at batch 23; starting it again")
        audience.show_command(["verify", "action_counts"])
        audience.result(["action", "count"], [("open", 17)])
    audience.end(0, ["cd demo"])
    output = capsys.readouterr().out
    for words in ("driver killed with SIGKILL at batch 23", "$ headrace verify action_counts", "17", "next, type:"):
        assert words in output


def test_a_query_that_is_held_is_shown_in_every_view(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=100, force_terminal=False)
    away = Finding(code="HR405", what="the database does not answer")
    restarting = QueryState(query="clicks", state="restarting", attempt=1, limit=8, cause=away)
    table, lines = LiveTable(console, ["clicks"]), Lines()
    for view in (table, lines, JsonLines()):
        view.changed(restarting)
    lines.changed(QueryState(query="clicks", state="paused", by="ada on /dev/pts/1"))
    console.print(table.render())
    printed = capsys.readouterr()
    event, *shown = printed.out.splitlines()
    assert json.loads(event) == {"event": "state", **restarting.as_dict()}
    assert "restarting" in "".join(shown)
    assert restarting.trouble in "".join(shown)
    assert [line.split(" ", 1)[1] for line in printed.err.splitlines()] == ["clicks is paused by ada on /dev/pts/1"]
