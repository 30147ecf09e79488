"""The log of a files sink is compared with the checkpoint on a disk and in a store, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connectors.spark_files.sink_log import CommittedFiles
from headrace.contract import SinkContext
from headrace.errors import CheckpointError
from tests.storage.stores import memory_store

pytestmark = pytest.mark.plain


@pytest.fixture(params=["on a disk", "as a URI", "in a store"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory, and how a project names it."""
    if request.param == "in a store":
        with memory_store("places:9000") as (_, root):
            yield root / "some where", str(root / "some where")
        return
    yield tmp_path, str(tmp_path) if request.param == "on a disk" else f"file://{tmp_path}"


def test_the_log_of_a_files_sink_and_its_checkpoint_are_compared(home: tuple[Path, str], tmp_path: Path) -> None:
    directory, named = home
    files = CommittedFiles(path=f"{named}/out", format="json", options={})
    checkpoint = tmp_path / "checkpoint"
    context = SinkContext(query="q", generation=1, mode="append", checkpoint=checkpoint)
    assert files.last_batch is None
    (directory / "out" / "_spark_metadata").mkdir(parents=True)
    for number in range(3):
        (directory / "out" / "_spark_metadata" / str(number)).write_text("v1\n")
    assert files.last_batch == 2
    with pytest.raises(CheckpointError, match=r"HR410: .* go up to batch 2, the checkpoint of query 'q' only to none"):
        files.require_written(context)
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
        for number in range(4):
            (checkpoint / name / str(number)).write_text("v1\n{}")
    with pytest.raises(CheckpointError, match=r"HR410: .* has committed batch 3, and .* holds the batches up to 2"):
        files.require_written(context)
    (checkpoint / "commits" / "3").unlink()
    files.require_written(context)
