"""A SQL text becomes a transformation with its inputs, or the reason why it is not one SELECT."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import dropwhile, pairwise
from typing import NamedTuple

from headrace.errors import Finding, Where, nearest
from headrace.load.sql_relations import BEGINS, LEAVES_FROM, NOTHING, Token, relations, tokens
from headrace.model import SqlTransform


def transform(text: str, where: Where, names: Collection[str]) -> tuple[SqlTransform | None, list[Finding]]:
    """The SELECT in `text`; `where` is that of its first line, `names` are the declared inputs."""
    found = tokens(text)
    fault = _fault(found)
    if fault:
        what, token, fix = fault
        line = where.line + token.line if where.line is not None and token else where.line
        return None, [Finding(code="HR116", what=what, fix=fix, where=replace(where, line=line))]
    statement = [token for token in found if token.text != ";"]
    known = {name.lower(): name for name in names}
    read = relations(statement)
    if not read and (misspelt := _for_from(statement, known)):
        word, name = misspelt
        what = f"'{word.text}' stands before '{name}', where FROM should"
        at = replace(where, line=None if where.line is None else where.line + word.line)
        return None, [Finding(code="HR116", what=what, fix=f"write FROM {name}", where=at)]
    inputs = dict.fromkeys(known.get(name.lower(), name) for name in read)
    sql = text[: statement[-1].end].strip()
    skipped = text[: len(text) - len(text.lstrip())].count("\n")
    begins = where if where.line is None else replace(where, line=where.line + skipped)
    return SqlTransform(sql=sql, inputs=tuple(inputs), where=begins), []


class _Fault(NamedTuple):
    """Why a text is not one SELECT, at which token, and what to write instead."""

    what: str
    token: Token | None
    fix: str


def _fault(found: Sequence[Token]) -> _Fault | None:
    """Why the tokens are not one SELECT, or None."""
    checks = (_nothing, _template, _other_statement, _missing_name, _second_statement, _unbalanced)
    return next((fault for check in checks if (fault := check(found)) is not None), None)


def _nothing(found: Sequence[Token]) -> _Fault | None:
    return None if _first(found) else _Fault("there is no SELECT in it", None, "write one SELECT")


def _first(found: Sequence[Token]) -> Token | None:
    return next((token for token in found if token.text not in "(;"), None)


def _template(found: Sequence[Token]) -> _Fault | None:
    braces = next((token for token, after in pairwise(found) if token.text == "{" and after.text in "{%"), None)
    fix = "write the input's name, FROM its_name, and ${VAR} for a variable"
    return _Fault("it holds {{ or {%, of a template that Headrace does not fill in", braces, fix) if braces else None


def _other_statement(found: Sequence[Token]) -> _Fault | None:
    first = _first(found)
    if first is None or first.keyword in BEGINS:
        return None
    near = nearest(first.text.upper(), ("SELECT", "WITH", "VALUES"))
    fix = near if near.startswith("did") else "write one SELECT, WITH or VALUES; the sink says where the rows go"
    return _Fault(f"a statement begins with {first.text}, not with SELECT", first, fix)


def _missing_name(found: Sequence[Token]) -> _Fault | None:
    """Nothing behind FROM or JOIN that could be read."""
    for token, after in pairwise((*found, NOTHING)):
        ends = after is NOTHING or after.text in ";)" or after.keyword in {*LEAVES_FROM, "FROM", "JOIN", "ON"}
        if token.keyword in {"FROM", "JOIN"} and ends:
            said = f"'{after.text}'" if after.text else "nothing"
            return _Fault(f"{said} follows {token.text}", token, f"write the input's name after {token.text}")
    return None


def _second_statement(found: Sequence[Token]) -> _Fault | None:
    behind = dropwhile(lambda token: not (token.text == ";" and token.kind == "other"), found)
    rest = next((token for token in behind if token.text != ";"), None)
    fix = "put each SELECT into a view or query of its own"
    return _Fault("there is more than one statement", rest, fix) if rest else None


def _unbalanced(found: Sequence[Token]) -> _Fault | None:
    depth = 0
    for token in found:
        if token.kind == "other" and token.text in "'\"`":
            return _Fault("a quote is opened and not closed", token, f"close it with {token.text}")
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if depth < 0:
            return _Fault("a bracket is closed that was not opened", token, "remove the bracket")
    return _Fault("a bracket is opened and not closed", found[-1], "close the bracket") if depth else None


def _for_from(found: Sequence[Token], known: Collection[str]) -> tuple[Token, str] | None:
    """A word that stands before an input's name in a statement that reads nothing, as FORM for FROM, and the name."""
    for word, name in pairwise(found):
        like = difflib.SequenceMatcher(None, word.keyword, "FROM").ratio() >= 0.5
        if word.keyword and like and name.kind in ("word", "quoted") and name.text.lower() in known:
            return word, name.text
    return None
