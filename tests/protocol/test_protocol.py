"""The commit protocol in thousands of worlds, each by a seed; and the same with defects that are put back."""

from __future__ import annotations

import pytest

from .__main__ import first_fault
from .defects import DEFECTS, Defect
from .scheduler import Process, Scheduler, Stuck
from .world import World

pytestmark = pytest.mark.plain
SEEDS, AT_ONCE = 1_000, 250


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_the_result_is_a_prefix_of_the_input_whatever_happens(first: int) -> None:
    assert first_fault(first, first + AT_ONCE) is None


@pytest.mark.parametrize("seed", [3, 78, 249])
def test_a_seed_gives_the_same_steps_again(seed: int) -> None:
    once, again = World(seed).run(), World(seed).run()
    assert len(once.scheduler.trace) > 100
    assert once.scheduler.trace == again.scheduler.trace


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_that_is_put_back_is_found(defect: Defect) -> None:
    known = first_fault(defect.seed, defect.seed + 1, defect)
    assert known or first_fault(0, 2 * SEEDS, defect), "no world shows it"


def test_threads_that_wait_for_each_other_are_told() -> None:
    scheduler = Scheduler(0)
    scheduler.spawn(Process("one", 1), "main", lambda: scheduler.wait(lambda: False, None))
    with pytest.raises(Stuck, match=r"all wait for each other: one\.main"):
        scheduler.run()


def test_a_process_that_has_ended_does_nothing_more() -> None:
    scheduler, done = Scheduler(0), list[str]()

    def work() -> None:
        try:
            for _ in range(5):
                scheduler.step("a step")
                done.append("done")
        finally:
            scheduler.step("what a process does at its end")
            done.append("cleaned up")

    scheduler.spawn(Process("one", 1, crash_in=3), "main", work)
    scheduler.run()
    assert done == ["done", "done"]
