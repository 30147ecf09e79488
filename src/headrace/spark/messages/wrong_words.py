"""Wrong words in a user's text: the names that they may have been meant for, and where SQL's parser stopped."""

from __future__ import annotations

import difflib
import inspect
import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.errors import nearest
from headrace.spark import ddl

# What other databases, and pandas, call a function of Spark.
_ELSEWHERE = {
    "tumble": "window(time, '1 hour')",
    "hop": "window(time, '1 hour', '10 minutes')",
    "session": "session_window(time, '5 minutes')",
    "time_bucket": "window(time, '1 hour').start",
    **dict.fromkeys(("unnest", "flatten_table"), "explode(list)"),
    "group_concat": "array_join(collect_list(x), ',')",
    "datetime": "to_timestamp(x)",
    "getdate": "the source's own time; current_timestamp() differs each time a batch is made",
    **dict.fromkeys(("str_to_date", "strptime"), "to_timestamp(x, 'yyyy-MM-dd')"),
    "parse_date": "to_date(x, 'yyyy-MM-dd')",
    **dict.fromkeys(("strftime", "format_date"), "date_format(time, 'yyyy-MM-dd')"),
    **dict.fromkeys(("timestamp_trunc", "datetime_trunc"), "date_trunc('hour', time)"),
    "safe_cast": "try_cast(x AS INT)",
    "convert": "CAST(x AS INT)",
    **dict.fromkeys(("json_extract", "json_value"), "get_json_object(x, '$.a')"),
    "countif": "count_if(x > 1)",
    "array_length": "size(list)",
    "approx_distinct": "approx_count_distinct(x)",
    "generate_series": "sequence(1, 10)",
    "uuid_generate_v4": "uuid()",
    "watermark": "the source's `watermark`",
    "current_watermark": "the source's `watermark`; its value is in the progress of each batch",
}
_OF_PYTHON = {
    "foreachBatch": "return the DataFrame and give the query the sink foreach_batch, which takes the function",
    "start": "return the DataFrame; the query starts it",
    "outputMode": "return the DataFrame; the query has a mode",
    "trigger": "return the DataFrame; the query has a trigger",
    "append": "use union(other), or unionByName(other)",
    "merge": "use join(other, 'key')",
    "rename": "use withColumnRenamed('old', 'new')",
    "sort_values": "sort where the result is read",
    "apply": "use withColumn with functions of pyspark.sql.functions, or mapInPandas",
    "iterrows": "use functions of pyspark.sql.functions, or mapInPandas for code over rows",
    "map": "use select or withColumn, or mapInPandas for code over rows",
    "shape": "count in the query: groupBy().count()",
}
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


def column(name: str, proposals: str) -> str:
    """Which of the columns that Spark proposes was meant."""
    known = [each.strip() for each in proposals.split(",") if each.strip()]
    if not known:
        return "name a column of the inputs"
    last = {each.rpartition(".")[2]: each for each in reversed(known)}
    near = nearest(name.rpartition(".")[2], last)
    if not near.startswith("did you mean"):
        return f"take one of {', '.join(known)}"
    return "did you mean " + " or ".join(f"'{full}'" for short, full in last.items() if f"'{short}'" in near) + "?"


def function(name: str) -> str:
    """Which function of Spark was meant."""
    from pyspark.sql import functions

    wanted = name.rpartition(".")[2].lower()
    if wanted in _ELSEWHERE:
        return f"in Spark it is {_ELSEWHERE[wanted]}"
    known = (each for each in dir(functions) if each.islower() and not each.startswith("_"))
    otherwise = "take one of Spark's functions (its SQL reference, 'Functions'), or write a UDF in Python in place of "
    return _near(wanted, known, otherwise + "the SQL")


def _near(name: str, known: Iterable[str], otherwise: str) -> str:
    """Which of the names that are known was meant; else what to do."""
    near = nearest(name, known)
    return near if near.startswith("did you mean") else otherwise


