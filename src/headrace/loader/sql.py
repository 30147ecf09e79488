"""A SQL text becomes a transformation with its inputs, or the reason why it is not one SELECT.

sqlglot 30 does not parse all of Spark's SQL: it refuses `TABLE a UNION TABLE b`, `MAX RECURSION LEVEL`, `a:b.c`, `>>>`
and most pipes, and reads `FROM STREAM a` as the table STREAM. Its import takes 120 ms.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise

from headrace.errors import Finding, Where, nearest
from headrace.model import SqlTransform
from headrace.spark.sql_tokens import NOTHING, Token, tokens

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
    """Read the SELECT in `text`; `where` is that of its first line, `names` are the declared inputs."""
    declared = {name.lower(): name for name in names}
    all_tokens = tokens(text)
    if (fault := next(_faults(all_tokens, declared), None)) is not None:
        line, message, fix = fault
        return None, [Finding(code="HR116", what=message, fix=fix, where=_below(where, line))]
    statement = [token for token in all_tokens if token.text != ";"]
    inputs = dict.fromkeys(declared.get(name.lower(), name) for name in relations(statement))
    sql = text[: statement[-1].end].strip()
    skipped = text[: len(text) - len(text.lstrip())].count("\n")
    return SqlTransform(sql=sql, inputs=tuple(inputs), where=_below(where, skipped)), []


def _below(where: Where, lines: int) -> Where:
    return where if where.line is None else replace(where, line=where.line + lines)


def _faults(statement: Sequence[Token], declared: Collection[str]) -> Iterator[tuple[int, str, str]]:
    """Why the tokens are not one SELECT: the line, from 0, the fault, and what to write; the most useful one first."""
    first = next((token for token in statement if token.text not in "(;"), None)
    if first is None:
        yield 0, "there is no SELECT in it", "write one SELECT"
        return
    for token, after in pairwise(statement):
        if token.text == "{" and after.text in "{%":
            fix = "write the input's name, FROM its_name, and ${VAR} for a variable"
            yield token.line, "it holds {{ or {%, of a template that Headrace does not fill in", fix
    if first.keyword not in BEGINS:
        near = nearest(first.text.upper(), ("SELECT", "WITH", "VALUES"))
        fix = near if near.startswith("did") else "write one SELECT, WITH or VALUES; the sink says where the rows go"
        yield first.line, f"a statement begins with {first.text}, not with SELECT", fix
    for token, after in pairwise((*statement, NOTHING)):
        ends = after is NOTHING or after.text in ";)" or after.keyword in {*LEAVES_FROM, "FROM", "JOIN", "ON"}
        if token.keyword in {"FROM", "JOIN"} and ends:
            follower = f"'{after.text}'" if after.text else "nothing"
            yield token.line, f"{follower} follows {token.text}", f"write the input's name after {token.text}"
    behind = dropwhile(lambda token: not (token.text == ";" and token.kind == "other"), statement)
    if (rest := next((token for token in behind if token.text != ";"), None)) is not None:
        yield rest.line, "there is more than one statement", "put each SELECT into a view or query of its own"
    depth = 0
    for token in statement:
        if token.kind == "other" and token.text in "'\"`":
            yield token.line, "a quote is opened and not closed", f"close it with {token.text}"
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if depth < 0:
            yield token.line, "a bracket is closed that was not opened", "remove the bracket"
    if depth:
        yield statement[-1].line, "a bracket is opened and not closed", "close the bracket"
    elif not relations(statement):
        for word, name in pairwise(statement):
            is_from = difflib.SequenceMatcher(None, word.keyword, "FROM").ratio() >= 0.5
            if word.keyword and is_from and name.kind in ("word", "quoted") and name.text.lower() in declared:
                yield (
                    word.line,
                    f"'{word.text}' stands before '{name.text}', where FROM should",
                    f"write FROM {name.text}",
                )


@dataclass(frozen=True)
class Group:
    """What stands between a pair of brackets."""

    items: tuple[Token | Group, ...]
    text: str = "("
    kind: str = "group"
    keyword: str = ""


Items = Sequence[Token | Group]


def relations(statement: Sequence[Token]) -> list[str]:
    """The unqualified names that stand where a relation must, other than those that WITH gives.

    The brackets of `statement` are balanced.
    """
    return list(dict.fromkeys(_inputs(_nest(iter(statement)), frozenset())))


def _nest(rest: Iterator[Token]) -> tuple[Token | Group, ...]:
    """Take the tokens up to the bracket that closes, with each pair of brackets as one group."""
    items: list[Token | Group] = []
    for token in rest:
        if token.kind == "other" and token.text == ")":
            break
        items.append(Group(_nest(rest)) if token.kind == "other" and token.text == "(" else token)
    return tuple(items)


def _inputs(items: Items, ctes: frozenset[str], *, relation: bool = False) -> Iterator[str]:
    """The names that are read between one pair of brackets; `ctes` are the names that WITH gives there.

    `relation`: the brackets stand where a relation must, as in FROM (a JOIN b).
    """
    if items and items[0].keyword == "WITH":
        # The text after WITH is one more query, in which its names are known.
        items, ctes, names = _inputs_of_with(items, ctes)
        yield from names
    expected = listed = relation  # The next name is a relation; a comma brings one more.
    querying = False  # Outside a query FROM is part of an expression, as in extract(HOUR FROM time).
    for at, item in enumerate(items):
        before, after = items[at - 1] if at else NOTHING, items[at + 1] if at + 1 < len(items) else NOTHING
        if isinstance(item, Group):
            is_query = bool(item.items) and item.items[0].keyword in BEGINS
            yield from _inputs(item.items, ctes, relation=expected and not is_query)
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
        elif item.keyword == "JOIN" or (
            item.keyword == "FROM" and (querying or at == 0) and not _is_comparison(items, at)
        ):
            expected = listed = True
        elif item.keyword == "TABLE":
            expected = expected or at == 0 or before.keyword in _SET_WORDS
        elif item.keyword == "VIEW" and before.keyword == "LATERAL":
            expected = listed = False  # The commas behind it stand between names of columns.
        elif item.keyword in {"LATERAL", "VALUES"}:
            expected = False
        elif item.keyword in LEAVES_FROM:
            listed = False


def _inputs_of_with(items: Items, ctes: frozenset[str]) -> tuple[Items, frozenset[str], list[str]]:
    """Read `WITH a AS (...), b AS (...)`: what follows it, the names that it gives, and what its queries read."""
    recursive = len(items) > 1 and items[1].keyword == "RECURSIVE"
    at = 2 if recursive else 1
    names: list[str] = []
    while at < len(items):
        name = frozenset({items[at].text.lower()})
        # Behind the names of its columns comes AS, or MAX RECURSION LEVEL; behind its query neither.
        bodies = (
            (place, item.items)
            for place, item in enumerate(items)
            if place > at and isinstance(item, Group) and _keyword(items, place + 1) not in {"AS", "MAX"}
        )
        at, body = next(bodies, (at, None))
        if body is None:
            break
        names += _inputs(body, ctes | name if recursive else ctes)
        ctes |= name
        at += 1
        if at == len(items) or items[at].text != ",":
            break
        at += 1
    return items[at:], ctes, names


def _keyword(items: Items, at: int) -> str:
    return items[at].keyword if 0 <= at < len(items) else ""


def _is_comparison(items: Items, at: int) -> bool:
    """Whether the FROM here is that of IS [NOT] DISTINCT FROM."""
    return _keyword(items, at - 1) == "DISTINCT" and _keyword(items, at - 2) in {"IS", "NOT"}
