"""What of a source's options its values are judged by, and the columns in which rows of texts come to be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROW_FORMATS = ("csv", "json")
# Columns that are not of the schema: the text of a row that could not be read, else NULL; the text of each row; where
# it lies; why it could not be read, where its reader says so.
CORRUPT_RECORD, RECORD, PLACE = "_headrace_corrupt_record", "_headrace_record", "_headrace_place"
FAULT = "_headrace_fault"
OWN_COLUMNS = (CORRUPT_RECORD, RECORD, PLACE, FAULT)


@dataclass(frozen=True, kw_only=True)
class TextRules:
    """The options that decide about a value.

    is_exact: what its type does not hold exactly is bad. has_bytes: texts come as the bytes that were written, in UTF-8
    or not. options: those of Spark's reader.
    """

    format: str
    is_exact: bool = True
    has_bytes: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def is_named(self, *options: str) -> bool:
        """Whether one of these options of Spark's, in lower case, is given."""
        return not {name.lower() for name in self.options}.isdisjoint(options)
