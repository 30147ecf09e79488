"""An observer that another distribution brings along hears each event of a run, and cannot harm the run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import registry
from headrace.api import load
from headrace.contract import BatchRecord, BatchWork, Observed, Observer, Outcome, QueryStart, QueryState
from headrace.control.board import Orders
from headrace.errors import Finding
from headrace.export.observers import Observers
from headrace.runner.stop import StopRequest
from headrace.runner.supervise import control_run
from tests.docs.blocks import ROOT, of_language
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain

PAGE = ROOT / "docs" / "how-to" / "operate.md"
# What a distribution has: its module, and its entry points.
MODULE = """
import json
from headrace.contract import Observer

class Keeps(Observer):
    def __init__(self, file, report):
        self.file, self.report = file, report

    @classmethod
    def of(cls, observed):
        observed.storage.mkdir(exist_ok=True)
        return cls(observed.storage / f"{observed.project}-{observed.target}.jsonl", observed.report)

    def _keep(self, *event):
        with self.file.open("a") as lines:
            lines.write(json.dumps(event) + "\\n")

    def starting(self, query): self._keep("starting", query)
    def started(self, start): self._keep("started", start.query)
    def working(self, query, work): self._keep("working", query, work.tasks)
    def progressed(self, record): self._keep("progressed", record.query, record.batch)
    def stopping(self, *, now): self._keep("stopping", now)
    def changed(self, state): self._keep("changed", state.query, state.state)
    def ended(self, outcome): self._keep("ended", outcome.query, outcome.state)
    def note(self, finding): self._keep("note", finding.code)
    def verdict(self, query, verdict): self._keep("verdict", query, verdict["verdict"])
    def close(self): self._keep("close")

class Fails(Observer):
    def progressed(self, record):
        raise RuntimeError("no room")

class Refuses(Observer):
    @classmethod
    def of(cls, observed):
        raise OSError("no such server")

class Absent(Observer):
    @classmethod
    def of(cls, observed):
        return None
"""
ENTRIES = """[headrace.observers]
keeps = kept_events:Keeps
fails = kept_events:Fails
refuses = kept_events:Refuses
absent = kept_events:Absent
missing = no_such_module:Missing
stranger = decimal:Decimal
"""
BATCH = BatchRecord.parse(
    json.dumps({"name": "q", "runId": "r", "batchId": 4, "timestamp": "2026-01-01T12:00:00.000Z", "numInputRows": 3})
)


@pytest.fixture
def installed_observers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    (site / "kept_events-1.0.dist-info").mkdir(parents=True)
    (site / "kept_events.py").write_text(MODULE)
    (site / "kept_events-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: kept-events\nVersion: 1.0\n"
    )
    (site / "kept_events-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(site))
    registry._entries.cache_clear()
    yield
    sys.modules.pop("kept_events", None)
    registry._entries.cache_clear()


class Recorder(Observer):
    """What the user sees."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, finding: Finding) -> None:
        self.said.append(f"{finding.code} {finding.severity}: {finding.what}")


def kept_lines(root: Path) -> list[Any]:
    return [json.loads(line) for line in (root / ".headrace" / "p-dev.jsonl").read_text().splitlines()]


def project(root: Path) -> Path:
    made = write_project(root / "p", "")
    (made / "headrace.yml").write_text("name: p\n")
    return made


def test_each_event_reaches_what_is_installed_and_one_that_fails_hears_no_more(
    installed_observers: None, tmp_path: Path
) -> None:
    root, recorder = project(tmp_path), Recorder()
    with control_run(load(root), Orders(), StopRequest(), recorder, owns_process=False) as observers:
        observers.starting("q")
        observers.started(
            QueryStart(query="q", run_id="r", generation=1, trigger="", mode="", sink="", checkpoint=tmp_path)
        )
        observers.working("q", BatchWork(tasks_done=1, tasks=2, rows=3, seconds=1.0))
        observers.progressed(BATCH)
        observers.progressed(BATCH)
        observers.changed(QueryState(query="q", state="running"))
        observers.note(Finding(code="HR680", what="it falls behind", severity="warning"))
        observers.stopping(now=False)
        observers.ended(Outcome(query="q", state="stopped"))
    events = [event for event in kept_lines(root) if event != ["note", "HR875"]]
    assert events == [
        ["note", "HR011"],
        ["note", "HR432"],
        ["starting", "q"],
        ["started", "q"],
        ["working", "q", 2],
        ["progressed", "q", 4],
        ["progressed", "q", 4],
        ["changed", "q", "running"],
        ["note", "HR680"],
        ["stopping", False],
        ["ended", "q", "stopped"],
        ["close"],
    ]
    assert [line.partition(":")[0] for line in recorder.said] == [
        "HR011 warning",
        "HR875 warning",
        "HR432 warning",
        "HR875 warning",
        "HR680 warning",
    ]
    assert "the observer refuses did not get an event, and gets no more: OSError: no such server" in recorder.said[1]
    assert "the observer fails did not get an event, and gets no more: RuntimeError: no room" in recorder.said[3]


def test_observers_receive_a_verdict_too(installed_observers: None, tmp_path: Path) -> None:
    root, observers = project(tmp_path), Observers()
    observers.install(load(root))
    observers.verdict("q", {"verdict": "equal"})
    observers.close()
    assert kept_lines(root) == [["verdict", "q", "equal"], ["close"]]
    assert [finding.code for finding in observers.take_undelivered()] == ["HR011", "HR875", "HR432"]


def test_the_observer_of_the_page_keeps_slow_batches(tmp_path: Path) -> None:
    (text,) = (block.text for block in of_language("python") if block.page == PAGE and "Observer" in block.text)
    names: dict[str, Any] = {}
    exec(text, names)
    observer = names["SlowBatches"].of(Observed(project="p", target="dev", storage=tmp_path, report=print))
    observer.progressed(BATCH)
    observer.progressed(replace(BATCH, batch=5, duration_ms=12_000))
    assert (tmp_path / "slow-batches.txt").read_text() == "12:00:00 q 5 12000 ms\n"


def test_an_observer_that_was_given_raises_to_its_caller() -> None:
    class Broken(Observer):
        def stopping(self, *, now: bool) -> None:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        Observers(Broken()).stopping(now=True)


@pytest.mark.parametrize("error", [SystemExit(3), RuntimeError("no room")], ids=["exit", "error"])
def test_an_observer_that_ends_the_process_swallows_no_event(error: BaseException) -> None:
    class Ends(Observer):
        def verdict(self, query: str, verdict: Mapping[str, Any]) -> None:
            raise error

    events, observers = [], Observers()
    observers._installed = {"ends": Ends(), "receives": SimpleNamespace(verdict=lambda *event: events.append(event))}  # type: ignore[dict-item]
    observers.verdict("q", {"verdict": "equal"})
    assert events == [("q", {"verdict": "equal"})]
    (finding,) = observers.take_undelivered()
    assert (finding.code, type(error).__name__ in finding.what) == ("HR875", True)
