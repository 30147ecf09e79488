"""A record is read back as it was kept, and a file that holds none is reported with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from headrace.errors import CheckpointError, build
from headrace.storage import json_record

pytestmark = pytest.mark.plain


@dataclass(frozen=True, kw_only=True)
class Move:
    """A record with a field of every type that records have."""

    way: Literal["there", "back"]
    batch: int
    newest: int | None = None
    notes: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None
    rebuilds: bool = False


def read_move(file: Path) -> Move | None:
    damaged = json_record.Damaged(file=file, code="HR584", what="the record cannot be read", fix="restore it")
    return json_record.read(file, lambda facts: build(Move, facts), damaged)


@pytest.mark.parametrize(
    "move",
    [
        Move(way="there", batch=3),
        Move(way="back", batch=3, newest=7, notes=("a", "b"), report={"rows": 2}, rebuilds=True),
    ],
    ids=["defaults", "all"],
)
def test_a_record_is_read_back_as_it_was_kept(move: Move, tmp_path: Path) -> None:
    (tmp_path / "move.json").write_text(json.dumps(asdict(move)))
    assert read_move(tmp_path / "move.json") == move


def test_a_record_of_another_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "move.json").write_text('{"way": "there", "batch": 3, "later": true}')
    assert read_move(tmp_path / "move.json") == Move(way="there", batch=3)


def test_without_a_file_there_is_no_record(tmp_path: Path) -> None:
    assert read_move(tmp_path / "move.json") is None
    assert read_move(tmp_path / "no" / "move.json") is None


DAMAGED = {
    "cut off": ('{"way": "the', "it is not JSON from line 1, column 9 on"),
    "no mapping": ("[1]", "it does not hold what"),
    "a field is missing": ('{"way": "there"}', "it has no 'batch'"),
    "no number": ('{"way": "there", "batch": "many"}', "it does not hold what"),
    "another word": ('{"way": "up", "batch": 3}', "it names another way, 'up'"),
}


@pytest.mark.parametrize(("text", "why"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_reported_with_the_reason(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "move.json"
    file.write_text(text)
    with pytest.raises(CheckpointError) as caught:
        read_move(file)
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.file, finding.fix) == ("HR584", str(file), "restore it")
    assert finding.what.startswith(f"the record cannot be read: {why}")
