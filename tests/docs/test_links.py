"""The links between the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import FENCE, ROOT, pages

pytestmark = pytest.mark.plain

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """What a heading of the page can be linked by."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = match["target"].partition("#")
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(match["target"])
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        targets = (match["target"].partition("#")[0] for match in LINK.finditer(page.read_text(encoding="utf-8")))
        linked = {(page.parent / target).resolve() for target in targets if target and "://" not in target}
        waiting.extend(file for file in linked if file.suffix == ".md" and file.exists() and file not in seen)
    assert [str(page.relative_to(ROOT)) for page in pages() if page not in seen] == []


def test_what_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|docs)/[\w./-]+)`", text)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == ["src/headrace/cli/NAME.py"]
    for command, test in re.findall(r'pytest (tests/[\w/.]+) -k "(\w+)"', text):
        assert test.replace("_", " ") in (ROOT / command).read_text(encoding="utf-8")
