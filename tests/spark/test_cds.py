"""The CDS archive: bound to one Java and one set of jars, made once, and never a reason to fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.spark.jvm import cds, hadoop_files, jars
from headrace.spark.jvm.preconditions import Java, require_java
from tests.servers import unavailable
from tests.waiting import until

MAKE = """
import sys
from pathlib import Path
from headrace.spark.jvm import cds
from headrace.spark.jvm.preconditions import Java
print(cds.make(Java(path=Path(sys.argv[1]), home=Path(sys.argv[2]), version="17.0.15", major=17)))
"""

# A driver that has the archive made, as its session does, and then waits for its end.
DRIVER = """
from headrace.spark.jvm import cds
from headrace.spark.jvm.preconditions import require_java
print(cds.ensure_in_background(require_java()), flush=True)
input()
"""
# With it the training fetches no jar.
CONNECTORS = os.pathsep.join(map(str, jars.places()))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A Java and jars that are only files, and an empty cache."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("java")
    (home / "release").write_text('JAVA_VERSION="17.0.15"')
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark-core.jar").write_text("jar")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADRACE_CDS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return Java(path=home / "bin" / "java", home=home, version="17.0.15", major=17)


def given_archive(java: Java) -> Path:
    """An archive as `make` leaves it, without a training run."""
    jars = Path(os.environ["SPARK_HOME"]) / "jars"
    archive = cds.cache() / f"{cds._key(java.path, jars)}.jsa"
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_text("classes")
    archive.with_suffix(".json").write_text(json.dumps({"java": str(java.path), "jars": str(jars)}))
    return archive


@pytest.mark.plain
def test_an_archive_that_fits_is_used_without_a_word(java: Java) -> None:
    archive = given_archive(java)
    assert cds.options(java)[:2] == [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    assert cds.ensure_in_background(java) is None


@pytest.mark.plain
@pytest.mark.parametrize("changed", ["jdk/release", "jdk/bin/java", "spark/jars/spark-core.jar", "spark/jars/new.jar"])
def test_an_archive_of_another_java_or_other_jars_is_not_used(java: Java, tmp_path: Path, changed: str) -> None:
    given_archive(java)
    (tmp_path / changed).write_text("changed")
    assert cds.options(java) == []


@pytest.mark.plain
@pytest.mark.parametrize("word", ["off", "OFF", "0", "false"])
def test_it_can_be_switched_off(java: Java, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    given_archive(java)
    monkeypatch.setenv("HEADRACE_CDS", word)
    assert cds.options(java) == []
    assert cds.make(java) is None


@pytest.mark.plain
def test_a_path_that_the_launcher_would_split_is_left_out(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "my cache"))
    assert given_archive(java).is_file()
    assert cds.options(java) == []


@pytest.mark.plain
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"HEADRACE_CACHE": "/a"}, "/a/cds", id="its own"),
        pytest.param({"XDG_CACHE_HOME": "/x"}, "/x/headrace/cds", id="the desktop's"),
        pytest.param({"HOME": "/home/me"}, "/home/me/.cache/headrace/cds", id="neither"),
    ],
)
def test_the_cache_is_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("HEADRACE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cds.cache()) == expected


@pytest.mark.plain
@pytest.mark.parametrize(
    ("cache", "says"),
    [
        pytest.param("spark/jars/spark-core.jar/below", "Not a directory", id="no directory can be made"),
        pytest.param("cache", "the training run failed", id="the training run fails"),
    ],
)
def test_a_fault_costs_one_sentence_and_nothing_else(
    java: Java,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    cache: str,
    says: str,
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / cache))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java-here"))
    assert cds.make(java) is None
    errors = capfd.readouterr().err
    assert "HR003 (note): no CDS archive was made" in errors
    assert says in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.glob("cache/cds/*-*"))


@pytest.mark.plain
def test_what_failed_once_is_not_tried_in_the_background_at_each_start(java: Java) -> None:
    archive = given_archive(java)
    archive.unlink()
    archive.with_suffix(".failed").touch()
    assert cds.ensure_in_background(java) is None


@pytest.mark.plain
def test_ci_starts_nothing_in_the_background(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert cds.ensure_in_background(java) is None
    assert not cds.cache().exists()


@pytest.mark.plain
@pytest.mark.parametrize(
    ("before", "says"),
    [
        pytest.param(False, "there is no CDS archive yet", id="none yet"),
        pytest.param(True, "the CDS archive fits another Java or other jars", id="another one"),
    ],
)
def test_without_a_fitting_archive_a_note_says_that_one_is_being_made(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, says: str
) -> None:
    if before:
        given_archive(java)
        (tmp_path / "spark" / "jars" / "new.jar").write_text("new")
    # A `nice` that only notes what it was asked to start.
    shim, asked = tmp_path / "bin" / "nice", tmp_path / "asked"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\nprintf '%s ' \"$@\" > '{asked}.part'\nmv '{asked}.part' '{asked}'\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    note = cds.ensure_in_background(java)
    assert note is not None
    assert (note.code, note.severity) == ("HR003", "note")
    assert says in note.what
    assert _appears(asked).read_text().split() == [
        "-n",
        "19",
        sys.executable,
        "-m",
        "headrace.spark.jvm.cds",
        "--with-parent",
    ]


@pytest.mark.plain
@pytest.mark.parametrize("is_killed", [pytest.param(True, id="killed"), pytest.param(False, id="ended")])
def test_the_training_ends_with_a_killed_driver_and_outlives_one_that_has_ended(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    # A `spark-submit` that ends when its input closes, as Spark's JVM does.
    submit, started, ended = tmp_path / "spark" / "bin" / "spark-submit", tmp_path / "started", tmp_path / "ended"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $PPID > '{started}.part'\nmv '{started}.part' '{started}'\ncat\n> '{ended}'\n")
    for program in (submit, java.path):
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.home))
    monkeypatch.setenv("HEADRACE_CONNECTORS", CONNECTORS)
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    training = int(_appears(started).read_text())
    try:
        if is_killed:
            driver.kill()
            _appears(ended)
        else:
            driver.communicate("\n")
            assert not ended.exists()
    finally:
        driver.communicate()
        with suppress(ProcessLookupError):
            os.kill(training, signal.SIGKILL)
        _appears(ended)


@pytest.mark.plain
def test_only_archives_that_nothing_can_use_are_deleted(java: Java, tmp_path: Path) -> None:
    usable, stale = given_archive(java), cds.cache() / "0000.jsa"
    stale.write_text("old")
    stale.with_suffix(".json").write_text(usable.with_suffix(".json").read_text())
    cds._discard_unusable()
    assert {path.name for path in cds.cache().glob("*.js*")} == {usable.name, usable.with_suffix(".json").name}


@pytest.mark.plain
def test_a_second_maker_waits_for_the_first_and_takes_its_archive(java: Java) -> None:
    jars = Path(os.environ["SPARK_HOME"]) / "jars"
    cds.cache().mkdir(parents=True)
    with cds._lock(cds._key(java.path, jars)):
        second = subprocess.Popen(
            [sys.executable, "-c", MAKE, str(java.path), str(java.home)], stdout=subprocess.PIPE, text=True
        )
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=1)
        archive = given_archive(java)
    assert second.communicate(timeout=60)[0].strip() == str(archive)


@pytest.mark.plain
def test_executors_get_the_archive_where_their_classes_are_the_drivers(java: Java) -> None:
    assert cds.executor_settings(java, {}) == {}
    options = f"-XX:SharedArchiveFile={given_archive(java)} -Xshare:auto"
    settings = cds.executor_settings(java, {cds.EXECUTOR_OPTIONS: "-XX:+UseSerialGC"})
    assert settings[cds.EXECUTOR_OPTIONS].startswith(options)
    assert settings[cds.EXECUTOR_OPTIONS].endswith(" -XX:+UseSerialGC")
    assert cds.executor_settings(java, {cds.EXECUTOR_CLASS_PATH: "own.jar"}) == {}


@pytest.mark.plain
def test_the_class_path_is_that_of_spark_without_settings_of_its_own(
    java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hadoop_files, "jar", lambda: Path("/first.jar"))
    jars = Path(os.environ["SPARK_HOME"]) / "jars"
    (jars / "slf4j-api-2.0.jar").touch()
    assert cds.class_path(jars) == f"/first.jar:{jars.parent}/conf:{jars}/slf4j-api-2.0.jar:{jars}/*"
    (jars.parent / "conf").mkdir()
    assert cds.class_path(jars) is None


@pytest.mark.spark
def test_a_real_jvm_maps_the_archive_that_the_installation_made() -> None:
    java = require_java()
    archive = cds.archive_for(java)
    if archive is None:
        unavailable("there is no CDS archive; make one: python -m headrace.spark.jvm.cds")
    script = (
        "import json, sys; from pyspark.sql import SparkSession as S; "
        "s = S.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.driver.extraJavaOptions', sys.argv[1]).config(map=json.loads(sys.argv[2])).getOrCreate(); "
        "pid = s.sparkContext._jvm.java.lang.ProcessHandle.current().pid(); print('jvm', pid); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, " ".join(cds.options(java)), json.dumps(hadoop_files.settings({}))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        pid = process.stdout.readline().split()[1]
        maps = Path(f"/proc/{pid}/maps")
        if not maps.exists():
            pytest.skip("what a process maps can be seen under Linux only")
        assert str(archive) in maps.read_text()
    finally:
        process.stdin.close()
        process.wait(timeout=60)


def _appears(path: Path) -> Path:
    until(f"file {path.name}", path.exists, pause=0.02)
    return path
