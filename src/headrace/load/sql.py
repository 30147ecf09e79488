"""A SQL text becomes a transformation with its inputs, or the reason why it is not one SELECT.

sqlglot would parse it, but its import takes 85 to 146 ms, which every command would pay.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise
from typing import NamedTuple

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
# What a query begins with, and the words at which its FROM clause ends.
BEGINS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})
LEAVES_FROM = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"}
    | {"UNION", "EXCEPT", "MINUS", "INTERSECT", "WINDOW", "QUALIFY"}
)
_SET_WORDS = frozenset({"UNION", "ALL", "DISTINCT", "EXCEPT", "MINUS", "INTERSECT"})
# What may stand between FROM and a relation's name, or in place of it.
_BEFORE_NAMES = frozenset({"LATERAL", "VALUES", "SELECT", "WITH", "FROM", "STREAM"})


def transform(text: str, where: Where, names: Collection[str]) -> tuple[SqlTransform | None, list[Finding]]:
    """The SELECT in `text`; `where` is that of its first line, `names` are the declared inputs."""
    found = tokens(text)
    if (fault := next(_faults(found), None)) is not None:
        at = _below(where, fault.token.line if fault.token else 0)
        return None, [Finding(code="HR116", what=fault.what, fix=fault.fix, where=at)]
    statement = [token for token in found if token.text != ";"]
    known = {name.lower(): name for name in names}
    read = relations(statement)
    if not read and (misspelt := _for_from(statement, known)):
        word, name = misspelt
        what = f"'{word.text}' stands before '{name}', where FROM should"
        return None, [Finding(code="HR116", what=what, fix=f"write FROM {name}", where=_below(where, word.line))]
    inputs = dict.fromkeys(known.get(name.lower(), name) for name in read)
    sql = text[: statement[-1].end].strip()
    skipped = text[: len(text) - len(text.lstrip())].count("\n")
    return SqlTransform(sql=sql, inputs=tuple(inputs), where=_below(where, skipped)), []


def _below(where: Where, lines: int) -> Where:
    return where if where.line is None else replace(where, line=where.line + lines)


@dataclass(frozen=True)
class Token:
    """A word, a name in backticks without them, a text or another character; `line` counts from 0.

    `keyword` is the word in capitals, and empty for what cannot be a keyword, such as the `from` of `mail.from`.
    """

    text: str
    kind: str
    line: int
    end: int
    keyword: str = ""


class _Fault(NamedTuple):
    """Why a text is not one SELECT, at which token, and what to write instead."""

    what: str
    token: Token | None
    fix: str


def _faults(found: Sequence[Token]) -> Iterator[_Fault]:
    """Why the tokens are not one SELECT, the reason that is to be told first."""
    first = next((token for token in found if token.text not in "(;"), None)
    if first is None:
        yield _Fault("there is no SELECT in it", None, "write one SELECT")
        return
    for token, after in pairwise(found):
        if token.text == "{" and after.text in "{%":
            fix = "write the input's name, FROM its_name, and ${VAR} for a variable"
            yield _Fault("it holds {{ or {%, of a template that Headrace does not fill in", token, fix)
    if first.keyword not in BEGINS:
        near = nearest(first.text.upper(), ("SELECT", "WITH", "VALUES"))
        fix = near if near.startswith("did") else "write one SELECT, WITH or VALUES; the sink says where the rows go"
        yield _Fault(f"a statement begins with {first.text}, not with SELECT", first, fix)
    for token, after in pairwise((*found, NOTHING)):
        ends = after is NOTHING or after.text in ";)" or after.keyword in {*LEAVES_FROM, "FROM", "JOIN", "ON"}
        if token.keyword in {"FROM", "JOIN"} and ends:
            said = f"'{after.text}'" if after.text else "nothing"
            yield _Fault(f"{said} follows {token.text}", token, f"write the input's name after {token.text}")
    behind = dropwhile(lambda token: not (token.text == ";" and token.kind == "other"), found)
    if (rest := next((token for token in behind if token.text != ";"), None)) is not None:
        yield _Fault("there is more than one statement", rest, "put each SELECT into a view or query of its own")
    depth = 0
    for token in found:
        if token.kind == "other" and token.text in "'\"`":
            yield _Fault("a quote is opened and not closed", token, f"close it with {token.text}")
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if depth < 0:
            yield _Fault("a bracket is closed that was not opened", token, "remove the bracket")
    if depth:
        yield _Fault("a bracket is opened and not closed", found[-1], "close the bracket")


def _for_from(found: Sequence[Token], known: Collection[str]) -> tuple[Token, str] | None:
    """A word that stands before an input's name in a statement that reads nothing, as FORM for FROM, and the name."""
    for word, name in pairwise(found):
        like = difflib.SequenceMatcher(None, word.keyword, "FROM").ratio() >= 0.5
        if word.keyword and like and name.kind in ("word", "quoted") and name.text.lower() in known:
            return word, name.text
    return None


