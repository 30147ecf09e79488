"""A batch differs from another by its content, at a cost that does not grow with the log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

from headrace.checkpoint import Checkpoint, PlannedBatch, chain_digest, planned_batch
from headrace.checkpoint.identity import differences, log_entries
from headrace.errors import CheckpointError

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"
OFFSET = (
    'v2\n{{"batchWatermarkMs":{watermark},"batchTimestampMs":{now},"conf":{{}},"sourceMetadataInfo":{{}}}}\n{sources}'
)


def file_line(path: str, number: int) -> str:
    return json.dumps({"path": f"file://{quote(path)}", "timestamp": 1000, "batchId": number}, separators=(",", ":"))


class Written:
    """A checkpoint written by hand, as Spark writes it."""

    def __init__(self, root: Path) -> None:
        self.checkpoint = Checkpoint(root)

    def log(self, number: int, paths: Sequence[str], source: str = "events") -> None:
        self.put(f"sources/{source}/{number}", "\n".join(["v1", *(file_line(path, number) for path in paths)]))

    def plan(self, batch: int, *, watermark: int = 0, now: int = 1, **offsets: str) -> None:
        lines = "\n".join(f"{name}:{offset}" for name, offset in offsets.items())
        self.put(f"offsets/{batch}", OFFSET.format(watermark=watermark, now=now, sources=lines))

    def put(self, name: str, text: str) -> None:
        file = self.checkpoint.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def batch(self, number: int) -> PlannedBatch:
        batch = planned_batch(self.checkpoint, number)
        assert batch is not None
        return batch


@pytest.fixture
def here(tmp_path: Path) -> Written:
    return Written(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Written:
    return Written(tmp_path / "there")


def test_one_number_over_other_files_is_another_batch(here: Written, there: Written) -> None:
    for written, files in ((here, ["/in/f1"]), (there, ["/in/f1", "/in/f2", "/in/f3"])):
        written.log(0, files)
        written.plan(0, events='{"logOffset":0}')
    assert here.batch(0).digest() != there.batch(0).digest()
    assert differences(here.batch(0), there.batch(0)) == ["source 'events': 1 files (f1) against 3 files (f1, f2, f3)"]


def test_an_entry_that_no_offsets_took_belongs_to_the_next_batch(here: Written, there: Written) -> None:
    for written in (here, there):
        written.log(0, ["/in/f1"])
        written.plan(0, events='{"logOffset":0}')
    here.log(1, ["/in/f2"])
    here.log(2, ["/in/f3"])
    here.plan(1, events='{"logOffset":2}')
    there.log(1, ["/in/f3", "/in/f2"])
    there.plan(1, events='{"logOffset":1}')
    assert sorted(here.batch(1).logs["events"]) == [1, 2]
    assert here.batch(1).digest() == there.batch(1).digest()


SAME = [
    ("the time of planning", {"now": 1}, {"now": 2}, True),
    ("the order of keys", {"k": '{"t":{"0":5,"1":7}}'}, {"k": '{"t":{"1":7, "0":5}}'}, True),
    ("another offset", {"k": '{"t":{"0":5}}'}, {"k": '{"t":{"0":6}}'}, False),
    ("another watermark", {"watermark": 0}, {"watermark": 5}, False),
    ("a source with nothing yet", {"k": "-"}, {"k": '{"t":{"0":5}}'}, False),
    ("a source more", {}, {"j": "4"}, False),
]


@pytest.mark.parametrize(("ours", "theirs", "same"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_what_the_digest_counts(
    here: Written, there: Written, ours: dict[str, object], theirs: dict[str, object], same: bool
) -> None:
    here.plan(0, **{"k": '{"t":{"0":1}}', **ours})  # type: ignore[arg-type]
    there.plan(0, **{"k": '{"t":{"0":1}}', **theirs})  # type: ignore[arg-type]
    assert (here.batch(0).digest() == there.batch(0).digest()) is same
    assert bool(differences(here.batch(0), there.batch(0))) is not same


def test_a_moved_project_keeps_its_batches(here: Written, there: Written, tmp_path: Path) -> None:
    for written, root in ((here, "/p one"), (there, "/moved")):
        written.log(0, [f"{root}/landing/f ä1", "/elsewhere/f2"])
        written.plan(0, events='{"logOffset":0}')
    ours = here.batch(0).digest([Path("/p one")])
    assert ours == there.batch(0).digest([Path("/p one"), Path("/moved")])
    assert ours != there.batch(0).digest([Path("/other")])


def test_where_a_source_began_belongs_to_its_first_batch(here: Written, there: Written) -> None:
    for written, began in ((here, "\0v1\n5"), (there, "\0v1\n3")):
        written.put("sources/k/0", began)
        written.plan(0, k="9")
        written.plan(1, k="12")
    assert here.batch(0).digest() != there.batch(0).digest()
    assert here.batch(1).logs == {}
    assert PlannedBatch.loads(here.batch(0).dumps()).logs["k"][0].head == "\0v1"


def test_a_batch_comes_back_whole_from_its_text() -> None:
    checkpoint = Checkpoint(FIXTURES / "named")
    for number in range(22, 27):
        batch = planned_batch(checkpoint, number)
        assert batch is not None
        again = PlannedBatch.loads(batch.dumps())
        assert (again, again.digest()) == (batch, batch.digest())
        assert again.offsets == (checkpoint.root / "offsets" / str(number)).read_text()
        assert len(batch.dumps()) < 1200
    assert planned_batch(checkpoint, 21) is None, "where it begins was purged"
    with pytest.raises(ValueError, match="not a planned batch"):
        PlannedBatch.loads("QUJD")


def test_the_log_is_read_through_compacted_files(tmp_path: Path) -> None:
    log = tmp_path / "events"
    shutil.copytree(FIXTURES / "named" / "sources" / "events", log)
    entries = log_entries(log, 16, 21)
    assert [len(entries[number].lines) for number in range(17, 22)] == [1] * 5
    assert [number for number, entry in entries.items() if entry.compacted] == [19]
    assert all(f"/{number:03}.json" in entries[number].lines[0] for number in entries)
    (log / "22").unlink()
    with pytest.raises(CheckpointError, match="lacks entry 22"):
        log_entries(log, 21, 23)


def test_one_entry_of_a_long_log_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [file_line(f"/in/{number:05}-{file}", number) for number in range(5000) for file in range(3)]
    (tmp_path / "4999.compact").write_text("\n".join(["v1", *lines]))
    parsed, load = [], json.loads
    monkeypatch.setattr("headrace.checkpoint.sources.json.loads", lambda text: parsed.append(text) or load(text))
    assert [line.count("/04999-") for line in log_entries(tmp_path, 4998, 4999)[4999].lines] == [1, 1, 1]
    assert len(parsed) == 4
    first = log_entries(tmp_path, -1, 0)[0]
    assert list(first.lines) == lines[:3], "also a line that lies across two blocks"


def test_the_chain_covers_all_batches_before() -> None:
    assert chain_digest(None, "a") == chain_digest(None, "a")
    assert (
        len(
            {
                chain_digest(None, "a"),
                chain_digest(None, "b"),
                chain_digest(chain_digest(None, "b"), "a"),
                chain_digest("", "ab"),
            }
        )
        == 4
    )
