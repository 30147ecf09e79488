"""A YAML text as entries that know their lines, and the one reader of its keys and texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import yaml
from yaml.constructor import SafeConstructor

from headrace.declare.declarations import Word, choose_word
from headrace.declare.variables import Variables
from headrace.errors import Finding, Where, nearest

Tree: TypeAlias = "dict[str, DocumentEntry] | list[DocumentEntry] | str | int | float | bool | None"
Parsed = TypeVar("Parsed")

# More than any project has; a text that goes beyond is a mistake, or made to use up time and memory.
MOST_DEPTH, MOST_VALUES = 60, 50_000

_STANDARD = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp", "value"))
_SCALARS = {"int": "construct_yaml_int", "float": "construct_yaml_float", "bool": "construct_yaml_bool"}
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class DocumentEntry:
    """One value and where it stands: `where` is the line of its key, or its own where it has none."""

    value: Tree
    where: Where

    def lines(self) -> Iterator[int | None]:
        """The lines of it, and of all that is in it."""
        yield self.where.line
        inside = self.value.values() if isinstance(self.value, dict) else self.value
        for entry in inside if not isinstance(inside, (str, int, float, type(None))) else ():
            yield from entry.lines()

    def plain(self) -> Any:
        """The value without its lines."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        return self.value


@dataclass(kw_only=True)
class DocumentReading:
    """Reads one document's entries, filling in variables; `findings` holds what was wrong.

    misplaced: where keys stand that are not known there, and that what they were meant for may lack.
    """

    variables: Variables
    findings: list[Finding] = field(default_factory=list)
    misplaced: list[Where] = field(default_factory=list)

    def fault(self, code: str, what: str, fix: str, where: Where) -> None:
        self.findings.append(Finding(code=code, what=what, fix=fix, where=where))

    @contextmanager
    def lacking(self) -> Iterator[None]:
        """Where the project may lack variables, faults inside are set aside for those who need what they are of."""
        faults = self.findings
        self.findings = self.variables.lacking if self.variables.may_lack else faults
        try:
            yield
        finally:
            self.findings = faults

    def mapping(
        self,
        entry: DocumentEntry | None,
        label: str,
        keys: Collection[str] | None = None,
        *,
        example: str = "key: value",
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, DocumentEntry]:
        """The entries of a mapping, only those of `keys` if they are given; an absent one is empty.

        elsewhere: keys that have their place elsewhere, each with what to write there.
        """
        if entry is None or entry.value is None:
            return {}
        if not isinstance(entry.value, dict):
            fix = (
                f"write it as keys and values; its keys are {', '.join(keys)}" if keys else f"write it as {{{example}}}"
            )
            self.fault("HR104", f"{label} is not a mapping", fix, entry.where)
            return {}
        if keys is None:
            return entry.value
        for key, value in entry.value.items():
            if key not in keys:
                self.misplaced.append(value.where)
                self.fault("HR103", f"{label} has no key '{key}'", nearest(key, keys, elsewhere=elsewhere), value.where)
        return {key: value for key, value in entry.value.items() if key in keys}

    def text(
        self, entry: DocumentEntry | None, label: str, *, may_be_empty: bool = False, may_be_number: bool = True
    ) -> str | None:
        """A text with its variables filled in; numbers and true or false are taken as they are written, if they may."""
        if entry is None or entry.value is None:
            return None
        if isinstance(entry.value, (dict, list)):
            self.fault("HR104", f"{label} is not a text", "write one text here, in quotes if need be", entry.where)
            return None
        value = entry.value
        if not may_be_number and not isinstance(value, str):
            written = str(value).lower() if isinstance(value, bool) else value
            label = f"{label.rstrip(',')} is {written}, which is not text"
            self.fault("HR104", label, "write one text here, in quotes if it is meant so", entry.where)
            return None
        if isinstance(value, str) and "\0" in value:
            self.fault("HR104", f"{label.rstrip(',')} holds a null character", "remove \\0 from the text", entry.where)
            return None
        if isinstance(value, str) and not value.strip() and not may_be_empty:
            self.fault("HR104", f"{label.rstrip(',')} is empty", "write a text here, or leave the key out", entry.where)
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        before = len(self.findings)
        text = str(self.variables.expand(str(value), entry.where, self.findings))
        return text if len(self.findings) == before else None

    def choose(self, entry: DocumentEntry | None, label: str, words: tuple[Word, ...], says: str) -> Word:
        """The word of `words` that stands there; the first of them without one, or for another, which is a fault."""
        text = self.text(entry, label)
        return choose_word(text, words, says, entry.where, self.fault) if entry and text else words[0]

    def parse(self, entry: DocumentEntry | None, label: str, parse: Callable[[str], Parsed], fix: str) -> Parsed | None:
        """What `parse` makes of a text, which raises ValueError for one that has the wrong form."""
        text = self.text(entry, f"{label},")
        if entry is None or text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.fault("HR104", f"{label}: {error}", fix, entry.where)
            return None

    def texts(self, entry: DocumentEntry | None, label: str) -> dict[str, str]:
        """A mapping of texts, such as settings of Spark."""
        entries = self.mapping(entry, label)
        texts = {key: self.text(value, f"{label}, {key},", may_be_empty=True) for key, value in entries.items()}
        return {key: text for key, text in texts.items() if text is not None}

    def many(self, entry: DocumentEntry | None, label: str, *, may_be_number: bool = True) -> list[tuple[str, Where]]:
        """A list of texts, or one text in its place; none where nothing stands."""
        if entry is None:
            return []
        items = entry.value if isinstance(entry.value, list) else [entry]
        texts = [(self.text(item, label, may_be_number=may_be_number), item.where) for item in items]
        return [(text, where) for text, where in texts if text is not None]


