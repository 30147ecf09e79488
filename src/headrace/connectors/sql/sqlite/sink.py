"""Write the result into a table of a SQLite file, exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import contract
from headrace.connectors.exactly_once import misfits
from headrace.connectors.sql.sink import DatabaseSink
from headrace.connectors.sql.sqlite.dialect import BUSY_SECONDS, SqliteDialect
from headrace.errors import Finding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Sqlite(DatabaseSink):
    """Write a table in the SQLite file `path`; each batch is one transaction with its line in the ledger.

    append inserts rows (a `key` makes a second row of one key a fault), update replaces the row with the same `key`,
    complete replaces the whole table. Readers in other processes see whole batches only. Timestamps are ISO 8601 texts
    in UTC with microseconds, dates ISO texts, nested values JSON; NaN is the text 'NaN', which SQLite, like Spark,
    sorts after every number. A decimal of up to 15 digits is a number, a longer one exact text.

    Tasks of a local Spark write large batches into files next to `path`; on a cluster all rows go through the driver.
    """

    path: contract.ProjectPath

    def dialect(self) -> SqliteDialect:
        return SqliteDialect(self.path, busy_seconds=min(BUSY_SECONDS, max(self.retry_seconds, 0.1)))

    @property
    def location(self) -> contract.SinkLocation:
        # SQLite sees no case in names.
        return replace(super().location, name=self.table.lower())

    def identity(self) -> contract.Identity:
        return {"system": "sqlite", "path": contract.canonical_path(self.path), "table": self.table.lower()}

    def system(self) -> str:
        return self.path

    def check_connection(self, frame: DataFrame, context: contract.SinkContext) -> Iterator[Finding]:
        """Yield what does not fit; a file that is not there yet is made by the first start."""
        if Path(self.path).exists():
            yield from super().check_connection(frame, context)
        else:
            yield from misfits(context, self.table, tuple)

    def is_there(self) -> bool:
        return Path(self.path).exists()

    def problems(self, mode: contract.OutputMode) -> Iterator[contract.OptionError]:
        yield from super().problems(mode)
        if ":memory:" in self.path or not self.path:
            fault = "its path names no file, so that nothing of it would be kept"
            yield contract.OptionError(what=fault, fix="name a file, as results.db")
        elif os.path.isdir(self.path):
            yield contract.OptionError(what=f"its path {self.path} is a directory", fix="name a file, as results.db")
        if self.table.lower().startswith("sqlite_"):
            fault = f"a result table may not be called '{self.table}'"
            yield contract.OptionError(what=fault, fix="choose another name")
