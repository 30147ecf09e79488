"""The state of a query in a run goes over by the table alone, and is good only once it has worked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import get_args

import pytest

from headrace.contract.observer import TRANSITIONS, NoSuchChange, QueryState, State
from headrace.errors import Finding, Where

pytestmark = pytest.mark.plain
AWAY = Finding(code="HR405", what="the database does not answer", fix="start it", where=Where(file="p.py", line=3))
AT = datetime(2026, 1, 1, 15, 48, 10, tzinfo=timezone.utc)
BEGUN = QueryState(query="q")


def went(*states: State) -> QueryState:
    now = BEGUN
    for state in states:
        now = now.to(state, **RESTART) if state == "restarting" else now.to(state)
    return now


RESTART = {"restarts": 3, "attempt": 3, "limit": 8, "next_attempt": AT, "cause": AWAY}
FAILS = ("starting", "running", "restarting")


def test_each_state_is_in_the_table_and_can_be_left_and_reached() -> None:
    states = set(get_args(State))
    assert set(TRANSITIONS) == states
    assert states - {state for following in TRANSITIONS.values() for state in following} == {"killed"}
    assert all(TRANSITIONS.values())


@pytest.mark.parametrize("state", TRANSITIONS)
def test_no_other_change_than_those_of_the_table_is_made(state: State) -> None:
    now = QueryState(query="q", state=state)
    for wanted in get_args(State):
        if wanted == state or wanted in TRANSITIONS[state]:
            assert now.to(wanted).state == wanted
        else:
            with pytest.raises(NoSuchChange, match=f"cannot go from {state} to {wanted}"):
                now.to(wanted)


@pytest.mark.parametrize(
    ("now", "up", "down", "trouble", "level"),
    [
        (BEGUN, 0, 0, 0, "idle"),
        (went("starting"), 0, 1, 0, "idle"),
        (went("starting", "running"), 1, 0, 0, "idle"),
        (went("starting", "running").worked(), 1, 0, 0, "good"),
        (went("starting", "running").worked().to("stopping"), 1, 0, 0, "good"),
        (went(*FAILS), 0, 1, 1, "bad"),
        (went(*FAILS, "starting"), 0, 1, 1, "bad"),
        (went(*FAILS, "starting", "running"), 0, 1, 1, "bad"),
        (went(*FAILS, "starting", "running").worked(), 1, 0, 0, "good"),
        (went(*FAILS, "paused"), 0, 0, 0, "idle"),
        (went(*FAILS, "stopped"), 0, 0, 0, "idle"),
        (went("starting", "failed"), 0, 1, 1, "bad"),
        (went("starting", "running", "finished"), 0, 0, 0, "good"),
    ],
    ids=lambda value: f"{value.state}{' healthy' * value.healthy}" if isinstance(value, QueryState) else None,
)
def test_a_query_that_failed_is_in_trouble_until_it_has_worked(
    now: QueryState, up: bool, down: bool, trouble: bool, level: str
) -> None:
    assert (now.is_up, now.is_down, now.in_trouble, now.level) == (up, down, trouble, level)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (went(*FAILS), "restart 3 of 8, next attempt 15:48:10 UTC, because HR405: the database does not answer"),
        (
            went(*FAILS).to("starting", limit=None),
            "restart 3, and no batch committed yet since HR405: the database does",
        ),
        (went(*FAILS, "starting", "running"), "restart 3 of 8, and no batch committed yet since HR405: the"),
        (went(*FAILS, "starting", "running").worked(), ""),
        (went("starting").to("failed", cause=AWAY), "HR405: the database does not answer"),
        (replace(went(*FAILS), state="killed"), "HR405: the database does not answer"),
        (went("starting", "running"), ""),
    ],
    ids=["waits", "starts without a limit", "runs", "has worked", "failed", "killed", "runs for the first time"],
)
def test_trouble_says_which_restart_comes_when_and_why(now: QueryState, words: str) -> None:
    assert now.trouble.startswith(words)
    assert bool(now.trouble) is bool(words)
    finding = now.finding()
    assert (finding.code if finding else "") == ("" if not words else "HR405" if now.has_ended else "HR861")


def test_a_state_is_kept_as_plain_data() -> None:
    for now in (BEGUN, went(*FAILS), went("starting", "running").worked()):
        assert QueryState.from_dict({**now.as_dict(), "added later": 1}) == now
