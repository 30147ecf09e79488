"""How each format of files is written so that values come back as they were, and what no option can save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.connectors.result_findings import partition_findings, same_names
from headrace.contract import OptionError, RefusedValue
from headrace.errors import Finding, nearest
from headrace.spark.jvm.hadoop_files import can_hold_column
from headrace.spark.jvm.settings import JSON_TIMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

# The form of a directory, kept next to its schema: as readers of a table that was there expect it, or so that every
# value comes back.
PLAIN, EXACT = 1, 2
# Spark's writer trims blanks by default; its reader does not.
_BLANKS = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
# A quote is doubled, as everywhere but in Spark, and a backslash is a letter like others.
_QUOTED = {"escape": '"', "lineSep": "\n"}
# NULL is nothing, an empty text is "". The reader takes both for NULL, unless NULL is called something else there.
_CSV_READ = {"escape": '"', "lineSep": "\n", "multiLine": "true", "emptyValue": "", "nullValue": "\u0001headrace null"}
# The options that Spark's readers and writers of each format know, and those of files of any format.
KNOWN_OPTIONS: Mapping[str, str] = {
    "csv": (
        "charToEscapeQuoteEscaping charset codec columnNameOfCorruptRecord columnPruning comment compression "
        "dateFormat delimiter emptyValue enableDateTimeParsingFallback encoding enforceSchema escape "
        "escapeQuotes extension header ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema "
        "inputBufferSize lineSep locale maxCharsPerColumn maxColumns mode multiLine nanValue negativeInf "
        "nullValue positiveInf preferDate quote quoteAll samplingRatio sep singleVariantColumn timeFormat "
        "timeZone timestampFormat timestampNTZFormat unescapedQuoteHandling"
    ),
    "json": (
        "allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros "
        "allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames charset "
        "columnNameOfCorruptRecord compression dateFormat dropFieldIfAllNull enableDateTimeParsingFallback "
        "encoding ignoreNullFields inferTimestamp lineSep locale mode multiLine prefersDecimal pretty "
        "primitivesAsString samplingRatio singleVariantColumn sortKeys timeFormat timeZone timestampFormat "
        "timestampNTZFormat useUnsafeRow writeNonAsciiCharacterAsCodePoint"
    ),
    "text": "compression encoding lineSep wholetext",
    "parquet": "compression datetimeRebaseMode int96RebaseMode mergeSchema",
    "orc": "compression mergeSchema",
    "": (
        "allowOverwrites basePath cleanSource discardCachedInputRatio fileNameOnly ignoreCorruptFiles "
        "ignoreMissingFiles latestFirst maxBytesPerTrigger maxCachedFiles maxFileAge maxFilesPerTrigger "
        "modifiedAfter modifiedBefore path pathGlobFilter recursiveFileLookup retention sourceArchiveDir"
    ),
}
# The days that Pope Gregory left out; ORC counts days by the calendar of before and after.
_FIRST_LEFT_OUT, _AFTER_LEFT_OUT = "1582-10-05", "1582-10-15"
# What the name of a directory has in the place of NULL.
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# The characters that an encoding lacks, of those that Spark takes.
_LACKING = {"ISO-8859-1": "[^\\x00-\\xff]", "US-ASCII": "[^\\x00-\\x7f]"}
_CHANGE = "filter such rows out or change the value in the query's last select"


def unknown_options(format_: str, options: Mapping[str, str]) -> Iterator[OptionError]:
    """Options that Spark would ignore without a word; those with a dot go to Hadoop or to the format's library."""
    encoding = next((value for name, value in options.items() if name.lower() == "encoding"), "UTF-8")
    if format_ == "text" and encoding.upper() not in ("UTF-8", "UTF8"):
        fault = f"text files are read and written in UTF-8: Spark ignores the encoding '{encoding}'"
        yield OptionError(what=fault, fix="use UTF-8 and leave the option out, or take csv, which can have an encoding")
    names = [*KNOWN_OPTIONS.get(format_, "").split(), *KNOWN_OPTIONS[""].split()]
    folded = {name.lower() for name in names}
    for option in options if format_ in KNOWN_OPTIONS else ():
        if "." not in option and option.lower() not in folded:
            yield OptionError(
                code="HR103",
                what=f"{format_} files have no option '{option}', and Spark would ignore it silently",
                fix=nearest(option, names),
                severity="warning",
            )


