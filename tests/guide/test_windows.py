"""Windows of event time: the guide's and the book's tables, sessions, and windows of windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, verify
from headrace.frames.plan_builder import build

from .scenes import events, land, play, project, query, refusal_of, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LINES = source("lines", "time TIMESTAMP, line STRING")
COUNTS = query(
    """
    lines.select("time", F.explode(F.split("line", " ")).alias("word"))
         .groupBy(F.window("time", "10 minutes", "5 minutes"), "word").count()
         .select(F.col("window.start").alias("since"), F.col("window.end").alias("until"), "word", "count")
    """,
    inputs="lines",
    mode="complete",
)
TABLE = "SELECT substr(since, 12, 5), substr(until, 12, 5), word, count FROM q ORDER BY 1, 3"
AT_12_05 = [("12:00", "12:10", "cat", 1), ("12:00", "12:10", "dog", 3)]
AT_12_10 = [
    ("12:00", "12:10", "cat", 2),
    ("12:00", "12:10", "dog", 3),
    ("12:00", "12:10", "owl", 1),
    ("12:05", "12:15", "cat", 1),
    ("12:05", "12:15", "owl", 1),
]
AT_12_15 = [
    *AT_12_10[:3],
    ("12:05", "12:15", "cat", 1),
    ("12:05", "12:15", "dog", 1),
    ("12:05", "12:15", "owl", 2),
    ("12:10", "12:20", "dog", 1),
    ("12:10", "12:20", "owl", 1),
]
LATE_DOG = [
    ("12:00", "12:10", "cat", 2),
    ("12:00", "12:10", "dog", 4),
    ("12:00", "12:10", "owl", 1),
    ("12:05", "12:15", "cat", 1),
    ("12:05", "12:15", "owl", 2),
    ("12:10", "12:20", "owl", 1),
]


@pytest.mark.capability("OP-WIN-02")
@pytest.mark.parametrize(
    ("third", "table", "dogs"),
    [
        pytest.param(("12:11", "dog"), AT_12_15, 3, id="the dog comes in time"),
        pytest.param(("12:04", "dog"), LATE_DOG, 4, id="the dog of 12:04 comes at 12:11"),
    ],
)
def test_sliding_windows_give_the_guides_tables(
    tmp_path: Path, spark: SparkSession, third: tuple[str, str], table: list[tuple[str, str, str, int]], dogs: int
) -> None:
    """The pictures leave out the window from 11:55 to 12:05, which takes the first lines too."""
    root = project(tmp_path, LINES, COUNTS)
    first = events("line", ("12:02", "cat dog"), ("12:03", "dog dog"))
    land(root, "lines", first, events("line", ("12:07", "owl cat")), events("line", third, ("12:13", "owl")))
    played = play(root, spark, TABLE)
    tables = [trigger.table for trigger in played.triggers]
    assert [[row for row in rows_of_table if row[0] != "11:55"] for rows_of_table in tables] == [
        AT_12_05,
        AT_12_10,
        table,
    ]
    assert tables[-1][:2] == [("11:55", "12:05", "cat", 1), ("11:55", "12:05", "dog", dogs)]


@pytest.mark.capability("OP-WIN-01")
def test_a_tumbling_window_takes_a_reading_by_its_own_time(tmp_path: Path, spark: SparkSession) -> None:
    """The book: 12:07 is received after 12:11, and each is in one window of five minutes."""
    counts = query(
        """
        readings.groupBy("sensor", F.window("time", "5 minutes")).count()
                .select(F.col("window.start").alias("since"), F.col("window.end").alias("until"), "sensor", "count")
        """,
        inputs="readings",
        mode="update",
        key=["since", "sensor"],
    )
    root = project(tmp_path, source("readings", "time TIMESTAMP, sensor STRING"), counts)
    land(root, "readings", events("sensor", ("12:05", "id1"), ("12:09:59", "id1"), ("12:08", "id2")))
    land(root, "readings", events("sensor", ("12:11", "id1")), events("sensor", ("12:07", "id1"), ("12:10", "id2")))
    played = play(root, spark, TABLE.replace("word", "sensor"))
    first = [("12:05", "12:10", "id1", 2), ("12:05", "12:10", "id2", 1)]
    second = [*first, ("12:10", "12:15", "id1", 1)]
    third = [("12:05", "12:10", "id1", 3), first[1], second[2], ("12:10", "12:15", "id2", 1)]
    assert [(trigger.table, trigger.written) for trigger in played.triggers] == [(first, 2), (second, 1), (third, 2)]
    assert verify(load(root), "q", spark=spark).state == "equal"


VISITS = source("visits", "time TIMESTAMP, user STRING", watermark='("time", "10 minutes")')
SESSIONS = """
    visits.groupBy({window}, "user").count()
          .select(F.col("session_window.start").alias("since"), F.col("session_window.end").alias("until"), "user",
                  "count")
