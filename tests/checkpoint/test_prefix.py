"""The committed prefix and the watermarks are those that Spark really used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.checkpoint import Archive, Checkpoint, committed_prefix, planned_prefix, watermarks
from headrace.checkpoint.sources import SourceNames
from headrace.contract import SourceBatch
from headrace.errors import CheckpointError

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"
NAMED, GROWN = Checkpoint(FIXTURES / "named"), Checkpoint(FIXTURES / "grown")
HOUR = 3_600_000
MIDNIGHT = 1_704_067_200_000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """The archive of `named`, as it would be had it been kept from the first batch on."""
    every = json.loads((NAMED.root / "every_batch.json").read_text())
    for folder, texts in every.items():
        (tmp_path / "all" / folder).mkdir(parents=True)
        for batch, text in texts.items():
            (tmp_path / "all" / folder / batch).write_text(text)
    archive = Archive(tmp_path / "archive.jsonl")
    assert archive.catch_up(Checkpoint(tmp_path / "all")) == 27
    return archive


@pytest.fixture
def empty(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "none.jsonl")


def test_archive_and_checkpoint_together_reach_back_to_the_first_batch(archive: Archive) -> None:
    prefix = committed_prefix(NAMED, archive, SourceNames.same("events"), 25)["events"]
    assert [batch.batch for batch in prefix.batches] == list(range(26))
    assert prefix.batches[0] == SourceBatch(batch=0, start=None, end='{"logOffset":0}')
    assert prefix.batches[25] == SourceBatch(batch=25, start='{"logOffset":24}', end='{"logOffset":25}')
    assert list(prefix.log) == list(range(26))


def test_a_batch_without_data_starts_where_it_ends(archive: Archive) -> None:
    last = committed_prefix(NAMED, archive, SourceNames.same("events"), 26)["events"].batches[-1]
    assert last.start == last.end == '{"logOffset":25}'


def test_a_source_that_was_added_later_begins_with_nothing(empty: Archive) -> None:
    last = GROWN.last_committed
    assert last is not None
    prefix = committed_prefix(GROWN, empty, SourceNames.same("clicks", "views"), last)
    views = prefix["views"].batches
    first = next(batch for batch in views if batch.end is not None)
    assert (views[0].start, views[0].end) == (None, None)
    assert (first.start, first.end) == (None, '{"logOffset":0}')
    assert len(prefix["clicks"].batches) == len(views) == last + 1


def test_batches_in_neither_place_are_refused_with_what_is_known(empty: Archive) -> None:
    with pytest.raises(CheckpointError, match=r"HR511: .* only from batch 21 on"):
        committed_prefix(NAMED, empty, SourceNames.same("events"), 26)


def test_a_batch_after_the_last_is_refused(archive: Archive) -> None:
    with pytest.raises(CheckpointError, match=r"HR510: batch 40 .* newest batch is 26"):
        committed_prefix(NAMED, archive, SourceNames.same("events"), 40)


def test_the_checkpoint_counts_more_than_the_archive(archive: Archive, tmp_path: Path) -> None:
    root = Path(shutil.copytree(NAMED.root, tmp_path / "rewound"))
    file = root / "offsets" / "26"
    file.write_text(file.read_text().replace('"logOffset":25', '"logOffset":30'))
    prefix = committed_prefix(Checkpoint(root), archive, SourceNames.same("events"), 26)["events"]
    assert prefix.batches[-1].end == '{"logOffset":30}'


def test_a_single_numbered_source_needs_no_name(empty: Archive, tmp_path: Path) -> None:
    (tmp_path / "one" / "offsets").mkdir(parents=True)
    (tmp_path / "one" / "offsets" / "0").write_text('v1\n{}\n{"logOffset":4}')
    prefix = committed_prefix(Checkpoint(tmp_path / "one"), empty, SourceNames.same("events"), 0)
    assert prefix["events"].batches[0].end == '{"logOffset":4}'


def test_many_numbered_sources_are_asked_for_by_number(empty: Archive) -> None:
    numbered = Checkpoint(FIXTURES / "numbered")
    assert set(committed_prefix(numbered, empty, SourceNames.same("0", "1"), 1)) == {"0", "1"}
    with pytest.raises(CheckpointError, match="HR512"):
        committed_prefix(numbered, empty, SourceNames.same("files", "rate"), 1)


def test_rows_are_late_by_the_watermark_of_the_batch_before(archive: Archive) -> None:
    """In batch b came rows of ten-minute windows of the hours b, b-2 ("between") and b-3 ("late")."""
    kept = {int(batch): kinds for batch, kinds in json.loads((NAMED.root / "kept.json").read_text()).items()}
    marks = watermarks(NAMED, archive, 26)
    for batch in range(3, 26):
        ends = {
            "on time": MIDNIGHT + batch * HOUR + HOUR // 6,
            "between": MIDNIGHT + (batch - 2) * HOUR + HOUR // 6,
            "late": MIDNIGHT + (batch - 3) * HOUR + HOUR // 6,
        }
        assert sorted(kind for kind, end in ends.items() if end > marks[batch].late_ms) == kept[batch]
        assert ends["between"] <= marks[batch].evict_ms


def test_what_is_planned_is_known_without_an_archive(tmp_path: Path) -> None:
    root = Path(shutil.copytree(FIXTURES / "named", tmp_path / "named"))
    checkpoint = Checkpoint(root)
    assert planned_prefix(checkpoint, SourceNames.same("events")) is None
    (root / "commits" / "26").unlink()
    prefixes = planned_prefix(checkpoint, SourceNames.same("events"))
    assert prefixes is not None
    assert [(batch.batch, batch.start, batch.end) for batch in prefixes["events"].batches] == [
        (26, '{"logOffset":25}', '{"logOffset":25}')
    ]


@pytest.mark.parametrize("archived", [None, b"\xff\xfe\n{}\n"], ids=["lost", "damaged"])
def test_a_part_of_the_batches_needs_no_archive_where_the_checkpoint_has_them(
    tmp_path: Path, archived: bytes | None
) -> None:
    checkpoint, archive = Checkpoint(FIXTURES / "named"), Archive(tmp_path / "archive.jsonl")
    if archived is not None:
        archive.path.write_bytes(archived)
    prefix = committed_prefix(checkpoint, archive, SourceNames.same("events"), 26, since=24)["events"]
    assert [(batch.batch, batch.start) for batch in prefix.batches] == [
        (24, '{"logOffset":23}'), (25, '{"logOffset":24}'), (26, '{"logOffset":25}'),
    ]  # fmt: skip
    with pytest.raises(CheckpointError, match="HR511" if archived is None else "HR523"):
        committed_prefix(checkpoint, archive, SourceNames.same("events"), 26)