def argument_of(name: str) -> str:
    """How a function is called, as PySpark declares it."""
    from pyspark.sql import functions

    found = getattr(functions, name.lower(), None)
    try:
        signature = inspect.signature(found) if callable(found) else None
    except ValueError:
        signature = None
    if signature is None:
        return f"see {name} in Spark's SQL reference, 'Functions'"
    shown = []
    for each in signature.parameters.values():
        star = "*" if each.kind is each.VAR_POSITIONAL else ""
        shown.append(f"{star}{each.name}" if each.default is each.empty else f"[{each.name}]")
    return f"write {name.lower()}({', '.join(shown)}); what stands in square brackets may be left out"


def argument_type(values: Mapping[str, str]) -> str:
    """How an argument becomes one of the type that is needed."""
    is_, needed, what = values.get("inputType", ""), values.get("requiredType", ""), values.get("inputSql", "x")
    if "INTERVAL" in is_:
        return f"add or subtract the interval itself, as time - {what}; or give a number of days"
    if "TIMESTAMP" in needed:
        return f"make it a TIMESTAMP in the source's schema, or by to_timestamp({what}); seconds by timestamp_seconds"
    if is_ == "STRING" and ("ARRAY" in needed or "MAP" in needed):
        return f"make a list of it first: split({what}, ','), or from_json({what}, 'ARRAY<STRING>') for JSON"
    if is_.startswith(("ARRAY", "MAP")):
        return (
            f"take one element, as {what}[0], all of them by explode({what}) AS item, or their number by size({what})"
        )
    first = needed.strip("()").split(" or ")[0].split(" OR ")[0].strip("()")
    as_type = {"NUMERIC": "DOUBLE", "INTEGRAL": "INT"}.get(first, first)
    return f"name a column of that type, or cast it: CAST({what} AS {as_type})"


def type_name(name: str) -> str:
    """Which type of Spark was meant."""
    plain = name.partition("(")[0]
    if plain.lower() in ddl.ELSEWHERE:
        return f"in Spark it is {ddl.ELSEWHERE[plain.lower()]}"
    return nearest(plain.upper(), (each.upper() for each in (*ddl.SIMPLE, *ddl.SIZED, *ddl.NESTED)))


def join_type(name: str, supported: str) -> str:
    """Which kind of join was meant."""
    known = [each.strip(" '") for each in supported.split(",")]
    return nearest(name, [each for each in known if each and "_" not in each])


def attribute(name: str, error: BaseException) -> str:
    """Which column or method of the DataFrame was meant, that `error` was raised for."""
    if name in _OF_PYTHON:
        return _OF_PYTHON[name]
    seen = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    frame = next((each for each in reversed(seen) if hasattr(type(each), "withColumn")), None)
    methods = [each for each in dir(type(frame)) if not each.startswith("_")] if frame is not None else []
    columns = list(frame.columns) if frame is not None else []
    return _near(name, [*columns, *methods], f"its columns are {', '.join(columns)}")


_PLAIN_FUNCTIONS = ("max", "min", "sum", "abs", "round", "len", "int", "float", "str", "any", "all", "pow", "hash")


def of_python(error: BaseException) -> str:
    """What to write where Python itself refused the user's line, '' where nothing more is known."""
    said, line = str(error), _line(error)
    if isinstance(error, NameError) and error.name:
        return _near(error.name, _scope(error), f"define or import {error.name} in this file")
    if isinstance(error, AttributeError) and error.name and inspect.ismodule(error.obj):
        known = (each for each in dir(error.obj) if not each.startswith("_"))
        return _near(error.name, known, f"take a function that {error.obj.__name__} has")
    if isinstance(error, AttributeError) and isinstance(error.obj, str) and error.name == "_jdf":
        return "give the DataFrame itself, not its name: declare the input as a parameter of the function"
    if "_get_object_id" in said:
        return "give a column, as F.col('name'), or a number, text or time; Spark knows no other objects"
    if "'Column' object is not callable" in said:
        return "leave the brackets behind the column out; a function of Spark is F.name(column)"
    used = next((each for each in _PLAIN_FUNCTIONS if re.search(rf"(?<![\w.]){each}\(", line)), "")
    if isinstance(error, (TypeError, AssertionError)) and used:
        instead = {
            "len": "F.length or F.size",
            "int": "cast('int')",
            "float": "cast('double')",
            "str": "cast('string')",
        }
        return f"Python's own {used} knows no columns: use {instead.get(used, f'F.{used}')}"
    if isinstance(error, AssertionError) and "should be Column" in said:
        return "give columns, as F.count('*').alias('n'), not texts"
    if isinstance(error, TypeError) and "missing" in said and "argument" in said:
        return "give the argument that the sentence names"
    return ""


