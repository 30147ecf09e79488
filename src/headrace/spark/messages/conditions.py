"""What is said of each error condition of Spark's analysis: a code, one sentence, and a fix of its own.

The conditions are those of Spark's error-conditions.json; {names} in a text are the parameters of the condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.spark.messages import wrong_words

_QUERY = "write its rows to a table of its own in a second query"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """An error condition's code, fix, and the sentence in place of Spark's, if that is long or speaks of its inside.

    more: texts that are made from the parameters, by the names under which `what` and `fix` use them.
    """

    code: str
    fix: str
    what: str = ""
    more: Mapping[str, object] = field(default_factory=dict)

    def message_and_fix(self, parameters: Mapping[str, str], error: BaseException) -> tuple[str, str]:
        """The sentence, empty for Spark's own, and the fix."""
        values = _Known({name: plain(value) for name, value in parameters.items()})
        for name, make in self.more.items():
            assert callable(make), name
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


_TIME = "write a number and a unit, as '30 seconds', '10 minutes' or '1 hour'"
_ORDINAL = Condition(code="HR461", fix="name the column in place of the number, or give a number from 1 to {size}")
_NO_ORDER = Condition(
    code="HR226",
    what="{funcName}{wf_expr} looks at the rows before and after, and the rows of a stream have no last one",
    fix="for the newest or largest row of a group use max_by(x, time); for the row before keep it in a state function "
    "(transformWithState); in a table of its own write {funcName}{wf_expr} OVER (PARTITION BY ... ORDER BY ...)",
    more={"funcName": lambda values, _: values.get("funcName", ""), "wf_expr": lambda v, _: v.get("wf_expr", "")},
)
_AMBIGUOUS = Condition(
    code="HR214",
    what="'{name}' stands for a column of both sides",
    fix="name the side, as in a.{name} with FROM ... a JOIN ... b; in Python join by the name, join(other, '{name}'), "
    "or drop or rename one of the two before the join",
)

