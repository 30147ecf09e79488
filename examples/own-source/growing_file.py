"""A source that reads a file to which lines are added; Spark's own file source takes whole files only."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

HOME = Path(__file__).parent


class Lines(SimpleDataSourceStreamReader):
    """Offsets count the lines; the lines between two offsets are always the same."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def initialOffset(self) -> dict[str, int]:
        return {"lines": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str]], dict[str, int]]:
        end = {"lines": self.file.read_bytes().count(b"\n")}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[str]]:
        with self.file.open() as lines:
            # Spark copies the iterator, which a generator would not allow.
            return iter([(line.rstrip("\n"),) for line in islice(lines, start["lines"], end["lines"])])


class GrowingFile(DataSource):
    """Reads the file that the option `file` names, a path from this project's directory."""

    def schema(self) -> str:
        return "line STRING"

    def simpleStreamReader(self, schema: StructType) -> Lines:
        return Lines(HOME / self.options["file"])
