"""What a SELECT reads: a scanner of words, brackets and WITH, not a parser; Spark is the judge.

sqlglot would parse it, but its import takes 85 to 146 ms, which every command would pay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Group:
    """What stands between a pair of brackets."""

    items: tuple[Token | Group, ...]
    text: str = "("
    kind: str = "group"
    keyword: str = ""

    @property
    def is_query(self) -> bool:
        """Whether a query stands in the brackets, and no list of relations."""
        return bool(self.items) and self.items[0].keyword in BEGINS


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
            yield from _read(item.items, ctes, relation=expected and not item.is_query)
            expected = False
        elif item.kind == "other":
            expected = expected or (item.text == "," and listed)
        elif expected and item.keyword not in _BEFORE_NAMES:
            expected = False
            if _is_name(item, after) and item.text.lower() not in ctes:
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


def _is_name(item: Token, after: Token | Group) -> bool:
    """Whether it is the whole name of a relation, not a text, a function or the first part of a longer name."""
    return item.kind != "text" and after.text not in {".", "("}


def _compares(items: Items, at: int) -> bool:
    """Whether the FROM here is that of IS [NOT] DISTINCT FROM."""
    return at >= 2 and items[at - 1].keyword == "DISTINCT" and items[at - 2].keyword in {"IS", "NOT"}
