"""What a SELECT reads, found in its text: a scanner of words, brackets and WITH, not a parser; Spark is the judge."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise

from headrace.errors import Finding, Where, nearest
from headrace.model import SqlTransform

_TOKEN = re.compile(
    r"""(?P<skip>\s+ | --[^\n]* | /\*.*?\*/)
      | (?P<text>r?'(?:[^'\\]|\\.|'')*' | r?"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w* | \d+[A-Za-z_]\w*)
      | (?P<other>\d[\d.]* | .)""",
    re.VERBOSE | re.DOTALL,
)
_BEGINS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})
_LEAVES_FROM = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"}
    | {"UNION", "EXCEPT", "MINUS", "INTERSECT", "WINDOW", "QUALIFY"}
)
_SET_WORDS = frozenset({"UNION", "ALL", "DISTINCT", "EXCEPT", "MINUS", "INTERSECT"})


@dataclass(frozen=True)
class _Token:
    text: str
    kind: str
    line: int
    end: int

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


@dataclass
class _Frame:
    """What is known between one pair of brackets."""

    start: int
    selecting: bool = False
    in_from: bool = False
    wants_relation: bool = False
    aliases: bool = False
    naming: bool = False
    recursive: bool = False
    ctes: set[str] = field(default_factory=set)
    pending: str = ""


def transform(text: str, where: Where, names: Collection[str]) -> tuple[SqlTransform | None, list[Finding]]:
    """The SELECT in `text`; `where` is that of its first line, `names` are the declared inputs."""
    tokens = _tokens(text)
    fault = _fault(tokens)
    if fault:
        what, token, fix = fault
        line = where.line + token.line if where.line is not None and token else where.line
        return None, [Finding(code="HR116", what=what, fix=fix, where=replace(where, line=line))]
    statement = [token for token in tokens if token.text != ";"]
    known = {name.lower(): name for name in names}
    read = relations(statement)
    if not read and (misspelt := _for_from(statement, known)):
        word, name = misspelt
        what = f"'{word.text}' stands before '{name}', where FROM should"
        at = replace(where, line=None if where.line is None else where.line + word.line)
        return None, [Finding(code="HR116", what=what, fix=f"write FROM {name}", where=at)]
    inputs = dict.fromkeys(known.get(name.lower(), name) for name in read)
    sql = text[: statement[-1].end].strip()
    return SqlTransform(sql=sql, inputs=tuple(inputs), where=where), []


def _tokens(text: str) -> list[_Token]:
    found, line, position = [], 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            break
        kind = str(match.lastgroup)
        if kind == "quoted":
            found.append(_Token(match.group()[1:-1].replace("``", "`"), kind, line, match.end()))
        elif kind != "skip":
            found.append(_Token(match.group(), kind, line, match.end()))
        line += match.group().count("\n")
        position = match.end()
    return found


def _fault(tokens: list[_Token]) -> tuple[str, _Token | None, str] | None:
    """Why the tokens are not one SELECT, or None."""
    first = next((token for token in tokens if token.text not in "(;"), None)
    if first is None:
        return "there is no SELECT in it", None, "write one SELECT"
    braces = next((token for token, after in pairwise(tokens) if token.text == "{" and after.text in "{%"), None)
    if braces is not None:
        fix = "write the input's name, FROM its_name, and ${VAR} for a variable"
        return "it holds {{ or {%, of a template that Headrace does not fill in", braces, fix
    if first.keyword not in _BEGINS:
        near = nearest(first.text.upper(), ("SELECT", "WITH", "VALUES"))
        fix = near if near.startswith("did") else "write one SELECT, WITH or VALUES; the sink says where the rows go"
        return f"a statement begins with {first.text}, not with SELECT", first, fix
    before = ""
    for token, after in pairwise((*tokens, _Token("", "end", tokens[-1].line, 0))):
        nothing = after.kind == "end" or after.text in ";)" or after.keyword in {*_LEAVES_FROM, "FROM", "JOIN", "ON"}
        if token.keyword in {"FROM", "JOIN"} and before != "." and nothing:
            said = f"'{after.text}'" if after.text else "nothing"
            return f"{said} follows {token.text}", token, f"write the input's name after {token.text}"
        before = token.text
    ends = [index for index, token in enumerate(tokens) if token.text == ";" and token.kind == "other"]
    for index in ends:
        rest = [token for token in tokens[index:] if token.text != ";"]
        if rest:
            return "there is more than one statement", rest[0], "put each SELECT into a view or query of its own"
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if depth < 0:
            return "a bracket is closed that was not opened", token, "remove the bracket"
        if token.kind == "other" and token.text in "'\"`":
            return "a quote is opened and not closed", token, f"close it with {token.text}"
    return ("a bracket is opened and not closed", tokens[-1], "close the bracket") if depth else None


def _for_from(tokens: list[_Token], known: Collection[str]) -> tuple[_Token, str] | None:
    """A word that stands before an input's name in a statement that reads nothing, as FORM for FROM, and the name."""
    for word, name in pairwise(tokens):
        like = difflib.SequenceMatcher(None, word.keyword, "FROM").ratio() >= 0.5
        if word.keyword and like and name.kind in ("word", "quoted") and name.text.lower() in known:
            return word, name.text
    return None


