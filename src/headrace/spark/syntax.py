"""What is wrong where Spark's SQL parser stopped, by the words around that place."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from headrace.errors import nearest
from headrace.spark.names import type_name

# The words that clauses begin with, and of those the ones that a second word must follow.
_CLAUSES = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "UNION",
    "WITH",
    "BETWEEN",
    "DISTINCT",
)
_WITH_BY = ("GROUP", "ORDER", "PARTITION", "SORT", "CLUSTER")
_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR", "MILLISECOND")
_TYPES_AT = r"(?:ARRAY|BIGINT|BINARY|BOOLEAN|DATE|DECIMAL|DOUBLE|FLOAT|INT|MAP|STRING|STRUCT|TIMESTAMP)"
_TOKEN = re.compile(r"\s+|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|.", re.DOTALL)
_ALIKE = 0.7
_ORDER = "write the clauses in this order: SELECT, FROM, WHERE, GROUP BY, HAVING, ORDER BY"


@dataclass(frozen=True)
class Stop:
    """Where the parser stopped: the statement, the place in it, and the words before, at and behind that place."""

    text: str
    at: int
    before: tuple[str, ...]
    word: str
    behind: tuple[str, ...]

    @property
    def line(self) -> int:
        """The line in the statement, from 0."""
        return self.text.count("\n", 0, self.at)


def stop(message: str) -> Stop | None:
    """The place that Spark's message names; it shows the statement below the heading `== SQL`."""
    shown = re.search(r"^== SQL.*? ==$\n(.*)", message, re.MULTILINE | re.DOTALL)
    place = re.search(r"\(line (\d+), pos (\d+)\)", message)
    if shown is None or place is None:
        return None
    lines = [line for line in shown[1].split("\n") if not re.fullmatch(r"-*\^\^\^", line)]
    number, position = int(place[1]) - 1, int(place[2])
    text = "\n".join(lines).rstrip()
    at = min(sum(len(line) + 1 for line in lines[:number]) + position, len(text))
    # A place behind the last word is the end.
    before = tuple(_words(text[:at]))
    behind = tuple(_words(text[at:]))
    return Stop(text, at, before, behind[0] if behind else "", behind[1:])


def _words(text: str) -> list[str]:
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return [each for each in _TOKEN.findall(plain) if not each.isspace()]


def fix_at(found: Stop | None) -> str:
    """What to write there."""
    if found is None:
        return "write an expression or a SELECT as Spark's SQL has it, and a schema as 'a INT, b STRING'"
    word, behind = found.word.upper(), found.behind
    last = found.before[-1].upper() if found.before else ""
    signs = _sign(found.word, last, behind)
    if signs:
        return signs
    if last == ",":
        return f"remove the comma {'at the end' if not word else f'before {found.word}'}, or write a column behind it"
    if last in _WITH_BY:
        return _ORDER if word == "BY" else f"write {last} BY"
    if re.fullmatch(_TYPES_AT, word) and "CAST" in (each.upper() for each in found.before):
        return f"write AS between value and type: CAST(x AS {word})"
    if len(found.before) == 1 and not word:
        return f"'{found.before[0]}' is no type: {type_name(found.before[0])}"
    for each in (found.word, found.before[-1] if found.before else ""):
        if (meant := _clause(each)) and not _is_operand_of_as(found, each):
            return f"did you mean {meant} in place of {each}?"
    if "INTERVAL" in (each.upper() for each in found.before[-3:]):
        return f"{nearest(word.rstrip('S'), _UNITS)} A length of time is INTERVAL 5 MINUTES"
    return _by_order(found, word, last)


def _sign(word: str, last: str, behind: tuple[str, ...]) -> str:
    """What is written with another sign in SQL, '' for none that is known."""
    pair = word + (behind[0] if behind else "")
    if word in ("#",) or pair == "//" or (word == "/" and last == "/"):
        return "begin a comment with --, which ends with its line"
    if word == "[":
        return "write a name with odd letters in backticks: `name`"
    if word in ("&", "|"):
        return f"write {'AND' if word == '&' else 'OR'}"
    if word == "=" and last in (":", "="):
        return "write a single = to compare"
    if word == "!":
        return "write != or <> for not equal, and NOT before a condition"
    if word == "@":
        return "write the value itself; in headrace.yml ${NAME} takes it from the environment"
    return ""


def _by_order(found: Stop, word: str, last: str) -> str:
    """Clauses that stand twice or in the wrong order, and what is missing."""
    said = [each.upper() for each in found.before]
    if word in ("IS", "NOT") and "NONE" in (each.upper() for each in found.behind[:1]):
        return "write IS NULL, or IS NOT NULL"
    if word == "NOT" and found.behind[:1] and found.behind[0].upper() == "NULL":
        return "write IS NOT NULL"
    if said.count("CASE") > said.count("END") or "CASE" in (each.upper() for each in (*said[-1:], *said[-2:-1])):
        return "close CASE WHEN ... THEN ... ELSE ... with END"
    if word == "WHERE" and "WHERE" in said:
        return "write one WHERE, and AND between its conditions"
    if word == "FROM" and "WHERE" in said:
        return "write FROM before WHERE"
    if word in ("BY", "GROUP", "HAVING", "WHERE") and "ORDER" in said:
        return _ORDER
    if "TOP" in said[-2:]:
        return "a stream has no first rows: leave TOP out; in a table write LIMIT at the end"
    if last == "FILTER":
        return "write FILTER (WHERE condition)"
    if not word:
        return f"the text ends too early: write what belongs behind {found.before[-1] if found.before else 'it'}"
    if said[-2:-1] == ["AS"]:
        return f"put a name of two words in backticks: `{found.before[-1]} {found.word}`; else a comma is missing"
    return f"write a comma, an operator or AND between {found.before[-1] if found.before else 'it'} and {found.word}"


def _clause(word: str) -> str:
    """The clause that a word is a misspelling of, '' if it is none or is spelt well."""
    if not word.isalpha() or word.upper() in _CLAUSES:
        return ""
    near = difflib.get_close_matches(word.upper(), _CLAUSES, n=1, cutoff=_ALIKE)
    return (near[0] + (" BY" if near[0] in ("GROUP", "ORDER") else "")) if near else ""


def _is_operand_of_as(found: Stop, word: str) -> bool:
    """Whether a word is a name that was given by AS."""
    return len(found.before) > 1 and found.before[-1] == word and found.before[-2].upper() == "AS"
