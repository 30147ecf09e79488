"""What is fetched is what was tested: jars by pinned sums, packages of Python by the hashes of the lock."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.checks.structure import check_structure
from headrace.contract import Jars
from headrace.errors import PlatformError
from headrace.loader import load
from headrace.spark.jvm import jars as connectors
from headrace.spark.jvm import maven
from headrace.spark.jvm.maven import changed_jars, known_sums, read_sums, sum_of
from headrace.spark.jvm.settings import FILE_MANAGER_SOURCE
from services.process import jar_sums

pytestmark = pytest.mark.plain
ROOT = Path(__file__).parents[2]
TINY = Jars(name="tiny", coordinates=("g:tiny:1",))
COMPILED = replace(TINY, sources=(FILE_MANAGER_SOURCE,))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for Maven: what lies here is what it brings."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def install(_: Sequence[str], __: Sequence[str], directory: Path, *___: object) -> None:
        for jar in folder.glob("*.jar"):
            shutil.copy(jar, directory)

    monkeypatch.setattr(maven, "_fetch_by_maven", install)
    monkeypatch.setattr(maven, "_fetch_by_ivy", install)
    return folder


def test_a_jar_with_another_sum_than_the_pinned_one_is_not_kept(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "tiny-1.jar").write_bytes(b"good")
    (repository / "more-1.jar").write_bytes(b"good")
    sums = {"tiny-1.jar": sum_of(repository / "tiny-1.jar")}
    for module in (maven, connectors):
        monkeypatch.setattr(module, "known_sums", lambda: sums)
    jars = connectors.install(TINY, tmp_path / "cache")
    assert [jar.name for jar in jars] == ["more-1.jar", "tiny-1.jar"]
    errors = capsys.readouterr().err
    assert "HR484 (note)" in errors
    assert "more-1.jar" in errors
    assert "tiny-1.jar" not in errors
    (repository / "tiny-1.jar").write_bytes(b"evil")
    with pytest.raises(PlatformError, match=r"HR483.*tiny-1\.jar") as raised:
        connectors.install(TINY, tmp_path / "cache")
    assert raised.value.findings[0].fix
    assert [jar.read_bytes() for jar in jars] == [b"good"] * 2, "those that are in use stay"
    with pytest.raises(PlatformError, match="HR483"):
        connectors.install(TINY, tmp_path / "new")
    assert list(connectors.folder_of(TINY, tmp_path / "new").iterdir()) == []


OWN = connectors.jar_name(FILE_MANAGER_SOURCE)


@pytest.fixture
def connector_folder(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a connector with a jar of a known sum, one of none, and one that was compiled here."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(connectors.DIRECTORIES_VARIABLE, raising=False)

    def compile_into(_: str, folder: Path) -> Path:
        (folder / OWN).write_bytes(b"good")
        return folder / OWN

    monkeypatch.setattr(connectors, "compile_into", compile_into)
    for name in ("known-1.jar", "more-1.jar"):
        (repository / name).write_bytes(b"good")
    sums = {"known-1.jar": sum_of(repository / "known-1.jar")}
    for module in (maven, connectors):
        monkeypatch.setattr(module, "known_sums", lambda: sums)
    return connectors.install(COMPILED, connectors.cache())[0].parent


def class_path() -> list[str]:
    return sorted(Path(jar).name for jar in connectors.settings([COMPILED])["spark.jars"].split(","))


@pytest.mark.parametrize("name", ["known-1.jar", "more-1.jar", OWN])
def test_no_session_starts_with_a_jar_that_was_changed(connector_folder: Path, name: str) -> None:
    assert class_path() == [OWN, "known-1.jar", "more-1.jar"]
    (connector_folder / name).write_bytes(b"evil")
    with pytest.raises(PlatformError, match="HR483") as refused:
        class_path()
    finding = refused.value.findings[0]
    assert (name in finding.what, str(connector_folder) in finding.what, bool(finding.fix)) == (True, True, True)


def test_a_jar_that_was_not_installed_is_left_out_with_a_warning(
    connector_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (connector_folder / "evil-1.jar").write_bytes(b"evil")
    capsys.readouterr()
    assert class_path() == [OWN, "known-1.jar", "more-1.jar"]
    assert "HR140 (warning)" in (errors := capsys.readouterr().err)
    assert "evil-1.jar" in errors


def test_jars_without_their_sums_are_fetched_again(connector_folder: Path) -> None:
    (connector_folder / connectors.SUMS).unlink()
    assert connectors.find(COMPILED) is None
    assert class_path() == [OWN, "known-1.jar", "more-1.jar"]


def test_jars_that_are_here_are_those_that_are_pinned() -> None:
    """Each connector, the broker and the stand-ins, as far as this machine has them."""
    here = [*connectors.cache().parent.rglob("*.jar")]
    assert changed_jars(here, jar_sums()) == []


def test_the_sums_name_what_the_connectors_are_made_of() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in jar_sums().values())
    names = {re.sub(r"-\d[\d.]*\.jar$", "", name) for name in known_sums()}
    assert {"kafka-clients", "commons-pool2", "delta-storage"} <= names
    assert read_sums("# a comment\n\nabc  x.jar\n") == {"x.jar": "abc"}


def test_a_users_own_coordinates_are_reported_as_unchecked(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text("name: p\ntargets:\n  dev: {spark: {spark.jars.packages: 'g:a:1'}}\n")
    severities = {finding.code: finding.severity for finding in check_structure(load(tmp_path, environ={}))}
    assert severities.get("HR484") == "note"


LOCKS = ("constraints.txt", "scripts/build.txt")


@pytest.mark.parametrize("name", LOCKS)
def test_each_package_of_the_lock_has_its_hashes_and_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    for entry in text.replace("\\\n", " ").splitlines():
        assert re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry), entry


def test_the_setup_installs_nothing_that_has_no_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if line.startswith("\t$(PIP)")]
    assert len(installs) == 3
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation" in line for line in installs)
