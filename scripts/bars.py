"""How large the source is, held against its bars: `python -m scripts.bars` prints the table and ends with 1 above one.

A bar is a ceiling (or a floor, for the median) that only moves in the direction of its target, but for what is new: the
kit for tests of queries brought 2,950 lines and four codes; late rows that are kept, repairs of a result and causes of
a mismatch brought 1,300 lines and five codes; the kit that tries faults on any sink brought 1,050 lines and five
modules; the checks of servers, topics, files and arguments brought 3,750 lines, 14 modules and twelve codes.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"
# An object's own attributes, as `self._json`, are not Spark's.
PRIVATE = re.compile(r"(?<!\bself)\._(?:j[a-z]\w*|sc|gateway|to_java\w*|ssql_ctx)\b")


class Bar(NamedTuple):
    """One figure; `most`: the bar is a ceiling, else a floor."""

    name: str
    bar: float
    target: float
    most: bool = True

    def holds(self, value: float) -> bool:
        return value <= self.bar if self.most else value >= self.bar


BARS = (
    Bar("lines", 78_300, 64_500),
    Bar("modules", 399, 430),
    Bar("median lines of a module", 187, 130, most=False),
    Bar("lines of imports, %", 7.6, 7.5),
    Bar("codes of findings", 287, 300),
    Bar("members of Sink", 16, 16),
    Bar("private parts of Spark, uses outside spark/", 0, 0),
    Bar("private parts of Spark, uses in spark/", 28, 50),
    Bar("comparisons of a finding's code", 0, 0),
    Bar("public class names that stand twice", 0, 0),
)


def figures() -> dict[str, float]:
    """Each figure of `BARS` as it is now."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in trees]
    imported = sum(map(_import_lines, trees.values()))
    return {
        "lines": sum(lengths),
        "modules": len(lengths),
        "median lines of a module": statistics.median(lengths),
        "lines of imports, %": round(100 * imported / sum(lengths), 1),
        "codes of findings": len(set(re.findall(r'Code\("(HR\d+)"', (SOURCE / "findings.py").read_text()))),
        "members of Sink": len(list(_members(trees[SOURCE / "contract" / "sink.py"], "Sink"))),
        "private parts of Spark, uses outside spark/": _private(
            path for path in trees if not path.is_relative_to(SOURCE / "spark")
        ),
        "private parts of Spark, uses in spark/": _private(
            path for path in trees if path.is_relative_to(SOURCE / "spark")
        ),
        "comparisons of a finding's code": sum(len(list(_code_comparisons(tree))) for tree in trees.values()),
        "public class names that stand twice": sum(count > 1 for count in _public_classes(trees.values()).values()),
    }


def _private(files: Iterable[Path]) -> int:
    return sum(len(PRIVATE.findall(path.read_text(encoding="utf-8"))) for path in files)


def _import_lines(tree: ast.Module) -> int:
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def _members(tree: ast.Module, name: str) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                    yield member.name
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield member.target.id


def _code_comparisons(tree: ast.Module) -> Iterator[ast.Compare]:
    """Comparisons of `something.code` where that holds, or is held against, a text or a set of codes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Attribute) and side.attr == "code" for side in sides):
                yield node


def _public_classes(trees: Iterable[ast.Module]) -> Counter[str]:
    return Counter(
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def main() -> int:
    """Print each figure with its bar and its target."""
    now, failed = figures(), False
    for each in BARS:
        value = now[each.name]
        fine = each.holds(value)
        failed = failed or not fine
        mark = "" if fine else "   ABOVE ITS BAR" if each.most else "   BELOW ITS BAR"
        print(f"{each.name:48} {value:>9,g}   bar {each.bar:>9,g}   target {each.target:>9,g}{mark}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
