"""What is wrong with a row beyond what Spark's readers see: a value that must be there, text of another encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import Column

    # What the message of a refused row says, and whether a row has the fault.
    Fault: TypeAlias = tuple[Column, Column]

# What spark/failures.py knows the message of a refused row by; what follows is the column and the file.
MISSING = "HEADRACE_MISSING_VALUE"
ENCODING = "HEADRACE_ENCODING"
MISFIT = "HEADRACE_MISFIT"
INEXACT = "HEADRACE_INEXACT"
# Java puts it in the place of bytes that are no text.
_REPLACEMENT = "\ufffd"


def faults(
    kinds: Sequence[tuple[str, str]], format_: str, required: Sequence[str], options: Mapping[str, str]
) -> dict[str, list[Fault]]:
    """The faults that each column of `kinds`, names and types, may have.

    Spark's readers make every column nullable, and its csv reader replaces what does not decode. Whoever names an
    encoding takes that upon himself.
    """
    from pyspark.sql import functions as F

    found: dict[str, list[Fault]] = {}
    names = {name.lower(): name for name, _ in kinds}
    for name in required:
        if name.lower() in names:
            own = names[name.lower()]
            found.setdefault(own, []).append((_said(MISSING, own), F.col(f"`{own}`").isNull()))
    if {"encoding", "charset"} & {option.lower() for option in options}:
        return found
    for name, kind in kinds:
        if kind == "string" and format_ == "csv":
            found.setdefault(name, []).append((_said(ENCODING, name), F.col(f"`{name}`").contains(_REPLACEMENT)))
        elif kind == "string" and format_ == "text":
            found.setdefault(name, []).append((_said(ENCODING, name), ~F.is_valid_utf8(F.col(f"`{name}`"))))
    return found


def _said(mark: str, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.concat(F.lit(f"{mark} `{name}` "), F.col("_metadata.file_path"))


def refuse(columns: Mapping[str, Column], faults: Mapping[str, Sequence[Fault]]) -> list[Column]:
    """The columns, each failing at the first value with a fault and naming its file, if the query reads it."""
    from pyspark.sql import functions as F

    checked = []
    for name, column in columns.items():
        for said, bad in faults.get(name, ()):
            column = F.when(bad, F.raise_error(said)).otherwise(column)
        checked.append(column.alias(name))
    return checked


def any_of(faults: Mapping[str, Sequence[Fault]]) -> Column:
    """Whether a row has any of the faults; a question that NULL does not answer is no fault, and the row stays."""
    from pyspark.sql import functions as F

    return reduce(or_, [F.coalesce(bad, F.lit(False)) for each in faults.values() for _, bad in each], F.lit(False))
