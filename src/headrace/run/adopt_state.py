"""The state of another program's checkpoint, compared with what Spark would keep for the query as it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.build.plan_builder import build
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.handover import EVOLUTION
from headrace.checkpoint.repartitions import PARTITIONS
from headrace.checkpoint.state_schema import OperatorSchema, schema_differences, state_schema
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.model import Project, Query, Source
from headrace.run.state_store import begun_with
from headrace.spark.messages import finding_of
from headrace.spark.settings import is_local
from headrace.spark.state_probe import placeholder, probe
from headrace.storage.private import scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def state_misfits(
    project: Project, query: Query, spark: SparkSession, old: Checkpoint, *, stateful: bool
) -> Iterator[Finding]:
    """Each difference between the state that `old` holds and that of `query`; `stateful`: it may keep any."""
    there = state_schema(old)
    needed = _needed(project, query, spark, old) if stateful else {}
    for difference in schema_differences(there, needed):
        yield Finding(
            code="HR594",
            what=f"the state of the checkpoint is not that of query '{query.name}': {difference}",
            fix="write the query as the former job has it, with the same keys and aggregates in the same order and "
            "under the same names",
            where=query.where,
        )


def _needed(project: Project, query: Query, spark: SparkSession, old: Checkpoint) -> dict[int, OperatorSchema]:
    """What Spark would keep, under the settings that it has pinned in `old`."""
    # Executors elsewhere see the project's storage, and not this machine's own directories.
    local = is_local(spark.sparkContext.master or "")
    if not local:
        project.storage.mkdir(parents=True, exist_ok=True)
    with scratch(None if local else project.storage) as home:

        def read(source: Source) -> DataFrame:
            return placeholder(spark, source.name, source.connector.stream(spark, source.name), home)

        settings = {**begun_with(old), EVOLUTION: "true", PARTITIONS: "1"}
        try:
            made = probe(spark, lambda: build(project, query.transform, spark, read), query.mode, home, settings)
            return state_schema(Checkpoint(made))
        except HeadraceError:
            raise
        except Exception as error:
            subject = f"query '{query.name}', over no rows and with the settings of the checkpoint"
            raise CheckFailed(finding_of(error, where=query.where, subject=subject)) from error
