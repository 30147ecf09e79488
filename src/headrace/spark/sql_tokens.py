"""Texts of Spark's SQL as tokens, for schemas and for what a SELECT reads."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skip>\s+ | --[^\n]* | /\*.*?\*/)
      | (?P<text>r?'(?:[^'\\]|\\.|'')*' | r?"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[^\W\d]\w* | \d+[A-Za-z_]\w*)
      | (?P<other>\d[\d.]* | .)""",
    re.VERBOSE | re.DOTALL,
)


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


# Stands before the first token and behind the last.
NOTHING = Token("", "end", 0, 0)


def tokens(text: str) -> list[Token]:
    """The tokens of a SQL text, without space and comments."""
    result: list[Token] = []
    line = 0
    for match in _TOKEN.finditer(text):
        kind, value = str(match.lastgroup), match.group()
        dotted = bool(result) and result[-1].text == "." and result[-1].kind == "other"
        keyword = value.upper() if kind == "word" and not dotted else ""
        if kind == "quoted":
            value = value[1:-1].replace("``", "`")
        if kind != "skip":
            result.append(Token(value, kind, line, match.end(), keyword))
        line += match.group().count("\n")
    return result
