"""The examples below a finding's heading: the wrong one raises its code, the right one does not and has no error.

A block is marked `wrong` or `right` behind its language: `yaml` is a whole `headrace.yml`, `python` what follows the
block that is marked `begins`. One that is marked `spark` too is analysed by Spark. A block that is marked `message`
shows a message as it is printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load
from headrace.errors import Finding, ProjectError
from headrace.findings import CATALOGUE
from scripts import findings_page
from tests.docs.blocks import FENCE, Block, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HEADING = re.compile(r"^### (HR\d{3})", re.MULTILINE)
_PAGE = findings_page.PAGE.read_text(encoding="utf-8")
# Codes of check, which have examples.
_OF_CHECK = (("HR203", "HR300"), ("HR640", "HR660"))


def _below_codes() -> Iterator[tuple[str, Block]]:
    """Each code block of the page with the code that it stands under."""
    headings = [(_PAGE.count("\n", 0, heading.start()) + 1, heading[1]) for heading in _HEADING.finditer(_PAGE)]
    for block in blocks():
        if block.page == findings_page.PAGE and block.line > headings[0][0]:
            yield [code for line, code in headings if line < block.line][-1], block


def examples(*, spark: bool) -> list[tuple[str, Block]]:
    """Each example with the code that it stands under."""
    return [
        (code, block)
        for code, block in _below_codes()
        if {"wrong", "right"} & set(block.words) and ("spark" in block.words) is spark
    ]


def begins() -> str:
    """The Python code that the examples leave out."""
    [block] = [block for block in blocks() if block.page == findings_page.PAGE and "begins" in block.words]
    return block.text


def findings(root: Path, block: Block, spark: SparkSession | None) -> list[Finding]:
    """What check says of an example."""
    root.mkdir()
    (root / "landing").mkdir()
    if block.language == "yaml":
        (root / "headrace.yml").write_text(block.text)
    else:
        (root / "pipeline.py").write_text(f"{begins()}\n{block.text}")
    try:
        project = load(root, environ={})
    except ProjectError as fault:
        return list(fault.findings)
    return list(check(project, spark=spark or False, connect=False).findings)


def wrongly(tmp_path: Path, marked: list[tuple[str, Block]], spark: SparkSession | None) -> list[str]:
    """The examples that are not what their mark says, each with what check says of it."""
    faults = []
    for number, (code, block) in enumerate(marked):
        reported = findings(tmp_path / str(number), block, spark)
        codes = {finding.code for finding in reported}
        errors = {finding.code for finding in reported if finding.severity == "error"}
        if (code in codes) is not ("wrong" in block.words) or ("right" in block.words and errors):
            faults.append(f"{block} ({code}): {[str(finding) for finding in reported]}")
    return faults


@pytest.mark.plain
def test_each_example_that_needs_no_spark_is_what_its_mark_says(tmp_path: Path) -> None:
    marked = examples(spark=False)
    assert marked
    assert wrongly(tmp_path, marked, None) == []


@pytest.mark.spark
def test_each_example_that_spark_analyses_is_what_its_mark_says(tmp_path: Path, spark: SparkSession) -> None:
    marked = examples(spark=True)
    assert marked
    assert wrongly(tmp_path, marked, spark) == []


@pytest.mark.plain
def test_an_example_that_is_not_what_its_mark_says_would_be_found(tmp_path: Path) -> None:
    [(code, wrong), *_] = examples(spark=False)
    turned = Block(page=wrong.page, line=wrong.line, language=wrong.language, words=("right",), text=wrong.text)
    assert len(wrongly(tmp_path, [(code, turned)], None)) == 1


@pytest.mark.plain
def test_wrong_and_right_stand_together_and_findings_of_check_have_both() -> None:
    marks: dict[str, set[str]] = {}
    for code, block in (*examples(spark=False), *examples(spark=True)):
        marks.setdefault(code, set()).update({"wrong", "right"} & set(block.words))
    assert {code for code, words in marks.items() if words != {"wrong", "right"}} == set()
    wanted = {code for code in CATALOGUE for first, behind in _OF_CHECK if first <= code < behind}
    assert wanted - marks.keys() == WITHOUT
    assert len(FENCE.findall(_PAGE)) >= len(marks) * 2


# What no example shows: a query has to have run, the machine or the session decides, or it takes two files.
WITHOUT = {"HR264", "HR274", "HR283", "HR647", "HR650"}


def messages() -> list[tuple[str, Block]]:
    """Each example of a message with the code that it stands under."""
    return [(code, block) for code, block in _below_codes() if "message" in block.words]


def templates() -> list[list[str]]:
    """The fixed parts of each text that the source puts together."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in (findings_page.ROOT / "src").rglob("*.py"))
    texts = []
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.JoinedStr(values=values):
                texts.append([str(part.value) if isinstance(part, ast.Constant) else "" for part in values])
            case ast.Constant(value=str() as text):
                texts.append(re.split(r"\{\w+\}", text))
    return [parts for parts in texts if len("".join(parts)) > 11]


def comes_of(text: str, parts: list[str]) -> bool:
    """Whether a text begins or ends with what a template gives: its parts in their order, with anything between."""
    if not text.startswith(parts[0]) and not text.endswith(parts[-1]):
        return False
    at = 0
    for part in parts:
        at = text.find(part, at) + len(part)
        if at < len(part):
            return False
    return True


@pytest.mark.plain
def test_each_code_has_an_example() -> None:
    assert (
        sorted(CATALOGUE.keys() - {code for code, _ in (*examples(spark=False), *examples(spark=True), *messages())})
        == []
    )


@pytest.mark.plain
def test_each_example_of_a_message_is_one_that_the_source_writes() -> None:
    patterns, wrong = templates(), []
    for code, block in messages():
        head, _, fix = block.text.rstrip("\n").partition("\n  fix: ")
        match = re.fullmatch(rf".*? {code}(?: \((?P<severity>\w+)\))?: (?P<what>.*)", head)
        # A failure without a code of its own has the words of another program.
        texts = [fix] if code == "HR601" or match is None else [match["what"], fix]
        if match is None or (match["severity"] or "error") not in CATALOGUE[code].severities:
            wrong.append(f"{block}: {head}")
        wrong += [f"{block}: {text}" for text in texts if text and not any(comes_of(text, parts) for parts in patterns)]
    assert wrong == []
