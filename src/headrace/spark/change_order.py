"""The order of changes as one text that compares by its bytes alike in Spark, in Arrow and in every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.spark.jvm.settings import WHOLE_JSON_UTC

if TYPE_CHECKING:
    from pyspark.sql import Column

_DIGITS = "0123456789"


def order_text(sequence: Column, position: Column, sequence_type: str, row: Column) -> Column:
    """Return the order of each change: the sequence, then the later offset, then the greater partition.

    Without a position, changes with one sequence are in the order of a hash of `row`, before those with a position.

    Args:
        sequence_type: One of `headrace.contract.SEQUENCE_TYPES`.
        row: A struct of all that the change says.
    """
    from pyspark.sql import functions as F

    hashed = F.xxhash64(F.to_json(row, WHOLE_JSON_UTC))
    turn = F.when(position.isNull(), F.concat(F.lit("0"), _number(hashed))).otherwise(
        F.concat(F.lit("1"), _number(position["offset"].cast("long")), _number(position["partition"].cast("long")))
    )
    return F.concat(_sequence(sequence, sequence_type), F.lit("!"), turn)


def sequence_text(values: Sequence[tuple[Column, str]]) -> Column:
    """Return one text that has the order of several values, of which each has its type; the first counts most."""
    from pyspark.sql import functions as F

    # "!" is less than any digit, so that a text comes before those that begin with it.
    return F.concat_ws("!", *[_sequence(value, kind) for value, kind in values])


def _sequence(sequence: Column, sequence_type: str) -> Column:
    from pyspark.sql import functions as F

    if sequence_type == "STRING":
        # Of two texts, one of which begins with the other, the shorter is first: "!" is less than any digit.
        return F.hex(F.encode(sequence, "UTF-8"))
    if sequence_type == "DECIMAL(38,0)":
        digits = sequence.cast("string")
        # Spark's abs keeps 34 digits.
        below = F.translate(F.lpad(F.translate(digits, "-", ""), 38, "0"), _DIGITS, _DIGITS[::-1])
        above = F.lpad(digits, 38, "0")
        return F.when(sequence < 0, F.concat(F.lit("0"), below)).otherwise(F.concat(F.lit("1"), above))
    numbers = {"TIMESTAMP": F.unix_micros, "DATE": F.unix_date}
    return _number((numbers[sequence_type](sequence) if sequence_type in numbers else sequence).cast("long"))


def _number(value: Column) -> Column:
    """Return a whole number as hexadecimal digits, of which those below zero come first."""
    from pyspark.sql import functions as F

    digits = F.hex(value.bitwiseXOR(F.lit(-(2**63))))
    # A number from 0 on has all its 16 digits.
    return F.when(value < 0, F.lpad(digits, 16, "0")).otherwise(digits)
