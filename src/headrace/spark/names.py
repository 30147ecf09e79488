"""The names that a wrong one may have been meant for: functions, types, columns, methods of a DataFrame."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Mapping

from headrace.errors import nearest
from headrace.spark import ddl

# What other databases, and pandas, call a function of Spark.
_ELSEWHERE = {
    "tumble": "window(time, '1 hour')",
    "hop": "window(time, '1 hour', '10 minutes')",
    "session": "session_window(time, '5 minutes')",
    "time_bucket": "window(time, '1 hour').start",
    "unnest": "explode(list)",
    "flatten_table": "explode(list)",
    "group_concat": "array_join(collect_list(x), ',')",
    "datetime": "to_timestamp(x)",
    "getdate": "the source's own time; current_timestamp() differs each time a batch is made",
    "str_to_date": "to_timestamp(x, 'yyyy-MM-dd')",
    "parse_date": "to_date(x, 'yyyy-MM-dd')",
    "strptime": "to_timestamp(x, 'yyyy-MM-dd')",
    "strftime": "date_format(time, 'yyyy-MM-dd')",
    "format_date": "date_format(time, 'yyyy-MM-dd')",
    "timestamp_trunc": "date_trunc('hour', time)",
    "datetime_trunc": "date_trunc('hour', time)",
    "safe_cast": "try_cast(x AS INT)",
    "convert": "CAST(x AS INT)",
    "json_extract": "get_json_object(x, '$.a')",
    "json_value": "get_json_object(x, '$.a')",
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
    near = nearest(wanted, (each for each in dir(functions) if each.islower() and not each.startswith("_")))
    if near.startswith("did you mean"):
        return near
    return (
        "take one of Spark's functions (its SQL reference, 'Functions'), or write a UDF in Python in place of the SQL"
    )


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
    trace, frame = error.__traceback__, None
    while trace is not None:
        found = trace.tb_frame.f_locals.get("self")
        frame = found if hasattr(type(found), "withColumn") else frame
        trace = trace.tb_next
    methods = [each for each in dir(type(frame)) if not each.startswith("_")] if frame is not None else []
    columns = list(frame.columns) if frame is not None else []
    near = nearest(name, [*columns, *methods])
    return near if near.startswith("did you mean") else f"its columns are {', '.join(columns)}"


_PLAIN_FUNCTIONS = ("max", "min", "sum", "abs", "round", "len", "int", "float", "str", "any", "all", "pow", "hash")


def of_python(error: BaseException) -> str:
    """What to write where Python itself refused the user's line, '' where nothing more is known."""
    said, line = str(error), _line(error)
    if isinstance(error, NameError) and error.name:
        scope = _scope(error)
        near = nearest(error.name, scope)
        return near if near.startswith("did you mean") else f"define or import {error.name} in this file"
    if isinstance(error, AttributeError) and error.name and inspect.ismodule(error.obj):
        near = nearest(error.name, (each for each in dir(error.obj) if not each.startswith("_")))
        return near if near.startswith("did you mean") else f"take a function that {error.obj.__name__} has"
    if isinstance(error, AttributeError) and isinstance(error.obj, str) and error.name == "_jdf":
        return "give the DataFrame itself, not its name: declare the input as a parameter of the function"
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
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return [] if trace is None else [*trace.tb_frame.f_locals, *trace.tb_frame.f_globals]


def _line(error: BaseException) -> str:
    """The innermost line of the trace that is not of an installed package."""
    lines = [
        each.line or "" for each in traceback.extract_tb(error.__traceback__) if "site-packages" not in each.filename
    ]
    return lines[-1] if lines else ""
