"""A files source whose directory and archive are in a store: its lag, its quarantine, and what verify reads of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace.checkpoint.sources import ReadFiles
from headrace.history.lag import lag
from headrace.storage.durable import files_below
from headrace.storage.location import place
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import rows
from tests.runner.test_remote_sinks import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["store"]  # The fixture.
pytestmark = pytest.mark.services
PROJECT = """
name: shop
sources:
  events:
    files:
      path: "{store}/a landing"
      format: json
      schema: "name STRING, amount INT"
      max_files_per_trigger: 1
      on_bad_row: quarantine
      clean_source: archive
      source_archive_dir: "{store}/kept"
queries:
  totals:
    select: SELECT name, sum(amount) AS total FROM events GROUP BY name
    mode: update
    trigger: available_now
    sink: {{sqlite: {{path: out.db, table: totals, key: [name]}}}}
spark: {spark}
"""


@pytest.mark.parametrize("store", rounds(["s3a", "hdfs"]), indirect=True)
def test_what_a_source_in_a_store_has_read_is_proved(
    store: tuple[str, dict[str, str]], spark: SparkSession, tmp_path: Path
) -> None:
    url, settings = store
    (tmp_path / "headrace.yml").write_text(PROJECT.format(store=url, spark=json.dumps(settings)))
    project = hr.load(tmp_path)
    assert project.storage.is_relative_to(tmp_path)
    is_bucket = url.startswith("s3a")
    landing, kept = place(f"{url}/a landing"), place(f"{url}/kept")

    def land(number: int, *lines: object) -> None:
        landing.mkdir(parents=True, exist_ok=True)
        (landing / f"{number}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    for number in range(4):
        land(number, {"name": "a", "amount": number}, {"name": "b", "amount": "many"})
    assert hr.run(project, spark=spark).exit_code == 0
    moved = [file.name for file in files_below(kept)]
    assert 1 <= len(moved) <= 3
    land(4, {"name": "c", "amount": 1})
    (landing / "_5.json").write_text("{}")
    left = lag(project, project.queries["totals"], layout_in(project.storage, "totals"))
    assert left is not None
    assert (left.count, left.unit, left.left_out) == (1, "files", 0)
    assert hr.run(project, spark=spark).exit_code == 0
    assert rows(tmp_path / "out.db", "SELECT name, total FROM totals ORDER BY name") == [("a", 6), ("c", 1)]
    verdict = hr.verify(project, "totals", spark=spark)
    assert (verdict.state, [finding.code for finding in verdict.findings if finding.severity == "error"]) == (
        "equal",
        [],
    )
    layout = layout_in(project.storage, "totals")
    text, read = (landing / "4.json").read_text(), ReadFiles(layout.home).read()
    assert sorted(read) == [f"{landing}/{number}.json" for number in range(5)]
    assert (read[f"{landing}/4.json"].size_bytes, bool(read[f"{landing}/4.json"].etag)) == (len(text), is_bucket)
    # An object that is put again as it was has another time and the same ETag.
    for content, changed in ((text, not is_bucket), (text.replace("c", "d"), True)):
        (landing / "4.json").write_text(content)
        left = lag(project, project.queries["totals"], layout)
        assert left is not None
        assert left.changed == changed
    later = hr.verify(project, "totals", spark=spark)
    assert (later.state, [finding.code for finding in later.findings if finding.code == "HR326"]) == (
        "mismatch",
        ["HR326"],
    )
    apart = layout.quarantine / "events"
    assert sorted(file.name for file in apart.iterdir()) == [f"{number}.jsonl" for number in range(4)]
