"""A checkpoint of another program is looked at and copied, and the schemas of its state are compared."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.handover import copy_checkpoint, unfit
from headrace.checkpoint.problems import list_problems
from headrace.checkpoint.state_schema import schema_differences, state_schema
from headrace.errors import CheckpointError
from tests.changes.former_jobs import digests, require_unchanged

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def old(tmp_path: Path) -> Checkpoint:
    """A checkpoint with state in RocksDB and one source, `events`."""
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(tmp_path / "old")
    return Checkpoint(tmp_path / "old")


def unnamed_sources(tmp_path: Path) -> Checkpoint:
    """A checkpoint of two sources without names."""
    shutil.copytree(FIXTURES / "numbered", tmp_path / "numbered")
    return Checkpoint(tmp_path / "numbered")


def test_sources_without_names_get_theirs_in_the_copy(tmp_path: Path) -> None:
    old, place = unnamed_sources(tmp_path), tmp_path / "home" / "checkpoint"
    with require_unchanged(old.root):
        for _ in range(2):
            made = copy_checkpoint(old, tmp_path / "copy", place, {"0": ("clicks", "clicks__2"), "1": ("ticks",)})
    assert made.source_names() == ("clicks", "clicks__2", "ticks")
    assert made.source_log("clicks__2") == old.source_log("0")
    for batch, entry in old.offsets().items():
        new = made.offset(batch)
        assert new is not None
        first, second = entry.offsets.values()
        assert dict(new.offsets) == {"clicks": first, "clicks__2": first, "ticks": second}
        evolution = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
        assert (new.version, new.conf) == (2, {**entry.conf, evolution: "true"})
    assert (made.id, made.commits()) == (old.id, old.commits())


def test_state_and_checksums_are_copied_as_they_are(old: Checkpoint, tmp_path: Path) -> None:
    (old.root / "offsets" / ".3.crc.tmp").write_text("half")
    (old.root / "state" / "0" / "0").chmod(0o555)
    copy_checkpoint(old, tmp_path / "copy", tmp_path / "place", {"events": ("clicks",)})
    before, after = digests(old.root), digests(tmp_path / "copy")
    assert [
        name for name in before if name.startswith("state") and after[name].split()[:2] != before[name].split()[:2]
    ] == []
    assert [name for name in after if name.startswith("offsets/.")] == [], "no checksum of the former text"
    assert list(list_problems(Checkpoint(tmp_path / "copy"))) == []
    (tmp_path / "copy" / "state" / "0" / "0" / "new").touch()


def test_the_files_of_schemas_are_named_where_they_will_lie(old: Checkpoint, tmp_path: Path) -> None:
    described = old.root / "state" / "0" / "_metadata" / "v2" / "0"
    described.parent.mkdir()
    paths = {"stateSchemaFilePaths": ["file:/gone/elsewhere/state/0/_stateSchema/default/0_id"]}
    described.write_text(f"v2\n{json.dumps(paths)}")
    copy_checkpoint(old, tmp_path / "copy", Path("/a place/checkpoint"), {"events": ("events",)})
    changed = (tmp_path / "copy" / described.relative_to(old.root)).read_text().split("\n")[1]
    assert json.loads(changed) == {
        "stateSchemaFilePaths": ["file:/a place/checkpoint/state/0/_stateSchema/default/0_id"]
    }


def test_offsets_that_were_written_asynchronously_are_completed(tmp_path: Path) -> None:
    old = unnamed_sources(tmp_path)
    for log in ("offsets", "commits"):
        for name in ("1", "2", "3"):
            (old.root / log / name).unlink()
    made = copy_checkpoint(old, tmp_path / "copy", tmp_path / "place", {"0": ("clicks",), "1": ("ticks",)})
    before, newest = made.offset(3), old.offset(4)
    assert before is not None
    assert newest is not None
    assert list(before.offsets.values()) == list(newest.offsets.values())


def test_a_job_that_writes_meanwhile_is_noticed(
    old: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile

    def writing(source: Path, target: Path, **options: bool) -> object:
        (old.root / "offsets" / "3").write_text((old.root / "offsets" / "2").read_text())
        return copy(source, target, **options)

    monkeypatch.setattr(shutil, "copyfile", writing)
    with pytest.raises(CheckpointError, match="HR599"):
        copy_checkpoint(old, tmp_path / "copy", tmp_path / "place", {"events": ("events",)})


def without(*names: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for name in names:
            if (root / name).is_dir():
                shutil.rmtree(root / name)
            else:
                (root / name).unlink()

    return change


def of_version(log: str, version: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        file = root / log
        file.write_text(f"{version}\n" + file.read_text().partition("\n")[2])
        file.with_name(f".{file.name}.crc").unlink()

    return change


def below(root: Path) -> None:
    (root / "inner").mkdir()
    for name in ("metadata", "offsets", "commits"):
        shutil.move(root / name, root / "inner" / name)


def continuous(root: Path) -> None:
    (root / "offsets" / "2").write_text('v1\n\n{"0":5}')
    (root / "offsets" / ".2.crc").unlink()


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (shutil.rmtree, "HR590", "there is no such directory"),
        (without("offsets"), "HR590", "it is not a checkpoint of a streaming query"),
        (without("metadata"), "HR590", "it is not a checkpoint of a streaming query"),
        (below, "HR590", "inner"),
        (without("offsets/0", "offsets/1", "offsets/2", "commits", "state"), "HR590", "its query has planned no batch"),
        (continuous, "HR590", "continuous processing"),
        (of_version("offsets/2", "v3"), "HR507", "the checkpoint was written by a newer Spark"),
        (of_version("commits/2", "v9"), "HR507", "the checkpoint was written by a newer Spark"),
        (of_version("state/0/_metadata/metadata", "v3"), "HR507", "the checkpoint was written by a newer Spark"),
        (without("state/0/0/3.changelog"), "HR516", "3.changelog"),
        (without("sources/events/2"), "HR509", "lacks"),
        (without("offsets/2"), "HR514", "committed"),
        (without("offsets/0", "offsets/1"), "HR514", "it is not known which rows batch 2 begins with"),
    ],
)
def test_what_is_no_whole_checkpoint_is_refused(
    old: Checkpoint, change: Callable[[Path], None], code: str, words: str
) -> None:
    assert list(unfit(old)) == []
    change(old.root)
    errors = [finding for finding in unfit(old) if finding.severity == "error"]
    assert code in {finding.code for finding in errors}
    assert words in "\n".join(map(str, errors))


# ----------------------------------------------------------------------------------------------------- schemas of state


def schema(*fields: tuple[str, Any], delay: int | None = None) -> str:
    metadata = {} if delay is None else {"spark.watermarkDelayMs": delay}
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": metadata} for name, kind in fields]
    return json.dumps({"type": "struct", "fields": columns})


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def pieces(text: str) -> bytes:
    half = len(text) // 2
    return struct.pack(">i", 2) + utf(text[:half]) + utf(text[half:])


def first_form(key: str, value: str) -> bytes:
    return utf("v1") + utf(key) + utf(value)


def second_form(key: str, value: str) -> bytes:
    return utf("v2") + pieces(key) + pieces(value)


def third_form(key: str, value: str, *, ids: bytes = b"") -> bytes:
    end = pieces('{"keyStateEncoderType":"x"}') + pieces("{    }")
    return utf("v3") + struct.pack(">i", 1) + utf("default") + ids + pieces(key) + ids + pieces(value) + end


def numbered_form(key: str, value: str) -> bytes:
    return third_form(key, value, ids=struct.pack(">H", 1))


KEY, VALUE = schema(("name", "string")), schema(("sum", "long"), ("at", {"type": "array", "elementType": "date"}))


def write_schema(old: Checkpoint, form: Callable[[str, str], bytes], key: str, value: str) -> Checkpoint:
    (old.root / "state" / "0" / "0" / "_metadata" / "schema").write_bytes(form(key, value))
    return old


@pytest.mark.parametrize("form", [first_form, second_form, third_form, numbered_form])
def test_each_form_of_a_schema_is_read(old: Checkpoint, form: Callable[[str, str], bytes]) -> None:
    (operator,) = state_schema(write_schema(old, form, KEY, VALUE)).values()
    (store,) = operator.stores.values()
    assert [(column.name, column.type) for column in store.key] == [("name", "string")]
    assert [(column.name, column.type) for column in store.value] == [("sum", "long"), ("at", "array<date>")]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (KEY, VALUE, None),
        (schema(("user", "string")), VALUE, "column 1 is 'name string' in the checkpoint and 'user string'"),
        (KEY, schema(("sum", "integer")), "the value of state operator 0 (stateStoreSave) differs: column 1"),
        (KEY, schema(("sum", "long")), "column 2 is 'at array<date>' in the checkpoint, and the query has no more"),
        (schema(("name", "string"), ("b", "int")), VALUE, "column 2 is 'b int' in the query, and the checkpoint"),
        (schema(("name", "string"), delay=60_000), VALUE, "waits for nothing in the checkpoint and 60 seconds"),
    ],
)
def test_the_column_that_differs_is_named(old: Checkpoint, key: str, value: str, words: str | None) -> None:
    before = state_schema(write_schema(old, second_form, KEY, VALUE))
    now = state_schema(write_schema(old, second_form, key, value))
    differences = list(schema_differences(before, now))
    assert (differences == []) if words is None else (words in differences[0])


@pytest.mark.parametrize(
    ("content", "code"),
    [(utf("v4") + b"...", "HR507"), (second_form(KEY, VALUE)[:40], "HR503"), (utf("v2"), "HR503"), (b"", "HR503")],
)
def test_a_schema_that_cannot_be_read_is_reported(old: Checkpoint, content: bytes, code: str) -> None:
    (old.root / "state" / "0" / "0" / "_metadata" / "schema").write_bytes(content)
    with pytest.raises(CheckpointError, match=code):
        state_schema(old)
