"""What a connector gets that writes two members only, and what follows from what it overrides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from headrace.checks.structure import check_structure
from headrace.contract import (
    OptionError,
    ProjectPath,
    Sink,
    SinkContext,
    SinkFacts,
    Snapshot,
    Source,
    SourceFacts,
    SourcePrefix,
    Writer,
    readable_back,
)
from headrace.errors import SinkError, SourceError
from headrace.model import NamedSource as Declared
from headrace.model import Project, Query, SqlTransform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.plain
NO_SESSION: Any = None
CONTEXT = SinkContext(query="q", generation=1, mode="append", checkpoint=Path("checkpoint"))


@dataclass(frozen=True, kw_only=True)
class Few(Source):
    facts: ClassVar[SourceFacts] = SourceFacts(replayable=True)

    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Drop(Sink):
    facts: ClassVar[SinkFacts] = SinkFacts(modes=frozenset({"append"}), transactional=False, idempotent=True)
    path: ProjectPath = "out"

    def open(self, frame: DataFrame, context: SinkContext) -> Writer:
        raise NotImplementedError


class Readable(Few):
    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        raise NotImplementedError


class Kept(Drop):
    def read_back(self, spark: SparkSession, context: SinkContext) -> Snapshot:
        raise NotImplementedError


def test_a_fact_follows_from_what_is_overridden() -> None:
    assert (Few().readable_as_batch, Readable().readable_as_batch) == (False, True)
    assert (Few().quarantines, Readable().quarantines) == (False, False)
    assert (readable_back(Drop()), readable_back(Kept()), Kept().corrections) == (False, True, None)


def test_what_is_not_written_is_refused_in_a_sentence() -> None:
    with pytest.raises(SourceError, match="HR433: what the source Few has given cannot be read again"):
        Few().read(NO_SESSION, SourcePrefix(batches=()))
    with pytest.raises(SinkError, match="HR402: what the sink Drop was given cannot be read back"):
        Drop().read_back(NO_SESSION, CONTEXT)
    assert [fault.code for fault in Drop().problems("update")] == ["HR403"]


def test_the_path_of_the_project_is_found_by_its_type() -> None:
    assert (Drop().project_path, Few().project_path) == ("out", None)


def test_a_schema_that_is_declared_is_what_a_watermark_is_checked_by(tmp_path: Path) -> None:
    """Whatever the option that holds it is called."""
    from headrace.model import Duration, Watermark

    class Columns(Few):
        def declared_schema(self) -> str:
            return "id BIGINT, at TIMESTAMP"

        def problems(self) -> Any:
            yield OptionError(code="HR113", what="it is slow", severity="warning")

    def project(column: str) -> Project:
        mark = Watermark(column=column, delay=Duration.parse("1 hour"))
        declared = Declared(name="in", kind="columns", connector=Columns(), watermark=mark)
        transform = SqlTransform(sql="SELECT * FROM `in`", inputs=("in",))
        query = Query(name="q", transform=transform, sink=Drop(path=str(tmp_path)), sink_kind="drop")
        return Project(name="p", root=tmp_path, sources={"in": declared}, queries={"q": query})

    assert [finding.code for finding in check_structure(project("at"))] == ["HR113"]
    assert {finding.code for finding in check_structure(project("id"))} == {"HR113", "HR218"}
