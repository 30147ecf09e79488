"""What Spark advises against its own refusal is not passed on where it would change values silently."""

from __future__ import annotations

import pytest

from headrace.spark.messages.refusals import tidy, without_advice

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param(
            "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. "
            'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012',
            "Division by zero.",
            id="ansi-off",
        ),
        pytest.param(
            "[UNSUPPORTED_CHAR_OR_VARCHAR_AS_STRING] The char/varchar type can't be used in the table schema. If you "
            "want Spark treat them as string type as same as Spark 3.0 and earlier, please set "
            '"spark.sql.legacy.charVarcharAsString" to "true". SQLSTATE: 0A000',
            "The char/varchar type can't be used in the table schema.",
            id="legacy-char",
        ),
        pytest.param(
            "Exception thrown when converting pandas.Series (float64) with name 'v' to Arrow Array (int64). Arrow safe "
            "type check can be disabled by using SQL config `spark.sql.execution.pandas.convertToArrowArraySafely`.",
            "Exception thrown when converting pandas.Series (float64) with name 'v' to Arrow Array (int64).",
            id="arrow-unsafe",
        ),
        pytest.param("It has 1.5 rows. They differ. See why", "It has 1.5 rows. They differ. See why", id="no-advice"),
        pytest.param(
            'The setting "spark.sql.x" is wrong.', 'The setting "spark.sql.x" is wrong.', id="the-fault-itself"
        ),
    ],
)
def test_advice_to_switch_a_check_off_is_left_out(text: str, kept: str) -> None:
    assert without_advice(tidy(text)) == kept
