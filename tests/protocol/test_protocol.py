"""The commit protocol in thousands of worlds, each by a seed; and the same with defects that are put back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, cast

import pytest

from headrace.changes import pending
from headrace.changes.rebuild import Rebuild
from headrace.changes.reset import Reset
from headrace.changes.rewind import Rewind
from headrace.generations.register import register_project
from headrace.model import Project
from headrace.storage import store
from tests.rounds import as_long, only_usual, rounds

from .__main__ import first_fault, main, world_of
from .bucket import Bucket, FileSystem, Object, copy_store
from .defects import DEFECTS, Defect
from .scheduler import Process, Scheduler, Stuck
from .world import ABOUT, SCENES, STOPS, Chances, Work, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plain
SEEDS, AT_ONCE = 2_000, 125


@pytest.mark.parametrize("first", rounds(range(0, SEEDS, AT_ONCE)))
def test_the_result_is_a_prefix_of_the_input_whatever_happens(first: int) -> None:
    assert first_fault(first, first + AT_ONCE) is None


@pytest.mark.parametrize(("first", "last"), rounds([(0, 25), (25, 250)]))
@pytest.mark.parametrize("about", ABOUT)
def test_the_same_holds_where_each_world_is_about_one_thing(about: str, first: int, last: int) -> None:
    assert first_fault(first, last, about=about) is None


@pytest.mark.parametrize(("first", "last"), rounds([(0, 1), (1, 40)]))
@pytest.mark.parametrize("scene", SCENES)
def test_the_same_holds_in_each_scene(scene: str, first: int, last: int) -> None:
    assert first_fault(first, last, about="scenes", scene=scene) is None


def test_a_rebuild_that_another_command_discards_meanwhile_is_no_fault_of_the_program() -> None:
    """It was looked at before its lock was taken, and is looked at again after that."""
    scene = "start, rebuild, rebuild*rebuild.lock.leases, discard, wake"
    assert first_fault(1, 8, about="scenes", scene=scene) is None


@pytest.mark.parametrize("seed", [3, 78, 249])
def test_a_seed_gives_the_same_steps_again_whatever_ran_before(seed: int) -> None:
    once = World(seed).run()
    first_fault(seed + 1, seed + 20)
    again = World(seed).run()
    assert len(once.scheduler.trace) > 100
    assert once.scheduler.trace == again.scheduler.trace


CHANGES: dict[str, Callable[[Project], pending.AnyChange]] = {
    "reset": lambda project: Reset(project, "q", result="drop"),
    "rewind": lambda project: Rewind(project, "q", to_batch=0),
}


# A rewind in a bucket has many steps, of which some are tried.
@pytest.mark.parametrize(
    ("change", "kind", "stride"),
    [
        ("reset", FileSystem, 1),
        ("reset", Bucket, 2),
        ("rewind", Bucket, 23),
        *map(as_long, [("reset", Bucket, 1), ("rewind", FileSystem, 5), ("rewind", Bucket, 5)]),
    ],
)
def test_a_change_that_is_cut_off_at_any_step_can_be_taken_back(
    change: str, kind: type[Bucket] | type[FileSystem], stride: int
) -> None:
    for step in range(1, 2_000, stride):
        world = World(1, Chances(), kind=kind, is_rewindable=True)
        world.input.count = 7
        seen: list[int] = []

        def make(process: Process, bucket: str, world: World = world, step: int = step) -> None:
            process.crash_in = step
            CHANGES[change](world.declare(bucket)[0]).apply()

        def undo(process: Process, bucket: str, world: World = world) -> None:
            for begun in pending.changes(world.declare(bucket)[0], "q"):
                begun.undo()

        def story(world: World = world, seen: list[int] = seen, make: Work = make, undo: Work = undo) -> None:
            for work in (world.drive, make, undo):
                world.wait_for(world.begin("main", work, undisturbed=True))
                world.scheduler.sleep(61.0)
                seen.append(len(world.database.rows("SELECT * FROM result")))
            world.end()

        world.run(story)
        assert world.refusals == [], step
        assert seen[0] == seen[2] > 0, step
        if not any(line.endswith("crashes") for line in world.scheduler.trace):
            assert step > 5
            return
    pytest.fail("it has more steps than were tried")


def test_a_start_after_a_rewind_that_was_cut_off_at_any_step_is_refused_and_changes_nothing() -> None:
    refused = 0
    for step in range(1, 200, 4):
        world = World(1, Chances(), kind=Bucket, is_rewindable=True)
        world.input.count = 7

        def rewind(process: Process, bucket: str, world: World = world, step: int = step) -> None:
            process.crash_in = step
            CHANGES["rewind"](world.declare(bucket)[0]).apply()

        def story(world: World = world, rewind: Work = rewind) -> None:
            for work in (world.drive, rewind, world.drive):
                world.wait_for(world.begin("main", work, undisturbed=True))
                world.scheduler.sleep(61.0)
            world.end()

        world.run(story)
        refused += world.refusals == ["HR581"]
        if not any(line.endswith("crashes") for line in world.scheduler.trace):
            break
    assert refused > 8


@pytest.mark.parametrize("step", range(12, 45, 8))
def test_a_rebuild_does_not_begin_over_a_rewind_that_was_cut_off(step: int) -> None:
    world = World(1, Chances(), kind=FileSystem, is_rewindable=True)
    world.input.count = 7

    def rewind(process: Process, bucket: str) -> None:
        process.crash_in = step
        CHANGES["rewind"](world.declare(bucket)[0]).apply()

    def rebuild(process: Process, bucket: str) -> None:
        session = cast("SparkSession", world._session())
        Rebuild(world.declare(bucket)[0], "q", spark=session).apply(approve=False)

    def story() -> None:
        for work in (world.drive, rewind, rebuild):
            world.wait_for(world.begin("main", work, undisturbed=True))
            world.scheduler.sleep(61.0)
        world.end()

    world.run(story)
    assert world.refusals == ["HR581"]
    assert any(line.endswith("d2.main: crashes") for line in world.scheduler.trace)


@pytest.mark.parametrize("stride", [4, as_long(1)])
def test_a_start_that_dies_while_it_restores_a_batch_leaves_the_live_directory_as_it_was(stride: int) -> None:
    restored = 0
    for step in range(1, 600, stride):
        world = World(1, Chances(), kind=Bucket, is_rewindable=True)
        world.input.count = 5

        def drive(process: Process, bucket: str, world: World = world, step: int = step) -> None:
            process.crash_in = step
            world.drive(process, bucket)

        def story(world: World = world, drive: Work = drive) -> None:
            world.wait_for(world.begin("main", world.drive, undisturbed=True))
            world.scheduler.sleep(61.0)
            world.lose_newest_batch("main")
            before = world._inside_data("main")
            world.wait_for(world.begin("main", drive, undisturbed=True))
            if not any("/log/000003.json" in key for key in world.buckets["main"].objects):
                assert {key: world._inside_data("main").get(key) for key in before} == before
            world.scheduler.sleep(61.0)
            world.end()

        world.run(story)
        assert world.refusals == [], step
        restored += any("/g1.2/" in key for key in world.buckets["main"].objects)
        if not any(line.endswith("crashes") for line in world.scheduler.trace):
            break
    assert restored > 5


STORES = (Bucket, FileSystem)
STOPPED = [(stop, STORES[at % 2], 29) for at, stop in enumerate(STOPS)]
STOPPED_EVERYWHERE = [(stop, kind, 3) for stop in STOPS for kind in STORES]


@pytest.mark.parametrize(("stop", "kind", "stride"), [*STOPPED, *map(as_long, STOPPED_EVERYWHERE)])
def test_one_that_was_stopped_at_any_step_leaves_nothing_in_the_way(
    stop: tuple[str, str], kind: type[Bucket] | type[FileSystem], stride: int
) -> None:
    """For longer than its lease; what another one has done meanwhile can be ended or taken back, and the query runs."""
    stop_at_each(stop, kind, range(1, 2_000, stride))


def stop_at_each(stop: tuple[str, str], kind: type[Bucket] | type[FileSystem], steps: range) -> None:
    """Let somebody be stopped at each of these steps, up to the last that there is."""
    for step in steps:
        world = World(1, Chances(), kind=kind, is_rewindable=True)
        world.run(partial(world.story_of_a_stop, *stop, step))
        if not any(" is stopped for " in line for line in world.scheduler.trace):
            assert step > 5
            return
    pytest.fail("it has more steps than were tried")


# One that few worlds show is looked for by `python -m tests.protocol --defects 2000`.
SHOWN_SOON = [defect for defect in DEFECTS if defect.seed is not None and defect.seed < 150]


# Neighbours in the table are defects of the same part: every third one is put back, the others in `make test-long`.
@pytest.mark.parametrize("defect", only_usual(SHOWN_SOON, *SHOWN_SOON[::3]), ids=lambda defect: defect.what)
def test_a_defect_that_is_put_back_is_found(defect: Defect) -> None:
    assert world_of(defect), "no world shows it"


def test_the_world_that_shows_a_defect_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--defect", "the epoch is not compared"]) == 1
    *steps, broken = capsys.readouterr().out.splitlines()
    assert any(line.endswith("sql COMMIT") for line in steps)
    assert broken.startswith("Broken: seed ")
    with pytest.raises(SystemExit, match="4 defects have these words"):
        main(["--defect", "the epoch"])
    assert main(["--show", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == World(3).run().scheduler.trace


def test_a_query_that_the_register_has_lost_gets_no_id_where_a_crash_has_left_a_directory() -> None:
    def leave(world: World) -> None:
        facts = json.dumps({"id": "0" * 32, "query": "q", "application": "a", "project": "model"})
        key = "headrace/queries/q-00000000/query.json"
        world.buckets["main"].objects[key] = Object(key, facts.encode(), 0.0, {})

    start_without_its_entry(World(1, Chances(), kind=FileSystem), leave)


def test_a_query_that_the_register_has_lost_gets_no_id_by_a_new_name() -> None:
    start_without_its_entry(World(1, Chances(), kind=FileSystem), lambda world: world.names["main"].append("qr"))


def test_a_query_that_the_register_has_lost_gets_no_id() -> None:
    start_without_its_entry(World(1, Chances(), kind=FileSystem), lambda world: None)


def start_without_its_entry(world: World, change: Callable[[World], None]) -> None:
    """A start after which the register does not know a query that has run is refused, and has changed nothing."""

    def story() -> None:
        register_project(world.declare("main")[0])
        world.wait_for(world.begin("main", world.drive, undisturbed=True))
        change(world)
        world.lose_what_says_which_query("main", "the records that know the query")

    world.run(story)


def test_threads_that_wait_for_each_other_are_reported() -> None:
    scheduler = Scheduler(0)
    scheduler.spawn(Process("one", 1), "main", lambda: scheduler.wait(lambda: False, None))
    with pytest.raises(Stuck, match=r"all wait for each other: one\.main"):
        scheduler.run()


def test_a_process_that_has_ended_does_nothing_more() -> None:
    scheduler, done = Scheduler(0), list[str]()

    def work() -> None:
        try:
            for _ in range(5):
                scheduler.step("a step", changes=True)
                done.append("done")
        finally:
            scheduler.step("what a process does at its end")
            done.append("cleaned up")

    scheduler.spawn(Process("one", 1, crash_in=3), "main", work)
    scheduler.run()
    assert done == ["done", "done"]


def reset_of_a_topic(world: World) -> Work:
    def make(process: Process, bucket: str) -> None:
        Reset(world.declare(bucket)[0], "q", result="keep").apply()

    return make


def test_a_copy_of_the_storage_from_before_a_reset_writes_nothing_more_into_a_topic() -> None:
    world = World(1, Chances(), kind=Bucket, is_topic=True)
    world.input.count = 3
    written: list[int] = []

    def story() -> None:
        world.wait_for(world.begin("main", world.drive, undisturbed=True))
        world.scheduler.sleep(61.0)
        world.buckets["copy1"] = copy_store(world.buckets["main"], "copy1")
        world.names["copy1"] = list(world.names["main"])
        store.keep(world.scheme, "copy1", lambda: world.buckets["copy1"])
        world.wait_for(world.begin("main", reset_of_a_topic(world), undisturbed=True))
        written.append(len(world.broker.rows()))
        world.input.count = 5
        world.wait_for(world.begin("copy1", world.drive, undisturbed=True))

    world.run(story)
    assert (world.refusals, len(world.broker.rows())) == (["HR410"], written[0])


@pytest.mark.parametrize("step", range(60, 220, 20))
def test_a_driver_that_was_stopped_while_its_query_was_reset_writes_nothing_more_into_a_topic(step: int) -> None:
    world = World(1, Chances(slow=True), kind=Bucket, is_topic=True)
    world.input.count = 3
    written: list[int] = []

    def story() -> None:
        driver = world.begin("main", world.drive, calm=True)
        driver.pause_in, driver.pause_seconds = step, 200.0
        world.scheduler.wait(lambda: world._is_out(driver), 300.0)
        world.scheduler.sleep(61.0)
        world.wait_for(world.begin("main", reset_of_a_topic(world), calm=True))
        written.append(len(world.broker.rows()))
        world.input.count = 8
        world.wait_for(driver)

    world.run(story)
    # One that had planned no batch is not reset.
    assert "HR582" in world.refusals or len(world.broker.rows()) == written[0]


def test_a_reset_of_a_topic_that_the_log_lacks_is_entered_again() -> None:
    world = World(1, Chances(), kind=Bucket, is_topic=True)
    world.input.count = 3

    def resume(process: Process, bucket: str) -> None:
        (lost, *_) = pending.changes(world.declare(bucket)[0], "q")
        lost.resume()

    def story() -> None:
        for work in (world.drive, reset_of_a_topic(world), world.drive):
            world.wait_for(world.begin("main", work, undisturbed=True))
            world.scheduler.sleep(61.0)
        world.lose_log()
        for work in (world.drive, resume):
            world.wait_for(world.begin("main", work, undisturbed=True))
            world.scheduler.sleep(61.0)
        world.end()

    world.run(story)
    assert world.refusals == ["HR410"]
    assert [key for key in world.buckets["main"].objects if "/g2.2/checkpoint/commits/" in key]


STEPS_OF_COPIES = [
    (range(3, 4), range(5, 8), range(4, 7)),
    *map(as_long, [(range(3, 12, 2), range(3, 15, 2), range(2, 7))]),
]


@pytest.mark.parametrize(("first", "second", "crashes"), STEPS_OF_COPIES)
def test_of_two_copies_that_begin_at_once_and_die_anywhere_one_brings_all_rows_in(
    first: range, second: range, crashes: range
) -> None:
    """The storage was copied before the query had run; which of the two writes is left to chance, and never both."""
    for *pauses, first_crash, second_crash in product(first, second, crashes, crashes):
        world = World(1, Chances(), kind=Bucket, is_topic=True)
        world.input.count = 3

        def story(
            world: World = world,
            pauses: Sequence[int] = pauses,
            crashes: Sequence[int] = (first_crash, second_crash),
        ) -> None:
            with world.scheduler.aside():
                register_project(world.declare("main")[0])
            world._copy("main")
            drivers = [world.begin(bucket, world.drive, calm=True) for bucket in ("main", "copy1")]
            for driver, pause, crash in zip(drivers, pauses, crashes, strict=True):
                driver.at, driver.pause_in, driver.pause_seconds, driver.crash_in = "kafka", pause, 20.0, crash
            for driver in drivers:
                world.wait_for(driver)
            world.scheduler.sleep(61.0)
            for bucket in ("main", "copy1"):
                world.wait_for(world.begin(bucket, world.drive, undisturbed=True))
            world.end()

        world.run(story)