"""
STATIC = 'F.session_window("time", "5 minutes")'
DYNAMIC = """F.session_window("time", F.when(F.col("user") == "user1", "5 seconds")
    .when(F.col("user") == "user2", "20 seconds").when(F.col("user") == "none", "0 seconds")
    .when(F.col("user") == "less", "-1 minute").otherwise("5 minutes"))"""
SESSION_TABLE = "SELECT substr(since, 12, 8), substr(until, 12, 8), user, count FROM q ORDER BY 3, 1"


@pytest.mark.capability("OP-WIN-03")
def test_a_session_ends_when_nothing_came_for_the_gap(tmp_path: Path, spark: SparkSession) -> None:
    """12:15 is not yet of the session that ends at 12:13, and 12:12 makes the two of `bob` one."""
    root = project(tmp_path, VISITS, query(SESSIONS.format(window=STATIC), inputs="visits"))
    land(root, "visits", events("user", ("12:00", "ann"), ("12:04", "ann"), ("12:08", "bob"), ("12:15", "ann")))
    land(root, "visits", events("user", ("12:08", "ann"), ("12:16", "bob")), events("user", ("12:12", "bob")))
    land(root, "visits", events("user", ("12:40", "ann")))
    played = play(root, spark, SESSION_TABLE)
    ended = [
        ("12:00:00", "12:13:00", "ann", 3),
        ("12:15:00", "12:20:00", "ann", 1),
        ("12:08:00", "12:21:00", "bob", 3),
    ]
    assert [trigger.table for trigger in played.triggers] == [[], [], [], [], ended]
    assert [trigger.watermark for trigger in played.triggers] == [None, "12:05", "12:06", "12:06", "12:30"]


@pytest.mark.capability("OP-WIN-04")
def test_each_row_brings_its_own_gap_and_without_one_it_is_left_out(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, VISITS, query(SESSIONS.format(window=DYNAMIC), inputs="visits", mode="complete"))
    users = ("user1", "user2", "user3", "none", "less")
    land(root, "visits", events("user", *(("12:00:00", user) for user in users)))
    land(root, "visits", events("user", *(("12:00:04", user) for user in users)))
    land(root, "visits", events("user", *(("12:00:20", user) for user in users)))
    played = play(root, spark, SESSION_TABLE)
    assert [trigger.table for trigger in played.triggers] == [
        [
            ("12:00:00", "12:00:05", "user1", 1),
            ("12:00:00", "12:00:20", "user2", 1),
            ("12:00:00", "12:05:00", "user3", 1),
        ],
        [
            ("12:00:00", "12:00:09", "user1", 2),
            ("12:00:00", "12:00:24", "user2", 2),
            ("12:00:00", "12:05:04", "user3", 2),
        ],
        [
            ("12:00:00", "12:00:09", "user1", 2),
            ("12:00:20", "12:00:25", "user1", 1),
            ("12:00:00", "12:00:40", "user2", 3),
            ("12:00:00", "12:05:20", "user3", 3),
        ],
    ]


WORDS = source("words", "time TIMESTAMP, word STRING", watermark='("time", "10 minutes")')
SMALL = 'words.groupBy(F.window("time", "5 minutes"), "word").count()'
HOURS = """
    {small}.groupBy({window}, "word").agg(F.sum("count").alias("count"))
           .select(F.col("window.start").alias("since"), F.col("window.end").alias("until"), "word", "count")
