"""Files read as texts that are parsed and judged by themselves, where Spark's own readers change what is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headrace.connectors.files.options import FilesOptions
from headrace.connectors.values import json_rows
from headrace.connectors.values.exact import Exact
from headrace.connectors.values.rules import CORRUPT_RECORD, PLACE, RECORD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

_TEXT, _MORE = "_headrace_text", "_headrace_more"


def add_place(frame: DataFrame) -> DataFrame:
    """The rows of files with the place of each."""
    return frame.select("*", F.col("_metadata.file_path").alias(PLACE))


def restore_bytes(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows of csv that was read in Latin-1, with the bytes of each text of these columns as they were written."""
    texts = [column.name for column in frame.schema if column.name in names and isinstance(column.dataType, StringType)]
    return frame.select(*[_bytes(name).alias(name) if name in texts else F.col(f"`{name}`") for name in frame.columns])


def read(
    source: FilesOptions,
    reader: Reader,
    schema: StructType,
    load: Callable[[Reader], DataFrame],
    besides: tuple[str, ...],
) -> DataFrame:
    """The columns of json files that `load` gives, of which the texts are parsed here, and `besides`.

    A text is judged as strictly as the stream's reader does.
    """
    declared = [column for column in schema if column.name != CORRUPT_RECORD]
    lines = reader.format("text").options(**_line_options(source))
    frame = load(lines.schema(StructType([StructField(_TEXT, StringType())])))
    others = {name.lower() for name in frame.columns} - {_TEXT, *(name.lower() for name in besides)}
    if parts := [column for column in declared if column.name.lower() in others]:
        # Key=value directories have columns of the types that are declared.
        shape: StructType = Exact(source.rules, "").as_text(StructType(parts))
        frame = load(lines.schema(StructType([StructField(_TEXT, StringType()), *shape])))
    names: list[str] = [column.name for column in parts]
    kept = [*names, *besides]
    columns = [F.col(f"`{name}`") for name in kept]
    spark = frame.sparkSession
    encoding = source.encoding if source.encoding != "UTF8" else "UTF-8"
    parsed = json_rows.split_texts(spark, F.col(_TEXT), encoding, source.rules)
    split = frame.select(*columns, parsed.alias(_TEXT)).select(*columns, F.explode(_TEXT).alias(_TEXT))
    body = StructType([column for column in declared if column.name not in names])
    text = F.col(_TEXT).cast("binary")
    rows: DataFrame = json_rows.read_json(split, text, body, source.rules, keep=kept, strict=source.reads_texts)
    shown: list[str] = [column.name for column in declared]
    return rows.select(*[f"`{name}`" for name in (*shown, *(name for name in rows.columns if name not in shown))])


def read_csv(
    source: FilesOptions,
    reader: Reader,
    schema: StructType,
    load: Callable[[Reader], DataFrame],
    options: Mapping[str, str],
) -> DataFrame:
    """The columns of csv files that `load` gives, and the text of each row as RECORD.

    Spark's reader gives the text of a row only where the row has another number of fields than the schema. So the files
    are read twice, with one column and with two columns more than they have, and the texts are parsed here.

    Args:
        options: Those of Spark's reader.
    """
    shape: StructType = Exact(source.rules, "").as_text(StructType([f for f in schema if f.name != CORRUPT_RECORD]))
    parts = [_read_longer(reader, shape, load, options, more) for more in (1, 2)]
    rows = parts[0].unionByName(parts[1])
    return restore_bytes(rows, [*schema.names, RECORD]) if source.reads_bytes else rows


def _read_longer(
    reader: Reader, shape: StructType, load: Callable[[Reader], DataFrame], options: Mapping[str, str], more: int
) -> DataFrame:
    """The rows with one field more than `shape` has (more: 2), or all others (more: 1)."""
    corrupt = StructField(CORRUPT_RECORD, StringType())
    added: list[StructField] = [StructField(f"{_MORE}{number}", StringType()) for number in range(more)]
    # The stream's reader has compared the header.
    longer = reader.format("csv").option("enforceSchema", "true").schema(StructType([*shape, *added, corrupt]))
    frame = load(longer)
    # Behind these come the columns of key=value directories.
    body: list[StructField] = frame.schema.fields[: frame.columns.index(added[0].name)]
    texts: list[StructField] = [StructField(f"_{number}", StringType()) for number in range(len(body) + 1)]
    # Spark refuses a query that reads of a file the text alone.
    text = F.coalesce(CORRUPT_RECORD, added[0].name)
    has_one_more = _parse_csv(text, StructType([*texts, corrupt]), options).getField(CORRUPT_RECORD).isNull()
    rows = frame.where(F.col(CORRUPT_RECORD).isNotNull() & (has_one_more if more == 2 else ~has_one_more))
    names = [name for name in frame.columns[len(body) :] if name != CORRUPT_RECORD and not name.startswith(_MORE)]
    others = [f"`{name}`" for name in names]
    parsed = _parse_csv(text, StructType([*body, corrupt]), options).alias(_TEXT)
    return rows.select(parsed, *others, text.alias(RECORD)).select(f"{_TEXT}.*", *others, RECORD)


def _parse_csv(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    return F.from_csv(text, schema.toDDL(), dict(options))


def _line_options(source: FilesOptions) -> dict[str, str]:
    """Spark's reader of texts looks for the bytes that end a line of the encoding, or takes a file as one text."""
    if source.is_multi_line:
        return {"wholetext": "true"}
    separator = next((value for name, value in source.options.items() if name.lower() == "linesep"), "\n")
    with suppress(LookupError, ValueError):
        encoded = separator.encode(source.encoding)
        if encoded != b"\n":
            return {"lineSep": encoded.decode("utf-8")}
    return {}


def _bytes(name: str) -> Column:
    text = F.col(f"`{name}`")
    is_ascii = F.length(text) == F.octet_length(text)
    # A key=value directory gives its text as it is.
    is_of_directory = F.col(PLACE).contains(f"/{name}=")
    return F.when(is_ascii | is_of_directory, text).otherwise(F.encode(text, "ISO-8859-1").cast("string"))
