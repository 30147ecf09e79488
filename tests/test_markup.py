"""What results show in a notebook: HTML without scripts, which quotes what it shows and hides secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

import headrace
from headrace.errors import Finding, PlainData
from headrace.markup import Listing, records, table
from headrace.redaction import remember

pytestmark = pytest.mark.plain


@dataclass(frozen=True, kw_only=True)
class Answer(PlainData):
    query: str
    rows: int = 0
    late: int | None = None
    findings: tuple[Finding, ...] = ()
    guarantees: dict[str, Any] = field(default_factory=dict)


class Page(HTMLParser):
    """The tags of a page, and the texts of its cells, as a browser's parser has them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[str] = []
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def page_of(value: Any) -> Page:
    return Page(value._repr_html_())


def test_values_stand_in_one_table_and_records_in_others() -> None:
    finding = Finding(code="HR701", what="no checkpoint yet", fix="run it first")
    page = page_of(Answer(query="counts", rows=12_000, findings=(finding,), guarantees={"counts": {"level": "same"}}))
    assert page.tags.count("table") == 3
    assert page.cells[:4] == ["query", "counts", "rows", "12,000"]
    assert {"HR701", "no checkpoint yet", "run it first", "level", "same"} <= set(page.cells)
    assert "late" not in page.cells


def test_a_list_of_results_is_one_table() -> None:
    page = page_of(Listing([Answer(query="one", rows=1), Answer(query="other", late=2)]))
    assert page.tags.count("table") == 1
    assert page.cells == ["query", "rows", "late", "one", "1", "", "other", "0", "2"]


def test_what_is_shown_is_quoted_and_is_no_script() -> None:
    page = Page(table(["<b>"], [["<script>alert(1)</script>"]]))
    assert page.cells == ["<b>", "<script>alert(1)</script>"]
    assert not {"script", "b"} & set(page.tags)


def test_states_have_colours_and_rows_of_data_have_none() -> None:
    assert "color:#c77d00" in records([{"state": "open"}])
    assert "color:#" not in table(["action"], [["open"]])


def test_cells_are_aligned_to_the_left_where_a_notebook_without_trust_has_no_style() -> None:
    html = page_of(Answer(query="one", findings=(Finding(code="HR701", what="no checkpoint yet"),))).html
    assert set(re.findall(r"<t[hd]\b[^>]*>", html)) == {'<th style="text-align:left">', '<td style="text-align:left">'}


def test_a_secret_is_hidden() -> None:
    remember("swordfish-1", "${PASSWORD}")
    assert "swordfish-1" not in table(["value"], [["swordfish-1"]])


def test_a_long_table_says_how_many_rows_it_leaves_out() -> None:
    html = table(["n"], ([number] for number in range(60)))
    assert len(Page(html).cells) == 51
    assert "and 10 more" in html


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(headrace) == sorted(headrace.__all__)
    assert all(hasattr(headrace, name) for name in headrace.__all__)