def _scope(error: BaseException) -> list[str]:
    """The names that the line of the fault could have used."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [*frames[-1].f_locals, *frames[-1].f_globals] if frames else []


def _line(error: BaseException) -> str:
    """The innermost line of the trace that is not of an installed package."""
    own = (each for each in traceback.extract_tb(error.__traceback__) if "site-packages" not in each.filename)
    return "".join([each.line or "" for each in own][-1:])


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
    if found is None:
        return "write an expression or a SELECT as Spark's SQL has it, and a schema as 'a INT, b STRING'"
    word, behind = found.word.upper(), found.behind
    last = found.before[-1].upper() if found.before else ""
    if known := _sign(found.word, last, behind) or _comma(found, word, last):
        return known
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
    if [word, *behind][:2] == ["/", "/"] or (word == "/" and last == "/"):
        return _SIGNS["#"]
    if word == "=" and last in (":", "="):
        return "write a single = to compare"
    return _SIGNS.get(word, "")


def _comma(found: Stop, word: str, last: str) -> str:
    """What to do about a comma that is too many; empty where there is none."""
    if last == "," and word in (",", ""):
        return "remove one of the two commas" if word else "remove the comma at the end, or write a column behind it"
    if last == ",":
        return f"remove the comma before {found.word}, or write a column behind it"
    said = [each.upper() for each in found.before]
    if word == "," and last in ("SELECT", "(", "BY", "FROM", "WHERE"):
        return f"remove the comma behind {found.before[-1]}"
    if word == "," and {"WHERE", "HAVING", "ON"} & set(said):
        return "write AND or OR between two conditions, not a comma"
    # FROM behind a comma is read as the name of a column, and the input's name as that column's.
    if len(said) > 2 and said[-2:-1] == ["FROM"] and said[-3] == ",":
        return "remove the comma before FROM"
    return ""


def _by_order(found: Stop, word: str, last: str) -> str:
    """Clauses that stand twice or in the wrong order, and what is missing."""
    said, follows = [each.upper() for each in found.before], [each.upper() for each in found.behind[:1]]
    before = found.before[-1] if found.before else "it"
    # The first that holds is taken.
    rules = (
        (word in ("IS", "NOT") and follows == ["NONE"], "write IS NULL, or IS NOT NULL"),
        (word == "NOT" and follows == ["NULL"], "write IS NOT NULL"),
        (
            said.count("CASE") > said.count("END") or "CASE" in said[-2:],
            "close CASE WHEN ... THEN ... ELSE ... with END",
        ),
        (word == "WHERE" and "WHERE" in said, "write one WHERE, and AND between its conditions"),
        (word == "FROM" and "WHERE" in said, "write FROM before WHERE"),
        (word in ("BY", "GROUP", "HAVING", "WHERE") and "ORDER" in said, _ORDER),
        ("TOP" in said[-2:], "a stream has no first rows: leave TOP out; in a table write LIMIT at the end"),
        (last == "FILTER", "write FILTER (WHERE condition)"),
        (not word, f"the text ends too early: write what belongs behind {before}"),
        (
            said[-2:-1] == ["AS"],
            f"put a name of two words in backticks: `{before} {found.word}`; else a comma is missing",
        ),
        (True, f"write a comma, an operator or AND between {before} and {found.word}"),
    )
    return next(text for holds, text in rules if holds)


def _clause(word: str) -> str:
    """The clause that a word is a misspelling of, '' if it is none or is spelt well."""
    if not word.isalpha() or word.upper() in _CLAUSES:
        return ""
    near = difflib.get_close_matches(word.upper(), _CLAUSES, n=1, cutoff=_ALIKE)
    return (near[0] + (" BY" if near[0] in ("GROUP", "ORDER") else "")) if near else ""


def _is_operand_of_as(found: Stop, word: str) -> bool:
    """Whether a word is a name that was given by AS."""
    return len(found.before) > 1 and found.before[-1] == word and found.before[-2].upper() == "AS"
