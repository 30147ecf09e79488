"""Rows of texts, and values that their declared types do not hold: read as text, judged, then converted.

Spark's readers round a DECIMAL to its scale and take a comma for nothing ('1,5' is 15), cut what a TIMESTAMP has beyond
microseconds and a DATE behind its day, complete a time by the day on which it is read, and take a date of eight digits
for a number of days and 128 in json for the TINYINT -128: all silently. A type for which the user names a format or a
locale is left to Spark's reader.
"""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Mapping
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.values import rows as row_faults
from headrace.connectors.values.rows import INEXACT, MALFORMED, MISFIT, UNREADABLE
from headrace.connectors.values.rules import CORRUPT_RECORD, FAULT, OWN_COLUMNS, PLACE, RECORD, ROW_FORMATS, TextRules
from headrace.spark.ddl import type_name

# An option of the user's that leaves a type to Spark's reader.
_LEFT_BY = {
    "decimal": ("locale",),
    "timestamp": ("timestampformat", "timezone", "locale"),
    "timestamp_ntz": ("timestampntzformat", "locale"),
    "date": ("dateformat", "locale"),
}
_DATE = r"\d{4}-\d{1,2}-\d{1,2}"
_EXACT_DATE = rf"^\s*{_DATE}([T ]00:00(:00(\.0*)?)?Z?)?\s*$"
_EXACT_NTZ = rf"^\s*{_DATE}([T ]\d{{1,2}}:\d{{1,2}}(:\d{{1,2}}(\.\d{{0,6}}0*)?)?)?\s*$"
_TOO_FINE = r"\.\d{6}\d*[1-9]"
# Zones whose clock never skips an hour.
_STEADY_ZONE = re.compile(r"Z|(UTC|GMT|UT)?([+-][\d:]+)?")
# The last second of the year 9999; milliseconds taken for seconds lie beyond it.
_LAST_SECOND = 253_402_300_799


