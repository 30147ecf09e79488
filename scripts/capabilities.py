"""Say which rows of tests/capabilities.csv are shown by a passing test, and write the reference page of the rows.

`--read` takes the last recorded run instead of running the suite; `--page` writes the page alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "capabilities.md"
sys.path.insert(0, str(ROOT))

from tests.capability_plugin import RECORD, read_record, rows  # noqa: E402

OPEN = "open"
STYLES = {"shown": "green", "failing": "bold red", "skipped": "yellow", "not run": "yellow", OPEN: "dim"}


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 when a test that claims a row failed, or the suite did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", action="store_true", help="take the last recorded run")
    parser.add_argument("--page", action="store_true", help="only write the reference page")
    given = parser.parse_args(arguments)
    if not given.read:
        PAGE.write_text(page(collected_claims()), encoding="utf-8")
    if given.page:
        return 0
    code = 0 if given.read else suite()
    if given.read and not RECORD.exists():
        print(f"no run is recorded in {RECORD.relative_to(ROOT)}; run: make capabilities", file=sys.stderr)
        return 2
    standing = {row["id"]: state_of(row["id"], read_record().values()) for row in rows()}
    show(standing)
    return 1 if code or "failing" in standing.values() else 0


def suite() -> int:
    """Run all tests, as `make test` does; 0 when they passed."""
    RECORD.unlink(missing_ok=True)
    return subprocess.run(["make", "--silent", "tiers"], cwd=ROOT).returncode


def state_of(row: str, record: Iterable[Mapping[str, object]]) -> str:
    """How a row stands: one failing test makes it failing, a passing one shows it, and without a test it is open."""
    outcomes = {str(test["outcome"]) for test in record if row in list(test["rows"])}  # type: ignore[call-overload]
    if "failed" in outcomes:
        return "failing"
    if "passed" in outcomes:
        return "shown"
    return "skipped" if outcomes else OPEN


def by_area() -> dict[str, list[dict[str, str]]]:
    """The rows of each area, areas in the order in which the table names them."""
    areas: dict[str, list[dict[str, str]]] = {}
    for row in rows():
        areas.setdefault(row["area"], []).append(row)
    return areas


def show(standing: Mapping[str, str]) -> None:
    """The rows by area, and the counts."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("row", "", "what must work"):
        table.add_column(column, no_wrap=column != "what must work")
    for area, listed in by_area().items():
        shown = sum(standing[row["id"]] == "shown" for row in listed)
        table.add_section()
        table.add_row(Text(area, style="bold"), Text(f"{shown}/{len(listed)}", style="bold"), "")
        for row in listed:
            state = standing[row["id"]]
            style = STYLES[state]
            table.add_row(row["id"], Text(state, style=style), Text(row["text"], style="dim" if state == OPEN else ""))
    Console(highlight=False, markup=False).print(table)
    counts = Counter(standing.values())
    print(f"{len(standing)} rows: " + ", ".join(f"{counts[state]} {state}" for state in STYLES if counts[state]))


def collected_claims() -> dict[str, tuple[str, ...]]:
    """The rows that each test claims, as pytest collects them now; nothing is run."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "claims"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--capability-claims", str(file)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0 or not file.exists():
            raise SystemExit(done.stdout + done.stderr)
        lines = file.read_text(encoding="utf-8").splitlines()
    return {test: tuple(claimed.split()) for test, _, claimed in (line.partition("\t") for line in lines)}


def page(claims: Mapping[str, tuple[str, ...]]) -> str:
    """The reference page: every row with the tests that show it."""
    by_row: dict[str, list[str]] = {}
    for test, claimed in claims.items():
        for row_id in claimed:
            by_row.setdefault(row_id, []).append(test.partition("[")[0])
    table = rows()
    done = sum(row["id"] in by_row for row in table)
    lines = [
        "# Capabilities",
        "",
        "<!-- written by scripts/capabilities.py; do not edit -->",
        "",
        "What must work for a user of Headrace, row by row, and the tests that show it. A row without a test is open.",
        "`make capabilities` runs the tests and prints which rows pass.",
        "",
        f"{done} of {len(table)} rows are claimed by a test, {len(table) - done} are open.",
    ]
    for area, listed in by_area().items():
        lines += ["", f"## {area[0].upper()}{area[1:]}", "", "| row | what must work | shown by |", "|---|---|---|"]
        for row in listed:
            tests = "<br>".join(f"`{test}`" for test in sorted(set(by_row.get(row["id"], ())))) or OPEN
            lines.append(f"| {row['id']} | {row['text'].replace('|', chr(92) + '|')} | {tests} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
