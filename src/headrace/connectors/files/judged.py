"""The rows of a file source as its reader gives them: what may be wrong with them, and their values."""

from __future__ import annotations

from collections.abc import Container, Hashable
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.connectors.files import rows as file_rows
from headrace.connectors.files.exact import Exact
from headrace.connectors.files.options import CORRUPT_RECORD, FilesOptions


class Judged:
    """The rows `frame` of a source, by the `schema` of its reader; `besides`: columns that are not of the files."""

    def __init__(
        self, source: FilesOptions, frame: DataFrame, schema: StructType | None, besides: tuple[str | None, ...] = ()
    ) -> None:
        self.source, self.frame, self.schema = source, frame, schema
        self.zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
        self.exact = Exact(source, self.zone)
        self.fields = [each for each in schema or () if each.name != CORRUPT_RECORD]
        self.columns = [name for name in frame.columns if name not in (CORRUPT_RECORD, *besides)]

    @property
    def rules(self) -> tuple[Hashable, ...]:
        """All that the expressions follow from."""
        source, shape = self.source, None if self.schema is None else self.schema.json()
        options = sorted(source.options.items())
        return (source.format, source.inexact, source.schema, *options, self.zone, shape, self.frame.schema.json())

    def checked(self) -> list[Column]:
        """The columns with their declared types, each of which fails at a fault; none where nothing can be wrong."""
        columns = {
            each.name: self.exact.checked(each.name, F.col(f"`{each.name}`"), each.dataType) for each in self.fields
        }
        refused = {name: column for name, column in columns.items() if column is not None}
        faults = self._faults(besides=refused)
        return file_rows.refuse({**self._values(), **refused}, faults) if faults or refused else []

    def converted(self) -> list[Column]:
        """The columns with their declared types."""
        return [value.alias(name) for name, value in self._values().items()]

    def good(self, metric: str) -> DataFrame:
        """The rows that do not break the schema; the others are counted under `metric`."""
        return self._counted(metric).where(~self._is_bad()).select(*self.converted())

    def bad(self, metric: str) -> DataFrame:
        """The rows that break the schema, as (file, record, batch), counted as well."""
        columns = F.struct(*[F.col(f"`{name}`") for name in self.columns])
        record = F.coalesce(F.col(CORRUPT_RECORD), F.to_json(columns))
        return self._counted(metric).where(self._is_bad()).select("file", record.alias("record"), "batch")

    def _values(self) -> dict[str, Column]:
        values = {name: F.col(f"`{name}`") for name in self.frame.columns if name != CORRUPT_RECORD}
        for each in self.fields:
            values[each.name] = self.exact.value(values[each.name], each.dataType)
        return values

    def _faults(self, besides: Container[str] = ()) -> list[tuple[str, file_rows.Fault]]:
        """What may be wrong with a row, each with its column; of those in `besides` the conversion is not judged."""
        required = [each.name for each in self.fields if not each.nullable]
        kinds = [(each.name, each.dataType.simpleString()) for each in self.fields] or self.frame.dtypes
        found = list(file_rows.unfit(kinds, self.source.format, required, self.source.options))
        if not self.exact.is_asked:
            return found
        for each in self.fields:
            if self.exact.judges(each.dataType) and each.name not in besides:
                text = F.col(f"`{each.name}`")
                said = self.exact.described(each.name, text, each.dataType)
                found.append((each.name, (said, self.exact.is_bad(text, each.dataType))))
        return [*found, *file_rows.changed(StructType(self.fields), self.source.format, self.source.options)]

    def _is_bad(self) -> Column:
        # A question that NULL does not answer is no fault, and the row stays.
        faults = [F.coalesce(bad, F.lit(False)) for _, (_, bad) in self._faults()]
        return reduce(or_, faults, F.col(CORRUPT_RECORD).isNotNull())

    def _counted(self, metric: str) -> DataFrame:
        """The rows; how many break the schema, and of how many no column could be read, is counted.

        The second names every column; Spark's reader would otherwise judge a row by the columns in use only.
        """
        unreadable = F.col(CORRUPT_RECORD).isNotNull()
        for name in self.columns:
            unreadable = unreadable & F.col(f"`{name}`").isNull()
        counts = F.count_if(self._is_bad()).alias("rows"), F.count_if(unreadable).alias("unreadable")
        return self.frame.observe(metric, *counts)
