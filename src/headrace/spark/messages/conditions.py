"""What is said of each error condition of Spark's analysis: a code, one sentence, and a fix of its own.

The conditions are those of Spark's error-conditions.json; {names} in a text are the parameters of the condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.spark.messages import wrong_words

_QUERY = "write its rows to a table of its own in a second query"


_Make: TypeAlias = Callable[[Mapping[str, str], BaseException], str]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """An error condition's code, fix, and the sentence in place of Spark's, if that is long or speaks of its inside.

    more: texts that are made from the parameters, by the names under which `what` and `fix` use them.
    """

    code: str
    what: str
    fix: str
    more: Mapping[str, _Make]

    def message_and_fix(self, parameters: Mapping[str, str], error: BaseException) -> tuple[str, str]:
        """The sentence, empty for Spark's own, and the fix."""
        values = _Known({name: plain(value) for name, value in parameters.items()})
        for name, make in self.more.items():
            values[name] = make(values, error)
        return self.what.format_map(values), self.fix.format_map(values).replace("?; ", "? Else ")


class _Known(dict[str, str]):
    """Parameters by name; one that another version of Spark does not give is shown as dots."""

    def __missing__(self, name: str) -> str:
        return "..."


def plain(value: str) -> str:
    """A parameter without the quotes that Spark puts round names, types and expressions."""
    value = re.sub(r'"([^"]*)"', r"\1", value)
    return value if "`" not in value else re.sub(r"`((?:[^`]|``)*)`", r"\1", value)


# What Spark 4.2 calls a condition that has another name from Spark 4.3 on.
FORMER = {"_LEGACY_ERROR_TEMP_1228": "DECIMAL_SCALE_EXCEEDS_PRECISION"}


def condition(name: str | None) -> Condition | None:
    """What is said of a condition, or of the condition that it is a part of."""
    known = FORMER.get(name or "", name or "")
    return CONDITIONS.get(known) or CONDITIONS.get(known.partition(".")[0])


def _column(name: str, proposals: str) -> _Make:
    """Which column was meant, by the parameters that have its name and what Spark proposes."""
    return lambda values, _: wrong_words.column(values.get(name, ""), values.get(proposals, ""))


_TIME = "write a number and a unit, as '30 seconds', '10 minutes' or '1 hour'"
_AMBIGUOUS = (
    "'{name}' stands for a column of both sides",
    "name the side, as in a.{name} with FROM ... a JOIN ... b; in Python join by the name, join(other, '{name}'), "
    "or drop or rename one of the two before the join",
)
_NO_ORDER = (
    "{funcName}{wf_expr} looks at the rows before and after, and the rows of a stream have no last one",
    "for the newest or largest row of a group use max_by(x, time); for the row before keep it in a state function "
    "(transformWithState); in a table of its own write {funcName}{wf_expr} OVER (PARTITION BY ... ORDER BY ...)",
    {"funcName": lambda values, _: values.get("funcName", ""), "wf_expr": lambda v, _: v.get("wf_expr", "")},
)
_WRAPPED = {
    "Column": "wrap a constant in F.lit(...), name a column by F.col('name'), write SQL as F.expr('...')",
    "list or tuple": "put it in a list: ['...']",
    "Column or str": "write a condition, as F.col('x') > 1, or SQL in quotes; a name in quotes",
    "str": "write it as a text in quotes: a length of time is '5 minutes'",
}
_ORDINAL = ("", "name the column in place of the number, or give a number from 1 to {size}")

