"""What an edit of a query of change data means: as the page "Change data" has it, and as `plan` says it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.generations.manifest import QueryForm
from headrace.loader import load
from headrace.planner.change_data import EDITS, change_facts, compare_changes
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.plain

PAGE = ROOT / "docs" / "explanation" / "change-data.md"
PROJECT = """\
sources:
  customers:
    files:
      path: landing
      format: json
      schema: "id BIGINT, city STRING, op STRING, version BIGINT, at TIMESTAMP"
queries:
  copy:
    select: SELECT id, city FROM customers
    sink: {sqlite: {path: out.db, table: customers}}
"""
KEYS, VERSION = "    cdc: {keys: [id]", "sequence_by: version"
HISTORY = f"{KEYS}, {VERSION}, stored_as_scd_type: 2"
# By the words of the page: the options before, and after.
CASES = {
    "`keys`": (f"{KEYS}, {VERSION}}}", f"    cdc: {{keys: [id, city], {VERSION}}}"),
    "`sequence_by`": (f"{KEYS}, {VERSION}}}", f"{KEYS}, sequence_by: id}}"),
    "`stored_as_scd_type`": (f"{KEYS}, {VERSION}}}", f"{HISTORY}}}"),
    "`start_column`": (f"{HISTORY}}}", f"{HISTORY}, start_column: since}}"),
    "`end_column`": (f"{HISTORY}}}", f"{HISTORY}, end_column: until}}"),
    "`apply_as_deletes`": (f"{KEYS}, {VERSION}}}", f"{KEYS}, {VERSION}, apply_as_deletes: \"op = 'D'\"}}"),
    "`apply_as_truncates`": (f"{KEYS}, {VERSION}}}", f"{KEYS}, {VERSION}, apply_as_truncates: \"op = 'T'\"}}"),
    "`track_history_column_list`, `track_history_except_column_list`": (
        f"{HISTORY}, track_history_column_list: [city]}}",
        f"{HISTORY}, track_history_except_column_list: [city]}}",
    ),
    "`ignore_null_updates`": (f"{KEYS}, {VERSION}}}", f"{KEYS}, {VERSION}, ignore_null_updates: true}}"),
    "`delete_when` of an ordinary query": ("    mode: update", "    mode: update\n    delete_when: city = 'x'"),
    "`keep_deletes`": (f"{KEYS}, {VERSION}}}", f"{KEYS}, {VERSION}, keep_deletes: 1 day}}"),
    "`cdc` itself, where it was none, or back": ("    mode: append", f"{KEYS}, {VERSION}}}"),
}
TYPE, FILTER = "the type of the sequence", "the filter, or an expression of a column"


def table() -> dict[str, tuple[str, str]]:
    """The verdict and the meaning of each edit, as the page has them."""
    rows = re.findall(r"^\| (.+?) \| (rebuild|forward|safe) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return {edit: (verdict, meaning) for edit, verdict, meaning in rows}


def form(root: Path, text: str) -> QueryForm:
    (root / "headrace.yml").write_text(text)
    project = load(root, environ={})
    return QueryForm(changes=change_facts(project, project.queries["copy"]))


def test_the_page_has_every_edit_with_its_verdict_and_its_reason() -> None:
    rows = table()
    # An edit of the function is compared as in other queries: tests/runner.
    assert list(rows) == [*list(CASES)[:2], TYPE, *list(CASES)[2:-1], FILTER, list(CASES)[-1]]
    assert [rows[edit] for edit in (*list(CASES)[:2], TYPE, *list(CASES)[2:-1])] == list(EDITS.values())


@pytest.mark.parametrize(("edit", "before", "now"), [(edit, *texts) for edit, texts in CASES.items()], ids=list(CASES))
def test_plan_says_of_an_edit_what_the_page_says(tmp_path: Path, edit: str, before: str, now: str) -> None:
    forms = [form(tmp_path, f"{PROJECT}{text}\n") for text in (before, now)]
    for first, then in (forms, forms[::-1]):
        assert [difference.verdict for difference in compare_changes(first, then)] == [table()[edit][0]]


def test_a_sequence_of_another_type_is_an_edit_though_its_column_is_the_same(tmp_path: Path) -> None:
    text = f"{PROJECT}{KEYS}, {VERSION}}}\n"
    forms = [form(tmp_path, text), form(tmp_path, text.replace("version BIGINT", "version TIMESTAMP"))]
    assert [difference.verdict for difference in compare_changes(*forms)] == [table()[TYPE][0]]
