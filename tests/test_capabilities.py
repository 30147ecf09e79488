"""The table of capabilities, the tests that claim its rows, and the page that names both."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.capabilities import PAGE, page, state_of
from tests.capability_plugin import CLAIMS, ROOT, collects_everything, rows

pytestmark = pytest.mark.plain

LINE = re.compile(r"^\| (?P<row>[A-Z]+(?:-[A-Z]+)*-\d\d) \| .* \| (?P<tests>[^|]*) \|$", re.MULTILINE)


def read_page() -> dict[str, list[str]]:
    """The rows of the committed page, each with the tests named in it."""
    matches = LINE.finditer(PAGE.read_text(encoding="utf-8"))
    return {match["row"]: re.findall(r"`([^`]+)`", match["tests"]) for match in matches}


def functions(file: Path) -> set[str]:
    """The names of a test file's functions, those in classes as `Class::function`."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.update(f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))
    return names


def test_the_page_lists_exactly_the_rows_of_the_table() -> None:
    ids = [row["id"] for row in rows()]
    assert len(set(ids)) == len(ids)
    assert sorted(read_page()) == sorted(ids)


def test_every_test_named_in_the_page_exists() -> None:
    for row, tests in read_page().items():
        for test in tests:
            file, _, function = test.partition("::")
            assert function in functions(ROOT / file), f"{row} names {test}"


def test_the_page_names_the_tests_that_carry_the_markers(request: pytest.FixtureRequest) -> None:
    claims = request.config.stash[CLAIMS]
    if collects_everything(request.config):
        assert PAGE.read_text(encoding="utf-8") == page(claims), "stale; run: make docs"
    collected = {item.nodeid.partition("::")[0] for item in request.session.items}
    claimed = {(test.partition("[")[0], row) for test, wanted in claims.items() for row in wanted}
    for row, tests in read_page().items():
        for test in tests:
            assert (test, row) in claimed or test.partition("::")[0] not in collected, f"{test} does not claim {row}"


def test_a_run_without_further_rounds_shows_each_row(request: pytest.FixtureRequest) -> None:
    option = request.config.option
    if not collects_everything(request.config) or option.markexpr or option.keyword or option.quick:
        pytest.skip("a part of the tests was asked for")
    tests = [item for item in request.session.items if item.get_closest_marker("long") is None]
    shown = {row for item in tests for mark in item.iter_markers("capability") for row in mark.args}
    assert {row["id"] for row in rows()} - shown == set()


def test_a_test_that_claims_an_unknown_row_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "test_claim.py"
    file.write_text(
        "import pytest\n\n@pytest.mark.capability('OP-WIN-1')\ndef test_nothing(): pass\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.capability_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-c", "/dev/null", "--rootdir", str(tmp_path), str(file)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "claims 'OP-WIN-1', which is not a row of capabilities.csv; did you mean 'OP-WIN-" in done.stderr


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        pytest.param([], "open", id="no test"),
        pytest.param(["passed", "skipped"], "shown", id="one passes"),
        pytest.param(["passed", "failed"], "failing", id="one fails"),
        pytest.param(["skipped"], "skipped", id="none ran"),
    ],
)
def test_a_row_stands_as_its_tests_do(outcomes: list[str], state: str) -> None:
    record = [{"rows": ["OP-WIN-01"], "outcome": outcome} for outcome in outcomes]
    assert state_of("OP-WIN-01", [*record, {"rows": ["OP-WIN-02"], "outcome": "failed"}]) == state
