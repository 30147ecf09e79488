"""For each operator of a query, check shows what it keeps, by what, how long, and by how much results come later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INPUTS = """
import headrace as hr
from pyspark.sql import functions as F

def source(schema, *watermark):
    return hr.source.files("in", format="json", schema=schema, watermark=watermark or None)

events = source("id INT, time TIMESTAMP, gap STRING", "time", "10 minutes")
plain = source("id INT, time TIMESTAMP")
impressions = source("ad INT, shown TIMESTAMP", "shown", "2 hours")
clicks = source("clicked_ad INT, clicked TIMESTAMP", "clicked", "3 hours")

def follow(key, frames, state):
    yield from frames

def kept(frame, timeout):
    return frame.applyInPandasWithState(follow, "id INT", "n INT", "append", timeout)

"""
STATE = "arbitrary state by id: kept until its function removes it"
JOIN = "(clicks, F.expr('ad = clicked_ad AND clicked BETWEEN shown AND shown + INTERVAL 1 HOUR'), '{}')"
WINDOW = "kept until the watermark is past its window's end: 1 hour (window) + 10 minutes (delay)"
PAST = "kept until the watermark is past its"
END = "comes 10 minutes after its {} at the earliest, in event time"
SESSION = f"session windows by session_window, id: {PAST} end: {{}} + 10 minutes (delay) after its last row; "
KEPT = "join by ad = clicked_ad: kept 'impressions' 4 hours, 'clicks' 2 hours"
LATER = "a window's row comes 10 minutes after its window's end at the earliest, in event time"
# The inputs, the mode and the body of a query; the sentences, and the longest time in minutes that something is kept.
QUERIES = {
    "tumbling": (
        *("events", "append", "events.groupBy(F.window('time', '1 hour'), 'id').count()"),
        *([f"aggregation by window, id: {WINDOW}; {LATER}"], 70),
    ),
    "sliding": (
        *("events", "update", "events.groupBy(F.window('time', '1 hour', '25 minutes').alias('w')).count()"),
        *([f"aggregation by window: {WINDOW}"], 70),
    ),
    "moment": (
        *("events", "append", "events.groupBy('time').count()"),
        [
            f"aggregation by time: {PAST} time: 10 minutes (delay); a row {END.format('time')}",
        ],
        10,
    ),
    "complete": (
        *("events", "complete", "events.groupBy(F.window('time', '1 hour')).count()"),
        *(["aggregation by window: kept indefinitely, as complete mode keeps every group"], None),
    ),
    "groups": (*("events", "update", "events.groupBy('id').count()"), ["aggregation by id: kept indefinitely"], None),
    "all": (*("plain", "update", "plain.groupBy().count()"), ["aggregation: kept indefinitely, as one row"], None),
    "session": (
        *("events", "append", "events.groupBy(F.session_window('time', '5 minutes'), 'id').count()"),
        [
            f"{SESSION.format('5 minutes (gap)')}a session's row {END.format('end')}",
        ],
        15,
    ),
    "own_gap": (
        *("events", "append", "events.groupBy(F.session_window('time', F.col('gap')), 'id').count()"),
        [
            SESSION.format("the row's own gap") + f"a session's row {END.format('end')}",
        ],
        None,
    ),
    "duplicates": (
        *("events", "append", "events.dropDuplicates(['id', 'time'])"),
        *(["deduplication by id, time: kept until the watermark is past its time: 10 minutes (delay)"], 10),
    ),
    "near": (
        *("events", "append", "events.dropDuplicatesWithinWatermark(['id'])"),
        [
            "deduplication within the watermark by id: kept until the watermark is 10 minutes past the first row: "
            "20 minutes (twice the delay)"
        ],
        20,
    ),
    "endless": (
        *("events", "append", "events.dropDuplicates(['id'])"),
        ["deduplication by id: kept indefinitely"],
        None,
    ),
    "inner": (
        *("impressions, clicks", "append", f"impressions.join{JOIN.format('inner')}"),
        *([KEPT], 240),
    ),
    "outer": (
        *("impressions, clicks", "append", f"impressions.join{JOIN.format('left_outer')}"),
        [
            f"{KEPT}; a row of 'impressions' without a match comes 4 hours after its time at the earliest",
        ],
        240,
    ),
    "unbounded": (
        *("impressions, clicks", "append", "impressions.join(clicks, F.expr('ad = clicked_ad'))"),
        *(["join by ad = clicked_ad: kept 'impressions' indefinitely, 'clicks' indefinitely"], None),
    ),
    "by_time": (
        *("events", "append", "kept(events.groupBy('id'), 'EventTimeTimeout')"),
        *([f"{STATE}, or its timeout by event time is past"], None),
    ),
    "by_clock": (
        *("events", "append", "kept(events.groupBy('id'), 'ProcessingTimeTimeout')"),
        *([f"{STATE}, or its timeout by the clock is past"], None),
    ),
    "by_hand": (
        *("events", "append", "kept(events.groupBy('id'), 'NoTimeout')"),
        *([f"{STATE}; nothing else does"], None),
    ),
    "two": (
        "events",
        "append",
        "events.dropDuplicates(['id', 'time']).groupBy(F.window('time', '1 hour')).count()",
        [
            "deduplication by id, time: kept until the watermark is past its time: 10 minutes (delay)",
            f"aggregation by window: {WINDOW}; {LATER}",
        ],
        70,
    ),
    "none": (*("plain", "append", "plain.where('id > 1')"), [], None),
}


@pytest.mark.spark
@pytest.mark.capability("OP-WM-03")
def test_each_operator_is_shown_with_its_key_its_bound_and_its_time(tmp_path: Path, spark: SparkSession) -> None:
    text = INPUTS
    for name, (inputs, mode, body, _, _) in QUERIES.items():
        text += f"@hr.query(sink=hr.sink.console(), mode='{mode}')\ndef {name}({inputs}):\n    return {body}\n\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.py").write_text(text)
    result = check(load(tmp_path, environ={}), spark=spark, connect=False)
    assert [str(error) for error in result.errors] == []
    states = result.as_dict()["states"]
    assert {name: [bound["sentence"] for bound in bounds] for name, bounds in states.items()} == {
        name: sentences for name, (*_, sentences, _) in QUERIES.items()
    }
    longest = {
        name: max((ms for bound in bounds for ms in bound["kept_ms"].values() if ms is not None), default=None)
        for name, bounds in states.items()
    }
    assert longest == {name: None if minutes is None else minutes * 60_000 for name, (*_, minutes) in QUERIES.items()}
    unbounded = {finding.what.split("'")[1]: finding for finding in result.findings if finding.code == "HR240"}
    assert unbounded.keys() == {"endless", "unbounded", "by_hand"}
    assert "until the function removes it" in unbounded["by_hand"].what
    assert [bound["bounded"] for bound in states["by_hand"]] == [False]
    assert [(bound["later_ms"], bool(bound["appears"])) for bound in states["outer"]] == [(4 * 3_600_000, True)]
