"""`headrace check` and `headrace verify` on what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace.api import load
from headrace.cli import main
from headrace.cli.verify import _say, difference_table, figures, sentence
from headrace.demo.starter import write_project
from headrace.generations.log import begin
from headrace.generations.register import layout_of, register_query
from headrace.verifier.verdict import Difference, Verdict

pytestmark = pytest.mark.plain


@pytest.fixture
def phones(tmp_path: Path) -> Path:
    write_project(tmp_path / "phones", event_files=1)
    return tmp_path / "phones"


def test_with_json_findings_and_guarantees_are_data(phones: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-C", str(phones), "--no-spark", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == []
    assert document["guarantees"]["action_counts"]["level"] == "exactly once"


def test_every_fault_of_a_project_is_reported_with_its_line(phones: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = phones / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("format=", "fromat=").replace("key=", "keys="))
    assert main(["check", "-C", str(phones), "--no-spark"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("pipeline.py:") >= 2
    assert "did you mean 'format'?" in errors
    assert "did you mean 'key'?" in errors


@pytest.mark.parametrize(("option", "is_noted"), [("", True), (", rewindable: 7 days", False)])
def test_check_says_that_a_database_is_not_rewound_without_what_that_needs(
    option: str, is_noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = f"{{sqlite: {{path: out.db, table: t, key: [value]{option}}}}}"
    (tmp_path / "headrace.yml").write_text(
        "sources: {events: {rate: {}}}\n"
        f"queries:\n  q: {{select: SELECT * FROM events, sink: {sink}}}\n"
        "  f: {select: SELECT * FROM events, sink: {files: out}}\n"
    )
    assert main(["check", "-C", str(tmp_path), "--no-spark"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  rewind: ")]
    assert len(lines) == is_noted
    assert all("declare rewindable: 7 days" in line for line in lines)


def test_a_first_batch_that_is_not_committed_is_reported_without_a_session(phones: Path) -> None:
    project = load(phones)
    query = project.queries["action_counts"]
    register_query(project, query)
    begin(layout_of(project, query).folder)
    offsets = layout_of(project, query).checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{}\n-")
    command = [sys.executable, "-m", "headrace", "verify", "-C", str(phones)]
    # Without a Java no session starts.
    done = subprocess.run(command, env={**os.environ, "JAVA_HOME": str(phones)}, capture_output=True, text=True)
    assert "HR701: query 'action_counts' has not committed a batch yet" in done.stdout
    assert (done.returncode, "HR001" in done.stdout + done.stderr) == (1, False)
    assert not list(phones.glob("*.db")), "a look makes no database"


SELECTED = {
    "all": ([], {"HR256", "HR257", "HR259"}, 2),
    "a query": (["q"], {"HR257", "HR259"}, 1),
    "a code": (["HR257"], {"HR257"}, 2),
    "a beginning of codes": (["HR25"], {"HR256", "HR257", "HR259"}, 2),
    "a query and a code": (["q,HR257"], {"HR257"}, 1),
    "another code": (["HR3"], set(), 2),
}


@pytest.mark.parametrize(("selected", "codes", "queries"), SELECTED.values(), ids=SELECTED)
def test_check_is_narrowed_to_queries_and_codes(
    selected: list[str], codes: set[str], queries: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "headrace.yml").write_text(
        "sources: {events: {rate: {}}, unused: {rate: {}}}\n"
        "queries:\n  q: {select: SELECT * FROM events, sink: {files: out}, trigger: once}\n"
        "  r: {select: SELECT * FROM events, sink: {files: ./out/}}\n"
    )
    options = [word for code in selected for word in ("--select", code)]
    code = main(["check", "-C", str(tmp_path), "--no-spark", "--json", *options])
    document = json.loads(capsys.readouterr().out)
    assert {finding["code"] for finding in document["findings"]} == codes
    assert code == (1 if "HR259" in codes else 0)
    main(["check", "-C", str(tmp_path), "--no-spark", *options])
    assert f"{queries} quer" in capsys.readouterr().out


def test_a_selection_that_names_nothing_is_reported(phones: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-C", str(phones), "--no-spark", "--select", "action_count"]) == 2
    assert "HR091: there is no query 'action_count'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_misspelt_query_gets_the_nearest_names(
    command: str, phones: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "action_count", "-C", str(phones)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("headrace HR091: there is no query 'action_count' in the project 'phones'")
    assert "did you mean 'action_counts'?" in errors


WRONG = Verdict(
    query="action_counts",
    batch=41,
    state="mismatch",
    rows_read=120_000,
    rows_expected=500,
    rows_actual=501,
    rows_late=3,
    different=1,
    unexpected=1,
    seconds=2.0,
    differences=(
        Difference(
            kind="different",
            key={"action": "open", "hour": "2026-01-01 02:00:00"},
            expected={"action": "open", "hour": "2026-01-01 02:00:00", "count": 17},
            actual={"action": "open", "hour": "2026-01-01 02:00:00", "count": 18},
        ),
        Difference(kind="unexpected", key={"action": "[red]"}, expected=None, actual={"action": "[red]"}),
    ),
)


def test_a_verdict_is_a_sentence_and_its_figures() -> None:
    assert sentence(WRONG).startswith("action_counts, up to batch 41: wrong: ")
    assert figures(WRONG) == (
        "120,000 rows read, 500 rows expected, 501 rows in the sink, 0 open, 3 late; 2.0 s, 60,000 rows/s"
    )
    assert "correct: equal to the batch query over the same input" in sentence(
        Verdict(query="q", batch=3, state="equal")
    )


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({}, "correct: equal to the batch query over the same input"),
        ({"shown_by": "rerun"}, "correct: equal to another run over the same batches"),
        (
            {"shown_by": "rerun", "rows_open": 1, "missing": 3, "rows_untimed": 4},
            "equal to another run over the same batches; 1 row still open; 3 rows of the batch query missing for good; "
            "4 rows read without an event time",
        ),
        (
            {"shown_by": "rerun", "unexpected": 1},
            "equal to another run over the same batches; 1 row more than the batch query gives",
        ),
        (
            {"rows_untimed": 2},
            "correct: equal to the batch query over the same input; 2 rows read without an event time",
        ),
    ],
    ids=["batch", "rerun", "missing", "surplus", "untimed"],
)
def test_a_verdict_says_by_what_it_was_shown_and_what_is_missing(facts: dict[str, Any], says: str) -> None:
    verdict = Verdict(query="q", batch=3, state="equal", **facts)
    assert verdict.sentence == says
    assert verdict.as_dict()["shown_by"] == verdict.shown_by


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (Verdict(query="q", batch=3, state="equal", shares=("how 'a' is read",)), "shown by the batch query"),
        (
            Verdict(query="q", batch=3, state="open", shown_by="rerun", shares=("how 'a' is read",)),
            "shown by another run",
        ),
        (Verdict(query="q", batch=3, state="undecided", shares=("how 'a' is read",)), None),
    ],
    ids=["batch", "rerun", "undecided"],
)
def test_the_text_says_what_a_verdict_shares_with_the_run(
    verdict: Verdict, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    _say(verdict)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "shared with the run" in line]
    assert lines == ([] if line is None else [f"{line}; shared with the run: how 'a' is read"])


def test_rows_that_differ_are_a_table_with_both_sides() -> None:
    console = Console(width=120, record=True, markup=False)
    with console.capture() as shown:
        console.print(difference_table(WRONG))
    text = " ".join(shown.get().split())
    assert "the first 2 of 2 differing rows" in text
    assert "count=17" in text
    assert "count=18" in text
    assert "action=[red]" in text
