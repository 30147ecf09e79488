"""Changes of the number of state partitions are written down before they are made, and read back as they came out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.handover import PARTITIONS, PartitionChange, Repartitions, note_partitions
from headrace.checkpoint.problems import list_problems
from headrace.errors import CheckpointError

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"
LAST = 26  # the newest batch of the checkpoint, which is committed; its state has 2 partitions


def change(batch: int, after: int) -> PartitionChange:
    return PartitionChange(batch=batch, before=2, after=after, at="2026-01-01T00:00:00+00:00")


@pytest.fixture
def named_checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(Path(shutil.copytree(FIXTURES / "named", tmp_path / "named")))


@pytest.mark.parametrize(
    ("entered", "partitions", "batches", "cut_off"),
    [
        ([], 2, [], None),
        ([change(LAST, 4)], 4, [LAST], None),
        ([change(LAST - 3, 4), change(LAST, 3)], 3, [LAST - 3, LAST], None),
        ([change(LAST + 1, 4)], 2, [], None),
        ([change(LAST, 4), change(LAST + 1, 8)], 4, [LAST], None),
    ],
    ids=["none", "one", "two", "not begun", "a second one not begun"],
)
def test_a_change_counts_once_its_batch_is_committed(
    tmp_path: Path,
    named_checkpoint: Checkpoint,
    entered: list[PartitionChange],
    partitions: int,
    batches: list[int],
    cut_off: PartitionChange | None,
) -> None:
    changes = Repartitions(tmp_path / "repartitions.jsonl")
    for change in entered:
        changes.enter(change)
    assert changes.partitions(named_checkpoint) == partitions
    assert sorted(changes.batches(named_checkpoint)) == batches
    assert changes.cut_off(named_checkpoint) is cut_off
    changes.forget_unbegun(named_checkpoint)
    assert [change.batch for change in changes.all()] == batches


def test_a_change_that_is_planned_and_not_committed_was_cut_off(tmp_path: Path, named_checkpoint: Checkpoint) -> None:
    (named_checkpoint.root / "commits" / str(LAST)).unlink()
    changes = Repartitions(tmp_path / "repartitions.jsonl")
    changes.enter(change(LAST, 4))
    assert changes.cut_off(named_checkpoint) == change(LAST, 4)
    assert changes.partitions(named_checkpoint) == 2
    changes.forget_unbegun(named_checkpoint)
    assert changes.all() == (change(LAST, 4),)


@pytest.mark.parametrize("text", ["{", '{"batch": 1}', "[]", "\udcff"], ids=["cut", "short", "list", "bytes"])
def test_a_damaged_record_is_reported_and_not_passed_over(tmp_path: Path, text: str) -> None:
    file = tmp_path / "repartitions.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape") + b"\n")
    with pytest.raises(CheckpointError) as caught:
        Repartitions(file).all()
    assert [finding.code for finding in caught.value.findings] == ["HR503"]


def test_a_plan_gets_the_number_that_spark_left_out_and_nothing_else(named_checkpoint: Checkpoint) -> None:
    before = named_checkpoint.offset(LAST)
    assert before is not None
    assert PARTITIONS not in before.conf
    note_partitions(named_checkpoint, LAST, 2)
    after = named_checkpoint.offset(LAST)
    assert after == replace(before, conf={**before.conf, PARTITIONS: "2"})
    assert (after.version, after.further) == (before.version, before.further)
    assert not (named_checkpoint.root / "offsets" / f".{LAST}.crc").exists()
    written = (named_checkpoint.root / "offsets" / str(LAST)).read_bytes()
    note_partitions(named_checkpoint, LAST, 9)
    assert (named_checkpoint.root / "offsets" / str(LAST)).read_bytes() == written
    assert {finding.code for finding in list_problems(named_checkpoint)} <= {
        "HR516"
    }  # The fixture does not hold its state.
