"""How large and how plain the source is: `python -m scripts.bars` prints the table and ends with 1 above a bar.

A bar is a ceiling (or a floor, for the median) that only moves in the direction of its target, but for what is new: the
kit for tests of queries brought 2,950 lines and four codes; late rows that are kept, repairs of a result and causes of
a mismatch brought 1,300 lines and five codes; the kit that tries faults on any sink brought 1,050 lines and five
modules; the checks of servers, topics, files and arguments brought 3,750 lines, 14 modules and twelve codes; folders
for each database and the register of ids brought 20 modules and one code; the wheel, `doctor`, `explain`, completion,
`preview` and what a notebook shows brought 1,200 lines, five modules and two codes; change data brought 3,500 lines, 16
modules, seven codes and one ability of sinks; `deploy` and `run --watch` brought 800 lines and six modules; `deploy
--restart` and the board of several projects brought 800 lines and seven modules; change data in Delta tables
brought 350 lines; the live cell of a notebook brought 50 lines; the meaning of each attribute of a result brought 280
lines of docstrings; the state of a query that a deploy has removed brought 10 lines; keys of joins that may be NULL,
local times that a clock skips and texts with a collation brought 70 lines and one code; a change that the log of a
restored storage lacks, and children that end with their parent, brought 65 lines; a head in
a ledger topic that gives way brought 22 lines; the change data feed of Delta tables brought 106 lines and a module.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.walks import walks

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"
# What a newcomer reads next to the source.
AROUND = ("tests", "benchmarks", "scripts", "services", "examples")
# Texts that are read whole, but for what others wrote and what is generated from the guide's rows.
TEXTS = ("*", "scripts/*", "services/*", "examples/*/*", "benchmarks/**/*", "deploy/**/*", "docs/**/*", "src/**/*")
TEXT_NAME = re.compile(r"\.(?:css|html|js|json|md|properties|sh|sha256|sql|toml|ya?ml)$|^(?:Make|Docker)file$")
OTHERS = re.compile(r"/static/vendor/|/reference/capabilities\.md$")
# An object's own attributes, as `self._json`, are not Spark's.
PRIVATE = re.compile(r"(?<!\bself)\._(?:j[a-z]\w*|sc|gateway|to_java\w*|ssql_ctx)\b")
# Locals that do not say what they hold.
EMPTY_NAMES = frozenset({"each", "found", "known", "told", "what", "said"})
# Where a script of the pages gives a value such a name.
EMPTY_IN_SCRIPT = re.compile(
    rf"(?:\b(?:const|let) |[\[(,] ?)\b(?:{'|'.join(sorted(EMPTY_NAMES))})\b(?= = | of |,|\]|\) =>)"
)
# Words of prose that a reader stumbles over.
UNPLAIN = re.compile(r"\b(?:told|tells?|telling|anew|nobody|whoever|beside)\b", re.IGNORECASE)
# What users and authors of connectors call.
PUBLIC = {
    "__init__.py",
    "api.py",
    "sampling.py",
    "inspect.py",
    "errors.py",
    "results.py",
    "contract",
    "declare",
    "testing",
}
# A participle does not say whether a function writes; before a noun it may stand. Verbs that only look like one, and
# the events of an observer, are left out.
PARTICIPLE = re.compile(
    r"^_*(?:(?!embed|feed|need|seed|speed|shed|shred|proceed|exceed|succeed|read|red|started|worked|progressed|changed|ended)[a-z]+ed"
    r"|begun|brought|done|found|given|held|hidden|kept|known|left|lost|made|meant|said|seen|sent|shown|taken|told|written)"
    r"(?:_in|_to|_of|_by|_at|_up|_along|_aside|_back)?$"
)


class Bar(NamedTuple):
    """One figure; `most`: the bar is a ceiling, else a floor."""

    name: str
    bar: float
    target: float
    most: bool = True

    def holds(self, value: float) -> bool:
        return value <= self.bar if self.most else value >= self.bar


BARS = (
    Bar("lines", 84_520, 64_500),
    Bar("modules", 441, 430),
    Bar("median lines of a module", 183, 130, most=False),
    Bar("lines of imports, %", 7.9, 7.5),
    Bar("codes of findings", 299, 300),
    Bar("members of Sink", 17, 17),
    Bar("private parts of Spark, uses outside spark/", 0, 0),
    Bar("private parts of Spark, uses in spark/", 27, 50),
    Bar("comparisons of a finding's code", 0, 0),
    Bar("public class names that stand twice", 0, 0),
    Bar("lines of code", 59_911, 52_500),
    Bar("locals that say nothing", 0, 0),
    Bar("locals that say nothing, around the source", 0, 0),
    Bar("unplain words in prose", 0, 0),
    Bar("unplain words in prose, around the source", 0, 0),
    Bar("unplain words in documents, pages and settings", 0, 0),
    Bar("names that say nothing, in the pages' scripts", 0, 0),
    Bar("functions named by a participle", 1, 0),
    Bar("public functions that raise without saying so", 0, 0),
    Bar("files of a start", 28, 28),
    Bar("stops of a start", 109, 110),
)


def figures() -> dict[str, float]:
    """Each figure of `BARS` as it is now."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    lengths = [len(path.read_text(encoding="utf-8").splitlines()) for path in trees]
    around = {
        path: ast.parse(path.read_text(encoding="utf-8")) for room in AROUND for path in (ROOT / room).rglob("*.py")
    }
    imported = sum(map(_import_lines, trees.values()))
    texts, start = _texts(), walks(SOURCE)["start"]
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
        "lines of code": sum(len(_code_lines(path, tree)) for path, tree in trees.items()),
        "locals that say nothing": sum(len(_empty_names(tree)) for tree in trees.values()),
        "locals that say nothing, around the source": sum(len(_empty_names(tree)) for tree in around.values()),
        "unplain words in prose": _unplain_words(trees),
        "unplain words in prose, around the source": _unplain_words(around),
        "unplain words in documents, pages and settings": sum(len(UNPLAIN.findall(text)) for text in texts.values()),
        "names that say nothing, in the pages' scripts": sum(
            len(EMPTY_IN_SCRIPT.findall(text)) for path, text in texts.items() if path.suffix == ".js"
        ),
        "functions named by a participle": sum(len(list(_participles(tree))) for tree in trees.values()),
        "public functions that raise without saying so": sum(
            len(list(_silent_raisers(tree)))
            for path, tree in trees.items()
            if path.relative_to(SOURCE).parts[0] in PUBLIC
        ),
        "files of a start": start.files,
        "stops of a start": start.stops,
    }