def write_options(format_: str, options: Mapping[str, str], form: int) -> dict[str, str]:
    """The options of Spark's writer, the user's last."""
    chosen: dict[str, str] = {}
    if format_ in ("csv", "json"):
        chosen |= _times(options)
    if format_ == "csv":
        chosen |= _BLANKS if form == PLAIN else {**_BLANKS, **_QUOTED}
    if format_ == "json":
        # A map's entry without a value would be left out.
        chosen["ignoreNullFields"] = "false"
    return {**chosen, **options}


def read_options(format_: str, options: Mapping[str, str], form: int) -> dict[str, str]:
    """The options of the reader that takes what `write_options` wrote, the user's last."""
    chosen = _times(options) if format_ in ("csv", "json") else {}
    if format_ == "csv" and form == EXACT:
        chosen |= {**_BLANKS, **_CSV_READ}
    return {**chosen, **options}


def _times(options: Mapping[str, str]) -> dict[str, str]:
    named = {name.lower() for name in options}
    return dict(JSON_TIMES) if "timestampformat" in named else {**JSON_TIMES, "timeZone": "UTC"}


def _find_lost_parts(path: str, kind: DataType, format_: str) -> Iterator[tuple[str, str]]:
    """The parts of a column that a format does not hold, with their types."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if format_ == "csv" and kind.typeName() == "binary":
        yield path, "BINARY"
    elif format_ == "json" and isinstance(kind, MapType) and not isinstance(kind.keyType, StringType):
        yield path, f"MAP with keys of {kind.keyType.simpleString().upper()}"
    elif isinstance(kind, StructType):
        for field in kind:
            yield from _find_lost_parts(f"{path}.{field.name}", field.dataType, format_)
    elif isinstance(kind, ArrayType):
        yield from _find_lost_parts(f"{path}[]", kind.elementType, format_)
    elif isinstance(kind, MapType):
        yield from _find_lost_parts(f"{path}.key", kind.keyType, format_)
        yield from _find_lost_parts(f"{path}.value", kind.valueType, format_)


def find_refused_values(
    format_: str, frame: DataFrame, partition_by: Sequence[str], options: Mapping[str, str]
) -> Iterator[RefusedValue]:
    """The values that files of a format would change, where the type alone does not decide.

    options: those of the writer.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    yield from find_refused_partitions(frame, partition_by, in_utc=options.get("timeZone") == "UTC")
    inside = [field for field in frame.schema if field.name not in partition_by]
    encoding = next((value for name, value in options.items() if name.lower() in ("encoding", "charset")), "UTF-8")
    escapes = any(name.lower() == "writenonasciicharacterascodepoint" for name in options)
    lacking = _LACKING.get(encoding.upper()) if format_ in ("csv", "json") and not escapes else None
    for field in inside:
        column, kind = F.col(f"`{field.name}`"), field.dataType
        is_text = isinstance(kind, T.StringType)
        if lacking is not None and (is_text or isinstance(kind, T.ArrayType | T.MapType | T.StructType)):
            why = f"has a character that {encoding} lacks, for which Spark would write a question mark"
            text = column if is_text else F.to_json(F.struct(column))
            yield RefusedValue(field.name, text.rlike(lacking), why, f"leave out the encoding, or {_CHANGE}")
        if format_ == "text" and is_text:
            bad = column.isNull() | column.rlike("[\r\n]") | column.startswith("\ufeff")
            why = "is NULL or holds a line break, which a line of a text file does not"
        elif format_ == "csv" and len(inside) == 1:
            bad = column.isNull() | (column.startswith("\ufeff") if is_text else F.lit(False))
            why = "is NULL, and a csv file of one column has an empty line for it, which no reader takes for a row"
        elif format_ == "csv" and is_text:
            bad, why = column.startswith("\ufeff"), "begins with a byte order mark, which csv files do not give back"
        elif format_ == "orc" and isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
            bad = (column >= F.lit(_FIRST_LEFT_OUT).cast(kind)) & (column < F.lit(_AFTER_LEFT_OUT).cast(kind))
            why = "lies in the ten days of October 1582 that ORC's calendar leaves out"
        else:
            continue
        yield RefusedValue(field.name, bad, why, f"{_CHANGE}, or choose parquet")


