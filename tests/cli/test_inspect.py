"""`headrace inspect checkpoint` says which file is bad, before anything is started."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.entry import main
from tests.run.projects import write_project

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="t", key=["name"]), mode="update")
def counts(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


def remove(name: str) -> Callable[[Path], object]:
    return lambda home: (home / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda home: (home / name).write_bytes(content)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = write_project(tmp_path / "p", BODY)
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(root / ".headrace" / "queries" / "counts" / "g1" / "checkpoint")
    return root


@pytest.mark.parametrize(
    ("damage", "code", "exit_code"),
    [
        (lambda home: None, None, 0),
        (write("checkpoint/state/0/0/3.changelog", b""), "HR516", 1),
        (remove("checkpoint/sources/events/2"), "HR509", 1),
        (remove("checkpoint/offsets/1"), "HR514", 1),
        (write("manifest.jsonl", b"\xff\xfe"), "HR515", 1),
        (write("archive.jsonl", b"\xff\xfe\n{}\n"), "HR523", 0),
        (write("repartitions.jsonl", b"\xff\n"), "HR556", 1),
    ],
    ids=["whole", "state", "source log", "offsets", "manifest", "archive", "repartitions"],
)
def test_what_is_bad_is_told_once_with_what_to_do(
    project: Path,
    damage: Callable[[Path], object],
    code: str | None,
    exit_code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(project / ".headrace" / "queries" / "counts" / "g1")
    assert main(["inspect", "checkpoint", "-C", str(project), "--json"]) == exit_code
    (found,) = json.loads(capsys.readouterr().out)["queries"]
    assert [finding["code"] for finding in found["findings"]] == [code] * (code is not None)
    assert all(finding["fix"] and finding["where"]["file"] for finding in found["findings"])
    assert (found["planned"], found["committed"], found["usable"]) == (2, 2, exit_code == 0)
    assert main(["inspect", "checkpoint", "counts", "-C", str(project)]) == exit_code
    shown = capsys.readouterr().out
    assert shown.startswith("counts: planned up to batch 2, committed up to 2; ")
    assert ("fix: " in shown) is (code is not None)


def test_a_query_that_never_ran_is_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_project(tmp_path / "p", BODY)
    assert main(["inspect", "checkpoint", "-C", str(root)]) == 0
    assert capsys.readouterr().out == "counts: no batch yet; usable\n"
