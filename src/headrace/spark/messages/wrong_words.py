"""Fixes for wrong words in a user's text: the names that were probably meant, and what SQL's parser stopped at."""

from __future__ import annotations

import difflib
import inspect
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.errors import nearest
from headrace.spark import ddl

# What other engines of streams call a function of Spark.
_ELSEWHERE = {
    "tumble": "window(time, '1 hour')",
    "hop": "window(time, '1 hour', '10 minutes')",
    "session": "session_window(time, '5 minutes')",
    "time_bucket": "window(time, '1 hour').start",
    "unnest": "explode(list)",
    "getdate": "the source's own time; current_timestamp() differs each time a batch is made",
    **dict.fromkeys(("watermark", "current_watermark"), "the source's `watermark`"),
}
_OF_PYTHON = {
    "foreachBatch": "return the DataFrame and give the query the sink foreach_batch, which takes the function",
    "start": "return the DataFrame; the query starts it",
    "outputMode": "return the DataFrame; the query has a mode",
    "trigger": "return the DataFrame; the query has a trigger",
    **dict.fromkeys(("apply", "iterrows", "map"), "use select or withColumn, or mapInPandas for code over rows"),
}
_CLAUSES = (
    *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER"),
    *("LIMIT", "JOIN", "UNION", "WITH", "BETWEEN", "DISTINCT"),
)
_WITH_BY = ("GROUP", "ORDER", "PARTITION", "SORT", "CLUSTER")
_TOKEN = re.compile(r"\s+|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|.", re.DOTALL)
_ALIKE = 0.7
# What to write for a sign that SQL has not.
_SIGNS = {
    "#": "begin a comment with --, which ends with its line",
    "[": "write a name with odd letters in backticks: `name`",
    "&": "write AND",
    "|": "write OR",
    "!": "write != or <> for not equal, and NOT before a condition",
    "@": "write the value itself; in headrace.yml ${NAME} takes it from the environment",
}
_ORDER = "write the clauses in this order: SELECT, FROM, WHERE, GROUP BY, HAVING, ORDER BY"


def function(name: str) -> str:
    """Propose the function of Spark that was probably meant."""
    from pyspark.sql import functions

    wanted = name.rpartition(".")[2].lower()
    if wanted in _ELSEWHERE:
        return f"in Spark it is {_ELSEWHERE[wanted]}"
    names = (name for name in dir(functions) if name.islower() and not name.startswith("_"))
    otherwise = "take one of Spark's functions (its SQL reference, 'Functions'), or write a UDF in Python in place of "
    return _propose(wanted, names, otherwise + "the SQL")


def _propose(name: str, names: Iterable[str], otherwise: str) -> str:
    near = nearest(name, names)
    return near if near.startswith("did you mean") else otherwise


def type_name(name: str) -> str:
    """Propose the type of Spark that was probably meant."""
    plain = name.partition("(")[0].lower()
    if plain in ddl.ELSEWHERE:
        return f"in Spark it is {ddl.ELSEWHERE[plain]}"
    return nearest(plain.upper(), (type_.upper() for type_ in (*ddl.SIMPLE, *ddl.SIZED, *ddl.NESTED)))


def attribute(name: str, error: BaseException) -> str:
    """Propose the column or method of the DataFrame that was probably meant where `error` was raised."""
    if name in _OF_PYTHON:
        return _OF_PYTHON[name]
    owners = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    dataframe = next((owner for owner in reversed(owners) if hasattr(type(owner), "withColumn")), None)
    if dataframe is None:
        return "name a column or a method of the DataFrame"
    methods = [method for method in dir(type(dataframe)) if not method.startswith("_")]
    return _propose(name, [*dataframe.columns, *methods], f"its columns are {', '.join(dataframe.columns)}")


_PLAIN_FUNCTIONS = ("max", "min", "sum", "abs", "round", "len", "int", "float", "str", "any", "all", "pow", "hash")
_IN_PLACE_OF = {"len": "F.length or F.size", "int": "cast('int')", "float": "cast('double')", "str": "cast('string')"}


def of_python(error: BaseException) -> str:
    """Propose what to write where Python itself refused the user's line; '' for an error without a proposal."""
    message, line = str(error), _line(error)
    if isinstance(error, NameError) and error.name:
        return _propose(error.name, _scope(error), f"define or import {error.name} in this file")
    if isinstance(error, AttributeError) and error.name and inspect.ismodule(error.obj):
        names = (name for name in dir(error.obj) if not name.startswith("_"))
        return _propose(error.name, names, f"take a function that {error.obj.__name__} has")
    if isinstance(error, AttributeError) and isinstance(error.obj, str) and error.name == "_jdf":
        return "give the DataFrame itself, not its name: declare the input as a parameter of the function"
    if "_get_object_id" in message:
        return "give a column, as F.col('name'), or a number, text or time; Spark knows no other objects"
    if "'Column' object is not callable" in message:
        return "leave the brackets behind the column out; a function of Spark is F.name(column)"
    used = next((name for name in _PLAIN_FUNCTIONS if re.search(rf"(?<![\w.]){name}\(", line)), "")
    if isinstance(error, (TypeError, AssertionError)) and used:
        return f"Python's own {used} knows no columns: use {_IN_PLACE_OF.get(used, f'F.{used}')}"
    if isinstance(error, AssertionError) and "should be Column" in message:
        return "give columns, as F.count('*').alias('n'), not texts"
    if isinstance(error, TypeError) and "missing" in message and "argument" in message:
        return "give the argument that the sentence names"
    return ""


