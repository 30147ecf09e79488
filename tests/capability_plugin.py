"""Which rows of tests/capabilities.csv the tests claim, and how those tests went.

A test claims a row by `@pytest.mark.capability("OP-WIN-01")`. What was seen is kept in .cache/capabilities.json by the
test's id: a run of the whole suite replaces the record, a run of a part replaces what it ran. Of several processes the
one that hands out the tests keeps it.
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
DESELECTED = pytest.StashKey[bool]()


def rows() -> list[dict[str, str]]:
    """The rows of the table: id, seed, area, text."""
    with ROWS_FILE.open(encoding="utf-8", newline="") as file:
        return [{**row, "text": row["what must work for a user of headrace"].strip()} for row in csv.DictReader(file)]


def claims_of(items: Iterable[pytest.Item]) -> Claims:
    """The rows that each test claims; raises UsageError for every row that is not in the table."""
    ids = {row["id"] for row in rows()}
    claims: Claims = {}
    wrong: list[str] = []
    for item in items:
        claimed = tuple(dict.fromkeys(str(row) for mark in item.iter_markers("capability") for row in mark.args))
        for row in claimed:
            if row not in ids:
                near = difflib.get_close_matches(row, ids, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                wrong.append(f"{item.nodeid} claims '{row}', which is not a row of {ROWS_FILE.name}{hint}")
        if claimed:
            claims[item.nodeid] = claimed
    if wrong:
        raise pytest.UsageError(*wrong)
    return claims


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
    """Remember that this is not a run of the whole suite."""
    if items:
        items[0].config.stash[DESELECTED] = True


def pytest_configure(config: pytest.Config) -> None:
    """Keep the record, unless another process does."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report which rows its test claims."""
    report = yield
    if claimed := item.config.stash.get(CLAIMS, {}).get(item.nodeid):
        report.capabilities = list(claimed)  # type: ignore[attr-defined]
    return report


class _Recorder:
    """Writes down how the tests that claim rows went; a test's setup and teardown count too."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seen: dict[str, dict[str, object]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        claimed = getattr(report, "capabilities", None)
        if claimed and self.seen.get(report.nodeid, {}).get("outcome") in (None, "passed"):
            self.seen[report.nodeid] = {"rows": claimed, "outcome": report.outcome}

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if not self.seen or self.config.option.collectonly:
            return
        whole = runs_everything(self.config) and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        kept = {} if whole else {test: old for test, old in read_record().items() if test not in self.seen}
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps({**kept, **self.seen}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def collects_everything(config: pytest.Config) -> bool:
    """Whether pytest was called for the whole suite, of which it may run a part."""
    return [(config.invocation_params.dir / path).resolve() for path in config.args] == [ROOT / "tests"]


def runs_everything(config: pytest.Config) -> bool:
    """Whether pytest was called for the whole suite and leaves nothing of it out."""
    chosen = config.option.markexpr or config.option.keyword or config.stash.get(DESELECTED, False)
    return collects_everything(config) and not chosen


def read_record() -> dict[str, dict[str, object]]:
    """What earlier runs saw, by the test's id; empty before the first."""
    try:
        return dict(json.loads(RECORD.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
