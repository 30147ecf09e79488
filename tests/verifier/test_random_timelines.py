"""Verdicts over random timelines, and their late rows next to a simulation of Spark's rule in plain Python."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.verifier.kit import scene
from tests.verifier.test_corruptions import counted_join, inner, outer
from tests.verifier.test_late import windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BEGIN = datetime(2024, 1, 1)
Timeline = list[list[int]]
# `make soak` draws forty more in addition to those that are given.
EXAMPLES = int(os.environ.get("HEADRACE_TIMELINES", "0"))
PHASES = tuple(Phase) if EXAMPLES else (Phase.explicit,)
EMPTY_OR_FULL = st.lists(st.lists(st.integers(0, 120), max_size=4), min_size=4, max_size=4)


def drawn(seed: int, count: int) -> list[Timeline]:
    """Timelines of four batches, of which each has up to four minutes of two hours."""
    random = Random(seed)
    return [[[random.randint(0, 120) for _ in range(random.randrange(5))] for _ in range(4)] for _ in range(count)]


def count_dropped(timelines: Sequence[Timeline], size: int, slide: int, delay: int) -> int:
    """How many rows come to no window any more: its end is not after the watermark of the batch before theirs."""
    minutes = [[minute for timeline in timelines for minute in timeline[batch]] for batch in range(len(timelines[0]))]
    late = watermark = newest = None
    count = 0
    for batch in minutes:
        for minute in batch:
            first = (minute - size) // slide + 1
            ends = [start * slide + size for start in range(first, minute // slide + 1)]
            count += sum(1 for end in ends if late is not None and end <= late)
        newest = max([*batch, *([] if newest is None else [newest])], default=None)
        late, watermark = watermark, None if newest is None else newest - delay
    return count


# In `make test`, test_books.py has random rows too.
@pytest.mark.long
@given(
    timelines=st.lists(EMPTY_OR_FULL, min_size=4, max_size=4),
    window=st.sampled_from([(10, 10), (20, 10), (15, 5), (60, 60), (7, 3)]),
    delay=st.integers(0, 20),
)
@example(timelines=drawn(1, 4), window=(20, 10), delay=5)
@example(timelines=drawn(2, 4), window=(7, 3), delay=0)
@settings(
    max_examples=EXAMPLES or 1,
    phases=PHASES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_late_rows_are_counted_as_a_simulation_counts_them(
    timelines: list[Timeline], window: tuple[int, int], delay: int, spark: SparkSession
) -> None:
    size, slide = window
    batches = [
        [
            (str(BEGIN + timedelta(minutes=minute)), f"case {case}", 1)
            for case, timeline in enumerate(timelines)
            for minute in timeline[batch]
        ]
        for batch in range(4)
    ]
    with tempfile.TemporaryDirectory() as home:
        function = windows(f"{size} minutes", f"{slide} minutes")
        made = scene(
            spark, Path(home), batches, function, mode="update", key=("who", "start"), delay=f"{delay} minutes"
        )
        verdict = made.verify()
    expected = count_dropped(timelines, size, slide, delay)
    assert (verdict.state, verdict.rows_late) == ("late" if expected else "equal", expected)


@pytest.mark.long
@given(
    left=EMPTY_OR_FULL,
    right=EMPTY_OR_FULL,
    function=st.sampled_from([inner, outer, counted_join]),
    delay=st.integers(0, 20),
)
@example(left=drawn(3, 1)[0], right=drawn(4, 1)[0], function=outer, delay=5)
@example(left=drawn(5, 1)[0], right=drawn(6, 1)[0], function=counted_join, delay=0)
@settings(
    max_examples=EXAMPLES or 1,
    phases=PHASES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_no_right_result_of_a_join_is_called_wrong_or_left_open(
    left: Timeline, right: Timeline, function: Callable[..., DataFrame], delay: int, spark: SparkSession
) -> None:
    timelines = [
        [[(str(BEGIN + timedelta(minutes=minute)), "a", 1.0) for minute in batch] for batch in timeline]
        for timeline in (left, right)
    ]
    with tempfile.TemporaryDirectory() as home:
        batches, others = timelines
        made = scene(spark, Path(home), batches, function, mode="append", delay=f"{delay} minutes", others=others)
        assert made.verify().exit_code == 0
