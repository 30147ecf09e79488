"""Storage that cannot be used is one sentence before Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.api import load
from headrace.check.structure import structure
from headrace.cli.entry import main
from headrace.storage import hdfs
from headrace.storage.store import forget
from tests.run.projects import write_project

pytestmark = pytest.mark.plain
QUERY = "q = hr.query(sink=hr.sink.files('out'), name='q')(lambda events: events)"
SILENT = "hdfs://127.0.0.1:9"


def project_at(root: Path, storage: str, web: str = "127.0.0.1:9") -> Path:
    write_project(root, QUERY)
    (root / "headrace.yml").write_text(
        f"storage: '{storage}'\nspark: {{spark.hadoop.dfs.namenode.http-address: '{web}'}}\n"
    )
    return root


@pytest.mark.parametrize(
    ("storage", "code", "what"),
    [
        (f"{SILENT}/lake", "HR831", "(by WebHDFS at 127.0.0.1:9) cannot be reached: Connection refused"),
        ("s3a://lake/headrace", "HR834", "is on s3a://"),
        ("gs://lake/headrace", "HR834", "is on gs://"),
        ("file:///tmp/lake", None, ""),
    ],
)
def test_storage_that_cannot_be_used_is_told_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    storage: str,
    code: str | None,
    what: str,
) -> None:
    monkeypatch.setattr(hdfs, "_PAUSES", ())
    root = project_at(tmp_path / "p", storage)
    found = [each for each in structure(load(root)) if each.severity == "error"]
    assert [each.code for each in found] == ([] if code is None else [code])
    if code is not None:
        assert what in found[0].what
        assert found[0].where.line is not None or found[0].where.file
        assert main(["run", "-C", str(root)]) == 1
        assert code in capsys.readouterr().err


def test_a_look_at_a_store_that_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hdfs, "_PAUSES", ())
    root = project_at(tmp_path / "p", f"{SILENT}/lake")
    for words in (["status", "--storage-only"], ["inspect", "checkpoint", "q"]):
        assert main([*words, "-C", str(root)]) == 2
        told = capsys.readouterr().err
        assert "HR831" in told
        assert "Traceback" not in told


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget("hdfs", "127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "headrace.storage.hdfs", None)
    found = [each.code for each in structure(load(project_at(tmp_path / "p", f"{SILENT}/lake")))]
    assert "HR832" in found


def test_the_address_of_webhdfs_is_found_as_hadoop_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = hdfs.Hdfs.of
    assert of("name:9000", {}).web_address == "name:9870"
    assert of("name:9000", {"spark.hadoop.dfs.namenode.http-address": "web:1"}).web_address == "web:1"
    (tmp_path / "hdfs-site.xml").write_text(
        "<configuration><property><name>dfs.namenode.http-address</name><value>0.0.0.0:8</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert of("name:9000", {}).web_address == "name:8"
