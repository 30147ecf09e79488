"""Findings that are raised seldom, each by the smallest case that raises it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import headrace
from headrace.checkpoint import Checkpoint
from headrace.checkpoint.durability import sync_commits
from headrace.connectors.delta.source import Delta
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.rate.source import Rate
from headrace.connectors.spark_files import prefix as file_prefix
from headrace.contract import Source, SourceBatch, SourceFacts, SourcePrefix
from headrace.errors import Finding, HeadraceError
from headrace.model import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Seen = Sequence[Any]


def project(root: Path, *, query: str = "sink: console", top: str = "") -> Project:
    (root / "headrace.yml").write_text(
        f"name: p\n{top}\nsources:\n  ticks: {{rate: 5}}\n"
        f"queries:\n  shown: {{select: SELECT value FROM ticks, {query}}}\n"
    )
    return headrace.load(root)


def findings_of_error(work: Callable[[], object]) -> Seen:
    """The findings of the error that `work` ends with."""
    with pytest.raises(HeadraceError) as caught:
        work()
    return caught.value.findings


def check_project(root: Path, **parts: str) -> Seen:
    return headrace.check(project(root, **parts), spark=False).findings


# ---------------------------------------------------------------------------------------------------- without Spark


def no_directory(root: Path) -> Seen:
    from headrace.demo.starter import write_project

    (root / "file").touch()
    return findings_of_error(lambda: write_project(root / "file" / "p"))


def no_starter(root: Path) -> Seen:
    from headrace.declare.declarations import DeclaredQuery

    query = project(root) and headrace.query(sink=headrace.sink.console())(lambda ticks: ticks)
    before, DeclaredQuery.starter = DeclaredQuery.starter, None
    try:
        return findings_of_error(lambda: query.start(None))
    finally:
        DeclaredQuery.starter = before


def no_session(root: Path) -> Seen:
    from headrace.spark.jvm.preconditions import start_error

    return start_error(
        RuntimeError("java.lang.IllegalArgumentException: System memory must be larger"), "local"
    ).findings


def no_entry_of_the_log(root: Path) -> Seen:
    prefix = SourcePrefix(batches=(SourceBatch(batch=0, start=None, end='{"logOffset": 0}'),), log={})
    return findings_of_error(lambda: file_prefix.files(prefix))


def no_creation_of_the_rate(root: Path) -> Seen:
    prefix = SourcePrefix(batches=(SourceBatch(batch=0, start=None, end="3"),), log={})
    return findings_of_error(lambda: Rate()._creation_ms(prefix))


def no_disk(root: Path) -> Seen:
    sync = sync_commits(Checkpoint(root / "checkpoint"))
    (root / "checkpoint/offsets").mkdir(parents=True)
    (root / "checkpoint/offsets/0").write_text("v1")

    def full(_: int) -> NoReturn:
        raise OSError(5, "Input/output error")

    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(os, "fsync", full)
        return findings_of_error(lambda: sync(0))  # type: ignore[misc]


def no_archive(root: Path) -> Seen:
    from headrace.runner.batch_records import Notes

    reported: list[Finding] = []

    class Watching:
        note = staticmethod(reported.append)

    def full() -> NoReturn:
        raise OSError(28, "No space left on device", "archive")

    declared = project(root)
    notes = Notes(declared, Watching())  # type: ignore[arg-type]
    for _ in range(3):  # As after each batch.
        notes.guard(declared.queries["shown"], full)
    notes.close()
    assert len(reported) == 1
    return reported


def no_input(root: Path) -> Seen:
    from headrace.errors import NOWHERE
    from headrace.frames import plan_builder

    builder = plan_builder._Builder(project(root), None, None, {})  # type: ignore[arg-type]
    return findings_of_error(lambda: builder.resolve("tick", NOWHERE))


def no_reading_back(root: Path) -> Seen:
    from headrace.verifier import proof

    return list(proof._check_sink(project(root).queries["shown"]))


def no_second_read(root: Path) -> Seen:
    class Fleeting(Source):
        facts = SourceFacts(replayable=False)

        def stream(self, spark: SparkSession, name: str) -> NoReturn:
            raise NotImplementedError

    return findings_of_error(lambda: Fleeting().read(None, SourcePrefix(batches=())))  # type: ignore[arg-type]


def a_beginning(root: Path, generation: int = 1) -> Seen:
    from headrace.starter import prepare

    (root / "headrace.yml").write_text(
        "name: p\nsources:\n  orders: {kafka: {bootstrap_servers: 'a:1', subscribe: orders}}\n"
        "queries:\n  shown: {select: SELECT * FROM orders, sink: console}\n"
    )
    declared = headrace.load(root)
    query = declared.queries["shown"]
    return list(prepare._beginnings(query, declared.sources_of(query), generation))


PLAIN: dict[str, tuple[str, Callable[[Path], Seen], str]] = {
    "a project in a file": ("HR093", no_directory, "Not a directory"),
    "half of Headrace imported": ("HR122", no_starter, "no part of Headrace"),
    "a JVM that refuses": ("HR127", no_session, "System memory must be larger"),
    "a misspelt setting": (
        "HR103",
        lambda root: check_project(root, top="spark: {spark.sql.shufle.partitions: 8}"),
        "spark.sql.shuffle.partitions",
    ),
    "the first start of a topic": ("HR131", a_beginning, "starts for the first time"),
    "the first start of a rebuild": ("HR131", lambda root: a_beginning(root, 2), "starts generation 2"),
    "an input that no check has seen": ("HR204", no_input, "'tick'"),
    "a continuous query": (
        "HR263",
        lambda root: check_project(root, query="sink: console, trigger: {continuous: 1 s}"),
        "twice",
    ),
    "a gap in the log of files": ("HR509", no_entry_of_the_log, "no entry 0"),
    "no log of a rate": ("HR509", no_creation_of_the_rate, "the time of its creation"),
    "Kafka without a stop at lost data": (
        "HR337",
        lambda root: list(Kafka(bootstrap_servers="a:1", subscribe="t", fail_on_data_loss=False).problems()),
        "messages that go before they are read",
    ),
    "Delta without a stop at lost data": (
        "HR337",
        lambda root: list(Delta(path="t", fail_on_data_loss=False).problems()),
        "versions that go before they are read",
    ),
    "a disk that fails": ("HR421", no_disk, "Input/output error"),
    "a full disk next to the stream": ("HR544", no_archive, "No space left on device"),
    "a source that gives its rows once": ("HR433", no_second_read, "Fleeting"),
    "a sink without a reader": ("HR402", no_reading_back, "'console'"),
}


@pytest.mark.plain
@pytest.mark.parametrize(("code", "case", "says"), PLAIN.values(), ids=PLAIN)
def test_without_spark(code: str, case: Callable[[Path], Seen], says: str, tmp_path: Path) -> None:
    assert [says in finding.what + finding.fix for finding in case(tmp_path) if finding.code == code] == [True]


# ------------------------------------------------------------------------------------------------------- with Spark


def refusal(work: Callable[[], object]) -> Seen:
    """The finding of what Spark raises."""
    from headrace.spark.messages.refusals import finding_of

    with pytest.raises(Exception) as caught:  # noqa: PT011
        work()
    return [finding_of(caught.value)]


def no_files(spark: SparkSession, root: Path) -> Seen:
    from headrace.connectors.files.source import Files

    (root / "in").mkdir()
    return findings_of_error(lambda: Files(path=str(root / "in"), format="json", infer_schema=True).stream(spark, "s"))


def no_memory(spark: SparkSession, root: Path) -> Seen:
    from headrace.connectors.memory.sink import Memory
    from headrace.contract import SinkContext

    context = SinkContext(query="other", generation=1, mode="append", checkpoint=root, fingerprint="")
    return findings_of_error(lambda: Memory().read_back(spark, context))


def no_delta(spark: SparkSession, root: Path) -> Seen:
    from headrace.connectors.delta.table import require_delta
    from headrace.errors import SourceError

    return findings_of_error(lambda: require_delta(spark, SourceError))


def otherwise_alone() -> object:
    from pyspark.sql import functions as F

    return F.lit(1).otherwise(2)


SPARK: dict[str, tuple[str, Callable[[SparkSession, Path], Seen], str]] = {
    "no such table": ("HR215", lambda spark, _: refusal(lambda: spark.sql("SELECT * FROM nowhere")), "nowhere"),
    "another type": ("HR218", lambda spark, _: refusal(lambda: spark.sql("SELECT sum(array(1))")), "sum"),
    "what has no condition": ("HR220", lambda spark, _: refusal(otherwise_alone), "otherwise"),
    "no stream": ("HR252", lambda spark, _: refusal(lambda: spark.range(1).writeStream), "stream"),
    "no file to infer from": ("HR332", no_files, "no schema can be inferred"),
    "a session that another one has filled": ("HR402", no_memory, "no table 'other'"),
    "a session without Delta": ("HR125", no_delta, "spark.sql.extensions"),
}


@pytest.mark.spark
@pytest.mark.parametrize(("code", "case", "says"), SPARK.values(), ids=SPARK)
def test_with_spark(
    code: str, case: Callable[[SparkSession, Path], Seen], says: str, spark: SparkSession, tmp_path: Path
) -> None:
    findings = case(spark, tmp_path)
    assert [(finding.code, says in finding.what) for finding in findings] == [(code, True)]
