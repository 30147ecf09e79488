"""Two sources as a user would write them: the lines of numbered files, by offsets that count the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType


def rows(home: Path, number: int) -> Iterator[tuple[int, str]]:
    for line in (home / f"{number}.txt").read_text().splitlines():
        yield number, line


class Reader(DataSourceStreamReader):
    def __init__(self, home: Path) -> None:
        self.home = home

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"files": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {"files": len(list(self.home.glob("*.txt")))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["files"], end["files"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return rows(self.home, partition.value)


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, home: Path) -> None:
        self.home = home

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"files": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        end = {"files": len(list(self.home.glob("*.txt")))}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        return iter([row for number in range(start["files"], end["files"]) for row in rows(self.home, number)])


class Tickets(DataSource):
    def schema(self) -> str:
        return "file INT, text STRING"

    def streamReader(self, schema: StructType) -> Reader:  # noqa: N802
        return Reader(Path(self.options["home"]))


class SimpleTickets(DataSource):
    def schema(self) -> str:
        return "file INT, text STRING"

    def simpleStreamReader(self, schema: StructType) -> SimpleReader:  # noqa: N802
        return SimpleReader(Path(self.options["home"]))