class Exact:
    """The conversions of one source's columns. zone: Spark's `spark.sql.session.timeZone`."""

    def __init__(self, rules: TextRules, zone: str) -> None:
        given = {name.lower() for name in rules.options}
        self.format = rules.format
        self.is_asked = rules.format in ROW_FORMATS and rules.is_exact
        # Spark takes what Jackson gives for a byte, in which 128 to 255 are numbers below zero.
        self._has_bytes = self.is_asked and rules.format == "json"
        self.kinds = {kind for kind, by in _LEFT_BY.items() if self.is_asked and given.isdisjoint(by)}
        self._in_utc = zone == "UTC"
        self._skipping_zone = "" if _STEADY_ZONE.fullmatch(zone) else zone

    def as_text(self, schema: T.StructType) -> T.StructType:
        """The schema to read with: what is judged by its text is STRING."""
        fields = [T.StructField(f.name, self._text_type(f.dataType), f.nullable, f.metadata) for f in schema]
        return T.StructType(fields)

    def judges(self, kind: T.DataType) -> bool:
        """Whether a column of this type, or a part of it, is read as text."""
        return self._text_type(kind) != kind

    def _usual(self, text: Column, kind: T.DataType) -> Column:
        """The value of a text in its type's usual form, which is exact whenever it converts; NULL of any other text.

        Seen by lengths and single bytes, which takes a tenth of the time of a pattern.
        """
        length = F.octet_length(text)
        if isinstance(kind, T.ByteType):
            return text.try_cast(kind)
        if isinstance(kind, T.DecimalType):
            # Java's numbers take digits of all scripts.
            is_ascii = F.length(text) == length
            # Spark looks ten times as long for the place of a character as for whether it is there.
            is_short = (length <= kind.scale + 1) | ~text.substr(F.lit(1), length - kind.scale - 1).contains(".")
            form = is_short & is_ascii & ~text.contains("e") & ~text.contains("E")
        elif isinstance(kind, T.DateType):
            form = (length == 10) & _has(text, {5: "-", 8: "-"}) & _are_digits(text, 10)
        elif isinstance(kind, T.TimestampType):
            # A fraction of seven digits takes 22 characters; if the 20th is not a digit, its seventh is the 27th.
            has_seven = _are_digits(text, 20) | ((length > 26) & _are_digits(text, 27))
            form = _has_year(text) & ((length <= 21) | ~has_seven)
            if self._skipping_zone:
                form = form & ~_is_skipped(text)
            elif self._in_utc:
                # To look up the zone Z takes Spark as long as all the rest.
                local = F.substring(text.cast("binary"), F.lit(1), length - 1).cast("string")
                text = F.when(_ends_with_z(text, length), local).otherwise(text)
        else:
            to_the_second = _has(text, {5: "-", 8: "-", 14: ":", 17: ":"}) & _are_digits(text, 19)
            form = (length == 19) & to_the_second
        return F.when(form, text.try_cast(kind))

    def value(self, text: Column, kind: T.DataType) -> Column:
        """The value of a column that was read as text; NULL where it does not convert."""
        if not self.judges(kind):
            return text
        if isinstance(kind, T.StructType):
            parts = [self.value(text.getField(field.name), field.dataType).alias(field.name) for field in kind]
            return F.when(text.isNotNull(), F.struct(*parts))
        if isinstance(kind, T.ArrayType):
            return F.transform(text, lambda part: self.value(part, kind.elementType))
        if isinstance(kind, T.MapType):
            return F.transform_values(text, lambda _, part: self.value(part, kind.valueType))
        if isinstance(kind, T.TimestampType) and self.format == "json":
            # What is usual comes first: to look for a number in each row took ten times as long.
            number = F.when(~_has_year(text) & _is_epoch(text), F.timestamp_seconds(text.try_cast("bigint")))
            return F.coalesce(number, text.try_cast(kind))
        return text.try_cast(kind)

    def is_bad(self, text: Column, kind: T.DataType) -> Column:
        """Whether a text of a type that is judged does not convert, or not exactly; NULL is never bad."""
        return row_faults.is_anywhere(text, kind, self.judges, self._is_bad_text)

    def _is_bad_text(self, text: Column, kind: T.DataType) -> Column:
        bad = self.value(text, kind).isNull() | ~self._is_exact(text, kind)
        return text.isNotNull() & self._usual(text, kind).isNull() & bad

    def check(self, name: str, text: Column, kind: T.DataType) -> Column | None:
        """The exact value of a text; any other fails with what `describe_refusal` says. None: a type not judged so.

        Spark compiles each step that it may come to, so that each stands here once, the usual one first.
        """
        if not self.judges(kind) or isinstance(kind, T.StructType | T.ArrayType | T.MapType):
            return None
        exact = F.when(self._is_exact(text, kind), self.value(text, kind))
        refused = F.when(text.isNotNull(), F.raise_error(self.describe_refusal(name, text, kind)))
        return F.coalesce(self._usual(text, kind), exact, refused)

    def describe_refusal(self, name: str, text: Column, kind: T.DataType) -> Column:
        """Compose the message of a value that is refused: mark, column, type, file, and the text itself."""
        nested = isinstance(kind, T.StructType | T.ArrayType | T.MapType)
        shown = F.to_json(F.struct(text.alias(name))) if nested else text.cast("string")
        mark = F.lit(INEXACT) if nested else F.when(self.value(text, kind).isNull(), MISFIT).otherwise(INEXACT)
        zone = f" in {self._skipping_zone}" if self._skipping_zone and isinstance(kind, T.TimestampType) else ""
        column_and_type = F.lit(f" `{name}` `{type_name(kind)}{zone}` ")
        return F.concat(mark, column_and_type, F.col(PLACE), F.lit(" `"), row_faults.excerpt(shown), F.lit("`"))

    def _is_exact(self, text: Column, kind: T.DataType) -> Column:
        if isinstance(kind, T.ByteType):
            return F.lit(True)
        if isinstance(kind, T.DecimalType):
            return _is_exact_decimal(text, kind)
        if isinstance(kind, T.DateType):
            return text.rlike(_EXACT_DATE)
        if not isinstance(kind, T.TimestampType):
            return text.rlike(_EXACT_NTZ)
        year, fine = _has_year(text) | text.rlike(r"^\s*\d{4}-"), ~text.rlike(_TOO_FINE)
        # A number in JSON counts seconds; as text it looks like a year if it has the length of one.
        exact = (year & fine) | (_is_epoch(text) if self.format == "json" else text.rlike(r"^\s*\d{4}\s*$"))
        return exact & ~_is_skipped(text) if self._skipping_zone else exact

    def _text_type(self, kind: T.DataType) -> T.DataType:
        if isinstance(kind, T.StructType):
            return self.as_text(kind)
        if isinstance(kind, T.ArrayType):
            return T.ArrayType(self._text_type(kind.elementType), kind.containsNull)
        if isinstance(kind, T.MapType):
            return T.MapType(kind.keyType, self._text_type(kind.valueType), kind.valueContainsNull)
        if isinstance(kind, T.ByteType) and self._has_bytes:
            return T.ShortType()
        return T.StringType() if kind.typeName() in self.kinds else kind