def read(text: str, file: str, *, as_texts: bool = False) -> tuple[DocumentEntry, list[Finding]]:
    """The tree of `text`, an empty mapping when it cannot be parsed, and its faults.

    as_texts: plain values stay as they are written, but for null: `12:14` is a time then, not a number of seconds.
    """
    empty = DocumentEntry(value={}, where=Where(file=file, line=1))
    try:
        if (deep := _too_deep(text)) is not None:
            message = f"values are nested more than {MOST_DEPTH} deep here"
            where = Where(file=file, line=deep + 1)
            fix = "close the brackets or outdent the lines"
            return empty, [Finding(code="HR101", what=message, fix=fix, where=where)]
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"this is not valid YAML: {error.problem or error.context}"
        where = Where(file=file, line=mark.line + 1 if mark else None)
        return empty, [Finding(code="HR101", what=message, fix=_fix(message, text, where), where=where)]
    except yaml.YAMLError as error:
        message = f"this is not valid YAML: {str(error).splitlines()[0]}"
        return empty, [Finding(code="HR101", what=message, fix="save the file as UTF-8 text", where=empty.where)]
    if node is None:
        return empty, []
    walk = _Walk(file, as_texts)
    try:
        return walk.entry(node, None, frozenset()), walk.findings
    except _TooMany:
        message = f"it holds more than {MOST_VALUES:,} values, those of its aliases counted each time"
        fix = "remove aliases that repeat each other"
        return empty, [Finding(code="HR101", what=message, fix=fix, where=empty.where)]


# What the parser says of a mistake, and what to do about it.
_FIXES = (
    ("mapping values are not allowed", "put a text that holds ': ' in quotes, or correct the indentation of this line"),
    (
        "expected <block end>|did not find expected key",
        "let this line begin in the same column as the others of its level, and close quotes and brackets above",
    ),
    ("flow|',' or", "close the bracket, or put a comma between its values"),
    ("node content", "write a value here, or remove the comma, colon or bracket before it"),
    ("alias", "declare the anchor &name before its alias *name, or put a text that begins with * in quotes"),
    ("quoted scalar|end of stream", "close the quote that is opened here"),
    ("tag", "put a text that begins with ! in quotes"),
    ("document", "keep one document in the file: remove the line ---"),
    ("could not find expected ':'", "write a colon and a space after the key"),
    ("", "correct the indentation or quotes here"),
)