# By our code: the sentence in place of Spark's, empty for Spark's own, the fix, and what is made for both.
_TEXTS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "HR216": {
        "TRAILING_COMMA_IN_SELECT": ("the list after SELECT ends with a comma", "remove the comma before FROM"),
        "UNCLOSED_BRACKETED_COMMENT": (
            "a comment is opened by /* and not closed",
            "close it with */, or write -- for one line",
        ),
        "PARSE_EMPTY_STATEMENT": ("the text is empty", "write an expression or a SELECT"),
        "INVALID_IDENTIFIER": (
            "the name {ident} holds more than letters, digits and _",
            "write `{ident}` in backticks, or an underscore in place of the hyphen",
        ),
        "INVALID_SQL_SYNTAX": ("", "write it as Spark's SQL has it: see 'SQL Syntax' in its guide"),
        "INVALID_ESC": ("", "give ESCAPE one character, as in LIKE 'a!%' ESCAPE '!'"),
        "UNBOUND_SQL_PARAMETER": (
            "the SQL has a parameter, :name or ?, to which nothing gives a value",
            "write the value itself; in headrace.yml ${{NAME}} takes it from the environment",
        ),
        "DUPLICATED_CTE_NAMES": ("WITH gives the name {duplicateNames} twice", "give one of the two another name"),
        "ASSIGNMENT_ARITY_MISMATCH": (
            "{numExpr} columns are named in brackets, and the SELECT in it has {numTarget}",
            "name as many columns as the SELECT has, or leave the brackets out",
        ),
    },
    "HR214": {
        "UNRESOLVED_COLUMN": (
            "there is no column '{objectName}'{of}",
            "{near}; put a text in single quotes, or add the column to the source's schema",
            {
                "of": lambda values, _: f" among {values['proposal']}" if "proposal" in values else "",
                "near": _column("objectName", "proposal"),
            },
        ),
        "UNRESOLVED_COLUMN_AMONG_FIELD_NAMES": (
            "there is no column '{colName}' among {fieldNames}",
            "{near}; let what one side lacks be NULL by unionByName(..., allowMissingColumns=True)",
            {"near": _column("colName", "fieldNames")},
        ),
        "UNRESOLVED_USING_COLUMN_FOR_JOIN": (
            "the {side} side of the join has no column '{colName}', only {suggestion}",
            "{near}; name it for each side: ON a.x = b.y, in Python left.x == right.y",
            {"near": _column("colName", "suggestion")},
        ),
        "FIELD_NOT_FOUND": (
            "the struct has no field '{fieldName}', only {fields}",
            "{near}; add it to the source's schema",
            {"near": _column("fieldName", "fields")},
        ),
        "ATTRIBUTE_NOT_SUPPORTED": (
            "a DataFrame has no column and no method '{attr_name}'",
            "{near}",
            {"near": lambda values, error: wrong_words.attribute(values.get("attr_name", ""), error)},
        ),
        "CANNOT_RESOLVE_STAR_EXPAND": (
            "{targetString}.* names no input of this SELECT",
            "write * alone, or name.* with a name or alias that stands after FROM or JOIN",
        ),
        "AMBIGUOUS_REFERENCE": _AMBIGUOUS,
        "AMBIGUOUS_COLUMN_REFERENCE": _AMBIGUOUS,
        "MISSING_ATTRIBUTES": (
            "{missingAttributes} is a column of another DataFrame, which is not part of this one",
            "join that DataFrame first, as events.join(users, 'id'), and then name the column",
        ),
    },
    "HR215": {
        "TABLE_OR_VIEW_NOT_FOUND": (
            "there is no table or view '{relationName}'",
            "read the project's sources, tables and views by their plain names, as inputs; or declare it as one",
        ),
        "PATH_NOT_FOUND": (
            "there is nothing at {path}",
            "put it there, or give the path from the root on; declare a source for what changes while the query runs",
        ),
    },
    "HR460": {
        "UNRESOLVED_ROUTINE": (
            "Spark has no function '{routineName}'",
            "{near}",
            {"near": lambda values, _: wrong_words.function(values.get("routineName", ""))},
        ),
        "UNRESOLVABLE_TABLE_VALUED_FUNCTION": (
            "Spark has no function '{name}' that gives a table",
            "take range, explode, inline, stack or json_tuple; a source, table or view is named without brackets",
        ),
        "WRONG_NUM_ARGS": (
            "the function {functionName} takes {expectedNum} arguments, and is given {actualNum}",
            "{signature}",
            {"signature": lambda values, _: wrong_words.argument_of(values.get("functionName", ""))},
        ),
        "INVALID_WITHIN_GROUP_EXPRESSION": (
            "",
            "write {funcName}(0.5) WITHIN GROUP (ORDER BY x); percentile_approx(x, 0.5) takes it plainly",
        ),
    },
    "HR226": {
        "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": _NO_ORDER,
        "WINDOW_FUNCTION_FRAME_NOT_ORDERED": _NO_ORDER,
        "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE": (
            "a function with OVER stands in {clauseName}, where no rows are ordered yet",
            "for the newest or largest row of a group use max_by(x, time) with GROUP BY; in a table of its own compute "
            "the number in a subquery and filter outside",
        ),
        "_LEGACY_ERROR_TEMP_1039": (
            "the rows are grouped by two windows of time at once",
            "write one query for each window; or group by the shorter one and sum up where the result is read",
        ),
    },
    "HR461": {
        "MISSING_GROUP_BY": (
            "plain columns stand beside an aggregate, or HAVING is used, and there is no GROUP BY",
            "add GROUP BY with the plain columns; for a condition on rows write WHERE in place of HAVING",
        ),
        "MISSING_AGGREGATION": (
            "{expression} is neither in GROUP BY nor in an aggregate",
            "add it to GROUP BY, or take one value of each group: max({expression}) or {expressionAnyValue}",
        ),
        "INVALID_WHERE_CONDITION": (
            "the condition on rows holds {expressionList}, which is known only after grouping",
            "write it after GROUP BY as HAVING, in Python as where() behind agg(); explode goes into a view before",
        ),
        "GROUP_BY_AGGREGATE": (
            "GROUP BY holds the aggregate {sqlExpr}",
            "group by columns only; to group by a result, aggregate it in a first query with a table of its own",
        ),
        "NESTED_AGGREGATE_FUNCTION": (
            "an aggregate stands inside another one",
            "compute the inner one in a first query that writes a table, and the outer one in a second that reads it",
        ),
        "GROUP_BY_POS_OUT_OF_RANGE": _ORDINAL,
        "ORDER_BY_POS_OUT_OF_RANGE": _ORDINAL,
        "GROUP_BY_POS_AGGREGATE": (
            "GROUP BY {index} names the aggregate {aggExpr}",
            "group by the other columns, by name",
        ),
    },
    "HR223": {
        "_LEGACY_ERROR_TEMP_3063": (
            "pivot has to know all values beforehand, and a stream has no end",
            "write one aggregate for each value: count_if(x = 'a') AS a, sum(CASE WHEN x = 'b' THEN y END) AS b",
        ),
        "INVALID_LIMIT_LIKE_EXPRESSION": (
            "",
            "leave limit out of a stream; elsewhere give a number that is not negative",
        ),
    },
    "HR220": {
        "NUM_COLUMNS_MISMATCH": (
            "{operator} puts {firstNumColumns} columns over {invalidNumColumns}",
            "select the same columns in the same order on both sides, NULL for one that is missing; in Python "
            "unionByName(..., allowMissingColumns=True)",
        ),
        "UNSUPPORTED_JOIN_TYPE": (
            "there is no join '{typ}'",
            "{near}",
            {"near": lambda values, _: wrong_words.join_type(values.get("typ", ""), values.get("supported", ""))},
        ),
        "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY": (
            "a stream stands in a subquery of SELECT or WHERE",
            "join it: EXISTS and IN are a LEFT SEMI JOIN, NOT EXISTS a LEFT JOIN whose right side is NULL, each with a "
            f"bound on time; a single figure over the stream: {_QUERY}, and join that",
        ),
        "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN": (
            "",
            "select one column there; for several join the table",
        ),
        "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY": ("", "join the table in place of the subquery"),
        "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT": (
            "explode, or another function that makes rows, stands outside of SELECT",
            "write FROM input LATERAL VIEW explode(list) AS item and use item; to look into a list use array_contains",
        ),
        "UNSUPPORTED_GENERATOR": (
            "",
            "let explode stand alone in a first SELECT or view, explode(list) AS item, and compute with item in a "
            "second; or take transform(list, x -> ...)",
        ),
        "CANNOT_CONVERT_COLUMN_INTO_BOOL": (
            "a Column is used where Python needs True or False",
            "write & for and, | for or, ~ for not, with each comparison in brackets: (a > 1) & (b == 'x'); isin(...) "
            "for in, between(...) for a < x < b, and F.when(...) for if",
        ),
        "NOT_EXPECTED_TYPE": (
            "the argument '{arg_name}' is a {arg_type}, and {expected_type} is needed",
            "{wrapped}",
            {
                "wrapped": lambda values, _: _WRAPPED.get(
                    values.get("expected_type", ""), f"give {values.get('arg_name')} {values.get('expected_type')}"
                )
            },
        ),
        "ARGUMENT_REQUIRED": ("the argument '{arg_name}' is missing, as {condition}", "give {arg_name} a value"),
    },
    "HR218": {
        "INCOMPATIBLE_COLUMN_TYPE": (
            "{operator} puts a {dataType1} over a {dataType2} in the {columnOrdinalNumber} column",
            "select the same columns in the same order on both sides, and cast this one to one type",
        ),
        "UNSUPPORTED_DATATYPE": (
            "'{typeName}' is not a type of Spark",
            "{near}",
            {"near": lambda values, _: wrong_words.type_name(values.get("typeName", ""))},
        ),
        "INCOMPLETE_TYPE_DEFINITION": ("", "say what is inside: ARRAY<STRING>, MAP<STRING, INT> or STRUCT<a: INT>"),
        "DATATYPE_MISSING_SIZE": ("the type {type} lacks its length", "write STRING, which has none, or {type}(100)"),
        "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION": (
            "a number or type has {precision} digits, and a DECIMAL has at most {maxPrecision}",
            "declare at most DECIMAL({maxPrecision}, ...), or keep the value as STRING",
        ),
        "DECIMAL_SCALE_EXCEEDS_PRECISION": (
            "",
            "give all digits first and those behind the point second: DECIMAL(12, 2)",
        ),
        "_LEGACY_ERROR_TEMP_1323": (
            "{colName} is not a column of numbers, and this aggregate takes only such",
            "name a column of numbers, or cast it first: F.sum(F.col('{colName}').cast('double'))",
        ),
        "_LEGACY_ERROR_TEMP_1050": (".* is written behind a column that is no STRUCT", "name the column without .*"),
        "INVALID_EXTRACT_BASE_FIELD_TYPE": (
            "{base} is {other}, which has no fields",
            "name the column alone; if it is JSON in a text, parse it first: from_json({base}, 'a INT, b STRING').a",
        ),
        "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE": (
            "in {sqlExpr} the {paramIndex} argument is {inputType}, and {requiredType} is needed",
            "{cast}",
            {"cast": lambda values, _: wrong_words.argument_type(values)},
        ),
        "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES": (
            "in {sqlExpr} one side is {left} and the other {right}",
            "compare or compute with one type: CAST(x AS {left}); in a list look by array_contains(list, x); beside "
            "AND and OR stand comparisons, as x > 0",
        ),
        "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": (
            "the condition {filter} is {type}, neither true nor false",
            "write a comparison, as {filter} > 0, {filter} = 'x' or {filter} IS NOT NULL",
        ),
        "DATATYPE_MISMATCH.DATA_DIFF_TYPES": (
            "in {sqlExpr} the values are of several types: {dataType}",
            "cast all of them to one type; whether a list holds a value is array_contains(list, x)",
        ),
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION": (
            "{srcType} cannot be cast to {targetType}, in {sqlExpr}",
            "take a part of it, as list[0], map['key'] or part.field, or the whole as text by to_json",
        ),
        "DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION": (
            "{srcType} cannot be cast to {targetType}, in {sqlExpr}",
            "use {functionNames}",
        ),
        "DATATYPE_MISMATCH.NON_FOLDABLE_INPUT": ("", "write a constant there, not a column"),
        "DATATYPE_MISMATCH": ("", "cast the column to the type that the function takes"),
    },
    "HR463": {
        "DATATYPE_MISMATCH.VALUE_OUT_OF_RANGE": (
            "{exprName} is {currentValue}, and must lie in {valueRange}",
            f"{_TIME}, above 0",
        ),
        "DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION": (
            "",
            "give the window's length first and the slide, which is not longer, second",
        ),
        "INVALID_TYPED_LITERAL": (
            "{value} is no {valueType}",
            "write DATE '2026-01-31', TIMESTAMP '2026-01-31 10:00:00' or INTERVAL '5 minutes'",
        ),
        "CANNOT_PARSE_INTERVAL": ("{intervalString} is not a length of time", _TIME),
        "INVALID_INTERVAL_FORMAT": ("", _TIME),
        "_LEGACY_ERROR_TEMP_3231": (
            "{interval} is no length for a window: months are not of equal length",
            "use days, as '30 days'; for months of the calendar group by date_trunc('month', time) in the mode update",
        ),
        "INVALID_EXTRACT_FIELD": (
            "{field} is not a part of a time",
            "write YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE or SECOND",
        ),
    },
}
CONDITIONS: Mapping[str, Condition] = {
    name: Condition(code=code, what=what, fix=fix, more=more[0] if more else {})
    for code, texts in _TEXTS.items()
    for name, (what, fix, *more) in texts.items()
}