class Judged:
    """The rows of `frame`, by the `schema` of its reader, with their places; `besides`: columns that it did not read.

    Without a schema only what is not UTF-8 is bad.
    """

    def __init__(
        self, rules: TextRules, frame: DataFrame, schema: T.StructType | None, besides: tuple[str | None, ...] = ()
    ) -> None:
        self.rules, self.frame, self.schema = rules, frame, schema
        self.zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
        self.exact = Exact(rules, self.zone)
        self.fields = [field for field in schema or () if field.name != CORRUPT_RECORD]
        self.columns = [name for name in frame.columns if name not in (*OWN_COLUMNS, *besides)]

    @property
    def key(self) -> tuple[Hashable, ...]:
        """All that the expressions follow from."""
        rules, shape = self.rules, None if self.schema is None else self.schema.json()
        options = sorted(rules.options.items())
        return (rules.format, rules.is_exact, *options, self.zone, shape, self.frame.schema.json())

    def check_columns(self) -> list[Column]:
        """The columns with their declared types, each of which fails at a fault; none where nothing can be wrong."""
        refused = {}
        for field in self.fields:
            column = self.exact.check(field.name, F.col(f"`{field.name}`"), field.dataType)
            if column is not None:
                refused[field.name] = column
        faults = self._faults(besides=refused)
        return row_faults.refuse({**self._values(), **refused}, faults)

    def require_readable(self) -> DataFrame:
        """The rows; the first one of which no column could be read fails."""
        if CORRUPT_RECORD not in self.frame.columns:
            return self.frame
        shown = row_faults.compose_message(MALFORMED, "", F.col(PLACE), F.col(CORRUPT_RECORD))
        if FAULT in self.frame.columns:
            shown = row_faults.compose_message(UNREADABLE, F.col(FAULT), F.col(PLACE))
        fails = F.raise_error(shown).cast("boolean")
        return self.frame.where(F.when(F.col(CORRUPT_RECORD).isNotNull(), fails).otherwise(F.lit(True)))

    def convert_columns(self) -> list[Column]:
        """The columns with their declared types."""
        return [value.alias(name) for name, value in self._values().items()]

    def good_rows(self, metric: str) -> DataFrame:
        """The rows that do not break the schema; the others are counted under `metric`."""
        return self._count_bad_rows(metric).where(~self._is_bad()).select(*self.convert_columns())

    def bad_rows(self, metric: str, *, file: str = "file") -> DataFrame:
        """The rows that break the schema, as (file, record, batch), counted as well; `file` is its column."""
        columns = F.struct(*[F.col(f"`{name}`") for name in self.columns])
        record = F.col(RECORD) if RECORD in self.frame.columns else F.coalesce(CORRUPT_RECORD, F.to_json(columns))
        rows = self._count_bad_rows(metric).where(self._is_bad())
        return rows.select(F.col(file).alias("file"), record.alias("record"), "batch")

    def _values(self) -> dict[str, Column]:
        values = {name: F.col(f"`{name}`") for name in self.frame.columns if name not in OWN_COLUMNS}
        for field in self.fields:
            values[field.name] = self.exact.value(values[field.name], field.dataType)
        return values

    def _faults(self, besides: Container[str] = ()) -> list[tuple[str, row_faults.Fault]]:
        """Return the faults that a row may have, with their columns; in `besides` the conversion is not judged."""
        read = self.fields or [field for field in self.frame.schema if field.name in self.columns]
        faults = [*row_faults.find_missing(self.fields), *row_faults.find_undecoded(read, self.rules)]
        if not self.exact.is_asked:
            return faults
        for field in self.fields:
            if self.exact.judges(field.dataType) and field.name not in besides:
                text = F.col(f"`{field.name}`")
                message = self.exact.describe_refusal(field.name, text, field.dataType)
                faults.append((field.name, (message, self.exact.is_bad(text, field.dataType))))
        return [*faults, *row_faults.find_changed(T.StructType(self.fields), self.rules)]

    def _is_bad(self) -> Column:
        # A question that NULL does not answer is not a fault, and the row stays.
        faults = [F.coalesce(bad, F.lit(False)) for _, (_, bad) in self._faults()]
        return reduce(or_, faults, F.col(CORRUPT_RECORD).isNotNull())

    def _count_bad_rows(self, metric: str) -> DataFrame:
        """The rows; how many break the schema, and of how many no column could be read, is counted.

        The second names every column; Spark's reader would otherwise judge a row by the columns in use only.
        """
        unreadable = F.col(CORRUPT_RECORD).isNotNull()
        for name in self.columns:
            unreadable = unreadable & F.col(f"`{name}`").isNull()
        counts = F.count_if(self._is_bad()).alias("rows"), F.count_if(unreadable).alias("unreadable")
        return self.frame.observe(metric, *counts)


