"""What a checkpoint has lost is written again, byte for byte, from what a ledger keeps; nothing else is touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint, PlannedBatch, planned_batch
from headrace.checkpoint.directory import numbered_files
from headrace.checkpoint.restore import restorable, restore

from .test_damage import unpack
from .test_identity import Written, file_line

pytestmark = pytest.mark.plain
BATCHES = 6


@pytest.fixture
def six_batches(tmp_path: Path) -> Written:
    """Six batches without state, all committed but the last; every third entry of the log is compacted."""
    made = Written(tmp_path / "checkpoint")
    made.put("metadata", '{"id":"c"}')
    for batch in range(BATCHES):
        if batch % 3 == 2:
            lines = [file_line(f"/in/{number}", number) for number in range(batch + 1)]
            made.put(f"sources/events/{batch}.compact", "\n".join(["v1", *lines]))
        else:
            made.log(batch, [f"/in/{batch}"])
        made.plan(batch, events=f'{{"logOffset":{batch}}}')
        if batch < BATCHES - 1:
            made.put(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
    return made


def tree(root: Path, *logs: str) -> dict[str, str]:
    return {f"{log}/{file.name}": file.read_text() for log in logs for file in (root / log).iterdir()}


def take(root: Path, log: str, first: int) -> None:
    for number, file in numbered_files(root / log).items():
        if number >= first:
            file.unlink()


def empty(root: Path, log: str, first: int) -> None:
    for number, file in numbered_files(root / log).items():
        if number >= first:
            file.write_text("")


def orphan(six_batches: Written) -> None:
    """Another history: entries without a plan, one of which was compacted meanwhile."""
    root = six_batches.checkpoint.root
    take(root, "offsets", 4)
    take(root, "commits", 4)
    take(root, "sources/events", 4)
    six_batches.log(4, ["/in/other"])
    lines = [*(file_line(f"/in/{number}", number) for number in range(4)), file_line("/in/5", 5)]
    six_batches.put("sources/events/5.compact", "\n".join(["v1", *lines]))
    six_batches.log(6, ["/in/4"])


LOSSES: dict[str, Callable[[Written], object]] = {
    "the newest offsets": lambda made: take(made.checkpoint.root, "offsets", 5),
    "three offsets and entries": lambda made: [
        take(made.checkpoint.root, log, 3) for log in ("offsets", "sources/events")
    ],
    "the same, emptied": lambda made: [empty(made.checkpoint.root, log, 3) for log in ("offsets", "sources/events")],
    "the newest entry": lambda made: take(made.checkpoint.root, "sources/events", 5),
    "everything": lambda made: [shutil.rmtree(made.checkpoint.root / log) for log in ("offsets", "sources", "commits")],
    "all since, with other entries in their place": orphan,
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_checkpoint_without_state_is_whole_again(six_batches: Written, lose: Callable[[Written], object]) -> None:
    checkpoint = six_batches.checkpoint
    before = tree(checkpoint.root, "offsets", "sources/events")
    kept = {batch: PlannedBatch.loads(six_batches.batch(batch).dumps()) for batch in range(BATCHES)}
    lose(six_batches)
    span = restorable(checkpoint, BATCHES - 1, kept.get)
    assert span is not None
    assert (span.first, span.last) == (BATCHES - 1, BATCHES - 1)
    restore(checkpoint, span)
    assert tree(checkpoint.root, "offsets", "sources/events") == before
    assert max(numbered_files(checkpoint.root / "commits"), default=-1) < BATCHES - 1
    assert restorable(checkpoint, BATCHES - 1, kept.get) is None


WHOLE: dict[str, tuple[Callable[[Written], object], int]] = {
    "a planned batch that is in": (lambda made: None, BATCHES - 1),
    "a planned batch that is not": (lambda made: None, BATCHES - 2),
    "a planned and committed batch": (lambda made: made.put("commits/5", "v1\n{}"), BATCHES - 1),
}


@pytest.mark.parametrize(("change", "last"), WHOLE.values(), ids=WHOLE)
def test_a_checkpoint_that_has_lost_nothing_stays(
    six_batches: Written, change: Callable[[Written], object], last: int
) -> None:
    change(six_batches)
    assert restorable(six_batches.checkpoint, last, lambda batch: None) is None


def test_what_the_ledger_does_not_keep_is_not_restored(six_batches: Written) -> None:
    kept = {5: six_batches.batch(5)}
    take(six_batches.checkpoint.root, "offsets", 4)
    assert restorable(six_batches.checkpoint, 5, kept.get) is None


def test_a_batch_that_never_came_in_and_cannot_be_read_is_planned_again(six_batches: Written) -> None:
    kept = {batch: six_batches.batch(batch) for batch in range(BATCHES)}
    empty(six_batches.checkpoint.root, "offsets", 5)
    span = restorable(six_batches.checkpoint, 4, kept.get)
    assert span is not None
    restore(six_batches.checkpoint, span)
    assert six_batches.checkpoint.last_batch == 4
    assert planned_batch(Checkpoint(six_batches.checkpoint.root), 4) == kept[4]
    assert max(six_batches.checkpoint.source_log("events")) == 4, "its files are found again"


def test_a_state_that_another_plan_of_the_batch_has_left_is_not_begun_with(tmp_path: Path) -> None:
    checkpoint = Checkpoint(unpack("rocksdb_few", tmp_path, planned=True))
    last = checkpoint.last_batch
    assert last is not None
    plans = {batch: plan for batch in range(last + 1) if (plan := planned_batch(checkpoint, batch)) is not None}
    take(checkpoint.root, "offsets", last)
    lost = restorable(checkpoint, last, plans.get)
    assert lost is not None
    assert lost.first == last

    # As a copy of the checkpoint may have planned it: the versions of the state have the same numbers.
    entry = checkpoint.root / "sources" / "events" / str(last - 1)
    entry.write_text(entry.read_text().replace(".json", "-of-another.json"))
    other = restorable(checkpoint, last, plans.get)
    assert other is not None
    assert other.first == last - 1
