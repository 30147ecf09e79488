"""The reference pages: generated parts are fresh, and every command, connector and code has its heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import registry
from headrace.cli.entry import headrace
from scripts import reference
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


def test_every_command_has_a_heading() -> None:
    found = headings(reference.REFERENCE / "commands.md")
    assert [name for name in headrace.commands if f"headrace {name}" not in found] == []


@pytest.mark.parametrize("kind", reference.KINDS)
def test_every_connector_has_a_page_and_every_page_a_connector(kind: registry.ConnectorKind) -> None:
    pages = {reference.connector_page(kind, name) for name in registry.known(kind)}
    assert pages == set((reference.REFERENCE / f"{kind}s").glob("*.md"))


def test_every_code_has_one_heading_and_every_heading_a_code() -> None:
    used = {code for file in (ROOT / "src").rglob("*.py") for code in CODE.findall(file.read_text(encoding="utf-8"))}
    told = HEADING.findall((reference.REFERENCE / "findings.md").read_text(encoding="utf-8"))
    assert sorted(told) == told, "the headings are not in order"
    assert len(set(told)) == len(told), "a code has two headings"
    assert sorted(used - set(told)) == [], "codes without a heading"
    assert sorted(set(told) - used) == [], "headings of codes that nothing uses"


def test_every_finding_tells_its_way_out() -> None:
    text = (reference.REFERENCE / "findings.md").read_text(encoding="utf-8")
    parts = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    assert [part[:5] for part in parts if "Way out:" not in part] == []


def test_the_table_of_faults_names_codes_that_exist() -> None:
    page = (ROOT / "docs" / "how-to" / "handle-bad-rows.md").read_text(encoding="utf-8")
    table = [line for line in page.partition("## Case by case")[2].splitlines() if line.startswith("| ")][1:]
    told = HEADING.findall((reference.REFERENCE / "findings.md").read_text(encoding="utf-8"))
    assert len(table) > 10
    for line in table:
        codes = CODE.findall(line)
        assert codes, line
        assert set(codes) <= set(told), line
