"""A streaming query of Spark as the product sees one: what it logs, in which order, and what it makes again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.checkpoint.directory import numbered_files
from headrace.connectors.sql.staging import Content, Stage
from headrace.contract import Source, SourceFacts
from headrace.storage.remote import at

from .scheduler import Crashed, Scheduler

SCHEMA = StructType([StructField("name", StringType()), StructField("total", LongType())])
SOURCE = "events"


class Given(Stage):
    """A stage whose rows are those of the batch: how they are computed is not a part of the protocol."""

    def reads_little(self, frame: Any) -> bool:
        return True

    def compute_small(self, frame: Any) -> Content | None:
        return Content(table=frame.table)


@dataclass
class Input:
    """Files that come one after the other; a reader sees those that have come."""

    scheduler: Scheduler
    count: int

    def name(self, number: int) -> str:
        return f"f{number:03d}"

    @property
    def names(self) -> list[str]:
        return [self.name(number) for number in range(self.count)]


@dataclass(frozen=True, kw_only=True)
class ModelSource(Source):
    """A directory of files."""

    facts = SourceFacts(replayable=True)

    def stream(self, spark: Any, name: str) -> Any:
        raise AssertionError("the model builds no plan")


class Conf(dict[str, str]):
    """A session's settings."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        self.pop(key, None)

    def isModifiable(self, key: str) -> bool:  # noqa: N802
        return True


class Context:
    """As much of a SparkContext as a start asks for."""

    master, defaultParallelism = "local[2]", 2  # noqa: N815

    def getLocalProperty(self, name: str) -> None:  # noqa: N802
        return None

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        return None


@dataclass
class Session:
    """In place of a SparkSession.

    most: how many batches a query makes before it ends. polls: how often it looks again where there is nothing new.
    interval: the seconds between two batches.
    """

    scheduler: Scheduler
    input: Input
    most: int = 100
    polls: int = 0
    interval: float = 0.0
    version: str = "4.2.0"
    conf: Conf = field(default_factory=Conf)
    sparkContext: Context = field(default_factory=Context)  # noqa: N815


@dataclass
class Frame:
    """In place of the DataFrame of the result; of one batch, with its rows."""

    sparkSession: Session  # noqa: N815
    table: Any = None
    schema: StructType = SCHEMA

    def toArrow(self) -> pa.Table:  # noqa: N802
        """The rows as messages, for a sink that takes such."""
        return pa.table({"value": pa.array([json.dumps(row) for row in self.table.to_pylist()], pa.string())})

    @property
    def columns(self) -> list[str]:
        return [str(name) for name in SCHEMA.names]

    @property
    def writeStream(self) -> Builder:  # noqa: N802
        return Builder(self)


class Builder:
    """In place of a DataStreamWriter."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.root = Path()
        self.once = False
        self.take: Callable[[Any, int], None] | None = None

    def queryName(self, name: str) -> Builder:  # noqa: N802
        return self

    def outputMode(self, mode: str) -> Builder:  # noqa: N802
        return self

    def option(self, name: str, value: str) -> Builder:
        from headrace.storage.remote import RemotePath

        self.root = RemotePath(value)
        return self

    def trigger(self, *, once: bool = False, **_: Any) -> Builder:
        self.once = once
        return self

    def foreachBatch(self, take: Callable[[Any, int], None]) -> Builder:  # noqa: N802
        self.take = take
        return self

    def start(self) -> Handle:
        session = self.frame.sparkSession
        assert self.take is not None
        handle = Handle(session, Execution(session, self.root, self.take, 1 if self.once else session.most))
        session.scheduler.spawn(session.scheduler.process, "stream", handle.run)
        return handle


@dataclass(eq=False)
class Handle:
    """In place of a StreamingQuery."""

    session: Session
    execution: Execution
    fault: Exception | None = None
    ended: bool = False

    @property
    def runId(self) -> str:  # noqa: N802
        return "run"

    def run(self) -> None:
        try:
            self.execution.run()
        except Crashed:
            raise
        except Exception as error:
            self.fault = error
        self.ended = True

    def awaitTermination(self) -> None:  # noqa: N802
        self.session.scheduler.wait(lambda: self.ended, None)
        if self.fault is not None:
            raise self.fault

    def exception(self) -> Exception | None:
        return self.fault

    def stop(self) -> None:
        self.execution.stopped = True


class AnotherDriver(Exception):
    """Spark found an entry in its log that it was about to write."""


@dataclass(eq=False)
class Execution:
    """Spark's MicroBatchExecution over a source of files, as far as its logs and its sink see it."""

    session: Session
    root: Path
    take: Callable[[Any, int], None]
    most: int
    stopped: bool = False

    def run(self) -> None:
        self._begin()
        planned, committed = max(self._log("offsets"), default=None), max(self._log("commits"), default=None)
        batch = 0
        constructed = False
        start = end = -1
        if planned is not None:
            batch, end = planned, self._offset(planned)
            if planned > 0:
                start = self._offset(planned - 1)
            if committed is not None and committed >= planned:
                batch, start = planned + 1, end
            else:
                constructed = True
        files = {number: self._entry(number) for number in self._log(f"sources/{SOURCE}")}
        for _ in range(self.most):
            if not constructed:
                end = self._latest(start, files)
                for _ in range(self.session.polls if end == start else 0):
                    self.session.scheduler.sleep(max(self.session.interval, 1.0))
                    end = self._latest(start, files)
                if self.stopped or end == start:
                    return
                self._add(
                    "offsets",
                    batch,
                    f'v2\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{SOURCE}:{{"logOffset":{end}}}',
                )
            names = [name for number in range(start + 1, end + 1) for name in files[number]]
            table = pa.table(
                {"name": pa.array(names, pa.string()), "total": pa.array([batch] * len(names), pa.int64())}
            )
            self.take(Frame(self.session, table), batch)
            self._add("commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')
            batch, start, constructed = batch + 1, end, False
            if self.session.interval:
                self.session.scheduler.sleep(self.session.interval)

    def _begin(self) -> None:
        file = self.root / "metadata"
        if not file.exists():
            self._create(file, json.dumps({"id": str(uuid.uuid4())}))

    def _latest(self, start: int, files: dict[int, list[str]]) -> int:
        """Take files that no batch has taken, and log them."""
        seen = {name for names in files.values() for name in names}
        waiting = [name for name in self.session.input.names if name not in seen]
        newest = max(files, default=-1)
        taken = waiting[: self.session.scheduler.random.randint(1, 3)]
        if taken:
            newest += 1
            lines = [json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": newest}) for name in taken]
            self._add(f"sources/{SOURCE}", newest, "\n".join(["v1", *lines]))
            files[newest] = taken
        return newest

    def _log(self, name: str) -> list[int]:
        return list(numbered_files(self.root / name))

    def _offset(self, batch: int) -> int:
        line = (self.root / "offsets" / str(batch)).read_text().split("\n")[2]
        return int(json.loads(line.partition(":")[2])["logOffset"])

    def _entry(self, number: int) -> list[str]:
        lines = (self.root / "sources" / SOURCE / str(number)).read_text().split("\n")[1:]
        return [json.loads(line)["path"].rpartition("/")[2] for line in lines if line]

    def _add(self, log: str, number: int, text: str) -> None:
        if not self._create(self.root / log / str(number), text):
            raise AnotherDriver(f"entry {number} of {log} is there")

    def _create(self, file: Path, text: str) -> bool:
        store, inside = at(file)
        return store.create(inside, text.encode())
