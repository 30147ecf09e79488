"""The files of a committed prefix, as the log of a source names them and as they are now."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from headrace.connectors.catalog.source import CatalogTable
from headrace.contract import SourceBatch, SourcePrefix

pytestmark = pytest.mark.plain
NOW = 1_700_000_000


@pytest.mark.parametrize(("logged", "is_reported"), [(NOW, False), (NOW - 60, True)], ids=["as it was", "changed"])
def test_a_file_of_a_table_that_changed_after_it_was_read_is_named(
    tmp_path: Path, logged: int, is_reported: bool
) -> None:
    (tmp_path / "a").write_text("x")
    os.utime(tmp_path / "a", (NOW, NOW))
    log = json.dumps({"path": (tmp_path / "a").as_uri(), "timestamp": logged * 1000, "batchId": 0})
    batch = SourceBatch(batch=0, start=None, end='{"logOffset":0}')
    source, prefix = CatalogTable(table="t"), SourcePrefix(batches=(batch,), log={0: (log,)})
    findings = [*source.left_out(prefix), *filter(None, [source.changed(prefix)])]
    assert [(finding.code, finding.severity) for finding in findings] == [
        ("HR326", "warning"),
        ("HR326", "error"),
    ] * is_reported
    assert all(f"'{tmp_path / 'a'}'" in finding.what for finding in findings)
    assert list(source.left_out(SourcePrefix(batches=(batch,), log={}))) == []