"""


@pytest.mark.capability("OP-WIN-05")
@pytest.mark.parametrize(
    "window",
    [
        pytest.param('F.window(F.window_time("window"), "1 hour")', id="window_time"),
        pytest.param('F.window("window", "1 hour")', id="a window of the window", marks=pytest.mark.long),
    ],
)
def test_windows_of_five_minutes_are_summed_up_by_the_hour(tmp_path: Path, spark: SparkSession, window: str) -> None:
    root = project(tmp_path, WORDS, query(HOURS.format(small=SMALL, window=window), inputs="words"))
    land(root, "words", events("word", ("12:01", "cat"), ("12:02", "cat"), ("12:31", "dog"), ("12:59", "cat")))
    land(root, "words", events("word", ("13:00", "cat"), ("12:58", "cat")), events("word", ("13:20", "dog")))
    played = play(root, spark, TABLE)
    assert played.triggers[2].table == []
    assert played.triggers[-1].table == [("12:00", "13:00", "cat", 4), ("12:00", "13:00", "dog", 1)]
    assert verify(load(root), "q", spark=spark).state == "open"


@pytest.mark.capability("OP-WIN-05")
def test_the_time_of_a_window_is_the_last_instant_in_it(tmp_path: Path, spark: SparkSession) -> None:
    result = f'{SMALL}.select(F.window_time("window").cast("string").alias("last"), "word", "count")'
    root = project(tmp_path, WORDS, query(result, inputs="words", mode="update", key=["last", "word"]))
    land(root, "words", events("word", ("12:01", "cat"), ("12:05", "cat")))
    played = play(root, spark, "SELECT substr(last, 12), word, count FROM q ORDER BY 1")
    assert played.triggers[-1].table == [("12:04:59.999999", "cat", 1), ("12:09:59.999999", "cat", 1)]


EVERYBODY = SESSIONS.format(window=STATIC).replace(', "user").count()', ").count()").replace(' "user",', "")


@pytest.mark.capability("OP-WIN-06")
@pytest.mark.parametrize(
    ("result", "mode", "words"),
    [
        pytest.param(SESSIONS.format(window=STATIC), "update", "session window", id="update mode"),
        pytest.param(EVERYBODY, "append", "by a session window alone", id="no other key, append"),
        pytest.param(EVERYBODY, "complete", "by a session window alone", id="no other key, complete"),
    ],
)
def test_what_sessions_cannot_do_in_a_stream_is_refused(
    tmp_path: Path, spark: SparkSession, result: str, mode: str, words: str
) -> None:
    key = ["since", "user"] if mode == "update" else []
    root = project(tmp_path, VISITS, query(result, inputs="visits", mode=mode, key=key))
    land(root, "visits", events("user", ("12:00", "ann")))
    error = refusal_of(root, spark)
    assert error.code == "HR226"
    assert words in error.what


@pytest.mark.capability("OP-WIN-06")
def test_a_batch_may_group_by_a_session_window_alone(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path, VISITS, query(EVERYBODY, inputs="visits"))
    land(root, "visits", events("user", ("12:00", "ann"), ("12:04", "bob"), ("12:10", "ann")))
    read = spark.read.schema("time TIMESTAMP, user STRING").json(str(root / "visits"))
    declared = load(root)
    answer = build(declared, declared.queries["q"].transform, spark, lambda source: read)
    windows = [
        (row["since"].strftime("%H:%M"), row["until"].strftime("%H:%M"), row["count"]) for row in answer.collect()
    ]
    assert sorted(windows) == [("12:00", "12:09", 2), ("12:10", "12:15", 1)]
