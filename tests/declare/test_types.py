"""What a type checker says of users' projects: nothing of sound ones, and each mistake in its line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.demo.starter import TEMPLATES
from scripts import signatures

pytestmark = pytest.mark.plain

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "connector-duckdb" / "src" / "headrace_duckdb"
PROJECTS = Path(__file__).parent / "projects"
# What lies outside is not looked into: neither what it is nor how long it takes is of interest here.
SETTINGS = """
[mypy]
strict = True
[mypy-pandas.*,numpy.*,pyarrow.*,pydantic.*,pyspark.pandas.*,pyspark.ml.*,pyspark.mllib.*,pyspark.sql.connect.*]
follow_imports = skip
[mypy-duckdb.*]
ignore_missing_imports = true
follow_imports = skip
"""


def modules() -> dict[str, Path]:
    """Every Python file that shows users how to write one, under a name of its own."""
    examples = [file for file in (ROOT / "examples").rglob("*.py") if PACKAGE not in file.parents]
    shown = {re.sub(r"\W", "_", str(file.relative_to(ROOT))[:-3]): file for file in examples}
    shown |= {f"{PACKAGE.name}/{file.stem}": file for file in PACKAGE.glob("*.py")}
    demo = {"demo": TEMPLATES / "python" / "pipeline.py.template"}
    return shown | demo | {file.stem: file for file in PROJECTS.glob("*.py")}


@pytest.fixture(scope="module")
def mistakes_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """The line and the code of each error, by the module's name; one run for all, for it takes many seconds."""
    place = tmp_path_factory.mktemp("typed")
    (place / "mypy.ini").write_text(SETTINGS)
    (place / PACKAGE.name).mkdir()
    for name, file in modules().items():
        shutil.copyfile(file, place / f"{name}.py")
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--cache-dir=/dev/null", "."]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    mistakes: dict[str, set[tuple[int, str]]] = {name: set() for name in modules()}
    for name, line, code in re.findall(r"^([\w/]+)\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE):
        mistakes[name].add((int(line), code))
    assert sum(map(len, mistakes.values())) > 0, done.stdout
    print(done.stdout)
    return mistakes


def test_sound_projects_have_no_error(mistakes_of: dict[str, set[tuple[int, str]]]) -> None:
    assert {name: errors for name, errors in mistakes_of.items() if errors and name != "bad"} == {}
    assert len(mistakes_of) >= 12


def test_each_mistake_is_found_in_its_line(mistakes_of: dict[str, set[tuple[int, str]]]) -> None:
    assert mistakes_of["bad"] == set(_expected_mistakes((PROJECTS / "bad.py").read_text(encoding="utf-8")))


def _expected_mistakes(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if code := re.search(r"# error: ([\w-]+)$", line):
            yield number, code[1]


def test_the_stub_says_what_the_connectors_take() -> None:
    assert signatures.STUB.read_text(encoding="utf-8") == signatures.stub()
