"""The books of a query: each row that came in is in its result, late, quarantined or filtered, and in one of these.

A row is "in the result" of

- an aggregation, a session, a chain of them or a function with a state: by its id, which the result collects;
- a deduplication: itself, or as the duplicate of a row with the same key that is there;
- a join: in a pair with each row of the other side that fits it and is not late itself; one without such a row is in an
  outer join's result next to NULL, and in an inner join's nowhere, because there is nothing to pair it with.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.checkpoint.sources import SourceNames
from headrace.connectors.files.source import Files
from headrace.contract import Boundary
from headrace.generations.late_rows import with_late_query
from headrace.generations.log import QueryLayout
from headrace.model import Default, Duration, NamedSource, Project, PythonTransform, Query, Target, Watermark
from headrace.runner.late_output import LateOutput
from headrace.runner.source_health import QuarantineFiles
from headrace.starter.request import Request
from headrace.starter.running import Running
from headrace.starter.start import start_query
from headrace.testing.kept import Kept
from headrace.verifier.late_rows import write_late_rows
from tests.registered import layout_in
from tests.rounds import as_long, rounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, time TIMESTAMP, who STRING, value INT"
BEGIN = datetime(2024, 1, 1)
# `make soak` draws more.
SEEDS = rounds(range(2 + int(os.environ.get("HEADRACE_TIMELINES", "0")) // 10))


@dataclass(frozen=True)
class Row:
    id: int
    minute: int
    who: str
    value: int

    @property
    def line(self) -> str:
        time = (BEGIN + timedelta(minutes=self.minute)).isoformat()
        return json.dumps({"id": self.id, "time": time, "who": self.who, "value": self.value})


class Died(Exception):
    """The end of a driver."""


@dataclass
class Scene:
    """A query over one or two directories of events, its late rows, and the rows that were let in."""

    spark: SparkSession
    home: Path
    random: Random
    project: Project
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    malformed: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    running: Running | None = None

    @classmethod
    def of(cls, spark: SparkSession, home: Path, function: Callable[..., DataFrame], seed: int) -> Scene:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        sources = {}
        for name in names:
            (home / name).mkdir(parents=True)
            files = Files(path=str(home / name), format="json", schema=SCHEMA, on_bad_row="quarantine")
            watermark = Watermark(column="time", delay=Duration.parse("10 minutes"))
            sources[name] = NamedSource(name=name, kind="files", connector=files, watermark=watermark)
        transform = PythonTransform(function=function, inputs=names)
        query = Query(name="q", transform=transform, sink=Kept(), sink_kind="kept", late="q_late")
        target = Target(checkpoint_durability="process", spark={"spark.sql.shuffle.partitions": "1"})
        project = Project(name="books", root=home, target=target, sources=sources, queries={"q": query})
        project = with_late_query(project, query, Kept(), "kept", query.where)
        return cls(spark, home, Random(seed), project, {name: {} for name in names})

    @property
    def layout(self) -> QueryLayout:
        return layout_in(self.project.storage, "q")

    def let_in(self, batch: int, minute: int) -> None:
        """Land a file for each source, with rows up to an hour old; some are malformed, and some are to be filtered."""
        for place, (name, rows) in enumerate(self.rows.items()):
            lines = []
            for number in range(self.random.randint(6, 10)):
                id_ = 1000 * place + 20 * batch + number
                age = self.random.choice([0, 1, 3, 8, 15, 30, 59])
                row = Row(id_, max(0, minute - age), self.random.choice("ab"), self.random.choice([-1, 1, 2, 3]))
                if self.random.random() < 0.15:
                    self.malformed.add(id_)
                    lines.append(row.line.replace("T", " noon "))
                else:
                    rows[id_] = row
                    lines.append(row.line)
            self.write(name, batch, lines)

    def write(self, name: str, batch: int, lines: list[str]) -> None:
        hidden = self.home / name / f".{batch}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        os.utime(hidden, (1_700_000_000 + batch,) * 2)
        hidden.rename(self.home / name / f"{batch:03d}.json")

    def work(self, query: str = "q", dies_at: Boundary | None = None) -> None:
        """Let the query take all that is there, or die at its first batch."""
        running = self.running if query == "q" else None
        if running is None or dies_at is not None:
            self.stop()
            declared = replace(self.project.queries[query], trigger=Default())
            reached = None if dies_at is None else self.kill_at(dies_at)
            running = start_query(Request(project=self.project, query=declared, spark=self.spark, reached=reached))
        try:
            running.handle.processAllAvailable()
        except Exception:
            if dies_at is None:
                raise
        if query == "q":
            self.counted |= {
                progress["batchId"] for progress in running.handle.recentProgress if dropped_rows(progress)
            }
        if query == "q" and dies_at is None:
            self.running = running
            return
        running.handle.stop()
        running.clean_up()

    @staticmethod
    def kill_at(boundary: Boundary) -> Callable[[Boundary, int], None]:
        def reached(at: Boundary, batch: int) -> None:
            if at == boundary:
                raise Died

        return reached

    def stop(self) -> None:
        if self.running is not None:
            self.running.handle.stop()
            self.running.clean_up()
            self.running = None

    def look(self, *, dies: str = "") -> None:
        """Keep the late rows of what is committed, or die before or after they are in their files."""

        def write(*arguments: Any) -> None:
            if dies == "before":
                raise Died
            write_late_rows(*arguments)
            if dies == "after":
                raise Died

        query = self.project.queries["q"]
        late = LateOutput(
            project=self.project,
            query=query,
            layout=self.layout,
            spark=self.spark,
            write=write,
            hurries=lambda: False,
        )
        try:
            late.catch_up()
        except Died:
            return

    def run(self) -> None:
        """All batches, with crashes and restarts of both queries and of what is between, then one that ends all."""
        events = ["restart", "inside-transaction", "after-transaction", ""]
        self.random.shuffle(events)
        try:
            for batch, event in enumerate(events):
                self.let_in(batch, 25 * (batch + 1))
                if event == "restart":
                    self.stop()
                elif event:
                    self.work(dies_at=event)  # type: ignore[arg-type]
                self.work()
                if batch == 1:
                    self.look()  # What follows is looked at from there on.
                if batch == 2:
                    self.look(dies=self.random.choice(["before", "after"]))
            for name in self.rows:
                self.write(name, len(events), [Row(-1, 60 * 24 * 9, "z", 1).line])
            self.work()
        finally:
            self.stop()
        self.look()
        self.work("q_late", self.random.choice(["inside-transaction", "after-transaction"]))
        self.work("q_late")

    def sink(self, query: str) -> list[dict[str, Any]]:
        kept = self.project.queries[query].sink
        assert isinstance(kept, Kept)
        assert kept.place.schema is not None
        return [dict(zip(kept.place.schema.names, row, strict=True)) for row in kept.rows()]

    def quarantined_ids(self) -> list[int]:
        sources = tuple(self.project.sources_of(self.query))
        names = SourceNames.same(*(source.name for source in sources))
        quarantine = QuarantineFiles(layout=self.layout, sources=sources, names=names, spark=self.spark)
        list(quarantine.catch_up())
        text = "".join(file.read_text() for file in self.layout.quarantine.rglob("*.jsonl"))
        return [int(id_) for id_ in re.findall(r'\\"id\\": ?(\d+)', text)]

    @property
    def query(self) -> Query:
        return self.project.queries["q"]

    @property
    def passed(self) -> dict[str, dict[int, Row]]:
        """The rows of each source that came to the operator and were not late."""
        late = {row["id"] for row in self.sink("q_late")}
        return {
            name: {id_: row for id_, row in rows.items() if row.value >= 0 and id_ not in late}
            for name, rows in self.rows.items()
        }


def dropped_rows(progress: Any) -> int:
    """How many rows Spark says that a batch dropped: too few perhaps, and 0 only where it dropped none."""
    return sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])


Result = list[dict[str, Any]]


def collected_ids(scene: Scene, result: Result) -> Iterator[int]:
    yield from (id_ for row in result for id_ in row["ids"])


def windows(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return good(events).groupBy(F.window("time", "10 minutes"), "who").agg(F.collect_list("id").alias("ids"))


def sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return good(events).groupBy(F.session_window("time", "5 minutes"), "who").agg(F.collect_list("id").alias("ids"))


def chain(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    small = good(events).groupBy(F.window("time", "5 minutes"), "who").agg(F.collect_list("id").alias("ids"))
    large = small.groupBy(F.window(F.window_time("window"), "20 minutes"))
    return large.agg(F.flatten(F.collect_list("ids")).alias("ids"))


def distinct(events: DataFrame) -> DataFrame:
    return good(events).dropDuplicates(["who", "time"])


def distinct_within(events: DataFrame) -> DataFrame:
    return good(events).dropDuplicatesWithinWatermark(["who", "value"])


def join(events: DataFrame, others: DataFrame, how: str = "inner") -> DataFrame:
    from pyspark.sql import functions as F

    left, right = good(events).alias("l"), good(others).alias("r")
    near = "l.who = r.who AND r.time BETWEEN l.time - INTERVAL 5 MINUTES AND l.time + INTERVAL 5 MINUTES"
    return left.join(right, F.expr(near), how).select("l.id", F.col("r.id").alias("other"))


def inner(events: DataFrame, others: DataFrame) -> DataFrame:
    return join(events, others)


def outer(events: DataFrame, others: DataFrame) -> DataFrame:
    return join(events, others, "full_outer")


def by_function(events: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    def all_of(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        for frame in frames if not state.hasTimedOut else ():
            yield pd.DataFrame({"ids": [[int(value)] for value in frame["id"]]})
        state.update((0,))

    grouped = good(events).groupBy("who")
    return grouped.applyInPandasWithState(
        all_of, "ids ARRAY<BIGINT>", "n INT", "append", GroupStateTimeout.EventTimeTimeout
    )


def by_processor(events: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class All(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("n", "n INT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            import pandas as pd

            for frame in rows:
                yield pd.DataFrame({"ids": [[int(value)] for value in frame["id"]]})

        def close(self) -> None:
            pass

    return good(events).groupBy("who").transformWithStateInPandas(All(), "ids ARRAY<BIGINT>", "append", "EventTime")


def good(rows: DataFrame) -> DataFrame:
    return rows.where("value >= 0")


def kept_or_duplicates(*by: str) -> Callable[[Scene, Result], Iterator[int]]:
    def ids(scene: Scene, result: Result) -> Iterator[int]:
        rows = scene.rows["events"]
        assert all(count == 1 for count in Counter(row["id"] for row in result).values())
        there = {row["id"] for row in result if row["id"] >= 0}
        keys = {tuple(getattr(rows[id_], name) for name in by) for id_ in there}
        yield from there
        for id_, row in scene.passed["events"].items():
            if id_ not in there and tuple(getattr(row, name) for name in by) in keys:
                yield id_

    return ids


def paired_ids(scene: Scene, result: Result, *, outer: bool = False) -> Iterator[int]:
    left, right = scene.passed["events"], scene.passed["others"]
    pairs = {
        (one.id, other.id)
        for one in left.values()
        for other in right.values()
        if one.who == other.who and abs(one.minute - other.minute) <= 5
    }
    matched = {id_ for pair in pairs for id_ in pair}
    alone = {(id_, None) for id_ in left.keys() - matched} | {(None, id_) for id_ in right.keys() - matched}
    there = Counter((row["id"], row["other"]) for row in result if -1 not in (row["id"], row["other"]))
    assert there == Counter(pairs | (alone if outer else set()))
    yield from {*left, *right}


def paired_or_alone(scene: Scene, result: Result) -> Iterator[int]:
    return paired_ids(scene, result, outer=True)


OPERATORS: Mapping[str, tuple[Callable[..., DataFrame], Callable[[Scene, Result], Iterator[int]]]] = {
    "windows": (windows, collected_ids),
    "sessions": (sessions, collected_ids),
    "chained aggregations": (chain, collected_ids),
    "dropDuplicates": (distinct, kept_or_duplicates("who", "minute")),
    "dropDuplicatesWithinWatermark": (distinct_within, kept_or_duplicates("who", "value")),
    "inner join": (inner, paired_ids),
    "outer join": (outer, paired_or_alone),
    "applyInPandasWithState": (by_function, collected_ids),
    "transformWithState": (by_processor, collected_ids),
}


ALSO = (
    "inner join",
    "outer join",
    "dropDuplicates",
    "chained aggregations",
    "sessions",
    "applyInPandasWithState",
    "transformWithState",
    "dropDuplicatesWithinWatermark",
)


@pytest.mark.parametrize("seed", SEEDS)
# The late rows of a join are in tests/verifier/test_corruptions.py too, those of a function in test_lateness.py, and
# the duplicates that are dropped in test_export.py.
@pytest.mark.parametrize("operator", [as_long(name) if name in ALSO else name for name in OPERATORS])
def test_each_row_is_in_the_result_late_quarantined_or_filtered(
    spark: SparkSession, tmp_path: Path, operator: str, seed: int
) -> None:
    function, in_result = OPERATORS[operator]
    scene = Scene.of(spark, tmp_path, function, seed)
    scene.run()
    late = [row["id"] for row in scene.sink("q_late")]
    given = {id_: row for rows in scene.rows.values() for id_, row in rows.items()}
    filtered = [id_ for id_, row in given.items() if row.value < 0]
    result = [id_ for id_ in in_result(scene, scene.sink("q")) if id_ >= 0]
    places = Counter([*result, *late, *scene.quarantined_ids(), *filtered])
    assert places == Counter([*given, *scene.malformed])
    assert min(map(len, (result, late, filtered, scene.malformed))) > 0
    assert {row["late_batch"] for row in scene.sink("q_late")} == scene.counted
    for row in scene.sink("q_late"):
        was = given[row["id"]]
        assert (row["who"], row["value"], row["late_operator"] != "") == (was.who, was.value, True)
        assert row["late_time"] <= row["late_watermark"]