def _unplain_words(trees: dict[Path, ast.Module]) -> int:
    return sum(len(UNPLAIN.findall(text)) for path, tree in trees.items() for text in _prose(path, tree))


def _texts() -> dict[Path, str]:
    paths = {path for pattern in TEXTS for path in ROOT.glob(pattern) if TEXT_NAME.search(path.name)}
    return {path: path.read_text(encoding="utf-8") for path in paths if not OTHERS.search(path.as_posix())}


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


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                yield first.value


def _tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    yield from tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)


def _code_lines(path: Path, tree: ast.Module) -> set[int]:
    """The lines that hold code: no docstring, no comment, not blank."""
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = {
        line for token in _tokens(path) if token.type not in empty for line in range(token.start[0], token.end[0] + 1)
    }
    for text in _docstrings(tree):
        lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def _prose(path: Path, tree: ast.Module) -> Iterator[str]:
    """What a reader reads as sentences: docstrings, comments, and texts of more than three words."""
    for token in _tokens(path):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 2:
            yield node.value


def _empty_names(tree: ast.Module) -> set[tuple[int, int]]:
    """Where a function gives a value such a name."""
    return {
        (name.lineno, name.col_offset)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in EMPTY_NAMES
    }


def _participles(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and PARTICIPLE.match(node.name):
            decorators = {getattr(item, "id", getattr(item, "attr", "")) for item in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter"}:
                yield node


def _silent_raisers(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Public functions and methods that raise an error of their own, and whose docstring has no section `Raises:`."""
    public = [node for node in tree.body if not getattr(node, "name", "_").startswith("_")]
    members = [member for node in public if isinstance(node, ast.ClassDef) for member in node.body]
    for node in (*public, *members):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        if "Raises:" not in (ast.get_docstring(node) or "") and any(map(_raises, node.body)):
            yield node


def _raises(node: ast.AST) -> bool:
    """Whether a statement raises an error that leaves the function: not in an inner one, nor under handlers."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        return False
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Try) and node.handlers:
        children = [child for child in children if child not in node.body]
    return (isinstance(node, ast.Raise) and node.exc is not None) or any(map(_raises, children))


def main() -> int:
    """Print each figure with its bar and its target."""
    now, failed = figures(), False
    for bar in BARS:
        value = now[bar.name]
        fine = bar.holds(value)
        failed = failed or not fine
        mark = "" if fine else "   ABOVE ITS BAR" if bar.most else "   BELOW ITS BAR"
        print(f"{bar.name:48} {value:>9,g}   bar {bar.bar:>9,g}   target {bar.target:>9,g}{mark}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
