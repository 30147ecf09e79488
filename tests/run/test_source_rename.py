"""A renamed source is renamed in the checkpoint, and a crash between any two steps is ended by the next start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint import Archive, Checkpoint, planned_batch
from headrace.checkpoint.restore import Restorable, restore
from headrace.errors import CheckpointError
from headrace.queries.layout import QueryLayout
from headrace.queries.rename_record import record
from headrace.run.rename import make
from tests.registered import layout_in

pytestmark = pytest.mark.plain
STEPS = ("recorded", "ledger names", "logs", "offsets", "archive", "quarantine")


class Killed(BaseException):
    """The process is gone."""


def killed_at(wanted: str) -> Callable[[str], None]:
    def reached(step: str) -> None:
        if step == wanted:
            raise Killed(step)

    return reached


@pytest.fixture
def layout(tmp_path: Path) -> QueryLayout:
    """Three batches of two file sources, one of which is read in two places, and what lies beside them."""
    layout = layout_in(tmp_path, "q")
    root = layout.checkpoint
    for name in ("old", "old__2", "other"):
        (root / "sources" / name).mkdir(parents=True)
    for folder in ("offsets", "commits"):
        (root / folder).mkdir()
    (root / "metadata").write_text('{"id":"the-id"}')
    facts = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    for batch in range(3):
        for name in ("old", "old__2", "other"):
            line = json.dumps({"path": f"file:///in/{name}/{batch}.json", "timestamp": 1, "batchId": batch})
            (root / "sources" / name / str(batch)).write_text(f"v1\n{line}")
        offset = f'{{"logOffset":{batch}}}'
        (root / "offsets" / str(batch)).write_text(f"v2\n{facts}\nold:{offset}\nold__2:{offset}\nother:{offset}")
        (root / "offsets" / f".{batch}.crc").write_text("checksum")
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    Archive(layout.archive).catch_up(Checkpoint(root))
    (layout.quarantine / "old").mkdir(parents=True)
    (layout.quarantine / "old" / "1.jsonl").write_text("{}\n")
    (layout.quarantine / ".seen").write_text("2")
    return layout


def digests(layout: QueryLayout) -> list[str]:
    found = (planned_batch(Checkpoint(layout.checkpoint), batch) for batch in range(3))
    return [each.digest() for each in found if each is not None]


def names(layout: QueryLayout) -> dict[str, Any]:
    """Every place that names the sources."""
    checkpoint = Checkpoint(layout.checkpoint)
    return {
        "offsets": [sorted(entry.offsets) for entry in checkpoint.offsets().values()],
        "logs": checkpoint.source_names(),
        "archive": [sorted(entry.offsets) for entry in Archive(layout.archive).entries().values()],
        "quarantine": [path.name for path in layout.quarantine.iterdir() if path.is_dir()],
    }


def called(name: str) -> dict[str, Any]:
    uses = sorted([name, f"{name}__2", "other"])
    return {"offsets": [uses] * 3, "logs": tuple(uses), "archive": [uses] * 3, "quarantine": [name]}


@pytest.mark.parametrize("step", STEPS)
def test_a_rename_that_is_killed_is_ended_by_the_next_start(layout: QueryLayout, step: str) -> None:
    assert names(layout) == called("old")
    before = digests(layout)
    for _ in range(2):
        with pytest.raises(Killed):
            make(layout, {"old": "new"}, reached=killed_at(step))
        assert record(layout) == {"old": "new"}
    make(layout, record(layout) or {})
    assert (names(layout), record(layout)) == (called("new"), None)
    assert not list((layout.checkpoint / "offsets").glob(".*.crc"))
    # A ledger tells batches by what they were when it was written.
    assert digests(layout) == before


def test_ledgers_know_a_source_by_its_first_name_through_several_renames(layout: QueryLayout) -> None:
    before = digests(layout)
    plans = {batch: found for batch in range(3) if (found := planned_batch(Checkpoint(layout.checkpoint), batch))}
    for old, new in (("old", "new"), ("new", "third")):
        make(layout, {old: new})
    make(layout, {"new": "third"})  # Once more, as after a crash.
    assert (names(layout), digests(layout)) == (called("third"), before)
    # What the ledger keeps is planned again under the present name.
    (layout.checkpoint / "offsets" / "2").unlink()
    (layout.checkpoint / "commits" / "2").unlink()
    (layout.checkpoint / "sources" / "third" / "2").unlink()
    restore(Checkpoint(layout.checkpoint), Restorable(first=2, last=2, plans=plans))
    assert (names(layout), digests(layout)) == (called("third"), before)
    make(layout, {"third": "old"})
    assert (names(layout), digests(layout)) == (called("old"), before)


def test_offsets_of_continuous_processing_name_no_source(layout: QueryLayout) -> None:
    file = layout.checkpoint / "offsets" / "2"
    file.write_text('v1\n\n{"value":1}')
    make(layout, {"old": "new"})
    assert file.read_text() == 'v1\n\n{"value":1}'


@pytest.mark.parametrize(
    ("file", "text"), [("source_rename.json", "["), ("checkpoint/headrace_sources.json", '["old"]')]
)
def test_a_record_that_cannot_be_read_is_told(layout: QueryLayout, file: str, text: str) -> None:
    (layout.home / file).write_text(text)
    with pytest.raises(CheckpointError, match=r"HR584|HR503"):
        make(layout, record(layout) or {"old": "new"})
