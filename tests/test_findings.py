"""The catalogue of findings: what has no place in it fails, and each code is raised by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import Finding
from headrace.findings import CATALOGUE, CODES, OURS
from headrace.model import Project
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.plain

CODE = re.compile(r"\bHR\d{3}\b")
# Codes that no test raises. The list may only get shorter.
UNTESTED: frozenset[str] = frozenset()


def texts(file: Path) -> Iterator[str]:
    """The texts of a Python file that its code uses; comments and docstrings are not among them."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def codes(directory: Path) -> set[str]:
    """The codes that the code below a directory uses, and those of its tables."""
    codes = {
        code
        for file in directory.rglob("*.py")
        if file != Path(__file__)
        for text in texts(file)
        for code in CODE.findall(text)
    }
    return codes | {
        code for file in directory.rglob("*.txt") for code in CODE.findall(file.read_text(encoding="utf-8"))
    }


def test_the_catalogue_has_the_codes_that_the_source_uses_and_no_others() -> None:
    catalogue = ROOT / "src/headrace/findings.py"
    files = (file for file in (ROOT / "src").rglob("*.py") if file != catalogue)
    used = {code for file in files for text in texts(file) for code in CODE.findall(text)}
    assert sorted(used - set(CATALOGUE)) == [], "codes that the catalogue lacks"
    assert sorted(set(CATALOGUE) - used) == [], "codes that nothing uses"


def test_the_catalogue_is_in_order_and_has_each_code_once() -> None:
    assert [code.code for code in CODES] == sorted(CATALOGUE)
    assert [code.code for code in CODES if not OURS.fullmatch(code.code) or not code.severities] == []


def test_each_code_is_raised_by_a_test() -> None:
    tested = codes(ROOT / "tests")
    assert sorted(set(CATALOGUE) - tested - UNTESTED) == [], "write a test that raises it"
    assert sorted(UNTESTED & tested) == [], "there is a test now; strike it from UNTESTED"


@pytest.mark.parametrize(
    ("code", "severity", "wrong"),
    [
        ("HR998", "error", "the catalogue has no code HR998"),
        ("HR101", "note", "HR101 is not a note; the catalogue has error"),
        ("HR003", "error", "HR003 is not an error; the catalogue has note"),
    ],
)
def test_what_the_catalogue_does_not_have_fails(code: str, severity: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Finding(code=code, what="x", severity=severity)  # type: ignore[arg-type]


def test_the_severity_is_the_catalogues_where_none_is_given() -> None:
    assert [Finding(code=code, what="x").severity for code in ("HR101", "HR003", "HR240")] == [
        "error",
        "note",
        "warning",
    ]


def test_a_finding_can_be_given_another_weight() -> None:
    note = Finding(code="HR101", what="x").with_severity("note")
    assert (note.severity, note.code, str(note)) == ("note", "HR101", "headrace HR101 (note): x")


def test_a_user_gets_a_message_whose_code_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_STRICT_FINDINGS")
    assert str(Finding(code="HR998", what="x")) == "headrace HR998: x"


def test_a_connector_of_another_distribution_has_codes_of_its_own() -> None:
    assert Finding(code="DUCK01", what="x").severity == "error"


def test_a_finding_keeps_what_it_was_weighed_with_in_other_words() -> None:
    finding = (
        Finding(code="HR503", what="it is damaged").with_severity("warning").reword(what="a secret", fix="mend it")
    )
    shown = Project(name="p", root=Path()).redacted_finding(finding)
    assert (shown.severity, shown.what, shown.fix) == ("warning", "a secret", "mend it")
