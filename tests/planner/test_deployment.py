"""What a deploy does to each query follows from what is declared, and not from how it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.api import load
from headrace.errors import Finding
from headrace.planner.deployment import Declared, plan_steps
from headrace.planner.difference import Kind
from headrace.planner.forming import DeclaredCode
from headrace.planner.verdict import Judgement

pytestmark = pytest.mark.plain

PIPELINE = """
import headrace as hr

events = hr.source.rate(rows_per_second=5)
FACTOR = 2

def scaled(value):
    return value * FACTOR

@hr.view
def scaled_events(events):
    return events.select(scaled(events.value))

@hr.query(sink=hr.sink.console(), trigger=hr.every("5 seconds"))
def shown(scaled_events):
    return scaled_events
"""
EDITS = {
    "a comment": ("FACTOR = 2", "# Twice.\n\n\nFACTOR = 2", "keep", ()),
    "another name of a local": ("def scaled(value):\n    return value", "def scaled(of):\n    return of", "keep", ()),
    "a constant that a view uses": ("FACTOR = 2", "FACTOR = 3", "restart", ("its code",)),
    "the trigger": ("5 seconds", "6 seconds", "restart", ("trigger of 'shown'",)),
    "a rate": ("rows_per_second=5", "rows_per_second=6", "restart", ("connector of 'events'",)),
    "what is accepted": ("trigger=hr", 'on_change="forward", trigger=hr', "keep", ()),
}


def declare(root: Path, text: str) -> Declared:
    root.mkdir(exist_ok=True)
    (root / "pipeline.py").write_text(text)
    project = load(root)
    query = project.queries["shown"]
    return Declared(project, query, DeclaredCode.of(project, query, salt="s"))


@pytest.mark.parametrize(("old", "new", "action", "changes"), EDITS.values(), ids=EDITS)
def test_a_query_runs_on_as_long_as_what_runs_is_what_is_declared(
    tmp_path: Path, old: str, new: str, action: str, changes: tuple[str, ...]
) -> None:
    assert old in PIPELINE
    before = declare(tmp_path / "p", PIPELINE)
    now = declare(tmp_path / "p", PIPELINE.replace(old, new))
    same = Judgement(query="shown", verdict="same", from_batch=0)
    (step,) = plan_steps({"shown": before}, now.project, [same])
    assert (step.action, step.changes) == (action, changes)


FORMS = {
    "the code that runs has made no batch": ("former", "running", "forward", (), "keep"),
    "the code of the newest batch is declared again": ("running", "former", "same", (), "restart"),
    "a start would be refused": ("running", "running", "forbidden", (Finding(code="HR535", what="no"),), "restart"),
}


@pytest.mark.parametrize(("ran", "written", "verdict", "notes", "action"), FORMS.values(), ids=FORMS)
def test_what_runs_is_what_was_deployed_and_not_what_the_newest_batch_recorded(
    tmp_path: Path, ran: str, written: str, verdict: Kind, notes: tuple[Finding, ...], action: str
) -> None:
    before = declare(tmp_path / "p", PIPELINE)
    assert before.code is not None
    before = before._replace(code=replace(before.code, form="running"))
    now = declare(tmp_path / "p", PIPELINE.replace("FACTOR = 2", "FACTOR = 3"))
    judgement = Judgement(query="shown", verdict=verdict, from_batch=3, ran=ran, written=written, notes=notes)
    (step,) = plan_steps({"shown": before}, now.project, [judgement])
    assert step.action == action


def test_new_and_removed_queries_start_and_stop(tmp_path: Path) -> None:
    before = declare(tmp_path / "p", PIPELINE)
    steps = plan_steps({"former": before}, before.project, [Judgement(query="shown", verdict="same", from_batch=0)])
    assert [(step.query, step.action) for step in steps] == [("shown", "start"), ("former", "stop")]