class _TooMany(Exception):
    """More values than a project may have."""


def _too_deep(text: str) -> int | None:
    """The line, from 0, at which values are nested too deep: the parser and the walk below would run out of stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_DEPTH:
                return event.start_mark.line if event.start_mark else 0
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _fix(message: str, text: str, where: Where) -> str:
    """What to do about a mistake that YAML's parser names in its own words."""
    lines = text.splitlines()
    line = lines[where.line - 1] if where.line and where.line <= len(lines) else ""
    if "cannot start any token" in message and "\t" in line:
        return "indent with spaces: YAML takes no tabs"
    if "cannot start any token" in message:
        return "put the value in quotes: it begins with a character that means something to YAML"
    return next(fix for words, fix in _FIXES if re.search(words, message))


class _Walk:
    def __init__(self, file: str, as_texts: bool) -> None:
        self.file = file
        self.as_texts = as_texts
        self.findings: list[Finding] = []
        self.scalars = SafeConstructor()
        self.values = 0

    def where(self, node: yaml.Node) -> Where:
        return Where(file=self.file, line=node.start_mark.line + 1)

    def fault(self, what: str, fix: str, node: yaml.Node, *, code: str = "HR101") -> None:
        self.findings.append(Finding(code=code, what=what, fix=fix, where=self.where(node)))

    def entry(self, node: yaml.Node, key: yaml.Node | None, above: frozenset[int]) -> DocumentEntry:
        where = self.where(key or node)
        self.values += 1
        if self.values > MOST_VALUES:
            raise _TooMany
        if id(node) in above:
            self.fault("an alias contains itself", "write the value out in place of the alias", key or node)
            return DocumentEntry(value=None, where=where)
        above = above | {id(node)}
        if isinstance(node, yaml.MappingNode):
            return DocumentEntry(value=self.mapping(node, above), where=where)
        if isinstance(node, yaml.SequenceNode):
            return DocumentEntry(value=[self.entry(item, None, above) for item in node.value], where=where)
        return DocumentEntry(value=self.scalar(node), where=where)

    def mapping(self, node: yaml.MappingNode, above: frozenset[int]) -> dict[str, DocumentEntry]:
        merged: dict[str, DocumentEntry] = {}
        own: dict[str, DocumentEntry] = {}
        for key, value in node.value:
            if key.tag.endswith(":merge"):
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    entry = self.entry(part, None, above).value
                    merged = {**entry, **merged} if isinstance(entry, dict) else merged
            elif not isinstance(key, yaml.ScalarNode):
                fix = "write a text before the colon; in quotes if it holds brackets, as ${VAR} does"
                self.fault("a key is not a text", fix, key)
            elif key.value in own:
                message = f"the key '{key.value}' stands here and at line {own[key.value].where.line}"
                self.fault(message, "keep one of the two", key, code="HR109")
            else:
                own[key.value] = self.entry(value, key, above)
        return {**merged, **own}

    def scalar(self, node: yaml.Node) -> Tree:
        tag = node.tag.rpartition(":")[2]
        if not node.tag.startswith(_STANDARD):
            fix = "remove it, or put a text that begins with ! in quotes"
            self.fault(f"the tag {node.tag} has no meaning here", fix, node)
        if tag == "null":
            return None
        value: Tree = str(node.value)
        if tag in _SCALARS and not self.as_texts:
            with suppress(ValueError, KeyError):
                value = getattr(self.scalars, _SCALARS[tag])(node)
        return value