def _scope(error: BaseException) -> list[str]:
    """The names that the line of the fault could have used."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [*frames[-1].f_locals, *frames[-1].f_globals] if frames else []


def _line(error: BaseException) -> str:
    """The innermost line of the trace that is not of an installed package."""
    own = [frame.line for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    return (own[-1] or "") if own else ""


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
    # A place behind the last word is the end.
    at = min(sum(len(line) + 1 for line in lines[:number]) + position, len(text))
    word, *behind = _words(text[at:]) or [""]
    return Stop(text, at, tuple(_words(text[:at])), word, tuple(behind))


def _words(text: str) -> list[str]:
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return [word for word in _TOKEN.findall(plain) if not word.isspace()]


def fix_at(place: Stop | None) -> str:
    """Propose what to write where the parser stopped."""
    if place is None:
        return "write an expression or a SELECT as Spark's SQL has it, and a schema as 'a INT, b STRING'"
    return next(_fixes(place, place.before[-1] if place.before else ""))


def _fixes(place: Stop, last: str) -> Iterator[str]:
    """The fixes that apply to a place behind the word `last`, the best one first; the last one always applies."""
    word, before = place.word.upper(), [text.upper() for text in place.before]
    if word == "/" and "/" in (*place.behind[:1], last):
        yield _SIGNS["#"]
    if word == "=" and last in (":", "="):
        yield "write a single = to compare"
    if word in _SIGNS:
        yield _SIGNS[word]
    yield from _comma_fixes(place, word, last, before)
    if last.upper() in _WITH_BY:
        yield _ORDER if word == "BY" else f"write {last.upper()} BY"
    if len(before) == 1 and not word:
        yield f"'{last}' is not a type: {type_name(last)}"
    for text in (place.word, last):
        # A name that was given by AS is not a misspelt clause.
        if (meant := _clause(text)) and not (text == last and before[-2:-1] == ["AS"]):
            yield f"did you mean {meant} in place of {text}?"
    if (word in ("FROM", "WHERE") and "WHERE" in before) or (word in ("BY", "GROUP", "HAVING") and "ORDER" in before):
        yield f"{_ORDER}, each once"
    if word in ("IS", "NOT") and [text.upper() for text in place.behind[:1]] == ["NONE"]:
        yield "write IS NULL, or IS NOT NULL"
    if "TOP" in before[-2:]:
        yield "a stream has no first rows: leave TOP out; in a table write LIMIT at the end"
    if before.count("CASE") > before.count("END"):
        yield "close CASE WHEN ... THEN ... ELSE ... with END"
    if not word:
        yield f"the text ends too early: write what belongs behind {last or 'it'}"
    if before[-2:-1] == ["AS"]:
        yield f"put a name of two words in backticks: `{last} {place.word}`; else a comma is missing"
    yield f"write what is missing between {last or 'it'} and {place.word}, as a comma or an operator; or remove one"


def _comma_fixes(place: Stop, word: str, last: str, before: Sequence[str]) -> Iterator[str]:
    if last == ",":
        yield {
            ",": "remove one of the two commas",
            "": "remove the comma at the end, or write a column behind it",
        }.get(word, f"remove the comma before {place.word}, or write a column behind it")
    if word == "," and last.upper() in ("SELECT", "(", "BY", "FROM", "WHERE"):
        yield f"remove the comma behind {last}"
    if word == "," and {"WHERE", "HAVING", "ON"} & set(before):
        yield "write AND or OR between two conditions, not a comma"
    # FROM behind a comma is read as the name of a column, and the input's name as that column's.
    if list(before[-3:-1]) == [",", "FROM"]:
        yield "remove the comma before FROM"


def _clause(word: str) -> str:
    """The clause that a word is a misspelling of; '' if it is none or is spelt well."""
    if not word.isalpha() or word.upper() in _CLAUSES:
        return ""
    near = difflib.get_close_matches(word.upper(), _CLAUSES, n=1, cutoff=_ALIKE)
    return (near[0] + (" BY" if near[0] in ("GROUP", "ORDER") else "")) if near else ""
