"""The wheel and the sdist: what is in them, and that another environment runs the wheel without a clone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headrace
from headrace import registry
from scripts.hatch_build import VENDORED
from scripts.reference import KINDS, connector_page
from tests.conftest import ROOT
from tests.waiting import eventually

CONNECTORS = [(kind, name) for kind in KINDS for name in registry.list_names(kind)]
# Of the example that is a distribution of its own, where a developer has installed it.
OWN = [(kind, name) for kind, name in CONNECTORS if connector_page(kind, name).exists()]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as opened:
        yield opened


def build(tree: Path, directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=tree, env=environ, check=True, capture_output=True)
    return directory


def sums(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()}


@pytest.mark.plain
def test_a_build_from_the_sdist_has_the_bytes_of_one_from_the_tree(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    for file in tree.rglob("*"):
        os.utime(file, (1, 1))  # When a file was written must not matter.
    assert sums(build(tree, tmp_path / "dist")) == sums(dist)


@pytest.mark.plain
def test_the_wheel_holds_the_package_its_licences_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    meta = f"headrace-{headrace.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"headrace", meta}
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode == 0:  # A tree that was unpacked from an archive has no record of its files.
        package = {name.removeprefix("src/") for name in tracked.stdout.split() if (ROOT / name).exists()}
        assert {name for name in names if name.startswith("headrace/")} >= package
        assert {name for name in names if name.startswith("headrace/")} - package <= {"headrace/findings.md", *new()}
    assert {Path(name).name for name in names if "/licenses/" in name} == {
        "LICENSE",
        "dagre.min.js.LEGAL.txt",
        "uPlot.LICENSE.txt",
    }


def new() -> set[str]:
    """Files of the package that are not committed yet."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "src"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    return {name.removeprefix("src/") for name in listed.split()}


@pytest.mark.plain
def test_the_bill_of_materials_has_what_a_wheel_needs_and_nothing_of_development(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if "/sboms/" in name]
    bill = json.loads(wheel.read(name))
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", headrace.__version__)
    of = {component["purl"]: component for component in bill["components"]}
    assert len(of) == len(bill["components"])
    packages = {component["name"] for component in bill["components"] if component["purl"].startswith("pkg:pypi/")}
    locked, released = (pins(ROOT / name) for name in ("constraints.txt", "scripts/released.txt"))
    assert released <= locked, "make lock writes both"
    assert {f"pkg:pypi/{package}@{version}" for package, version in released} <= set(of)
    assert packages == {package for package, _ in released}
    assert packages >= {canonicalize_name(Requirement(text).name) for text in requirements(wheel, "all")}
    assert packages.isdisjoint({"pytest", "ruff", "mypy", "sphinx", "selenium", "nbclient"})
    assert all(
        re.fullmatch("[0-9a-f]{64}", digest["content"]) for part in of.values() for digest in part.get("hashes", ())
    )
    assert of["pkg:generic/kafka-clients@3.9.2"]["hashes"]
    for package, version, licence in VENDORED:
        assert of[f"pkg:npm/{package}@{version}"]["licenses"] == [{"license": {"id": licence}}]
        (script,) = [
            file
            for file in (ROOT / "src/headrace/ui/static/vendor").glob("*.js")
            if file.name.lower().startswith(package.rpartition("/")[2].lower())
        ]
        assert version in script.read_text()


def pins(lock: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w.-]+)(?:\[.*\])?==([^ \n]+)", lock.read_text(), re.MULTILINE))


def requirements(wheel: zipfile.ZipFile, extra: str) -> list[str]:
    """What pip installs of other packages for `headrace[extra]`, in this Python."""
    text = wheel.read(f"headrace-{headrace.__version__}.dist-info/METADATA").decode()
    named = [Requirement(line) for line in Parser().parsestr(text).get_all("Requires-Dist", [])]
    return [str(entry) for entry in named if entry.marker is None or entry.marker.evaluate({"extra": extra})]


