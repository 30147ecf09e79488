"""Finding Java: what Spark would take, and one sentence where it cannot be used."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headrace.errors import PlatformError
from headrace.spark.jvm.preconditions import require_java

pytestmark = pytest.mark.plain

PREFLIGHT = Path(__file__).parents[2] / "scripts" / "preflight.sh"


def fake_java(home: Path, answer: str | None, release: str | None = None) -> Path:
    """A program that answers `-version` as Java does, with a note of every call, and its `release` file."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    command = f"echo '{answer}' >&2" if answer else "exit 1"
    program.write_text(f"#!/bin/sh\necho called >> '{home}/calls'\n{command}\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{release}"\n')
    return program


@pytest.mark.parametrize(
    ("answer", "release", "version", "major"),
    [
        pytest.param('openjdk version "17.0.15" 2025-04-15', None, "17.0.15", 17, id="asked"),
        pytest.param('java version "21" 2023-09-19 LTS', None, "21", 21, id="a first release"),
        pytest.param('openjdk version "26-ea" 2026-03-17', None, "26-ea", 26, id="early access"),
        pytest.param('openjdk version "11.0.2"', "17.0.1", "17.0.1", 17, id="the release file is believed"),
        pytest.param('openjdk version "17.0.9"', "", "17.0.9", 17, id="an empty release file is not"),
    ],
)
def test_a_java_that_is_new_enough_is_found(
    tmp_path: Path, answer: str, release: str | None, version: str, major: int
) -> None:
    program = fake_java(tmp_path / "jdk", answer, release)
    java = require_java({"PATH": str(program.parent)})
    assert (java.version, java.major, java.home) == (version, major, tmp_path / "jdk")


def test_no_process_is_started_where_there_is_a_release_file(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "jdk", 'openjdk version "17.0.15"', "17.0.15")
    require_java({"PATH": str(program.parent)})
    assert not (tmp_path / "jdk" / "calls").exists()


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "new", 'openjdk version "21.0.2"')
    old = fake_java(tmp_path / "old", 'openjdk version "1.8.0_392"')
    assert require_java({"PATH": str(old.parent), "JAVA_HOME": str(tmp_path / "new")}).major == 21


def test_a_link_is_followed_to_the_installation(tmp_path: Path) -> None:
    program = fake_java(tmp_path / "jdk", None, "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)
    assert require_java({"PATH": str(tmp_path / "bin")}).path == program


@pytest.mark.parametrize(
    ("answer", "java_home", "code", "says"),
    [
        pytest.param(None, None, "HR001", "does not answer as a Java does", id="a stub that only fails"),
        pytest.param('openjdk version "11.0.25"', None, "HR001", "is Java 11.0.25", id="too old"),
        pytest.param('java version "1.8.0_392"', None, "HR001", "is Java 1.8.0_392", id="much too old"),
        pytest.param('openjdk version "17.0.15"', "gone", "HR001", "JAVA_HOME is gone", id="JAVA_HOME to nothing"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(
    tmp_path: Path, answer: str | None, java_home: str | None, code: str, says: str
) -> None:
    program = fake_java(tmp_path / "jdk", answer)
    environ = {"PATH": f"{program.parent}:/usr/bin:/bin"} | ({"JAVA_HOME": java_home} if java_home else {})
    with pytest.raises(PlatformError) as caught:
        require_java(environ)
    (finding,) = caught.value.findings
    assert finding.code == code
    assert says in finding.what
    assert "Java 17 or newer" in finding.what
    assert all(command in finding.fix for command in ("apt-get install", "dnf install", "brew install"))


def test_no_java_at_all_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match=r"HR001: no Java was found on the PATH, JAVA_HOME is not set"):
        require_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        pytest.param('openjdk version "17.0.15"', 0, "", id="fine"),
        pytest.param('java version "21" 2023-09-19', 0, "", id="a first release"),
        pytest.param('openjdk version "11.0.25"', 2, "is Java 11", id="too old"),
        pytest.param('java version "1.8.0_392"', 2, "is Java 8", id="much too old"),
        pytest.param(None, 2, "cannot be determined", id="a stub that only fails"),
    ],
)
def test_the_preflight_of_make_says_the_same_before_anything_is_installed(
    tmp_path: Path, answer: str | None, code: int, says: str
) -> None:
    fake_java(tmp_path / "jdk", answer)
    done = _preflight({"JAVA_HOME": str(tmp_path / "jdk")})
    assert done.returncode == code
    assert says in done.stderr
    assert done.stderr.count("\n") == (1 if code else 0)


@pytest.mark.parametrize(
    ("python", "says"),
    [
        pytest.param("no-such-python", "no 'no-such-python' was found; Python 3.10 or newer is needed", id="none"),
        pytest.param("old-python", "Python 3.10 or newer is needed", id="too old"),
    ],
)
def test_the_preflight_names_the_python_that_is_needed(tmp_path: Path, python: str, says: str) -> None:
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.10 && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = _preflight({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, python)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr


def test_the_preflight_says_where_java_home_points_to_nothing(tmp_path: Path) -> None:
    done = _preflight({"JAVA_HOME": str(tmp_path / "gone")})
    assert done.returncode == 2
    assert f"no Java was found in JAVA_HOME ({tmp_path / 'gone'})" in done.stderr


def _preflight(extra: dict[str, str], python: str = "python3") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | extra
    return subprocess.run(["sh", str(PREFLIGHT), python], capture_output=True, text=True, env=environ)