@dataclass(frozen=True)
class Group:
    """What stands between a pair of brackets."""

    items: tuple[Token | Group, ...]
    text: str = "("
    kind: str = "group"
    keyword: str = ""


Items = Sequence[Token | Group]
# Stands before the first token and behind the last.
NOTHING = Token("", "end", 0, 0)


def tokens(text: str) -> list[Token]:
    """The tokens of a SQL text, without space and comments."""
    found: list[Token] = []
    line = 0
    for match in _TOKEN.finditer(text):
        kind, said = str(match.lastgroup), match.group()
        dotted = bool(found) and found[-1].text == "." and found[-1].kind == "other"
        if kind == "quoted":
            said = said[1:-1].replace("``", "`")
        if kind != "skip":
            found.append(Token(said, kind, line, match.end(), said.upper() if kind == "word" and not dotted else ""))
        line += match.group().count("\n")
    return found


def relations(statement: Sequence[Token]) -> list[str]:
    """The unqualified names that stand where a relation must, other than those that WITH gives.

    The brackets of `statement` are balanced.
    """
    return list(dict.fromkeys(_read(_nested(iter(statement)), frozenset())))


def _nested(rest: Iterator[Token]) -> tuple[Token | Group, ...]:
    """The tokens up to the bracket that closes, with each pair of brackets as one group."""
    items: list[Token | Group] = []
    for token in rest:
        if token.kind == "other" and token.text == ")":
            break
        items.append(Group(_nested(rest)) if token.kind == "other" and token.text == "(" else token)
    return tuple(items)


def _read(items: Items, ctes: frozenset[str], *, relation: bool = False) -> Iterator[str]:
    """The names that are read between one pair of brackets; `ctes` are the names that WITH gives there.

    `relation`: the brackets stand where a relation must, as in FROM (a JOIN b).
    """
    if items and items[0].keyword == "WITH":
        # The text after WITH is one more query, in which its names are known.
        end, ctes, found = _read_with(items, ctes)
        yield from found
        items = items[end:]
    expected = listed = relation  # The next name is a relation; a comma brings one more.
    querying = False  # Outside a query FROM is part of an expression, as in extract(HOUR FROM time).
    for at, item in enumerate(items):
        before, after = items[at - 1] if at else NOTHING, items[at + 1] if at + 1 < len(items) else NOTHING
        if isinstance(item, Group):
            is_query = bool(item.items) and item.items[0].keyword in BEGINS
            yield from _read(item.items, ctes, relation=expected and not is_query)
            expected = False
        elif item.kind == "other":
            expected = expected or (item.text == "," and listed)
        elif expected and item.keyword not in _BEFORE_NAMES:
            expected = False
            # A text, a function or the first part of a longer name is none.
            if item.kind != "text" and after.text not in {".", "("} and item.text.lower() not in ctes:
                yield item.text
        elif item.keyword == "SELECT":
            querying, expected, listed = True, False, False
        elif item.keyword == "FROM":
            if (querying or at == 0) and not _compares(items, at):
                expected = listed = True
        elif item.keyword == "JOIN":
            expected = listed = True
        elif item.keyword == "TABLE":
            expected = expected or at == 0 or before.keyword in _SET_WORDS
        elif item.keyword == "VIEW" and before.keyword == "LATERAL":
            expected = listed = False  # The commas behind it stand between names of columns.
        elif item.keyword in {"LATERAL", "VALUES"}:
            expected = False
        elif item.keyword in LEAVES_FROM:
            listed = False


def _read_with(items: Items, ctes: frozenset[str]) -> tuple[int, frozenset[str], list[str]]:
    """Where `WITH a AS (...), b AS (...)` ends, the names that are known behind it, and what its queries read."""
    recursive = len(items) > 1 and items[1].keyword == "RECURSIVE"
    at = 2 if recursive else 1
    found: list[str] = []
    while at < len(items):
        name = frozenset({items[at].text.lower()})
        body = next((place for place in range(at + 1, len(items)) if _is_body(items, place)), None)
        if body is None:
            break
        found += _read(items[body].items, ctes | name if recursive else ctes)  # type: ignore[union-attr]
        ctes |= name
        at = body + 1
        if at == len(items) or items[at].text != ",":
            break
        at += 1
    return at, ctes, found


def _is_body(items: Items, at: int) -> bool:
    """Whether a WITH's query stands here; behind the names of its columns comes AS, or MAX RECURSION LEVEL."""
    after = items[at + 1].keyword if at + 1 < len(items) else ""
    return isinstance(items[at], Group) and after not in {"AS", "MAX"}


def _compares(items: Items, at: int) -> bool:
    """Whether the FROM here is that of IS [NOT] DISTINCT FROM."""
    return at >= 2 and items[at - 1].keyword == "DISTINCT" and items[at - 2].keyword in {"IS", "NOT"}