CONDITIONS: Mapping[str, Condition] = {
    # ------------------------------------------------------------------------------------------ the text of SQL
    "TRAILING_COMMA_IN_SELECT": Condition(
        code="HR216", what="the list after SELECT ends with a comma", fix="remove the comma before FROM"
    ),
    "UNCLOSED_BRACKETED_COMMENT": Condition(
        code="HR216", what="a comment is opened by /* and not closed", fix="close it with */, or write -- for one line"
    ),
    "PARSE_EMPTY_STATEMENT": Condition(code="HR216", what="the text is empty", fix="write an expression or a SELECT"),
    "INVALID_IDENTIFIER": Condition(
        code="HR216",
        what="the name {ident} holds more than letters, digits and _",
        fix="write `{ident}` in backticks, or an underscore in place of the hyphen",
    ),
    "INVALID_SQL_SYNTAX": Condition(code="HR216", fix="write it as Spark's SQL has it: see 'SQL Syntax' in its guide"),
    "INVALID_ESC": Condition(code="HR216", fix="give ESCAPE one character, as in LIKE 'a!%' ESCAPE '!'"),
    "UNBOUND_SQL_PARAMETER": Condition(
        code="HR216",
        what="the SQL has a parameter, :name or ?, to which nothing gives a value",
        fix="write the value itself; in headrace.yml ${{NAME}} takes it from the environment",
    ),
    "DUPLICATED_CTE_NAMES": Condition(
        code="HR216", what="WITH gives the name {duplicateNames} twice", fix="give one of the two another name"
    ),
    "ASSIGNMENT_ARITY_MISMATCH": Condition(
        code="HR216",
        what="{numExpr} columns are named in brackets, and the SELECT in it has {numTarget}",
        fix="name as many columns as the SELECT has, or leave the brackets out",
    ),
    # ------------------------------------------------------------------------------------------- names of things
    "UNRESOLVED_COLUMN": Condition(
        code="HR214",
        what="there is no column '{objectName}'{of}",
        fix="{near}; put a text in single quotes, or add the column to the source's schema",
        more={
            "of": lambda values, _: f" among {values['proposal']}" if "proposal" in values else "",
            "near": lambda values, _: wrong_words.column(values.get("objectName", ""), values.get("proposal", "")),
        },
    ),
    "UNRESOLVED_COLUMN_AMONG_FIELD_NAMES": Condition(
        code="HR214",
        what="there is no column '{colName}' among {fieldNames}",
        fix="{near}; let what one side lacks be NULL by unionByName(..., allowMissingColumns=True)",
        more={"near": lambda values, _: wrong_words.column(values.get("colName", ""), values.get("fieldNames", ""))},
    ),
    "UNRESOLVED_USING_COLUMN_FOR_JOIN": Condition(
        code="HR214",
        what="the {side} side of the join has no column '{colName}', only {suggestion}",
        fix="{near}; name it for each side: ON a.x = b.y, in Python left.x == right.y",
        more={"near": lambda values, _: wrong_words.column(values.get("colName", ""), values.get("suggestion", ""))},
    ),
    "FIELD_NOT_FOUND": Condition(
        code="HR214",
        what="the struct has no field '{fieldName}', only {fields}",
        fix="{near}; add it to the source's schema",
        more={"near": lambda values, _: wrong_words.column(values.get("fieldName", ""), values.get("fields", ""))},
    ),
    "ATTRIBUTE_NOT_SUPPORTED": Condition(
        code="HR214",
        what="a DataFrame has no column and no method '{attr_name}'",
        fix="{near}",
        more={"near": lambda values, error: wrong_words.attribute(values.get("attr_name", ""), error)},
    ),
    "CANNOT_RESOLVE_STAR_EXPAND": Condition(
        code="HR214",
        what="{targetString}.* names no input of this SELECT",
        fix="write * alone, or name.* with a name or alias that stands after FROM or JOIN",
    ),
    "TABLE_OR_VIEW_NOT_FOUND": Condition(
        code="HR215",
        what="there is no table or view '{relationName}'",
        fix="read the project's sources, tables and views by their plain names, as inputs; or declare it as one",
    ),
    "PATH_NOT_FOUND": Condition(
        code="HR215",
        what="there is nothing at {path}",
        fix="put it there, or give the path from the root on; declare a source for what changes while the query runs",
    ),
    "AMBIGUOUS_REFERENCE": _AMBIGUOUS,
    "AMBIGUOUS_COLUMN_REFERENCE": _AMBIGUOUS,
    "UNRESOLVED_ROUTINE": Condition(
        code="HR460",
        what="Spark has no function '{routineName}'",
        fix="{near}",
        more={"near": lambda values, _: wrong_words.function(values.get("routineName", ""))},
    ),
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": Condition(
        code="HR460",
        what="Spark has no function '{name}' that gives a table",
        fix="take range, explode, inline, stack or json_tuple; a source, table or view is named without brackets",
    ),
    "WRONG_NUM_ARGS": Condition(
        code="HR460",
        what="the function {functionName} takes {expectedNum} arguments, and is given {actualNum}",
        fix="{signature}",
        more={"signature": lambda values, _: wrong_words.argument_of(values.get("functionName", ""))},
    ),
    "INVALID_WITHIN_GROUP_EXPRESSION": Condition(
        code="HR460", fix="write {funcName}(0.5) WITHIN GROUP (ORDER BY x); percentile_approx(x, 0.5) takes it plainly"
    ),
    "WINDOW_FUNCTION_WITHOUT_OVER_CLAUSE": _NO_ORDER,
    "WINDOW_FUNCTION_FRAME_NOT_ORDERED": _NO_ORDER,
    "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE": Condition(
        code="HR226",
        what="a function with OVER stands in {clauseName}, where no rows are ordered yet",
        fix="for the newest or largest row of a group use max_by(x, time) with GROUP BY; in a table of its own compute "
        "the number in a subquery and filter outside",
    ),
    # ------------------------------------------------------------------------------------------------- grouping
    "MISSING_GROUP_BY": Condition(
        code="HR461",
        what="plain columns stand beside an aggregate, or HAVING is used, and there is no GROUP BY",
        fix="add GROUP BY with the plain columns; for a condition on rows write WHERE in place of HAVING",
    ),
    "MISSING_ATTRIBUTES": Condition(
        code="HR214",
        what="{missingAttributes} is a column of another DataFrame, which is not part of this one",
        fix="join that DataFrame first, as events.join(users, 'id'), and then name the column",
    ),
    "MISSING_AGGREGATION": Condition(
        code="HR461",
        what="{expression} is neither in GROUP BY nor in an aggregate",
        fix="add it to GROUP BY, or take one value of each group: max({expression}) or {expressionAnyValue}",
    ),
    "INVALID_WHERE_CONDITION": Condition(
        code="HR461",
        what="the condition on rows holds {expressionList}, which is known only after grouping",
        fix="write it after GROUP BY as HAVING, in Python as where() behind agg(); explode goes into a view before",
    ),
    "GROUP_BY_AGGREGATE": Condition(
        code="HR461",
        what="GROUP BY holds the aggregate {sqlExpr}",
        fix="group by columns only; to group by a result, aggregate it in a first query with a table of its own",
    ),
    "NESTED_AGGREGATE_FUNCTION": Condition(
        code="HR461",
        what="an aggregate stands inside another one",
        fix="compute the inner one in a first query that writes a table, and the outer one in a second that reads it",
    ),
    "GROUP_BY_POS_OUT_OF_RANGE": _ORDINAL,
    "ORDER_BY_POS_OUT_OF_RANGE": _ORDINAL,
    "GROUP_BY_POS_AGGREGATE": Condition(
        code="HR461", what="GROUP BY {index} names the aggregate {aggExpr}", fix="group by the other columns, by name"
    ),
    "_LEGACY_ERROR_TEMP_1039": Condition(
        code="HR226",
        what="the rows are grouped by two windows of time at once",
        fix="write one query for each window; or group by the shorter one and sum up where the result is read",
    ),
    "_LEGACY_ERROR_TEMP_3063": Condition(
        code="HR223",
        what="pivot has to know all values beforehand, and a stream has no end",
        fix="write one aggregate for each value: count_if(x = 'a') AS a, sum(CASE WHEN x = 'b' THEN y END) AS b",
    ),
    # --------------------------------------------------------------------------------------------- several inputs
    "NUM_COLUMNS_MISMATCH": Condition(
        code="HR220",
        what="{operator} puts {firstNumColumns} columns over {invalidNumColumns}",
        fix="select the same columns in the same order on both sides, NULL for one that is missing; in Python "
        "unionByName(..., allowMissingColumns=True)",
    ),
    "INCOMPATIBLE_COLUMN_TYPE": Condition(
        code="HR218",
        what="{operator} puts a {dataType1} over a {dataType2} in the {columnOrdinalNumber} column",
        fix="select the same columns in the same order on both sides, and cast this one to one type",
    ),
    "UNSUPPORTED_JOIN_TYPE": Condition(
        code="HR220",
        what="there is no join '{typ}'",
        fix="{near}",
        more={"near": lambda values, _: wrong_words.join_type(values.get("typ", ""), values.get("supported", ""))},
    ),
    "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY": Condition(
        code="HR220",
        what="a stream stands in a subquery of SELECT or WHERE",
        fix="join it: EXISTS and IN are a LEFT SEMI JOIN, NOT EXISTS a LEFT JOIN whose right side is NULL, each with a "
        f"bound on time; a single figure over the stream: {_QUERY}, and join that",
    ),
    "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN": Condition(
        code="HR220", fix="select one column there; for several join the table"
    ),
    "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY": Condition(code="HR220", fix="join the table in place of the subquery"),
    "INVALID_LIMIT_LIKE_EXPRESSION": Condition(
        code="HR223", fix="leave limit out of a stream; elsewhere give a number that is not negative"
    ),
    "UNSUPPORTED_GENERATOR.OUTSIDE_SELECT": Condition(
        code="HR220",
        what="explode, or another function that makes rows, stands outside of SELECT",
        fix="write FROM input LATERAL VIEW explode(list) AS item and use item; to look into a list use array_contains",
    ),
    "UNSUPPORTED_GENERATOR": Condition(
        code="HR220",
        fix="let explode stand alone in a first SELECT or view, explode(list) AS item, and compute with item in a "
        "second; or take transform(list, x -> ...)",
    ),
    # -------------------------------------------------------------------------------------------------- types
    "UNSUPPORTED_DATATYPE": Condition(
        code="HR218",
        what="'{typeName}' is not a type of Spark",
        fix="{near}",
        more={"near": lambda values, _: wrong_words.type_name(values.get("typeName", ""))},
    ),
    "INCOMPLETE_TYPE_DEFINITION": Condition(
        code="HR218", fix="say what is inside: ARRAY<STRING>, MAP<STRING, INT> or STRUCT<a: INT>"
    ),
    "DATATYPE_MISSING_SIZE": Condition(
        code="HR218", what="the type {type} lacks its length", fix="write STRING, which has none, or {type}(100)"
    ),
    "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION": Condition(
        code="HR218",
        what="a number or type has {precision} digits, and a DECIMAL has at most {maxPrecision}",
        fix="declare at most DECIMAL({maxPrecision}, ...), or keep the value as STRING",
    ),
    "DECIMAL_SCALE_EXCEEDS_PRECISION": Condition(
        code="HR218", fix="give all digits first and those behind the point second: DECIMAL(12, 2)"
    ),
    "_LEGACY_ERROR_TEMP_1323": Condition(
        code="HR218",
        what="{colName} is not a column of numbers, and this aggregate takes only such",
        fix="name a column of numbers, or cast it first: F.sum(F.col('{colName}').cast('double'))",
    ),
    "_LEGACY_ERROR_TEMP_1050": Condition(
        code="HR218", what=".* is written behind a column that is no STRUCT", fix="name the column without .*"
    ),
    "INVALID_EXTRACT_BASE_FIELD_TYPE": Condition(
        code="HR218",
        what="{base} is {other}, which has no fields",
        fix="name the column alone; if it is JSON in a text, parse it first: from_json({base}, 'a INT, b STRING').a",
    ),
    "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE": Condition(
        code="HR218",
        what="in {sqlExpr} the {paramIndex} argument is {inputType}, and {requiredType} is needed",
        fix="{cast}",
        more={"cast": lambda values, _: wrong_words.argument_type(values)},
    ),
    "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES": Condition(
        code="HR218",
        what="in {sqlExpr} one side is {left} and the other {right}",
        fix="compare or compute with one type: CAST(x AS {left}); in a list look by array_contains(list, x); beside "
        "AND and OR stand comparisons, as x > 0",
    ),
    "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN": Condition(
        code="HR218",
        what="the condition {filter} is {type}, neither true nor false",
        fix="write a comparison, as {filter} > 0, {filter} = 'x' or {filter} IS NOT NULL",
    ),
    "DATATYPE_MISMATCH.DATA_DIFF_TYPES": Condition(
        code="HR218",
        what="in {sqlExpr} the values are of several types: {dataType}",
        fix="cast all of them to one type; whether a list holds a value is array_contains(list, x)",
    ),
    "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION": Condition(
        code="HR218",
        what="{srcType} cannot be cast to {targetType}, in {sqlExpr}",
        fix="take a part of it, as list[0], map['key'] or part.field, or the whole as text by to_json",
    ),
    "DATATYPE_MISMATCH.CAST_WITH_FUNC_SUGGESTION": Condition(
        code="HR218", what="{srcType} cannot be cast to {targetType}, in {sqlExpr}", fix="use {functionNames}"
    ),
    "DATATYPE_MISMATCH.VALUE_OUT_OF_RANGE": Condition(
        code="HR463",
        what="{exprName} is {currentValue}, and must lie in {valueRange}",
        fix=f"{_TIME}, above 0",
    ),
    "DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION": Condition(
        code="HR463", fix="give the window's length first and the slide, which is not longer, second"
    ),
    "DATATYPE_MISMATCH.NON_FOLDABLE_INPUT": Condition(code="HR218", fix="write a constant there, not a column"),
    "DATATYPE_MISMATCH": Condition(code="HR218", fix="cast the column to the type that the function takes"),
    # ------------------------------------------------------------------------------------- written values and times
    "INVALID_TYPED_LITERAL": Condition(
        code="HR463",
        what="{value} is no {valueType}",
        fix="write DATE '2026-01-31', TIMESTAMP '2026-01-31 10:00:00' or INTERVAL '5 minutes'",
    ),
    "CANNOT_PARSE_INTERVAL": Condition(code="HR463", what="{intervalString} is not a length of time", fix=_TIME),
    "INVALID_INTERVAL_FORMAT": Condition(code="HR463", fix=_TIME),
    "_LEGACY_ERROR_TEMP_3231": Condition(
        code="HR463",
        what="{interval} is no length for a window: months are not of equal length",
        fix="use days, as '30 days'; for months of the calendar group by date_trunc('month', time) in the mode update",
    ),
    "INVALID_EXTRACT_FIELD": Condition(
        code="HR463",
        what="{field} is not a part of a time",
        fix="write YEAR, QUARTER, MONTH, WEEK, DAY, DAYOFWEEK, DOY, HOUR, MINUTE or SECOND",
    ),
    # ---------------------------------------------------------------------------------------- Python's own mistakes
    "CANNOT_CONVERT_COLUMN_INTO_BOOL": Condition(
        code="HR220",
        what="a Column is used where Python needs True or False",
        fix="write & for and, | for or, ~ for not, with each comparison in brackets: (a > 1) & (b == 'x'); isin(...) "
        "for in, between(...) for a < x < b, and F.when(...) for if",
    ),
    "NOT_EXPECTED_TYPE": Condition(
        code="HR220",
        what="the argument '{arg_name}' is a {arg_type}, and {expected_type} is needed",
        fix="{wrapped}",
        more={
            "wrapped": lambda values, _: {
                "Column": "wrap a constant in F.lit(...), name a column by F.col('name'), write SQL as F.expr('...')",
                "list or tuple": "put it in a list: ['...']",
                "Column or str": "write a condition, as F.col('x') > 1, or SQL in quotes; a name in quotes",
                "str": "write it as a text in quotes: a length of time is '5 minutes'",
            }.get(values.get("expected_type", ""), f"give {values.get('arg_name')} {values.get('expected_type')}")
        },
    ),
    "ARGUMENT_REQUIRED": Condition(
        code="HR220", what="the argument '{arg_name}' is missing, as {condition}", fix="give {arg_name} a value"
    ),
}