@pytest.mark.plain
def test_the_metadata_names_the_pythons_and_the_extras(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"headrace-{headrace.__version__}.dist-info/METADATA").decode()
    fields = Parser().parsestr(text.partition("\n\n")[0] + "\n\n")
    assert fields["Requires-Python"] == ">=3.10"
    for minor in (10, 11, 12, 13):
        assert f"Programming Language :: Python :: 3.{minor}" in fields.get_all("Classifier", [])
    named = set(re.findall(r"`(\w+)`", "".join(map(first_line, OWN))))
    extras = set(fields.get_all("Provides-Extra", []))
    assert named <= extras
    assert extras >= {"state", "ui", "metrics", "otlp", "openlineage", "test", "notebook", "all"}


def first_line(connector: tuple[registry.ConnectorKind, str]) -> str:
    return connector_page(*connector).read_text().split("\n\n")[1]


@pytest.mark.plain
@pytest.mark.parametrize("connector", OWN, ids="-".join)
def test_the_page_of_a_connector_names_its_extra_first(connector: tuple[registry.ConnectorKind, str]) -> None:
    assert re.match(r"Extra: (none[.;]|`\w+` )", first_line(connector))


class Fresh:
    """An environment with the wheel and, from this one, what Headrace needs; its programs see no clone."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place, self.bin = place, place / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install"]
        subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
        (own,) = (place / "venv").glob("lib/python*/site-packages")
        (theirs,) = Path(sys.prefix).glob("lib/python*/site-packages")
        (own / "dependencies.pth").write_text(
            f"{theirs}\n"
        )  # The files of that kind there, as of a clone, are not read.
        self.environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.environ["PATH"] = f"{self.bin}{os.pathsep}{self.environ['PATH']}"

    def headrace(self, *arguments: str, code: int = 0) -> str:
        command = [str(self.bin / "headrace"), *arguments]
        done = subprocess.run(command, cwd=self.place, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def fresh(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return Fresh(tmp_path_factory.mktemp("fresh"), next(dist.glob("*.whl")))


@pytest.mark.long
@pytest.mark.crash
def test_a_newcomer_without_a_clone_goes_from_init_to_verify(fresh: Fresh) -> None:
    source = [str(fresh.bin / "python"), "-c", "import headrace; print(headrace.__file__)"]
    there = subprocess.run(source, cwd=fresh.place, env=fresh.environ, capture_output=True, text=True, check=True)
    assert Path(there.stdout).is_relative_to(fresh.place)
    assert f"version {headrace.__version__}\nSpark " in fresh.headrace("--version")
    fresh.headrace("init", "phones")
    project = ("-C", "phones")
    assert "0 errors" in fresh.headrace("check", *project)
    fresh.headrace("test", *project)
    fresh.headrace("run", "--available-now", *project)
    (status,) = [json.loads(line) for line in fresh.headrace("status", "--json", *project).splitlines()]
    assert "action_counts" in json.dumps(status)
    (verdict,) = [json.loads(line) for line in fresh.headrace("verify", "--json", *project).splitlines()]
    assert verdict["sentence"].startswith("correct: equal to the batch query over the same input")
    assert b"Headrace" in page_of_the_dashboard(fresh)


def page_of_the_dashboard(fresh: Fresh) -> bytes:
    command = [str(fresh.bin / "headrace"), "ui", "-C", "phones", "--port", "0"]
    with subprocess.Popen(command, cwd=fresh.place, env=fresh.environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = next(match[0] for line in process.stdout if (match := re.search(r"http://\S+", line)))
            return eventually(lambda: answer_of(link))
        finally:
            process.terminate()


def answer_of(link: str) -> bytes:
    with suppress(urllib.error.URLError), urllib.request.urlopen(link) as answer:
        return bytes(answer.read())
    return b""  # The link is shown a moment before the server listens.


@pytest.mark.crash
@pytest.mark.long
def test_the_demo_runs_without_a_clone(fresh: Fresh) -> None:
    fresh.headrace("demo", "demo", "--seconds", "4")
    shutil.rmtree(fresh.place / "demo")
