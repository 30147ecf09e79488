"""Local files are made without a process for each, where the library for it is here."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark.jvm import hadoop_files, jars
from tests.servers import unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def given_jar(place: Path) -> Path:
    folder = jars.folder_of(jars.known_connectors()[hadoop_files.LIBRARY], place)
    folder.mkdir(parents=True)
    (folder / jars.CONTENT).write_text("\n".join(jars.known_connectors()[hadoop_files.LIBRARY].coordinates))
    jar = folder / "library.jar"
    jar.write_text("jar")
    (folder / jars.SUMS).write_text(f"{hashlib.sha256(b'jar').hexdigest()}  {jar.name}\n")
    return jar


@pytest.mark.plain
def test_the_library_is_used_where_it_is_here_and_nothing_else_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(jars.DIRECTORIES_VARIABLE, raising=False)
    assert hadoop_files.settings({}) == {}
    jar = given_jar(tmp_path / "cache" / "connectors")
    chosen = {hadoop_files.SETTING: hadoop_files.FILE_SYSTEM, hadoop_files.CLASS_PATH: str(jar)}
    assert hadoop_files.settings({}) == chosen
    assert (
        hadoop_files.settings({hadoop_files.CLASS_PATH: "a.jar:b.jar"})[hadoop_files.CLASS_PATH] == f"{jar}:a.jar:b.jar"
    )
    assert hadoop_files.settings({hadoop_files.SETTING: "another"}) == {}
    # A class path has no way to write such a place.
    given_jar(tmp_path / "a:b")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "none"))
    monkeypatch.setenv(jars.DIRECTORIES_VARIABLE, str(tmp_path / "a:b"))
    assert hadoop_files.settings({}) == {}


@pytest.mark.plain
def test_where_it_is_not_to_be_had_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(jars.DIRECTORIES_VARIABLE, raising=False)

    def offline(*_given: Any, **_options: Any) -> list[Path]:
        raise jars.FetchError("no network")

    monkeypatch.setattr(jars, "fetch", offline)
    hadoop_files.ensure()
    errors = capsys.readouterr().err
    assert "HR003 (note): each file of a checkpoint takes some milliseconds longer: " in errors
    assert "no network" in errors


@pytest.mark.spark
def test_a_local_session_makes_its_files_by_the_library(tmp_path: Path, spark: SparkSession) -> None:
    if hadoop_files.jar() is None:
        unavailable("the library is not here; fetch it: python -m headrace.spark.jvm.cds")
    session: Any = spark
    path = session._jvm.org.apache.hadoop.fs.Path(str(tmp_path / "a b"))
    system = path.getFileSystem(session._jsc.hadoopConfiguration())
    assert str(system.getClass().getName()) == hadoop_files.FILE_SYSTEM
    system.create(path, True).close()
    # With a checksum next to it, and the mode that the process would give it.
    assert (tmp_path / ".a b.crc").exists()
    (tmp_path / "own").touch()
    assert stat.S_IMODE((tmp_path / "a b").stat().st_mode) == stat.S_IMODE((tmp_path / "own").stat().st_mode)
