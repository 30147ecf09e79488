"""A start is judged by the last form that the manifest has of the query."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import CheckpointError
from headrace.generations.log import QueryLayout
from headrace.generations.manifest import FORMAT, OperatorForm, QueryForm, QueryRevision, enter, forms, revision
from headrace.model import Query
from headrace.planner.verdict import check_renamed, judge, list_refusals, list_remarks
from headrace.storage import json_lines
from tests.registered import layout_in

pytestmark = pytest.mark.plain

QUERY = """
import headrace as hr

ticks = hr.source.rate()

@hr.query(sink=hr.sink.console())
def totals(ticks):
    return ticks
"""
FORM = QueryForm(feed="ticks", columns=(("value", "ticks.value long"),), spark="4.2.0", python_version="3.11")
OTHER = replace(FORM, columns=(("value", "ticks.value + 1"),))
STATE = replace(FORM, operators=(OperatorForm(kind="aggregation", values=("max", "min")),))
PYTHON = replace(
    FORM,
    columns=(("value", "python aaaaaaaaaaaa"),),
    python={"python aaaaaaaaaaaa": {}},
    python_version="3.10",
)
# The form that ran, the form that is to run, and the codes by which the start is refused, or which are remarked.
STARTS = {
    "the same": (FORM, FORM, [], []),
    "another column": (FORM, OTHER, ["HR537"], []),
    "a state where there was none": (
        FORM, replace(FORM, operators=(OperatorForm(kind="aggregation"),)), ["HR536"], [],
    ),
    "a new Spark that writes the same code otherwise": (
        replace(FORM, declared="d"), replace(OTHER, declared="d", spark="4.3.0"), [], [],
    ),
    "a new Spark that keeps the same code's state in another order": (
        replace(STATE, declared="d"),
        replace(
            STATE, declared="d", spark="4.3.0", operators=(OperatorForm(kind="aggregation", values=("min", "max")),)
        ),
        ["HR535"],
        [],
    ),
    "a new Spark and new code": (
        replace(FORM, declared="d"), replace(OTHER, declared="e", spark="4.3.0"), ["HR537"], [],
    ),
    "a new Python, which runs the same functions": (PYTHON, replace(PYTHON, python_version="3.11"), [], []),
    "another version of a package": (
        replace(FORM, packages={"pandas": "2.2"}), replace(FORM, packages={"pandas": "2.3"}), [], ["HR538"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "refused", "remarked"), STARTS.values(), ids=STARTS)
def test_a_start_is_compared_with_what_ran(
    tmp_path: Path, before: QueryForm, now: QueryForm, refused: list[str], remarked: list[str]
) -> None:
    layout, query = _query(tmp_path)
    enter(layout, _revision(query, before, 0))
    judgement = judge(hr.load(tmp_path), query, forms(layout.manifest), _revision(query, now, 3), begun=True)
    assert [finding.code for finding in list_refusals(query, judgement)] == refused
    if not refused:
        assert [finding.code for finding in list_remarks(query, judgement)] == remarked
    if refused == ["HR537"]:
        accepting = replace(query, on_change="forward")
        assert [*list_refusals(accepting, judgement)] == []
        *_, remark = list_remarks(accepting, judgement)
        assert "from batch 3 on" in remark.what


def test_a_form_is_entered_once_and_read_back_as_it_was(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    for form, batch in ((FORM, 0), (FORM, 2), (OTHER, 4), (OTHER, 6)):
        enter(layout, _revision(query, form, batch))
    entered = forms(layout.manifest)
    assert [entry.from_batch for entry in entered] == [0, 4]
    assert [QueryForm.of(entry.form or {}) for entry in entered] == [FORM, OTHER]


def test_a_query_without_a_batch_may_change(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    enter(layout, _revision(query, FORM, 0))
    assert (
        judge(hr.load(tmp_path), query, forms(layout.manifest), _revision(query, OTHER, 0), begun=False).verdict
        == "same"
    )


def test_a_plan_that_cannot_be_read_is_compared_by_its_fingerprint_and_warned_of(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    enter(layout, _revision(query, FORM, 0, "f1"))
    unread = QueryForm(spark="4.2.0", unreadable="KeyError: 7")
    for fingerprint, codes in (("f1", []), ("f2", ["HR545"])):
        judgement = judge(
            hr.load(tmp_path), query, forms(layout.manifest), _revision(query, unread, 1, fingerprint), begun=True
        )
        findings = [*list_remarks(query, judgement)]
        assert [finding.code for finding in findings] == codes
        assert all("KeyError: 7" in finding.what for finding in findings)


# What a form is damaged by, and the words by which the start is refused.
DAMAGES = {
    "a newer Headrace": ({"format": FORMAT + 1}, "Headrace 9.9.9, whose record"),
    "no format": ({"format": None}, "cannot be compared"),
    "an operator that is none": ({"operators": [{"kind": "aggregation"}]}, "cannot be compared"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_a_form_that_cannot_be_read_is_no_reason_to_go_on(
    tmp_path: Path, damage: dict[str, object], words: str
) -> None:
    layout, query = _query(tmp_path)
    line = asdict(replace(_revision(query, FORM, 0), headrace="9.9.9"))
    line["form"] = {**line["form"], **damage}
    json_lines.append(layout.manifest, [line])
    judgement = judge(hr.load(tmp_path), query, forms(layout.manifest), _revision(query, FORM, 1), begun=True)
    (refused,) = list_refusals(query, judgement)
    assert refused.code == "HR539"
    assert words in refused.what


def test_a_damaged_line_is_not_left_out(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    for batch in range(3):
        enter(layout, _revision(query, FORM if batch % 2 else OTHER, batch))
    lines = layout.manifest.read_text().splitlines(keepends=True)
    layout.manifest.write_text(lines[0] + lines[1][:20] + "\n" + lines[2])
    with pytest.raises(CheckpointError, match="HR584"):
        forms(layout.manifest)


def _revision(query: Query, form: QueryForm, batch: int, fingerprint: str = "f") -> QueryRevision:
    return revision(query, form, fingerprint, columns="value BIGINT", next_batch=batch)


def _query(root: Path) -> tuple[QueryLayout, Query]:
    (root / "pipeline.py").write_text(QUERY, encoding="utf-8")
    query = hr.load(root).queries["totals"]
    layout = layout_in(root / ".headrace", query.name)
    layout.home.mkdir(parents=True)
    return layout, query


def test_a_query_of_another_name_does_not_write_the_same_rows_once_more(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    project = hr.load(tmp_path)
    enter(layout, _revision(query, replace(FORM, sink={"kind": "sqlite", "place": "counts"}), 0))
    form = replace(FORM, sink={"kind": "sqlite", "place": "counts"})
    assert [*check_renamed(project, query, form)] == [], "it is declared still"
    other = replace(project, queries={"sums": replace(query, name="sums")})
    (finding,) = check_renamed(other, other.queries["sums"], form)
    assert (finding.code, "means the same" in finding.what) == ("HR547", True)
    (finding,) = check_renamed(other, other.queries["sums"], replace(OTHER, sink=form.sink))
    assert "writes to the same place" in finding.what
    assert [*check_renamed(other, other.queries["sums"], replace(form, sink={"kind": "sqlite", "place": "sums"}))] == []


def test_a_function_that_cannot_be_compared_is_reported(tmp_path: Path) -> None:
    layout, query = _query(tmp_path)
    meaning = {"root": {"ref": 0}, "nodes": [{"name": "pipeline.f", "code": {"not comparable": "it calls eval"}}]}
    form = replace(FORM, python={"python abc": meaning})
    enter(layout, _revision(query, form, 0))
    judgement = judge(hr.load(tmp_path), query, forms(layout.manifest), _revision(query, form, 1), begun=True)
    assert judgement.verdict == "same"
    (finding,) = list_remarks(query, judgement)
    assert (finding.code, finding.severity) == ("HR664", "note")
    assert "whether pipeline.f of query 'totals' does what it did cannot be determined: it calls eval" in finding.what
