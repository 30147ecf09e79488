"""The reference pages: generated parts are fresh, and every command, connector and code has its heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import registry
from headrace.cli.entry import headrace
from headrace.findings import CATALOGUE
from scripts import architecture, findings_page, reference
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.plain

CODE = re.compile(r"\bHR\d{3}\b")
HEADING = re.compile(r"^### (HR\d{3}): .+$", re.MULTILINE)


def headings(page: Path) -> list[str]:
    """The headings of a page, of any level."""
    return re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("file", reference.parts(), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_generated_parts_are_fresh(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == reference.page(file), "stale; run: make docs"


def test_every_attribute_of_a_public_class_has_a_meaning() -> None:
    rows = re.findall(r"^\| `\w+` \| `.*` \|.*\|$", (reference.REFERENCE / "python-api.md").read_text(), re.MULTILINE)
    assert len(rows) > 200
    assert [row for row in rows if re.search(r"\|\s*\|$", row)] == []


def test_the_picture_of_the_rooms_shows_data_that_the_rooms_touch() -> None:
    assert architecture.list_unproved() == []


def test_every_command_has_a_heading() -> None:
    written = headings(reference.REFERENCE / "commands.md")
    shown = [name for name, command in headrace.commands.items() if not command.hidden]
    assert [name for name in shown if f"headrace {name}" not in written] == []


@pytest.mark.parametrize("kind", reference.KINDS)
def test_every_connector_has_a_page_and_every_page_a_connector(kind: registry.ConnectorKind) -> None:
    pages = {reference.connector_page(kind, name) for name in registry.list_names(kind)}
    assert pages == set((reference.REFERENCE / f"{kind}s").glob("*.md"))


def test_the_page_of_findings_has_a_heading_for_each_code_of_the_catalogue() -> None:
    text = findings_page.PAGE.read_text(encoding="utf-8")
    assert text == findings_page.page(text), "stale; run: make docs"
    codes = HEADING.findall(text)
    assert sorted(codes) == codes, "the headings are not in order"
    assert set(codes) == set(CATALOGUE)


def test_a_new_code_gets_its_heading_in_its_place_and_the_others_keep_their_text() -> None:
    text = findings_page.PAGE.read_text(encoding="utf-8")
    for code in ("HR001", "HR103", "HR091", "HR999"):
        begin = text.index(f"### {code}")
        end = re.compile(r"^##+ |\Z", re.MULTILINE).search(text, begin + 4)
        assert end is not None
        without = text[:begin] + text[end.start() :]
        assert (
            findings_page.page(without)
            == f"{text[:begin]}### {findings_page.heading(CATALOGUE[code])}\n\n{text[end.start() :]}"
        )


def test_every_finding_names_its_fix() -> None:
    parts = re.split(r"^### ", findings_page.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [part[:5] for part in parts if not re.search(r"^Fix: \S", part, re.MULTILINE)] == []


def test_the_table_of_faults_names_codes_that_exist() -> None:
    page = (ROOT / "docs" / "how-to" / "handle-bad-rows.md").read_text(encoding="utf-8")
    table = [line for line in page.partition("## Case by case")[2].splitlines() if line.startswith("| ")][1:]
    assert len(table) > 10
    for line in table:
        codes = CODE.findall(line)
        assert codes, line
        assert set(codes) <= set(CATALOGUE), line
