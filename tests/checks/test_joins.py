"""What is said of a join of two streams, from the facts of its sides alone."""

from __future__ import annotations

import pytest

from headrace.checks.state_bounds import check_joins, kept_ms, length_text
from headrace.connectors.console.sink import Console
from headrace.model import AvailableNow, PythonTransform, Query
from headrace.spark.plans.operations import JoinSide, StreamJoin

pytestmark = pytest.mark.plain

HOUR = 3_600_000
QUERY = Query(
    name="q",
    transform=PythonTransform(function=lambda: None, inputs=()),
    sink=Console(),
    sink_kind="console",
    trigger=AvailableNow(),
)


def side(name: str, delay: int | None, behind: int | None, *, direct: bool = True) -> JoinSide:
    return JoinSide(
        sources=(name,),
        delay=None if delay is None else delay * HOUR,
        behind=None if behind is None else behind * HOUR,
        direct=direct,
    )


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 seconds"),
        (1, "1 millisecond"),
        (1500, "1500 milliseconds"),
        (60_000, "1 minute"),
        (90 * 60_000, "90 minutes"),
        (HOUR, "1 hour"),
        (24 * HOUR, "1 day"),
        (51 * HOUR, "51 hours"),
    ],
)
def test_a_length_is_shown_in_the_largest_unit_that_fits(ms: int, text: str) -> None:
    assert length_text(ms) == text


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        pytest.param(side("i", 2, 1), side("c", 3, 0), (4, 2), id="the book's example"),
        pytest.param(side("i", 2, 0), side("c", None, 0), (2, 2), id="one watermark on a join key"),
        pytest.param(side("i", 2, None), side("c", 3, 0), (None, 2), id="bounded on one side"),
        pytest.param(side("i", 2, 0), side("c", 3, -5), (3, 0), id="never less than nothing"),
    ],
)
def test_a_row_is_kept_for_the_delay_of_the_other_side_and_the_range(
    left: JoinSide, right: JoinSide, kept: tuple[int | None, int | None]
) -> None:
    hours = [None if ms is None else ms // HOUR for ms in (kept_ms(left, right), kept_ms(right, left))]
    assert tuple(hours) == kept


def test_under_the_policy_max_rows_go_earlier_and_it_is_said() -> None:
    join = StreamJoin(kind="left outer", left=side("i", 2, 1), right=side("c", 3, 0))
    kept, null_rows = check_joins(QUERY, [join], policy="max")
    assert "'i' 4 hours (3 hours while both inputs keep pace) and of 'c' 2 hours to join it" in kept.what
    assert "furthest ahead, so rows of the other may miss their match" in kept.what
    assert "'i' is 3 hours or 'c' is 4 hours past its time" in null_rows.what


def test_behind_another_operator_no_figure_is_made_up() -> None:
    join = StreamJoin(kind="inner", left=side("i", 2, 1, direct=False), right=side("c", 3, 0))
    (note,) = check_joins(QUERY, [join])
    assert "cannot be determined, because an operator before the join holds rows back" in note.what
