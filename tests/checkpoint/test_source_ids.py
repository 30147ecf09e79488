"""The ids of what a query reads are kept by source and name, and are never half read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.checkpoint import Archive, Checkpoint, committed_prefix
from headrace.checkpoint.sources import SourceIds, SourceNames
from headrace.errors import CheckpointError
from tests.connectors.sql.databases import checkpoint_of

pytestmark = pytest.mark.plain

IDS = {"clicks": {"web": "4nWXE2KDRsyjgXSk7KMU3Q", "app": ""}, "bought": {"sales": "Mj9mtsPlQAWz2Hg7lPy-AA"}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record = SourceIds(tmp_path / "g1")
    assert record.read() == {}
    (tmp_path / "g1").mkdir()
    record.write(IDS)
    assert (record.read(), record.of("bought"), record.of("sold")) == (IDS, IDS["bought"], {})


def test_a_prefix_has_the_ids_of_its_source_and_of_a_further_use_of_it(tmp_path: Path) -> None:
    checkpoint_of(tmp_path / "checkpoint", "", offsets=0, commits=0)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text('v2\n{"batchWatermarkMs":0}\nclicks:1\nclicks__2:1')
    SourceIds(tmp_path).write(IDS)
    prefixes = committed_prefix(
        Checkpoint(tmp_path / "checkpoint"), Archive(tmp_path / "archive.jsonl"), SourceNames.same("clicks"), 0
    )
    assert {use: prefix.ids() for use, prefix in prefixes.items()} == dict.fromkeys(
        ("clicks", "clicks__2"), IDS["clicks"]
    )


@pytest.mark.parametrize("text", ["", '{"clicks": {"web"', '{"clicks": 7}', "[1]"])
def test_a_damaged_record_is_reported_and_not_taken_for_none(tmp_path: Path, text: str) -> None:
    record = SourceIds(tmp_path)
    record.file.write_text(text)
    with pytest.raises(CheckpointError, match="the record of which topics and tables the query reads cannot be read"):
        record.read()
