"""Files read as texts that are parsed and judged by themselves, where Spark's own readers change what is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headrace.connectors.files.options import FilesOptions
from headrace.connectors.values import json_rows
from headrace.connectors.values.exact import Exact
from headrace.connectors.values.rules import CORRUPT_RECORD, PLACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

_TEXT = "_headrace_text"


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