def relations(tokens: list[_Token]) -> list[str]:
    """The unqualified names that stand where a relation must, other than those that WITH gives."""
    found: list[str] = []
    frames = [_Frame(0)]
    index = 0
    while index < len(tokens):
        token, frame = tokens[index], frames[-1]
        before = tokens[index - 1] if index else None
        dotted = before is not None and before.text == "." and before.kind == "other"
        keyword = "" if dotted else token.keyword
        at_start = index == frame.start
        if token.kind == "other":
            index = _punctuation(tokens, index, frames)
            continue
        if frame.naming and keyword != "RECURSIVE":
            frame.pending, frame.naming = token.text.lower(), False
            if frame.recursive:
                frame.ctes.add(frame.pending)
        elif frame.wants_relation and keyword not in {"LATERAL", "VALUES", "SELECT", "WITH", "FROM", "STREAM"}:
            frame.wants_relation = False
            after = tokens[index + 1].text if index + 1 < len(tokens) else ""
            if after not in {".", "("} and token.kind != "text" and not _is_cte(token.text, frames):
                found.append(token.text)
        elif keyword == "RECURSIVE" and frame.naming:
            frame.recursive = True
        elif keyword == "WITH" and at_start:
            frame.naming = True
        elif keyword == "SELECT":
            frame.selecting, frame.in_from, frame.wants_relation = True, False, False
        elif keyword == "FROM":
            told_apart = before is not None and before.keyword == "DISTINCT" and _distinct_from(tokens, index)
            if (frame.selecting or at_start or frame.ctes) and not told_apart:
                frame.in_from, frame.wants_relation, frame.aliases = True, True, False
        elif keyword == "TABLE" and (at_start or (before is not None and before.keyword in _SET_WORDS)):
            frame.wants_relation = True
        elif keyword == "JOIN":
            frame.in_from, frame.wants_relation, frame.aliases = True, True, False
        elif keyword == "VIEW" and before is not None and before.keyword == "LATERAL":
            frame.aliases, frame.wants_relation = True, False
        elif keyword in {"LATERAL", "VALUES"}:
            frame.wants_relation = False
        elif keyword in _LEAVES_FROM:
            frame.in_from = False
        index += 1
    return list(dict.fromkeys(found))


def _punctuation(tokens: list[_Token], index: int, frames: list[_Frame]) -> int:
    frame, text = frames[-1], tokens[index].text
    if text == "(":
        inner = _Frame(index + 1)
        if frame.wants_relation:  # a relation in brackets, or a query: FROM (a JOIN b), FROM (SELECT ...)
            following = tokens[index + 1].keyword if index + 1 < len(tokens) else ""
            inner.wants_relation = inner.in_from = following not in _BEGINS
            frame.wants_relation = False
        frames.append(inner)
    elif text == ")" and len(frames) > 1:
        frames.pop()
        outer = frames[-1]
        if outer.pending and not _opens_body(tokens, index):
            outer.ctes.add(outer.pending)
            outer.pending = ""
    elif text == ",":
        if frame.in_from and not frame.aliases:
            frame.wants_relation = True
        elif frame.ctes and not frame.selecting and not frame.in_from:
            frame.naming = True
    return index + 1


def _opens_body(tokens: list[_Token], index: int) -> bool:
    """Whether the bracket that closes here held a WITH's column names, for `AS (` comes after it."""
    after = [token.text.upper() for token in tokens[index + 1 : index + 6]]
    return "AS" in after[:1] or after[:1] == ["MAX"]


def _distinct_from(tokens: list[_Token], index: int) -> bool:
    return index >= 2 and tokens[index - 2].keyword in {"IS", "NOT"}


def _is_cte(name: str, frames: list[_Frame]) -> bool:
    return any(name.lower() in frame.ctes for frame in frames)
