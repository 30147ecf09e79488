"""Which rows of tests/capabilities.csv the tests claim, and how those tests went.

A test claims a row by `@pytest.mark.capability("OP-WIN-01")`. What was seen is kept in .cache/capabilities.json by the
test's id: a run of the whole suite replaces the record, a run of a part replaces what it ran.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS_FILE = ROOT / "tests" / "capabilities.csv"
RECORD = ROOT / ".cache" / "capabilities.json"

Claims = dict[str, tuple[str, ...]]
CLAIMS = pytest.StashKey[Claims]()
OUTCOMES = pytest.StashKey[dict[str, str]]()
DESELECTED = pytest.StashKey[bool]()


def rows() -> list[dict[str, str]]:
    """The rows of the table: id, seed, area, text."""
    with ROWS_FILE.open(encoding="utf-8", newline="") as file:
        return [{**row, "text": row["what must work for a user of headrace"].strip()} for row in csv.DictReader(file)]


def claims_of(items: Iterable[pytest.Item]) -> Claims:
    """The rows that each test claims; raises UsageError for every row that is not in the table."""
    known = {row["id"] for row in rows()}
    found: Claims = {}
    wrong: list[str] = []
    for item in items:
        claimed = tuple(dict.fromkeys(str(row) for mark in item.iter_markers("capability") for row in mark.args))
        for row in claimed:
            if row not in known:
                near = difflib.get_close_matches(row, known, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                wrong.append(f"{item.nodeid} claims '{row}', which is no row of {ROWS_FILE.name}{hint}")
        if claimed:
            found[item.nodeid] = claimed
    if wrong:
        raise pytest.UsageError(*wrong)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--capability-claims FILE`, by which scripts/capabilities.py learns what is claimed."""
    parser.addoption("--capability-claims", metavar="FILE", help="write each claiming test and its rows to FILE")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the claims of everything collected, before any of it is deselected."""
    claims = config.stash[CLAIMS] = claims_of(items)
    if file := config.getoption("--capability-claims"):
        lines = [f"{test}\t{' '.join(claimed)}\n" for test, claimed in claims.items()]
        Path(file).write_text("".join(lines), encoding="utf-8")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Remember that this is no run of the whole suite."""
    if items:
        items[0].config.stash[DESELECTED] = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a test that claims rows went; its setup and teardown count too."""
    report = yield
    if item.nodeid in item.config.stash.get(CLAIMS, {}):
        outcomes = item.config.stash.setdefault(OUTCOMES, {})
        if outcomes.get(item.nodeid) in (None, "passed"):
            outcomes[item.nodeid] = report.outcome
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep what was seen."""
    config = session.config
    outcomes = config.stash.get(OUTCOMES, {})
    if not outcomes or config.option.collectonly:
        return
    seen = {test: {"rows": list(config.stash[CLAIMS][test]), "outcome": outcome} for test, outcome in outcomes.items()}
    whole = covers_everything(config) and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    kept = {} if whole else {test: old for test, old in read_record().items() if test not in seen}
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps({**kept, **seen}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def covers_everything(config: pytest.Config) -> bool:
    """Whether pytest was called for the whole suite and left nothing of it out."""
    return config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.stash.get(DESELECTED, False)


def read_record() -> dict[str, dict[str, object]]:
    """What earlier runs saw, by the test's id; empty before the first."""
    try:
        return dict(json.loads(RECORD.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
