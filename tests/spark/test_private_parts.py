"""Canaries: each private part of Spark that Headrace uses is where it was; one that was moved is reported by name."""

from __future__ import annotations

import json
import logging
import queue
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import NOWHERE, SourceError

from .private_parts import SOURCES, callers_of_plans, jvm_calls, users

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = SOURCES.parents[1] / "docs" / "explanation" / "spark-private-parts.md"
SCHEMA = "name STRING, at TIMESTAMP, amount INT"
SECONDS = 60.0
CANARIES: dict[str, list[Callable[[Scene], None]]] = {}


class Scene:
    """What several canaries look at, made once: a small stream, and a query with state that has run over it."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark: Any = spark
        self.home = home
        (home / "in").mkdir()
        (home / "in" / "1.json").write_text(
            '{"name": "a", "at": "2026-01-01T10:00:00Z", "amount": 1}\n'
            '{"name": "b", "at": "2026-01-01T10:00:01Z", "amount": 2}\n'
        )
        self.checkpoint = home / "checkpoint"
        self.events_heard: list[Any] = []
        self.work: list[Any] = []

    @property
    def jvm(self) -> Any:
        return self.spark._jvm

    @cached_property
    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).name("events")
        return reader.json(str(self.home / "in")).withWatermark("at", "1 hour")

    @cached_property
    def counts(self) -> DataFrame:
        return self.stream.groupBy("name").count()

    @cached_property
    def batch(self) -> DataFrame:
        return self.spark.createDataFrame([("a", 1), ("b", 2)], "name STRING, amount INT")

    @cached_property
    def progress(self) -> dict[str, Any]:
        """The progress of a query that counts, as the listener heard it."""
        from headrace.spark.plans.plan_text import plan_text
        from headrace.spark.stream.listener import Listener
        from headrace.spark.stream.work import batch_work

        listener = Listener(self.spark)
        try:
            writer = self.counts.writeStream.outputMode("complete").option("checkpointLocation", str(self.checkpoint))

            def take(rows: DataFrame, batch: int) -> None:
                rows.collect()
                self.pool = self.spark.sparkContext.getLocalProperty("spark.scheduler.pool")

            query = writer.queryName("canary").foreachBatch(take).start()
            until = time.monotonic() + SECONDS
            while time.monotonic() < until and not any(event.kind == "progress" for event in self.events_heard):
                self.work.append(batch_work(self.spark, str(query.runId), seconds=0.0))
                self.events_heard += _drain(listener.events)
                time.sleep(0.01)
            self.plan = plan_text(query)
            query.stop()
        finally:
            listener.close()
        progress: dict[str, Any] = json.loads(
            next(event.json for event in self.events_heard if event.kind == "progress")
        )
        return progress


def _drain(events: Any) -> list[Any]:
    items = []
    while True:
        try:
            items.append(events.get_nowait())
        except queue.Empty:
            return items


def canary(*modules: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def entered(look: Callable[[Scene], None]) -> Callable[[Scene], None]:
        for module in modules:
            CANARIES.setdefault(module, []).append(look)
        return look

    return entered


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scene]:
    return {}


@canary("spark/stream/listener", "contract/batch_record")
def progress_has_known_names(scene: Scene) -> None:
    from headrace.contract import BatchRecord

    record = BatchRecord.parse(json.dumps(scene.progress), source_names=["events"])
    assert (record.query, record.batch, record.rows) == ("canary", 0, 2)
    assert (record.sources[0].name, record.sources[0].rows) == ("events", 2)
    assert record.duration_ms > 0
    assert record.state_rows == 2
    assert {"rocksdbNumLoadedFromDfs", "rocksdbGetCount"} <= set(scene.progress["stateOperators"][0]["customMetrics"])
    assert {"addBatch", "walCommit"} <= set(record.durations)
    assert {event.kind for event in scene.events_heard} >= {"started", "progress"}


@canary("spark/stream/work")
def running_jobs_show_their_tasks(scene: Scene) -> None:
    from headrace.spark.stream.work import task_skew

    assert scene.progress["batchId"] == 0
    assert any(work is not None and work.tasks >= work.tasks_done for work in scene.work)
    run_id = scene.progress["runId"]
    skew, newest = task_skew(scene.spark, run_id, after=-1)
    assert skew is not None
    assert skew >= 1
    assert newest in scene.spark.sparkContext.statusTracker().getJobIdsForGroup(run_id)
    assert task_skew(scene.spark, run_id, after=newest) == (None, newest)
    context = scene.spark.sparkContext
    numbers = context.parallelize(range(4), 4)
    # The first call of a Python worker takes long by itself.
    numbers.foreach(lambda number: None)
    context.setJobGroup("uneven", "one task of four takes a second longer")
    try:
        numbers.foreach(lambda number: time.sleep(1 if number == 3 else 0))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    skew, _ = task_skew(scene.spark, "uneven", after=-1)
    assert skew is not None
    assert skew > 2


@canary("spark/stream/listener")
def a_batch_has_a_pool_of_its_own(scene: Scene) -> None:
    from headrace.spark.stream.listener import PREFIX

    assert scene.progress["batchId"] == 0
    assert scene.pool.startswith(PREFIX)
    assert scene.jvm.org.apache.spark.scheduler.Pool is not None


@canary("spark/jvm/session")
def a_name_of_the_jvm_is_looked_up_once(scene: Scene) -> None:
    from py4j.java_gateway import GatewayClient, JavaClass

    seen: list[str] = []
    send, jvm = GatewayClient.send_command, scene.jvm

    def counted(self: Any, command: str, *given: Any, **further: Any) -> Any:
        seen.append(command)
        return send(self, command, *given, **further)

    for expected in (3, 0):
        seen.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GatewayClient, "send_command", counted)
            class_ = jvm.java.beans.Introspector
        assert isinstance(class_, JavaClass)
        assert len([command for command in seen if command.startswith("r\n")]) <= expected
    assert jvm.java.lang.Integer.parseInt("7") == 7


@canary("spark/jvm/session")
def a_call_that_is_cut_off_does_not_keep_the_next_one_waiting(scene: Scene) -> None:
    """Without it, the call in `finally` would wait until the first one has slept."""

    class Cut(BaseException):
        """As Ctrl-C raises, and the time-outs of tests."""

    def cut(*_: Any) -> None:
        raise Cut

    def cut_off() -> None:
        try:
            scene.jvm.java.lang.Thread.sleep(int(SECONDS / 2 * 1000))
        finally:
            assert scene.jvm.java.lang.Integer.parseInt("7") == 7

    before, begun = signal.signal(signal.SIGUSR1, cut), time.monotonic()
    threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1)).start()
    try:
        with pytest.raises(Cut):
            cut_off()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - begun < SECONDS / 2


@canary("spark/jvm/session")
def a_call_that_ctrl_c_breaks_off_logs_no_stack_trace(scene: Scene) -> None:
    from py4j.clientserver import ClientServerConnection

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = logged.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ClientServerConnection, "send_command", interrupt)
            with pytest.raises(KeyboardInterrupt):
                scene.jvm.java.lang.Integer.parseInt("7")
    finally:
        logging.getLogger().removeHandler(handler)
    assert [record.getMessage() for record in logged] == []
    assert scene.jvm.java.lang.Integer.parseInt("7") == 7


@canary("spark/stream/state")
def the_state_is_read_where_the_offsets_have_no_partitions(scene: Scene) -> None:
    from headrace.spark.jvm.session_conf import apply_settings
    from headrace.spark.stream.state import PARTITIONS, read_state

    assert scene.progress["batchId"] == 0
    with apply_settings(scene.spark, {PARTITIONS: scene.spark.conf.get("spark.sql.shuffle.partitions")}):
        rows = read_state(scene.spark, scene.checkpoint, operator=0, batch=0)
        assert sorted((row["key"]["name"], row["value"][0]) for row in rows.collect()) == [("a", 1), ("b", 1)]


@canary("checkpoint/directory", "checkpoint/directory", "checkpoint/directory", "checkpoint/identity")
def a_checkpoint_is_read_without_spark(scene: Scene) -> None:
    from headrace.checkpoint import Checkpoint
    from headrace.checkpoint.problems import list_problems

    assert scene.progress["batchId"] == 0
    read = Checkpoint(scene.checkpoint)
    assert (read.last_batch, read.last_committed) == (0, 0)
    entry = read.offset(0)
    assert entry is not None
    assert list(entry.offsets) == ["events"]
    assert "spark.sql.streaming.stateStore.providerClass" in entry.conf
    (operator,) = read.state_operators()
    assert operator.name == "stateStoreSave"
    assert read.state_partitions() == 2
    assert json.loads(read.source_log("events")[0][0])["path"].endswith("1.json")
    assert list(list_problems(read)) == []


@canary("checkpoint/state_schema", "spark/stream/state")
def a_batch_without_rows_has_the_schemas_of_the_state(scene: Scene) -> None:
    from headrace.checkpoint import Checkpoint
    from headrace.checkpoint.state_schema import state_schema
    from headrace.spark.stream.state import placeholder, probe

    assert scene.progress["batchId"] == 0
    like, scratch = scene.spark.createDataFrame([], SCHEMA), scene.home / "probe"

    def counts() -> DataFrame:
        return placeholder(scene.spark, "events", like, scratch).withWatermark("at", "1 hour").groupBy("name").count()

    made = probe(scene.spark, counts, "complete", scratch, {})
    schema = state_schema(Checkpoint(made))
    assert schema == state_schema(Checkpoint(scene.checkpoint))
    assert [(field.name, field.type) for field in schema[0].stores["default"].value] == [("count", "long")]
    shutil.rmtree(scratch)


@canary("spark/stream/state")
def state_is_brought_into_other_partitions(scene: Scene) -> None:
    from headrace.checkpoint import Checkpoint
    from headrace.checkpoint.handover import note_partitions
    from headrace.spark.stream.state import repartition_state

    assert scene.progress["batchId"] == 0
    note_partitions(Checkpoint(scene.checkpoint), 0, 2)
    repartition_state(scene.spark, scene.checkpoint, 3)
    assert Checkpoint(scene.checkpoint).last_committed == 1


@canary("spark/stream/foreach_batch")
def a_query_ends_after_its_batch(scene: Scene) -> None:
    from headrace.spark.stream.foreach_batch import Halt

    source = scene.spark.readStream.format("rate").name("ticks").load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(scene.home / "halt")).start()
    query.processAllAvailable()
    halt, until = Halt(query, scene.spark), time.monotonic() + SECONDS
    while not halt.step():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert query.exception() is None


@canary("spark/stream/foreach_batch")
def a_batch_that_was_broken_off_is_no_failure(scene: Scene) -> None:
    from headrace.spark.stream.foreach_batch import BrokenOff

    runtime = scene.jvm.org.apache.spark.sql.execution.streaming.runtime
    pattern = getattr(getattr(runtime, "StreamExecution$"), "MODULE$").PROXY_ERROR()
    text = str(BrokenOff("java.lang.InterruptedException"))
    proxy = f"py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: {text}"
    assert pattern.findFirstIn(f"{proxy}\n").isDefined() or pattern.findFirstIn(text).isDefined()


@canary("spark/plans/analysed", "spark/plans/operations", "spark/plans/operators")
def operators_and_their_keys_have_known_names(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans import plan_rewrite
    from headrace.spark.plans.analysed import (
        analysed_plan,
        clocks,
        keeps_whole_rows,
        nodes,
        optimised_plan,
        plan_facts,
        plan_text,
    )
    from headrace.spark.plans.operations import aggregations
    from headrace.spark.plans.operators import operators

    hours = scene.stream.groupBy(F.window("at", "1 hour")).count()
    facts = plan_facts(hours)
    assert (facts.sources, facts.watermarks, facts.watermarked) == (("events",), 1, ("events",))
    assert (facts.stateful, facts.endless) == (True, ())
    assert [operator.by for operator in plan_facts(scene.stream.dropDuplicates(["name"])).endless] == [("name",)]
    assert plan_facts(scene.stream.withColumn("r", F.rand())).indeterminate
    assert list(clocks(analysed_plan(scene.stream.withColumn("now", F.current_timestamp()))))
    by_name = scene.stream.groupBy("name", F.session_window("at", "1 hour")).count()
    (aggregation,) = aggregations(by_name)
    assert (aggregation.by[0], aggregation.bounded, aggregation.watermarks) == ("name", True, ("at",))
    (whole,) = [node for node in nodes(analysed_plan(scene.stream.distinct())) if node.nodeName() == "Deduplicate"]
    assert keeps_whole_rows(whole) is False  # a watermark is among its columns
    trees = [plan_rewrite.stream_tree(plan) for plan in (analysed_plan(hours), optimised_plan(hours))]
    (operator,) = operators(*trees, complete=False)
    assert (operator.kind, operator.closing is not None, operator.late != (None,)) == ("Aggregate", True, True)
    assert "Aggregate" in plan_text(hours)


@canary("spark/plans/operations", "spark/plans/kept_state")
def what_no_stream_can_do_is_seen(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans.analysed import optimised_plan
    from headrace.spark.plans.kept_state import stateful_inputs
    from headrace.spark.plans.operations import stream_operations

    stream = scene.stream
    frames = {
        "limit": stream.limit(1),
        "limit of sorted rows": scene.counts.orderBy("count").limit(1),
        "grouping sets": stream.rollup("name").count(),
        "set of rows": stream.select("name").intersect(stream.select("name")),
        "deduplication by all columns": stream.select("name").distinct(),
        "join of streams": stream.join(stream.select("name"), "name"),
    }
    assert {name: stream_operations(frame) for name, frame in frames.items()} == {name: (name,) for name in frames}
    hours = stream.groupBy(F.window("at", "1 hour")).count()
    (input_,) = stateful_inputs(optimised_plan(hours), complete=False)
    assert (input_.operator, input_.columns) == ("Aggregate", ("window",))


@canary("spark/plans/determinism", "spark/plans/determinism")
def what_the_order_of_rows_decides_is_seen(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans.analysed import analysed_plan
    from headrace.spark.plans.determinism import find_limit, order_dependent
    from headrace.spark.plans.plan_rewrite import stream_tree

    amounts = F.collect_list("amount")
    arrays = (F.sort_array(amounts), F.array_sort(amounts), F.size(amounts))
    groups = scene.stream.groupBy("name").agg(F.first("amount"), *arrays)
    (order,) = order_dependent(stream_tree(analysed_plan(groups)))
    assert order.startswith("first(")
    limit = find_limit(scene.spark, scene.batch.orderBy(F.desc("amount")).limit(1))
    assert limit is not None
    assert (limit.rows.count(), len(limit.order), limit.most) == (2, 1, 1)
    assert find_limit(scene.spark, scene.batch.limit(1)) is None


@canary("spark/plans/kept_state", "spark/plans/determinism", "spark/jvm/session_conf")
def what_is_kept_and_what_answers_differently_each_time_is_seen(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.jvm.session_conf import all_settings, executor_memory
    from headrace.spark.plans.analysed import plan_facts
    from headrace.spark.plans.determinism import determinism
    from headrace.spark.plans.kept_state import kept_states

    hour, minute = 3_600_000, 60_000
    for key, kind, length in (
        (F.window("at", "1 hour"), "aggregation", hour),
        (F.window("at", "1 hour", "25 minutes"), "aggregation", hour),
        (F.session_window("at", "5 minutes"), "session windows", 5 * minute),
    ):
        (state,) = kept_states(scene.stream.groupBy(key, "name").count())
        assert (state.kind, state.window, state.delay, state.by[1]) == (kind, length, hour, "name")
    (near,) = kept_states(scene.stream.dropDuplicatesWithinWatermark(["name"]))
    assert near.delay == hour
    groups = scene.stream.groupBy("name").agg(F.last("amount").alias("amount")).orderBy("name").limit(1)
    causes = determinism(groups.withColumn("now", F.current_timestamp()))
    assert (causes.clocks, len(causes.by_order), causes.limits) == (("current_timestamp()",), 1, ("limit",))
    assert plan_facts(scene.stream.select(F.now())).indeterminate == ("now()",)
    scene.spark.conf.set("headrace.canary", "a -> b")
    assert all_settings(scene.spark)["headrace.canary"] == "a -> b"
    scene.spark.conf.unset("headrace.canary")
    assert executor_memory(scene.spark) > 0


@canary("spark/plans/change_rows")
def what_happens_to_a_row_passes_through_a_plan(scene: Scene) -> None:
    from headrace.contract import CHANGE_COLUMN, change_type
    from headrace.spark.plans.change_rows import carry_changes

    change = f"CAST(struct('upsert', 1L, struct(0, 1L), array(), null) AS {change_type('BIGINT')}) AS {CHANGE_COLUMN}"
    rows = scene.batch.selectExpr("name", "amount", change).select("name", "amount").where("amount = 1")
    kept = carry_changes(scene.spark, rows, ["name"]).frame
    assert kept.columns == ["name", CHANGE_COLUMN]
    assert kept.count() == scene.batch.count()


@canary("connectors/kafka/debezium")
def a_message_of_debezium_is_read_in_java(scene: Scene) -> None:
    from pyspark.sql import types as T

    from headrace.connectors.kafka.debezium import decode_changes
    from headrace.connectors.values.rules import FAULT

    value = '{"op": "c", "before": null, "after": {"id": 7}, "source": {"lsn": 5, "ts_us": 1}}'
    message = scene.spark.createDataFrame(
        [(b'{"id": 7}', value.encode(), 0, 3)], "key BINARY, value BINARY, partition INT, offset BIGINT"
    )
    schema = T.StructType([T.StructField("id", T.LongType())])
    (row,) = decode_changes(message, schema, {}, ["id"], exact=True, keep=()).frame.collect()
    assert row[FAULT] is None
    assert row["__change"]["operation"] == "upsert"


@canary("spark/plans/source_uses")
def each_use_of_a_source_in_a_batch_reads_rows_of_its_own(scene: Scene) -> None:
    from headrace.checkpoint.sources import use_name
    from headrace.spark.plans.analysed import analysed_plan
    from headrace.spark.plans.plan_rewrite import MARK, frame_of
    from headrace.spark.plans.source_uses import replace_repeated_sources

    first = scene.batch.select("name", "amount").alias(f"{MARK}events")
    second = scene.batch.where("amount = 1").select("name", "amount").alias(f"{MARK}events")
    uses = {"events", use_name("events", 2)}
    plan = replace_repeated_sources(scene.spark, analysed_plan(first.union(first)), lambda name, use: second, uses)
    assert frame_of(scene.spark, plan).count() == 3


@canary("spark/plans/operations")
def the_bounds_of_a_join_are_solved(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans.analysed import optimised_plan
    from headrace.spark.plans.operations import stream_joins

    other = scene.spark.readStream.schema("id STRING, seen TIMESTAMP").name("others").json(str(scene.home / "in"))
    other = other.withWatermark("seen", "2 hours")
    bound = F.expr("name = id AND seen BETWEEN at AND at + INTERVAL 1 HOUR")
    (join,) = stream_joins(scene.spark, optimised_plan(scene.stream.join(other, bound)))
    assert (join.kind, join.left.delay, join.right.delay) == ("inner", 3_600_000, 7_200_000)
    assert join.left.behind is not None
    assert join.right.behind is not None


@canary("spark/plans/operations")
def spark_checks_a_plan_before_the_start(scene: Scene) -> None:
    from headrace.spark.messages.refusals import finding_of
    from headrace.spark.plans.operations import refusal

    assert refusal(scene.stream, "append") is None
    unbounded = refusal(scene.spark.readStream.format("rate").name("ticks").load().groupBy("value").count(), "append")
    assert unbounded is not None
    assert finding_of(unbounded, where=NOWHERE).code == "HR221"
    assert refusal(scene.counts, "update", continuous=True) is not None


@canary("spark/plans/provenance")
def _provenance(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans.plan_rewrite import BATCH
    from headrace.spark.plans.provenance import trace

    dated = scene.spark.createDataFrame([("a", 1), ("a", 3), ("b", 2)], f"k STRING, {BATCH} INT")
    frame, fed = trace(scene.spark, dated.groupBy("k").agg(F.count("*").alias("n")))
    newest = {row[0]: row[1] for row in frame.select("k", fed[0]["batch"]).collect()}
    assert newest == {"a": 3, "b": 2}


@canary("spark/plans/plan_rewrite")
def plans_are_taken_apart_and_put_together(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans import plan_rewrite as plans
    from headrace.spark.plans.analysed import analysed_plan, identity, sequence

    spark = scene.spark
    timed = scene.batch.withColumn("at", F.timestamp_seconds("amount"))
    plan = analysed_plan(timed)
    columns = list(sequence(plan.output()))
    assert plans.select_only(spark, plans.frame_of(spark, plan), columns[:1]).columns == ["name"]
    assert timed.select(plans.end_micros(spark, columns[2]).alias("us")).agg(F.max("us")).collect()[0][0] == 2_000_000
    fewer = plans.with_parts(spark, plan, {0: plans.scala_seq(spark, columns[:1])})
    assert plans.frame_of(spark, fewer).columns == ["name"]
    alias = plans.alias_as(spark, columns[0], columns[1])
    assert (alias.name(), identity(alias)) == ("amount", identity(columns[1]))
    within = analysed_plan(scene.stream.dropDuplicatesWithinWatermark(["name"]))
    assert plans.as_plain_deduplication(spark, within).nodeName() == "Deduplicate"
    scene.batch.createOrReplaceTempView("canary")
    twice = analysed_plan(spark.sql("WITH c AS (SELECT * FROM canary) SELECT * FROM c UNION ALL SELECT * FROM c"))
    assert plans.frame_of(spark, plans.inline_ctes(spark, twice)).count() == 4


@canary("spark/plans/plan_json")
def an_optimised_plan_is_read_as_json(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans.analysed import analysed_plan
    from headrace.spark.plans.plan_json import plan_tree

    twelve = ", ".join(f"'{letter}'" for letter in "abcdefghijkl")
    made = scene.stream.selectExpr(
        f"name IN ({twelve}) AS known",
        "from_json(name, 'a INT', map('mode', 'FAILFAST')) AS parsed",
        "current_timestamp() AS seen",
        "X'0102' AS bytes",
        "try_cast(name AS INT) AS number",
        "amount > (SELECT max(x) FROM VALUES (1), (2) AS t(x)) AS more",
    ).join(scene.batch.select(F.col("amount").alias("number")), "number")
    tree = plan_tree(scene.spark, analysed_plan(made))
    text = repr(tree.root)
    for kept in ("'l'", "(mode,FAILFAST)", "CurrentBatchTimestamp", "X'0102'", "TRY", "ScalarSubquery"):
        assert kept in text, kept
    assert sorted(str(source) if isinstance(source, str) else source.kind for source in tree.inputs.values()) == [
        "events",
        "rows",
        "rows",
    ]
    assert tree.delays == (3_600_000,)


@canary("spark/plans/source_uses")
def what_a_connector_makes_of_a_source_is_taken_for_the_source(scene: Scene) -> None:
    from headrace.spark.plans.source_uses import with_source_leaves

    given = scene.stream.selectExpr("upper(name) AS name", "amount").where("amount > 0")
    made = given.groupBy("name").count()
    plan = with_source_leaves(made, {"events": given}, str)
    assert [str(column) for column in plan.children().apply(0).output().mkString(" ").split(" ")] == [
        str(column) for column in given._jdf.queryExecution().analyzed().output().mkString(" ").split(" ")
    ]
    assert plan.children().apply(0).children().isEmpty()


@canary("spark/plans/source_uses")
def the_second_use_of_a_source_gets_a_name_of_its_own(scene: Scene) -> None:
    from headrace.spark.plans.analysed import analysed_plan, source_names
    from headrace.spark.plans.source_uses import rename_repeated_sources

    both = scene.stream.select("name").union(scene.stream.select("name"))
    assert len(set(source_names(analysed_plan(rename_repeated_sources(scene.spark, both))))) == 2


@canary("spark/plans/plan_text")
def metrics_are_read_off_a_query_that_has_run(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.plans.plan_text import metric, metrics_of

    seen = scene.batch.observe("canary_metric", F.count(F.lit(1)).alias("rows"))
    seen.collect()
    assert (list(metrics_of(seen)), metric(seen, "canary_metric")) == (["canary_metric"], 2)
    unseen = scene.batch.observe("unseen", F.count(F.lit(1)).alias("rows")).where("1 = 0")
    unseen.collect()
    assert metric(unseen, "unseen") == 0


@canary("spark/jvm/session_conf")
def a_session_is_copied_and_given_back(scene: Scene) -> None:
    from pyspark.sql import SparkSession

    from headrace.spark.jvm.session_conf import activate, borrow

    key = "spark.sql.headrace.canary"
    with borrow(scene.spark, lambda: scene.spark) as copy:
        assert SparkSession.getActiveSession() is copy
        copy.conf.set(key, "1")
    assert scene.spark.conf.get(key, None) is None
    activate(scene.spark)


@canary("spark/plans/deferred")
def an_expression_waits_for_a_session(scene: Scene) -> None:
    from pyspark.core.context import SparkContext

    from headrace.spark.plans.deferred import defer

    context: Any = SparkContext
    live, context._active_spark_context = context._active_spark_context, None
    try:
        with defer():
            from pyspark.sql import Window
            from pyspark.sql import functions as F

            column = (F.col("amount") + 1).alias("more")
            ranked = F.row_number().over(Window.partitionBy("name").orderBy("amount"))
            tenfold = F.udf(lambda amount: amount * 10, "int")("amount")
    finally:
        context._active_spark_context = live
    rows = scene.batch.select(column, ranked, tenfold).collect()
    assert sorted(tuple(row) for row in rows) == [(2, 1, 10), (3, 1, 20)]


@canary("spark/stream/broadcasts", "connectors/foreach/sink")
def a_projects_function_reaches_the_workers(scene: Scene) -> None:
    import sys
    from types import ModuleType

    from pyspark import cloudpickle
    from pyspark.sql import functions as F

    from headrace.spark.stream.broadcasts import end_sending_by_value, send_by_value

    module = ModuleType("headrace_canary")
    exec("def double(number):\n    return number * 2\n", module.__dict__)
    module.double.__module__ = module.__name__
    sys.modules[module.__name__] = module
    try:
        send_by_value([module])
        doubled = F.udf(module.double, "int")
        assert sorted(row[0] for row in scene.batch.select(doubled("amount")).collect()) == [2, 4]
        assert cloudpickle.dumps(module.double)
        end_sending_by_value(module)
        assert module.__name__ not in cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    finally:
        del sys.modules[module.__name__]


@canary("spark/stream/broadcasts", "spark/stream/counting")
def values_are_shared_with_the_workers(scene: Scene) -> None:
    from pyspark.sql import functions as F

    from headrace.spark.stream.broadcasts import broadcast, refreshed_name, release
    from headrace.spark.stream.counting import Counting

    shared, counting = broadcast(scene.spark, {1: 10, 2: 20}, refreshed="shared"), Counting(scene.spark)
    counting.counter("count", 0, None)
    count = counting.handles["count"]
    tenfold = F.udf(lambda amount: count.add(1) or shared.value[amount], "int")
    set_property = scene.spark.sparkContext.setLocalProperty
    set_property("streaming.sql.batchId", "7")
    try:
        assert sorted(row[0] for row in scene.batch.select(tenfold("amount")).collect()) == [10, 20]
    finally:
        set_property("streaming.sql.batchId", None)
    assert counting.of_batch(7) == {"count": 2}
    (stage,) = {key.stage for key in counting._accumulators["count"].value}
    assert counting._rdds(stage)
    assert refreshed_name(shared) == "shared"
    counting.close()
    release(shared)


@canary("spark/plans/java_functions", "connectors/values/json_rows")
def a_text_of_json_is_parsed_in_java(scene: Scene) -> None:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from headrace.connectors.values.json_rows import read_json
    from headrace.connectors.values.rules import CORRUPT_RECORD, RECORD, TextRules

    texts = scene.spark.createDataFrame([('{"a": "x"}',), ('{"a": "x"} {"a": "y"}',)], "text STRING")
    schema = StructType.fromDDL("a STRING")
    rows = read_json(texts, F.col("text").cast("binary"), schema, TextRules(format="json"), keep=()).collect()
    bad = '{"a": "x"} {"a": "y"}'
    records = sorted((row[RECORD], row["a"], row[CORRUPT_RECORD]) for row in rows)
    assert records == [('{"a": "x"}', "x", None), (bad, None, bad)]


@canary("spark/plans/python_functions")
def a_plans_python_functions_are_unpickled(scene: Scene) -> None:
    from pyspark.core.broadcast import _broadcastRegistry
    from pyspark.sql import functions as F
    from pyspark.sql.datasource import DataSource

    from headrace.spark.plans.analysed import analysed_plan
    from headrace.spark.plans.python_functions import data_source, functions

    table = {number: number * 10 for number in range(400_000)}  # more than a megabyte
    tenfold = F.udf(lambda amount: table[amount], "int")
    (function,) = functions(analysed_plan(scene.batch.select(tenfold("amount")))).values()
    assert (function.function(2), function.return_type) == (20, '"integer"')
    assert function.eval_type in (100, 101)  # without and with Arrow
    assert _broadcastRegistry == {}

    class Twos(DataSource):
        @classmethod
        def name(cls) -> str:
            return "twos"

    scene.spark.dataSource.register(Twos)
    assert data_source(scene.spark, "twos").name() == "twos"


@canary("spark/jvm/gateway", "spark/jvm/session", "connectors/delta/sink")
def the_jvm_of_this_process_is_ours(scene: Scene) -> None:
    from pyspark import SparkContext

    from headrace.spark.jvm import gateway
    from headrace.spark.jvm import session as jvm

    context: Any = SparkContext
    assert context._active_spark_context is scene.spark.sparkContext
    assert context._gateway.proc.poll() is None
    assert context._jvm is context._gateway.jvm
    before = context._gateway
    gateway.ensure_jvm({})
    jvm.end_unfit_jvm("stream", {})
    assert context._gateway is before


@canary("spark/jvm/maven")
def spark_brings_a_resolver_of_jars(scene: Scene) -> None:
    resolver = scene.jvm.org.apache.spark.util.DependencyUtils
    none = getattr(scene.jvm.scala, "None$").__getattr__("MODULE$")
    assert resolver.resolveMavenDependencies(True, "", "", "", str(scene.home / "ivy"), none).size() == 0


@canary("spark/jvm/jars")
def what_headrace_brings_in_java_fits_sparks_classes(scene: Scene) -> None:
    from headrace.spark.jvm.jars import write_classes
    from headrace.spark.jvm.settings import CONDITIONAL_FILE_MANAGER, FILE_MANAGER_SOURCE

    target = scene.home / "classes"
    target.mkdir()
    source = SOURCES / "spark" / FILE_MANAGER_SOURCE
    write_classes(scene.spark.sparkContext._gateway, str(target), str(source))
    assert (target / f"{CONDITIONAL_FILE_MANAGER.replace('.', '/')}.class").is_file()


@canary("spark/messages/refusals")
def a_call_that_no_stream_has_is_found_in_the_trace(scene: Scene) -> None:
    from headrace.spark.messages.refusals import INSTEAD, called_method

    calls: dict[str, Any] = {"write": lambda: scene.stream.write, "rdd": lambda: scene.stream.rdd.count()}
    for name in ("count", "show", "collect", "first", "toPandas", "isEmpty", "tail"):
        calls[name] = getattr(scene.stream, name) if name != "tail" else lambda: scene.stream.tail(1)
    for name, call in calls.items():
        with pytest.raises(Exception) as caught:  # noqa: PT011
            call()
        assert called_method(caught.value) in INSTEAD, f"{name} is not found"


@canary("connectors/files/check")
def the_files_of_a_batch_are_looked_at(scene: Scene) -> None:
    from headrace.checkpoint.sources import READ_FILES, ReadFiles
    from headrace.connectors.files.check import OPTION, _Batch, _Check, look_at_batches
    from headrace.connectors.spark_files import paths
    from headrace.spark.jvm.session_conf import apply_settings
    from headrace.spark.plans.analysed import analysed_plan

    look_at_batches(scene.spark)
    for kind in ("parquet", "orc"):
        place = str(scene.home / kind)
        scene.batch.coalesce(1).write.format(kind).mode("overwrite").save(place)
        reader = scene.spark.read.schema("name STRING, amount BIGINT, more INT").option(OPTION, "[]")
        (file,) = Path(place).glob("*." + kind)
        leaf = analysed_plan(reader.format(kind).load(str(file))).collectLeaves().apply(0)
        assert leaf.relation().options().get(OPTION).isDefined()
        location = leaf.relation().location()
        assert f"path=file:{file}; isDirectory=false; length=" in location.allFiles().mkString("\n")
        assert location.partitionSpec().partitionColumns().isEmpty()
        check = _Check(scene.jvm)
        batch = _Batch(location)
        assert batch.files[f"file:{file}"].is_same(paths.present(str(file)))
        problems = list(check.problems(batch, leaf.relation(), frozenset({"more"})))
        assert [problem.code for problem in problems] == ["HR308"], problems
    odd = scene.home / "odd"
    odd.mkdir(exist_ok=True)
    for name in ("a[1].txt", "b.txt"):
        (odd / name).write_text("row\n")
    stream = scene.spark.readStream.name("odd").option(OPTION, "[]").text(str(odd))
    seen: list[int] = []
    query = stream.writeStream.foreachBatch(lambda rows, batch: seen.append(rows.count())).trigger(availableNow=True)
    with apply_settings(scene.spark, {READ_FILES: str(scene.home)}):
        started = query.start()
    started.awaitTermination()
    assert seen == [2], f"two files of a row each, one of an odd name, give {seen} rows"
    # The setting is that of the stream's own session, which is the active one while its batch is looked at.
    assert {path: file.size_bytes for path, file in ReadFiles(scene.home).read().items()} == {
        str(odd / "a[1].txt"): 4,
        str(odd / "b.txt"): 4,
    }
    with pytest.raises(Exception, match="HR30"):
        _refused_by_check(scene)


def _refused_by_check(scene: Scene) -> None:
    """A stream of files that lack a column which may not be NULL."""
    from headrace.connectors.files.check import OPTION

    reader = scene.spark.readStream.schema("name STRING, more INT").name("files").option(OPTION, '["more"]')
    query = reader.parquet(str(scene.home / "parquet")).writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(scene.home / "refused")).start().awaitTermination(SECONDS)


@canary("spark/jvm/hadoop_files")
def the_file_sinks_log_takes_empty_batches(scene: Scene) -> None:
    from headrace.connectors.spark_files.sink_log import _enter_empty

    out, checkpoint = scene.home / "out", scene.home / "out-checkpoint"
    writer = scene.stream.writeStream.format("json").option("path", str(out)).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination(SECONDS)
    assert (out / "_spark_metadata" / "0").read_text().startswith("v1\n{")
    _enter_empty(scene.batch, f"{out}/_spark_metadata", [1])
    assert (out / "_spark_metadata" / "1").read_text().strip() == "v1"


@canary("spark/jvm/hadoop_files")
def a_format_says_which_columns_it_takes(scene: Scene) -> None:
    from headrace.connectors.spark_files.formats import result_findings

    interval = scene.spark.sql("SELECT INTERVAL 1 DAY AS a, 1 AS b")
    assert [finding.code for finding in result_findings(interval, "text", [], "canary")][:1] == ["HR404"]
    assert list(result_findings(interval, "parquet", [], "canary")) == []


@canary("spark/stream/work")
def the_thread_that_reads_a_socket_is_known_by_name(scene: Scene) -> None:
    from headrace.connectors.socket.source import Socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = Socket(host="127.0.0.1", port=port)
        stream = source.stream(scene.spark, "lines")
        query = stream.writeStream.format("noop").option("checkpointLocation", str(scene.home / "socket")).start()
        try:
            connection, _ = server.accept()
            until = time.monotonic() + SECONDS
            while (health := source.health(scene.spark)) is not None and time.monotonic() < until:
                time.sleep(0.05)
            assert health is None
            connection.close()
        finally:
            query.stop()


@canary("spark/plans/plan_text")
def a_plan_shows_by_what_its_rows_are_clustered(scene: Scene) -> None:
    from headrace.spark.plans.plan_text import is_clustered

    assert is_clustered(scene.batch.repartition(2, "name"), ["name", "amount"])
    assert not is_clustered(scene.batch.repartition(2, "name"), ["amount"])


@canary("connectors/sql/staging")
def a_plan_shows_how_large_its_rows_are(scene: Scene) -> None:
    from headrace.connectors.sql.staging import TINY_BYTES, estimated_bytes

    sizes: list[int] = []
    writer = scene.stream.writeStream.foreachBatch(lambda frame, _: sizes.append(estimated_bytes(frame)))
    writer.option("checkpointLocation", str(scene.home / "sized")).trigger(availableNow=True).start().awaitTermination()
    assert 0 < sizes[0] < TINY_BYTES < estimated_bytes(scene.spark.range(1_000_000))


@canary("connectors/delta/table")
def delta_forgets_a_table_that_was_moved_away(scene: Scene) -> None:
    from headrace.connectors.delta.table import at_path, forget

    place = scene.home / "moved"
    for rows in (2, 1):
        scene.batch.limit(rows).coalesce(1).write.format("delta").save(str(place))
        table = at_path(scene.spark, str(place), SourceError)
        assert table is not None
        assert table.now().rows().count() == rows
        place.rename(scene.home / f"moved-{rows}")
        forget(scene.spark, str(place))


@canary("connectors/delta/table")
def deltas_log_is_read(scene: Scene) -> None:
    from headrace.connectors.delta.table import at_path

    place = str(scene.home / "delta")
    scene.batch.coalesce(1).write.format("delta").save(place)
    table = at_path(scene.spark, place, SourceError)
    assert table is not None
    state = table.now()
    assert (state.version, state.schema.names, len(state.files())) == (0, ["name", "amount"], 1)
    assert state.rows_of(state.files()).count() == 2


@canary("connectors/delta/generations")
def files_of_an_earlier_version_are_looked_for(scene: Scene) -> None:
    from headrace.connectors.delta.generations import _missing
    from headrace.connectors.delta.table import at_path

    place = scene.home / "went-back"
    states = []
    for _ in range(2):
        scene.batch.coalesce(1).write.format("delta").mode("overwrite").save(str(place))
        table = at_path(scene.spark, str(place), SourceError)
        assert table is not None
        states.append(table.now())
    former, now = states
    assert _missing(former, now) == ""
    ((file, _),) = former.actions.keys() - now.actions.keys()
    (place / file).unlink()
    assert _missing(former, now) == file


@canary("connectors/kafka/client")
def kafkas_admin_client_is_asked(scene: Scene) -> None:
    from headrace.connectors.kafka.client import client

    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    asked = client(scene.spark, f"127.0.0.1:{port}", {}, SourceError)
    with pytest.raises(SourceError, match="HR331"), asked as broker:
        broker.topics()


@canary("connectors/iceberg/files", "connectors/iceberg/batches")
def pyiceberg_loses_nulls_and_is_mended(scene: Scene) -> None:
    from importlib.metadata import version

    from pyiceberg.io.pyarrow import ArrowProjectionVisitor, _dataframe_to_data_files

    assert version("pyiceberg") == "0.12.0", "look whether the patch is still needed, then pin the new version"
    assert {"list", "map"} <= set(vars(ArrowProjectionVisitor))
    assert _dataframe_to_data_files.__code__.co_varnames[:3] == ("table_metadata", "df", "io")


@canary("connectors/sql/mysql/dialect")
def pymysqls_packets_are_seen(scene: Scene) -> None:
    from pymysql.connections import Connection
    from pymysql.protocol import MysqlPacket

    assert callable(Connection._read_packet)
    assert {"is_load_local_packet", "get_all_data"} <= set(dir(MysqlPacket))


@canary("spark/stream/work")
def block_managers_are_known(scene: Scene) -> None:
    from headrace.spark.stream.work import DRIVER, UNBOUNDED, block_managers, executors

    assert [name for name, _ in block_managers(scene.spark)] == [DRIVER], "a local master has no other executor"
    assert executors(scene.spark) == frozenset()
    nowhere = scene.jvm.PythonUtils.toScalaMap({})
    asked = scene.spark.sparkContext._jsc.sc().requestTotalExecutors(UNBOUNDED, 0, nowhere)
    assert asked is False, "a local master gives none"


@canary("spark/jvm/stderr_filter")
def workers_know_the_batch_of_their_task(scene: Scene) -> None:
    import inspect

    from pyspark import daemon, worker

    from headrace.spark.jvm.stderr_filter import BATCH

    assert "TaskContext._setTaskContext(None)" in inspect.getsource(worker), "the end of a task"
    assert "def manager()" in inspect.getsource(daemon)
    package = scene.jvm.org.apache.spark.sql.execution.streaming.runtime
    assert package.MicroBatchExecution.BATCH_ID_KEY() == BATCH


@canary("spark/messages/refusals", "spark/messages/failures")
def conditions_have_known_names(scene: Scene) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.errors.error_classes import ERROR_CLASSES_MAP

    from headrace.spark.messages.conditions import CONDITIONS, FORMER
    from headrace.spark.messages.failures import KNOWN
    from headrace.spark.messages.refusals import REFUSALS, condition_of

    reader = scene.jvm.org.apache.spark.SparkThrowableHelper.errorReader()
    named = {name for condition in (*KNOWN, *REFUSALS) for name in condition.conditions if "DELTA" not in name}
    named |= set(CONDITIONS)
    former = {new: old for old, new in FORMER.items()}
    names = {name: {name, former.get(name, name)} for name in named}
    spark_names = {*ERROR_CLASSES_MAP, *filter(reader.isValidErrorClass, set().union(*names.values()))}
    assert [name for name, either in names.items() if spark_names.isdisjoint(either)] == []
    with pytest.raises(AnalysisException) as caught:
        scene.batch.select("nothing").collect()
    assert str(condition_of(caught.value)).startswith("UNRESOLVED_COLUMN")
    with pytest.raises(AnalysisException, match="writeStream"):
        scene.stream.collect()


JARS = {
    "connectors/delta/table": "delta",
    "connectors/delta/generations": "delta",
    "connectors/kafka/client": "kafka",
}


@canary("spark/plans/plan_text")
def _plan_text(scene: Scene) -> None:
    assert scene.progress
    assert "== Physical Plan ==" in scene.plan


def _rows() -> list[Any]:
    services = [pytest.mark.services, pytest.mark.connectors]
    return [pytest.param(part, marks=services if part in JARS else pytest.mark.spark) for part in sorted(CANARIES)]


@pytest.mark.parametrize("part", _rows())
def test_a_private_part_is_where_it_was(
    part: str, spark: SparkSession, scenes: dict[str, Scene], tmp_path_factory: pytest.TempPathFactory
) -> None:
    session = str(id(spark))
    if session not in scenes:
        scenes[session] = Scene(spark, tmp_path_factory.mktemp("canary"))
    try:
        for look in CANARIES[part]:
            look(scenes[session])
    except Exception as error:
        where = error.__traceback__
        while (
            where is not None and where.tb_next is not None and "test_private" not in where.tb_frame.f_code.co_filename
        ):
            where = where.tb_next
        lines = str(error).strip().splitlines() or [type(error).__name__]
        pytest.fail(f"{part}.py: Spark {spark.version} has moved what it uses: {lines[0][:300]}", pytrace=False)


@pytest.mark.plain
def test_only_sparks_room_and_the_connectors_use_private_parts() -> None:
    strangers = {module: parts for module, parts in users().items() if not module.startswith(("spark/", "connectors/"))}
    assert strangers == {}, f"move it into spark/: {strangers}"


@pytest.mark.plain
def test_only_they_call_methods_of_plans() -> None:
    assert callers_of_plans() == {}, "move the call into spark/, into a function that gives plain values"
    seen = jvm_calls(
        "node.nodeName(); plan.children(); frame.groupBy('a'); columns[0].exprId().id(); logging.getLogger()"
    )
    assert sorted(seen) == ["children", "exprId", "nodeName"]


@pytest.mark.plain
def test_each_module_that_uses_a_private_part_has_a_canary() -> None:
    assert sorted(set(users()) - set(CANARIES)) == []
    assert [part for part in CANARIES if not (SOURCES / f"{part}.py").exists()] == []


@pytest.mark.plain
def test_each_canary_is_in_the_table_of_private_parts_and_the_other_way_round() -> None:
    modules = re.findall(r"^\| `(\w+/[\w/]+)` \|", TABLE.read_text(), re.MULTILINE)
    assert sorted(modules) == sorted(module for module, looks in CANARIES.items() for _ in looks)
