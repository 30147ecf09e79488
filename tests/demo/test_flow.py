"""The demo's own parts: what it counts, whom it starts, and whose directory it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from headrace.contract import BatchRecord, Lag
from headrace.demo import flow
from headrace.demo.flow import Child, Pace, Tally
from headrace.errors import HeadraceError

pytestmark = pytest.mark.plain

RECORD = BatchRecord(
    query="action_counts",
    run_id="r",
    batch=4,
    at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    rows=1000,
    input_rate=1000.0,
    processed_rate=4000.0,
    duration_ms=250,
    backlog=Lag(count=2, unit="files"),
)


class Sentences:
    """An audience that remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def show(self, tally: Tally) -> None: ...

    def show_command(self, command: object) -> None: ...

    def result(self, columns: object, rows: object) -> None: ...


def test_the_tally_adds_up_what_landed_and_what_was_taken() -> None:
    tally = Tally()
    for line in (
        {"event": "landed", "rows": 3000, "usual": 2990, "late": 10},
        {"event": "started", "query": "action_counts"},
        {"event": "batch", **RECORD.as_dict()},
        {"event": "batch", **replace(RECORD, batch=5, rows=500).as_dict()},
    ):
        tally.take(json.loads(json.dumps(line)))
    assert (tally.landed, tally.rows, tally.batches, tally.state) == (3000, 1500, 2, "running")
    assert tally.last == replace(RECORD, batch=5, rows=500)


def test_a_child_is_heard_and_can_be_killed(tmp_path: Path) -> None:
    child = Child(
        ["headrace.demo.generator", str(tmp_path / "landing"), "--seconds", "60"], log=tmp_path / "generator.log"
    )
    first = child.lines.get(timeout=30)
    assert first["event"] == "landed"
    assert child.exit_code is None
    child.kill()
    assert child.exit_code == -9
    assert child.stop(within=1) == -9


def test_a_child_that_is_asked_to_stop_stops(tmp_path: Path) -> None:
    child = Child(["headrace.demo.generator", str(tmp_path / "landing"), "--seconds", "60"], log=tmp_path / "log")
    child.lines.get(timeout=30)
    assert child.stop(within=10) == -15


def test_a_new_directory_gets_the_project_and_its_settings(tmp_path: Path) -> None:
    pace = Pace(seconds=12)
    assert flow._prepare(tmp_path / "demo", Sentences(), pace) == pace
    assert (tmp_path / "demo/pipeline.py").is_file()
    assert json.loads((tmp_path / "demo/demo.json").read_text())["seconds"] == 12


def test_the_project_of_an_earlier_demo_goes_on_with_nothing_replaced(tmp_path: Path) -> None:
    flow._prepare(tmp_path / "demo", Sentences(), Pace(seconds=12))
    (tmp_path / "demo/pipeline.py").write_text("# changed\n")
    audience = Sentences()
    assert flow._prepare(tmp_path / "demo", audience, None) == Pace(seconds=12)
    assert (tmp_path / "demo/pipeline.py").read_text() == "# changed\n"
    assert "nothing in it is deleted" in audience.said[0]


def test_a_directory_that_is_not_the_demos_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(HeadraceError, match="HR093"):
        flow._prepare(tmp_path, Sentences(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["{", '{"speed": 3}', "[]"], ids=["no json", "unknown setting", "no object"])
def test_settings_that_cannot_be_read_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "demo.json").write_text(text)
    with pytest.raises(HeadraceError, match="HR115"):
        flow._prepare(tmp_path, Sentences(), None)


class Watcher(Sentences):
    """An audience that leaves as soon as the first event has landed."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def show(self, tally: Tally) -> None:
        self.steps += [tally.step] if tally.step not in self.steps else []
        if tally.landed:
            raise KeyboardInterrupt


def show(root: Path, seconds: float, way: str) -> tuple[flow._Show, Watcher]:
    """The demo in `root` with a driver that only talks, whose sign of life may be four seconds old."""
    watcher, pace = Watcher(), Pace(patience=4)
    flow._prepare(root, watcher, pace)
    made = flow._Show(root, watcher, pace, None)
    made.command = ["tests.demo.driver", str(root), str(seconds), way]
    return made, watcher


def test_a_driver_whose_heart_beats_is_waited_for_and_events_land_once_its_query_has_started(tmp_path: Path) -> None:
    made, watcher = show(tmp_path / "demo", 8, "sleeps and beats")
    landed: list[object] = []
    take = made.tally.take

    def taking(line: flow.Line) -> None:
        landed.extend([line["landed"]] if line["event"] == "note" else [])
        take(line)

    made.tally.take = taking  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        made.play()
    assert landed == [0]
    assert watcher.steps == ["starting Spark", "making its plan", ""]
    assert "events a second land" in watcher.said[-1]


@pytest.mark.parametrize(("way", "starting"), [("hangs", 300.0), ("sleeps and beats", 1.0)], ids=["query", "Spark"])
def test_a_driver_that_lives_and_hangs_is_found(
    way: str, starting: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "STARTING_SECONDS", starting)
    made, _ = show(tmp_path / "demo", 60, way)
    with pytest.raises(HeadraceError, match=r"made no progress for 4 seconds") as raised:
        made.play()
    assert raised.value.findings[0].code == "HR095"