def find_refused_partitions(
    frame: DataFrame, partition_by: Sequence[str], *, in_utc: bool = False, signed_years: bool = True
) -> Iterator[RefusedValue]:
    """The values that the name of a directory would change: Hive's one for NULL is the one for an empty text too.

    in_utc: whether times stand there in UTC. signed_years: whether years before the first one come back.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType, TimestampType

    folded = {name.lower() for name in partition_by}
    for field in frame.schema if folded else ():
        column, kind = F.col(f"`{field.name}`"), field.dataType
        text = column.cast("string")
        if field.name.lower() not in folded:
            continue
        if isinstance(kind, StringType | BinaryType):
            bad = (text == "") | (text == _HIVE_NULL)
            why = f"is empty or '{_HIVE_NULL}', which the name of a directory holds for NULL"
            yield RefusedValue(field.name, bad, why, f"{_CHANGE}, or partition by another column")
            bad = ~F.is_valid_utf8(text) | (F.locate("\0", text) > 0)
            why = "holds a zero character or no valid UTF-8, which the name of a directory does not"
        elif isinstance(kind, TimestampType):
            bad = F.lit(False) if in_utc else text.cast(kind) != column
            bad = bad if signed_years else bad | (column < F.lit("0001-01-01 00:00:00Z").cast(kind))
            why = "is a time that its text in the session's time zone does not keep, as in the hour that comes twice"
        else:
            continue
        yield RefusedValue(field.name, bad, why, f"{_CHANGE}, or partition by another column")


def refuse_values(frame: DataFrame, refused: Iterable[RefusedValue]) -> DataFrame:
    """The frame, whose computation fails at the first value that is refused."""
    from pyspark.sql import functions as F

    refused = list(refused)
    columns = []
    for field in frame.schema:
        column = F.col(f"`{field.name}`")
        for value in refused:
            if value.column == field.name:
                # As a fault of Headrace that comes out of Spark is written, so that its message shows it as one.
                message = f"\nheadrace.errors.SinkError: headrace HR440: {value.what}\n  fix: {value.fix}\n"
                column = F.when(value.condition, F.raise_error(F.lit(message)).cast(field.dataType)).otherwise(column)
        columns.append(column.alias(field.name))
    return frame.select(*columns) if refused else frame


def result_findings(frame: DataFrame, format: str, partition_by: Sequence[str], query: str) -> Iterator[Finding]:
    """Find what keeps a query's result from being kept in files of a format, in directories by some of its columns.

    Spark would report most of it in the first batch only.
    """
    yield from partition_findings(partition_by, frame.columns, query)
    result = f"the result of query '{query}'"
    yield from same_names(frame.columns, query)
    fields = [field for field in frame.schema.fields if field.name not in partition_by]
    file_format = f"{format}.{'CSV' if format == 'csv' else format.capitalize()}FileFormat"
    for field in fields:
        if not can_hold_column(frame, field.name, file_format):
            fault = f"column '{field.name}' is {field.dataType.simpleString()}, which files of {format} cannot hold"
            fix = "cast it to another type in the query's last select"
            yield Finding(code="HR404", what=f"{result}: {fault}", fix=fix)
        for path, kind in _find_lost_parts(field.name, field.dataType, format):
            fault = f"{format} files do not give back column '{path}' of {result}, a {kind}"
            fix = "choose format parquet, or select it in another type, for example as text"
            yield Finding(code="HR404", what=fault, fix=fix)
    if format == "text" and len(fields) != 1:
        names = ", ".join(field.name for field in fields)
        fault = f"a file of text holds one column, and there are {len(fields)}: {names}"
        fix = "join them to one text by concat_ws, or choose another format"
        yield Finding(code="HR404", what=f"{result}: {fault}", fix=fix)
