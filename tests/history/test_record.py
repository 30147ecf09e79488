"""A report of Spark becomes a record, of whatever version of Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from headrace.contract import BatchRecord, Lag, Leap

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ["aggregate", "first_batch", "heard_0", "heard_6", "no_data", "rate"]


def text(name: str) -> str:
    return (FIXTURES / f"{name}.json").read_text()


def changed(fixture: str, /, **facts: object) -> str:
    return json.dumps({**json.loads(text(fixture)), **facts})


def test_a_batch_of_an_aggregate_with_a_watermark() -> None:
    record = BatchRecord.parse(text("heard_6"))
    assert (record.query, record.batch, record.rows) == ("counts", 6, 3)
    assert record.watermark == datetime(2024, 1, 1, 4, 30, tzinfo=timezone.utc)
    assert (record.state_rows, record.dropped_by_watermark) == (2, 1)
    assert record.state_bytes is not None
    assert record.state_bytes > 0
    assert record.duration_ms == record.durations["triggerExecution"] >= record.durations["addBatch"] > 0
    assert record.observed == {"quality": {"rows": 3, "newest": "2024-01-01 06:00:00"}}
    assert [(source.rows, source.start, source.end) for source in record.sources] == [
        (3, '{"logOffset":5}', '{"logOffset":6}')
    ]
    assert record.at.tzinfo is timezone.utc
    assert record.backlog is None


@pytest.mark.parametrize(
    ("operator", "partitions", "stores", "times"),
    [
        ("stateStoreSave", 2, 2, 1),
        ("stateStoreSave", 2, 4, 2),
        ("stateStoreSave", 2, 1, 1),
        ("symmetricHashJoin", 2, 8, 1),
        ("symmetricHashJoin", 2, 24, 3),
        ("symmetricHashJoin", 2, 4, 2),
        ("globalLimit", 2, 1, 1),
        ("globalLimit", 2, 2, 2),
    ],
)
def test_the_figures_of_an_operator_are_those_of_one_computation(
    operator: str, partitions: int, stores: int, times: int
) -> None:
    figures = {"numRowsTotal": 600, "numRowsUpdated": 120, "memoryUsedBytes": 6_000, "numRowsDroppedByWatermark": 12}
    counts = {"numShufflePartitions": partitions, "numStateStoreInstances": stores}
    record = BatchRecord.parse(
        changed("heard_6", stateOperators=[{"operatorName": operator, "commitTimeMs": 5, **figures, **counts}])
    )
    assert (record.state_rows, record.state_bytes) == (600 / times, 6_000 / times)
    [operator] = record.operators
    assert (record.dropped_by_watermark, operator.late, operator.updated) == (12 / times, 12 / times, 120 / times)
    assert operator.commit_ms == 5


def test_the_first_batch_starts_from_nothing() -> None:
    record = BatchRecord.parse(text("heard_0"))
    assert (record.sources[0].start, record.sources[0].end) == (None, '{"logOffset":0}')
    assert record.watermark is None


def test_a_batch_without_data_has_no_rows_but_a_watermark() -> None:
    record = BatchRecord.parse(text("no_data"))
    assert (record.rows, record.input_rate, record.processed_rate) == (0, 0.0, 0.0)
    assert record.watermark is not None
    assert record.sources[0].start == record.sources[0].end


def test_a_query_without_state_or_watermark_says_so() -> None:
    record = BatchRecord.parse(text("rate"))
    assert (record.state_rows, record.state_bytes, record.watermark) == (None, None, None)
    assert record.rows > 0
    assert record.input_rate > 0
    assert int(record.sources[1].end or "x") > 0


def test_sources_bear_sparks_description_or_the_names_that_are_given() -> None:
    assert BatchRecord.parse(text("rate")).sources[0].name.startswith("FileStreamSource[")
    named = BatchRecord.parse(text("rate"), source_names=["landing", "ticks"])
    assert [source.name for source in named.sources] == ["landing", "ticks"]
    assert BatchRecord.parse(text("rate"), source_names=["landing"]).sources[1].name.startswith("RateStream")


@pytest.mark.parametrize("value", [None, "NaN", "Infinity"])
def test_a_rate_over_no_time_is_zero(value: object) -> None:
    assert BatchRecord.parse(changed("rate", inputRowsPerSecond=value)).input_rate == 0.0


def test_a_query_without_a_name_bears_its_id() -> None:
    assert BatchRecord.parse(changed("rate", name=None)).query == json.loads(text("rate"))["id"]


@pytest.mark.parametrize("name", NAMES)
def test_a_record_survives_being_written_down(name: str) -> None:
    record = BatchRecord.parse(text(name))
    assert BatchRecord.from_dict(json.loads(json.dumps(record.as_dict()))) == record


def test_a_backlog_survives_being_written_down() -> None:
    plain = BatchRecord.parse(text("rate")).as_dict()
    plain["backlog"] = {"count": 3, "unit": "files", "bytes": None}
    assert BatchRecord.from_dict(plain).backlog == Lag(count=3, unit="files")


HDFS = {"loadedMapCacheHitCount": 4, "loadedMapCacheMissCount": 2}


@pytest.mark.parametrize(
    ("operators", "hits", "misses"),
    [
        ([], None, None),
        ([("dedupe", 2, {"rocksdbNumLoadedFromDfs": 0})], 2, 0),
        (
            [("symmetricHashJoin", 8, {"rocksdbNumLoadedFromDfs": 8}), ("dedupe", 2, {"rocksdbNumLoadedFromDfs": 1})],
            1,
            9,
        ),
        ([("stateStoreSave", 2, {"rocksdbNumLoadedFromDfs": 0})], None, None),
        ([("stateStoreSave", 2, HDFS), ("dedupe", 2, HDFS)], 8, 4),
        ([("dedupe", 2, {})], None, None),
    ],
    ids=["no state", "kept", "loaded", "aggregation in RocksDB", "HDFS", "another store"],
)
def test_stores_that_were_kept_and_loaded_are_counted_where_spark_reports_them(
    operators: list[tuple[str, int, dict[str, int]]], hits: int | None, misses: int | None
) -> None:
    facts = json.loads(text("aggregate"))
    facts["stateOperators"] = [
        {"operatorName": name, "numRowsTotal": 1, "memoryUsedBytes": 1, "numStateStoreInstances": stores}
        | {"customMetrics": metrics}
        for name, stores, metrics in operators
    ]
    record = BatchRecord.parse(json.dumps(facts))
    assert (record.state_hits, record.state_misses) == (hits, misses)
    assert BatchRecord.parse(json.dumps(facts), rows_tracked=False).state_rows is None


def test_event_times_beyond_the_years_of_python_are_its_last_ones() -> None:
    times = {
        "watermark": "+12345-01-01T00:00:00.000Z",
        "max": "+12345-01-01T01:00:00.000Z",
        "min": "-0044-03-15T00:00:00.000Z",
    }
    record = BatchRecord.parse(changed("heard_6", eventTime=times))
    assert record.watermark == record.event_max == datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    assert record.event_min == datetime(1, 1, 1, tzinfo=timezone.utc)
    assert BatchRecord.from_dict(json.loads(json.dumps(record.as_dict(), default=str))) == record


def test_what_moved_the_watermark_is_kept_with_the_batch() -> None:
    leap = Leap(watermark_ms=3, source="events", batch=5, time_ms=4, place="events/0/7")
    record = replace(BatchRecord.parse(text("heard_6")), leap=leap)
    plain = json.loads(json.dumps(record.as_dict(), default=str))
    assert BatchRecord.from_dict(plain).leap == leap
    del plain["leap"]  # As earlier versions wrote it.
    assert BatchRecord.from_dict(plain).leap is None