def _is_exact_decimal(text: Column, kind: T.DecimalType) -> Column:
    """Whether nothing but zeros lies behind the scale, also where an exponent moves the point."""
    plain = text.rlike(rf"^\s*[+-]?\d*\.?\d{{0,{kind.scale}}}0*\s*$")
    whole, fraction, exponent = (
        F.regexp_extract(text, r"^\s*[+-]?(\d*)\.?(\d*)[eE]([+-]?\d{1,4})\s*$", number) for number in (1, 2, 3)
    )
    digits = F.concat(whole, fraction)
    kept = F.rtrim(digits, F.lit("0"))
    scale = F.length(fraction) - exponent.try_cast("int") - (F.length(digits) - F.length(kept))
    moved = (kept == "") | (scale <= kind.scale)
    return plain | (text.rlike("[eE]") & F.coalesce(moved, F.lit(False)))


def _is_skipped(text: Column) -> Column:
    """Whether the clock of the session's zone never showed a local time, as at the beginning of summer time.

    Spark takes the time that is later by as much as the clock was put forward.
    """
    shown, has_zone = text.try_cast("timestamp").cast("timestamp_ntz"), text.rlike(":.*[A-Za-z+-]")
    return F.coalesce(~has_zone & (text.try_cast("timestamp_ntz") != shown), F.lit(False))


def _is_epoch(text: Column) -> Column:
    """Whether a text can only be a number of seconds since 1970, up to the year 9999."""
    seconds = text.try_cast("bigint")
    return text.rlike(r"^-?(\d{1,3}|\d{8,12})$") & F.coalesce(F.abs(seconds) <= _LAST_SECOND, F.lit(False))


def _has_year(text: Column) -> Column:
    """Whether a text begins with a year of four digits, as far as the character after it shows."""
    return _has(text, {5: "-"})


def _ends_with_z(text: Column, length: Column) -> Column:
    """Whether a text ends with the digits of a time to the second, the millisecond or the microsecond, and a Z."""
    micro = (length == 27) & _are_digits(text, 24, 25, 26)
    fraction = ((length == 24) | micro) & _has(text, {20: "."}) & _are_digits(text, 21, 22, 23)
    return text.endswith("Z") & (((length == 20) & _are_digits(text, 18, 19)) | fraction)


def _are_digits(text: Column, *places: int) -> Column:
    """Whether a text has digits at these places, counted from 1."""
    return reduce(and_, [_byte(text, place).between(F.lit(b"0"), F.lit(b"9")) for place in places])


def _has(text: Column, characters: Mapping[int, str]) -> Column:
    """Whether a text has these characters at these places, counted from 1."""
    return reduce(and_, [_byte(text, place) == F.lit(character.encode()) for place, character in characters.items()])


def _byte(text: Column, place: int) -> Column:
    """The byte at a place of a text, counted from 1, empty behind its end: found five times as soon as a character."""
    return F.substring(text.cast("binary"), place, 1)
