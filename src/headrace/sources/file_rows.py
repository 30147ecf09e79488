"""What is wrong with a row beyond what Spark's readers see: a value that must be there, text of another encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Fault: TypeAlias = tuple[str, Column]

# What run/faults.py knows the message of a refused row by; what follows is the column and the file.
MISSING = "HEADRACE_MISSING_VALUE"
ENCODING = "HEADRACE_ENCODING"
# Java puts it in the place of bytes that are no text.
_REPLACEMENT = "\ufffd"


def faults(
    frame: DataFrame, format_: str, required: Sequence[str], options: Mapping[str, str]
) -> dict[str, list[Fault]]:
    """The faults that each column of `frame` may have.

    Spark's readers make every column nullable, and its csv reader replaces what does not decode. Whoever names an
    encoding takes that upon himself.
    """
    from pyspark.sql import functions as F

    found: dict[str, list[Fault]] = {}
    names = {name.lower(): name for name in frame.columns}
    for name in required:
        if name.lower() in names:
            own = names[name.lower()]
            found.setdefault(own, []).append((MISSING, F.col(f"`{own}`").isNull()))
    if {"encoding", "charset"} & {option.lower() for option in options}:
        return found
    for name, kind in frame.dtypes:
        if kind == "string" and format_ == "csv":
            found.setdefault(name, []).append((ENCODING, F.col(f"`{name}`").contains(_REPLACEMENT)))
        elif kind == "string" and format_ == "text":
            found.setdefault(name, []).append((ENCODING, ~F.is_valid_utf8(F.col(f"`{name}`"))))
    return found


def refuse(frame: DataFrame, faults: Mapping[str, Sequence[Fault]]) -> DataFrame:
    """Fail at the first value with a fault, naming its file, in a column that the query reads."""
    from pyspark.sql import functions as F

    if not faults:
        return frame
    columns = []
    for name, kind in frame.dtypes:
        column = F.col(f"`{name}`")
        for mark, bad in faults.get(name, ()):
            said = F.concat(F.lit(f"{mark} `{name}` "), F.col("_metadata.file_path"))
            column = F.when(bad, F.raise_error(said).cast(kind)).otherwise(column)
        columns.append(column.alias(name))
    return frame.select(*columns)


def any_of(faults: Mapping[str, Sequence[Fault]]) -> Column:
    """Whether a row has any of the faults."""
    from pyspark.sql import functions as F

    return reduce(or_, [bad for each in faults.values() for _, bad in each], F.lit(False))
