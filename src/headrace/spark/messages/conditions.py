"""Our code and our fix for each error condition of Spark's analysis; the sentence of a finding is Spark's own.

The conditions are those of Spark's error-conditions.json; {names} in a fix are the parameters of the condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from headrace.spark.messages import wrong_words

# A text, or a function of the condition's parameters and the exception.
_Fix: TypeAlias = str | Callable[[Mapping[str, str], BaseException], str]


class _Parameters(dict[str, str]):
    """Parameters by name; one that another version of Spark does not give is shown as dots."""

    def __missing__(self, name: str) -> str:
        return "..."


def _unquote(value: str) -> str:
    """Remove the quotes that Spark puts round names, types and expressions."""
    value = re.sub(r'"([^"]*)"', r"\1", value)
    return value if "`" not in value else re.sub(r"`((?:[^`]|``)*)`", r"\1", value)


# What Spark 4.2 calls a condition that has another name from Spark 4.3 on.
FORMER = {"_LEGACY_ERROR_TEMP_1228": "DECIMAL_SCALE_EXCEEDS_PRECISION"}


def code_and_fix(name: str | None, parameters: Mapping[str, str], error: BaseException) -> tuple[str, str] | None:
    """Return our code and fix for a condition, or for the condition that it is a part of; None for an unknown one."""
    name = FORMER.get(name or "", name or "")
    entry = CONDITIONS.get(name) or CONDITIONS.get(name.partition(".")[0])
    if entry is None:
        return None
    code, fix = entry
    values = _Parameters({key: _unquote(value) for key, value in parameters.items()})
    return code, fix.format_map(values) if isinstance(fix, str) else fix(values, error)


_TIME = "write a number and a unit, as '30 seconds', '10 minutes' or '1 hour'"
_AMBIGUOUS = (
    "name the side, as in a.{name} with FROM ... a JOIN ... b; in Python join by the name, join(other, '{name}'), "
    "or drop or rename one of the two before the join"
)
_NO_ORDER = (
    "the rows of a stream have no last one: for the newest or largest row of a group use max_by(x, time), for the row "
    "before keep it in a state function (transformWithState); a table of its own takes OVER (... ORDER BY ...)"
)
_SAME_COLUMNS = "select the same columns in the same order on both sides"
_ORDINAL = "name the column in place of the number, or give a number from 1 to {size}"
_WRAPPED = {
    "Column": "wrap a constant in F.lit(...), name a column by F.col('name'), write SQL as F.expr('...')",
    "list or tuple": "put it in a list: ['...']",
    "Column or str": "write a condition, as F.col('x') > 1, or SQL in quotes; a name in quotes",
    "str": "write it as a text in quotes: a length of time is '5 minutes'",
}


def _wrap(values: Mapping[str, str], _: BaseException) -> str:
    needed = values["expected_type"]
    return _WRAPPED.get(needed, f"give {values['arg_name']} {needed}")


_FIXES: Mapping[str, Mapping[str, _Fix]] = {
    "HR216": {
        "TRAILING_COMMA_IN_SELECT": "remove the comma before FROM",
        "UNCLOSED_BRACKETED_COMMENT": "close it with */, or write -- for one line",
        "PARSE_EMPTY_STATEMENT": "write an expression or a SELECT",
        "INVALID_IDENTIFIER": "write `{ident}` in backticks, or an underscore in place of the hyphen",
        "INVALID_SQL_SYNTAX": "write it as Spark's SQL has it: see 'SQL Syntax' in its guide",
        "INVALID_ESC": "give ESCAPE one character, as in LIKE 'a!%' ESCAPE '!'",
        "UNBOUND_SQL_PARAMETER": "write the value itself; in headrace.yml ${{NAME}} takes it from the environment",
        "DUPLICATED_CTE_NAMES": "give one of the two another name",
        "ASSIGNMENT_ARITY_MISMATCH": "name as many columns as the SELECT has, or leave the brackets out",
    },
    "HR214": {
        "UNRESOLVED_COLUMN": "correct the name; put a text in single quotes, or add the column to the source's schema",
        "UNRESOLVED_COLUMN_AMONG_FIELD_NAMES": (
            "correct the name; let what one side lacks be NULL by unionByName(..., allowMissingColumns=True)"
        ),
        "UNRESOLVED_USING_COLUMN_FOR_JOIN": (
            "name it for each side: ON a.x = b.y, in Python left.x == right.y; or correct the name"
        ),
        "FIELD_NOT_FOUND": "correct the name, or add the field to the source's schema",
        "ATTRIBUTE_NOT_SUPPORTED": lambda values, error: wrong_words.attribute(values["attr_name"], error),
        "CANNOT_RESOLVE_STAR_EXPAND": ("write * alone, or name.* with a name or alias that stands after FROM or JOIN"),
        "AMBIGUOUS_REFERENCE": _AMBIGUOUS,
        "AMBIGUOUS_COLUMN_REFERENCE": _AMBIGUOUS,
        "MISSING_ATTRIBUTES": "join that DataFrame first, as events.join(users, 'id'), and then name the column",
    },
    "HR215": {
        "TABLE_OR_VIEW_NOT_FOUND": (
            "read the project's sources, tables and views by their plain names, as inputs; or declare it as one"
        ),
        "PATH_NOT_FOUND": (
            "put it there, or give the path from the root on; declare a source for what changes while the query runs"
        ),
    },
    "HR460": {
        "UNRESOLVED_ROUTINE": lambda values, _: wrong_words.function(values["routineName"]),
        "UNRESOLVABLE_TABLE_VALUED_FUNCTION": (
            "take range, explode, inline, stack or json_tuple; a source, table or view is named without brackets"
        ),
        "WRONG_NUM_ARGS": "see {functionName} in Spark's SQL reference, 'Functions'",
        "INVALID_WITHIN_GROUP_EXPRESSION": (
            "write {funcName}(0.5) WITHIN GROUP (ORDER BY x); percentile_approx(x, 0.5) takes it plainly"
        ),
    },
    "HR226": {
        "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": _NO_ORDER,
        "WINDOW_FUNCTION_FRAME_NOT_ORDERED": _NO_ORDER,
        "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE": _NO_ORDER,
        "_LEGACY_ERROR_TEMP_1039": (
            "write one query for each window; or group by the shorter one and sum up where the result is read"
        ),
    },
    "HR461": {
        "MISSING_GROUP_BY": (
            "add GROUP BY with the plain columns; for a condition on rows write WHERE in place of HAVING"
        ),
        "MISSING_AGGREGATION": (
            "add it to GROUP BY, or take one value of each group: max({expression}) or {expressionAnyValue}"
        ),
        "INVALID_WHERE_CONDITION": (
            "write it after GROUP BY as HAVING, in Python as where() behind agg(); explode goes into a view before"
        ),
        "GROUP_BY_AGGREGATE": (
            "group by columns only; to group by a result, aggregate it in a first query with a table of its own"
        ),
        "NESTED_AGGREGATE_FUNCTION": (
            "compute the inner one in a first query that writes a table, and the outer one in a second that reads it"
        ),
        "GROUP_BY_POS_OUT_OF_RANGE": _ORDINAL,
        "ORDER_BY_POS_OUT_OF_RANGE": _ORDINAL,
        "GROUP_BY_POS_AGGREGATE": "group by the other columns, by name",
    },
    "HR223": {
        "_LEGACY_ERROR_TEMP_3063": (
            "write one aggregate for each value: count_if(x = 'a') AS a, sum(CASE WHEN x = 'b' THEN y END) AS b"
        ),
        "INVALID_LIMIT_LIKE_EXPRESSION": "leave limit out of a stream; elsewhere give a number that is not negative",
    },
    "HR220": {
        "NUM_COLUMNS_MISMATCH": (
            f"{_SAME_COLUMNS}, NULL for one that is missing; in Python unionByName(..., allowMissingColumns=True)"
        ),
        "UNSUPPORTED_JOIN_TYPE": "write one of the kinds that Spark names",
        "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY": (
            "join it: EXISTS and IN are a LEFT SEMI JOIN, NOT EXISTS a LEFT JOIN whose right side is NULL, each with a "
            "bound on time; for a single figure over the stream: write its rows to a table of its own in a second "
            "query, and join that"
        ),
        "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN": (
            "select one column there; for several join the table"
        ),
        "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY": "join the table in place of the subquery",
        "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT": (
            "write FROM input LATERAL VIEW explode(list) AS item and use item; to look into a list use array_contains"
        ),
        "UNSUPPORTED_GENERATOR": (
            "let explode stand alone in a first SELECT or view, explode(list) AS item, and compute with item in a "
            "second; or take transform(list, x -> ...)"
        ),
        "CANNOT_CONVERT_COLUMN_INTO_BOOL": (
            "put each comparison in brackets: (a > 1) & (b == 'x'); isin(...) for in, between(...) for a < x < b, and "
            "F.when(...) for if"
        ),
        "NOT_EXPECTED_TYPE": _wrap,
        "ARGUMENT_REQUIRED": "give {arg_name} a value",
    },
    "HR218": {
        "INCOMPATIBLE_COLUMN_TYPE": f"{_SAME_COLUMNS}, and cast this one to one type",
        "UNSUPPORTED_DATATYPE": lambda values, _: wrong_words.type_name(values["typeName"]),
        "INCOMPLETE_TYPE_DEFINITION": "say what is inside: ARRAY<STRING>, MAP<STRING, INT> or STRUCT<a: INT>",
        "DATATYPE_MISSING_SIZE": "write STRING, which has none, or {type}(100)",
        "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION": (
            "declare at most DECIMAL({maxPrecision}, ...), or keep the value as STRING"
        ),
        "DECIMAL_SCALE_EXCEEDS_PRECISION": "give all digits first and those behind the point second: DECIMAL(12, 2)",
        "_LEGACY_ERROR_TEMP_1323": (
            "name a column of numbers, or cast it first: F.sum(F.col('{colName}').cast('double'))"
        ),
        "_LEGACY_ERROR_TEMP_1050": "name the column without .*",
        "INVALID_EXTRACT_BASE_FIELD_TYPE": (
            "name the column alone; if it is JSON in a text, parse it first: from_json({base}, 'a INT, b STRING').a"
        ),
        "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE": (
            "name a column of that type, or convert {inputSql}: to_timestamp for times, CAST for numbers and texts, "
            "split or from_json to make a list of a text, [0] or explode to take the elements of one"
        ),
        "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES": (
            "compare or compute with one type: CAST(x AS {left}); in a list look by array_contains(list, x); AND and "
            "OR join comparisons, as x > 0"
        ),
        "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": (
            "write a comparison, as {filter} > 0, {filter} = 'x' or {filter} IS NOT NULL"
        ),
        "DATATYPE_MISMATCH.DATA_DIFF_TYPES": (
            "cast all of them to one type; whether a list holds a value is array_contains(list, x)"
        ),
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION": (
            "take a part of it, as list[0], map['key'] or part.field, or the whole as text by to_json"
        ),
        "DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION": "use {functionNames}",
        "DATATYPE_MISMATCH.NON_FOLDABLE_INPUT": "write a constant there, not a column",
        "DATATYPE_MISMATCH": "cast the column to the type that the function takes",
    },
    "HR463": {
        "DATATYPE_MISMATCH.VALUE_OUT_OF_RANGE": f"{_TIME}, above 0",
        "DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION": (
            "give the window's length first and the slide, which is not longer, second"
        ),
        "INVALID_TYPED_LITERAL": ("write DATE '2026-01-31', TIMESTAMP '2026-01-31 10:00:00' or INTERVAL '5 minutes'"),
        "CANNOT_PARSE_INTERVAL": _TIME,
        "INVALID_INTERVAL_FORMAT": _TIME,
        "_LEGACY_ERROR_TEMP_3231": (
            "use days, as '30 days'; for months of the calendar group by date_trunc('month', time) in the mode update"
        ),
        "INVALID_EXTRACT_FIELD": "write YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE or SECOND",
    },
}
CONDITIONS: Mapping[str, tuple[str, _Fix]] = {
    name: (code, fix) for code, fixes in _FIXES.items() for name, fix in fixes.items()
}
