"""A checkpoint is read as Spark wrote it, and what is wrong with it is reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.problems import list_problems
from headrace.errors import CheckpointError, Finding

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"
NAMED, NUMBERED, GROWN = (Checkpoint(FIXTURES / name) for name in ("named", "numbered", "grown"))


@pytest.fixture
def named_checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NAMED.root, tmp_path / "named"))


def codes(root: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in problems(root)]


def problems(root: Path) -> list[Finding]:
    """What is reported of a fixture but for its state, which it does not hold."""
    return [finding for finding in list_problems(Checkpoint(root)) if finding.code != "HR516"]


@pytest.mark.parametrize("checkpoint", [NAMED, NUMBERED, GROWN], ids=lambda checkpoint: checkpoint.root.name)
def test_a_real_checkpoint_has_no_problem_but_a_batch_to_be_run_again(checkpoint: Checkpoint) -> None:
    assert {finding.code for finding in problems(checkpoint.root)} <= {"HR505"}
    assert checkpoint.id is not None
    assert len(checkpoint.id) == 36


def test_named_sources_are_read_by_name() -> None:
    assert (NAMED.last_batch, NAMED.last_committed) == (26, 26)
    assert list(NAMED.offsets()) == [21, 22, 23, 24, 25, 26]
    newest = NAMED.offsets()[26]
    assert newest.offsets == {"events": '{"logOffset":25}'}
    assert newest.watermark_ms == 1_704_155_400_000
    assert newest.conf["spark.sql.streaming.multipleWatermarkPolicy"] == "min"


def test_a_commit_has_the_next_watermark() -> None:
    assert NAMED.commits()[25].next_watermark_ms == NAMED.offsets()[26].watermark_ms


def test_numbered_sources_are_read_by_position() -> None:
    offsets = NUMBERED.offsets()
    assert offsets[2].offsets["0"] == '{"logOffset":2}'
    assert int(offsets[2].offsets["1"] or "x") >= 0


def test_a_source_that_was_added_later_is_absent_before() -> None:
    offsets = GROWN.offsets()
    assert set(offsets[0].offsets) == {"clicks"}
    assert set(offsets[max(offsets)].offsets) == {"clicks", "views"}


def test_a_compacted_source_log_unfolds_to_all_its_entries() -> None:
    log = NAMED.source_log("events")
    assert list(log) == list(range(26))
    paths = [json.loads(line)["path"] for lines in log.values() for line in lines]
    assert paths == [f"file:///data/in/{number:03d}.json" for number in range(26)]


def test_entries_that_are_also_in_the_compacted_file_count_once(named_checkpoint: Path) -> None:
    folder = named_checkpoint / "sources" / "events"
    lines = (folder / "19.compact").read_text().split("\n")[1:]
    for number, line in enumerate(lines):
        (folder / str(number)).write_text("v1\n" + line)
    (folder / "9.compact").write_text("\n".join(["v1", *lines[:10]]))
    assert Checkpoint(named_checkpoint).source_log("events") == NAMED.source_log("events")
    assert codes(named_checkpoint) == []


def test_the_log_of_a_rate_source_holds_its_creation_time() -> None:
    assert int(NUMBERED.source_log("1")[0][0]) > 1_700_000_000_000


def test_an_unknown_source_has_an_empty_log() -> None:
    assert NAMED.source_log("unknown") == {}


def test_state_metadata_has_partitions_and_operators() -> None:
    assert NAMED.state_partitions() == 2
    assert [operator.name for operator in NAMED.state_operators()] == ["stateStoreSave"]
    assert NUMBERED.state_partitions() is None


def test_state_metadata_of_the_second_format_is_read_from_its_newest_file(named_checkpoint: Path) -> None:
    metadata = named_checkpoint / "state" / "0" / "_metadata"
    text = (metadata / "metadata").read_text()
    (metadata / "v2").mkdir()
    (metadata / "v2" / "0").write_text(text.replace("v1", "v2"))
    (metadata / "v2" / "7").write_text(text.replace("v1", "v2").replace('"numPartitions":2', '"numPartitions":8'))
    assert Checkpoint(named_checkpoint).state_partitions() == 8


def test_a_checkpoint_that_is_not_there_is_empty_and_no_problem(tmp_path: Path) -> None:
    nowhere = Checkpoint(tmp_path / "nowhere")
    assert (nowhere.id, nowhere.last_batch, nowhere.last_committed) == (None, None, None)
    assert (nowhere.offsets(), nowhere.commits(), nowhere.state_partitions()) == ({}, {}, None)
    assert codes(nowhere.root) == []


def test_checksums_and_temporary_files_are_no_batches(named_checkpoint: Path) -> None:
    for name in (".26.crc", ".27.uuid.tmp", "27.tmp", "²"):
        (named_checkpoint / "offsets" / name).write_text("x")
    assert Checkpoint(named_checkpoint).last_batch == 26
    assert codes(named_checkpoint) == []


def remove(*names: str) -> Callable[[Path], None]:
    return lambda root: [(root / name).unlink() for name in names] and None


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda root: (root / name).write_text(text) and None


def cut(name: str, characters: int) -> Callable[[Path], None]:
    return lambda root: (root / name).write_text((root / name).read_text()[:-characters]) and None


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        pytest.param(remove("commits/26"), [("HR505", "note")], id="last commit missing"),
        pytest.param(remove("commits/24"), [("HR505", "note")], id="commit in the middle missing"),
        pytest.param(remove("offsets/24"), [("HR504", "warning")], id="offsets in the middle missing"),
        pytest.param(remove("offsets/26"), [("HR514", "error")], id="offsets behind the commits"),
        pytest.param(remove("metadata"), [("HR503", "error")], id="id missing"),
        pytest.param(write("metadata", "{"), [("HR503", "error")], id="id cut off"),
        pytest.param(write("offsets/26", ""), [("HR503", "error")], id="offsets empty"),
        pytest.param(write("offsets/26", "\0" * 512), [("HR503", "error")], id="offsets zeroed"),
        pytest.param(write("offsets/26", "v2"), [("HR503", "error")], id="offsets after the version missing"),
        pytest.param(write("offsets/26", "v2\nhello\nevents:-"), [("HR503", "error")], id="offsets without JSON"),
        pytest.param(cut("offsets/26", 3), [("HR503", "error")], id="offset cut off"),
        pytest.param(write("commits/26", ""), [("HR503", "error")], id="commit empty"),
        pytest.param(write("commits/26", 'v1\n{"next'), [("HR503", "error")], id="commit cut off"),
        pytest.param(write("offsets/26", "v9\n{}\n-"), [("HR507", "error")], id="offsets of a newer version"),
        pytest.param(write("commits/26", "v9\n{}"), [("HR507", "error")], id="commit of a newer version"),
        pytest.param(remove("sources/events/22"), [("HR509", "error")], id="gap in a source's log"),
        pytest.param(write("sources/events/25", ""), [("HR503", "error")], id="source's log empty"),
        pytest.param(
            write("commits/26", 'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a"]]}}'),
            [],
            id="commit with state ids is fine",
        ),
    ],
)
def test_each_damage_is_reported_with_a_way_out(
    named_checkpoint: Path, damage: Callable[[Path], None], expected: list[tuple[str, str]]
) -> None:
    damage(named_checkpoint)
    assert codes(named_checkpoint) == expected
    assert all(
        (finding.fix or finding.severity == "note") and finding.where.file
        for finding in list_problems(Checkpoint(named_checkpoint))
    )


def test_many_damages_are_reported_at_once(named_checkpoint: Path) -> None:
    (named_checkpoint / "metadata").unlink()
    (named_checkpoint / "offsets" / "25").write_text("")
    (named_checkpoint / "commits" / "26").unlink()
    assert {code for code, _ in codes(named_checkpoint)} == {"HR503", "HR505"}


def test_an_unknown_version_is_refused_by_file_and_version(named_checkpoint: Path) -> None:
    (named_checkpoint / "offsets" / "26").write_text("v9\n{}\n-")
    with pytest.raises(CheckpointError, match=r"offsets/26 HR507: .*v9"):
        Checkpoint(named_checkpoint).offsets()


def test_a_directory_that_cannot_be_read_is_a_finding(named_checkpoint: Path) -> None:
    shutil.rmtree(named_checkpoint / "offsets")
    (named_checkpoint / "offsets").symlink_to("offsets")
    assert codes(named_checkpoint) == [("HR540", "error")]
    with pytest.raises(CheckpointError, match="HR540"):
        Checkpoint(named_checkpoint).offsets()


def test_files_that_go_away_while_they_are_read_are_left_out(
    named_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_text

    def purged(path: Path, *args: str, **kwargs: str) -> str:
        if path == named_checkpoint / "offsets" / "21":
            path.unlink()
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", purged)
    assert list(Checkpoint(named_checkpoint).offsets()) == [22, 23, 24, 25, 26]


def test_a_source_log_that_is_compacted_while_it_is_read_is_read_again(
    named_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, log = Path.read_text, named_checkpoint / "sources" / "events"

    def compacted(path: Path, *args: str, **kwargs: str) -> str:
        if path == log / "21":
            entries = [
                read(file).split("\n", 1)[1] for file in [log / "19.compact", *(log / str(n) for n in range(20, 26))]
            ]
            (log / "25.compact").write_text("v1\n" + "\n".join(entries))
            for file in (log / "19.compact", *(log / str(n) for n in range(20, 26))):
                file.unlink()
        return read(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", compacted)
    assert list(Checkpoint(named_checkpoint).source_log("events")) == list(range(26))
