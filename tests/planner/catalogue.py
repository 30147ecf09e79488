"""Changes of running queries: what is edited, and the verdict.

Each base is a project; a change replaces one text of it by another, several at once where they are parted by `|`.
What plain Spark does with some of them over an old checkpoint stands in `test_plain_spark`.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "id LONG, action STRING, other STRING, price DOUBLE, cost DOUBLE, n INT, time TIMESTAMP"
SOURCES = f"""name: shop
sources:
  events:
    files: {{path: in, format: json, schema: "{SCHEMA}"}}
    watermark: {{column: time, delay: 10 minutes}}
  clicks:
    files: {{path: clicks, format: json, schema: "{SCHEMA}"}}
    watermark: {{column: time, delay: 20 minutes}}
"""
DIMS = """tables:
  names:
    select: SELECT id, name FROM VALUES (1, 'one'), (2, 'two') AS t(id, name)
  prices:
    select: SELECT CAST(_c0 AS INT) AS id, CAST(_c1 AS DOUBLE) AS list_price FROM csv.`{root}/prices.csv`
"""
BASES = {
    "counts": SOURCES
    + """queries:
  q:
    # how many
    select: >
      SELECT action, window.start AS hour, count(*) AS n, sum(price) AS total, max(price) AS high, min(price) AS low
      FROM events WHERE price > 1 AND action <> 'x' GROUP BY action, window(time, '1 hour')
    mode: update
    trigger: {every: 5 seconds}
    sink: {sqlite: {path: out.db, table: counts, key: [action, hour]}}
""",
    "rows": SOURCES
    + """queries:
  q:
    select: SELECT id, action, price * 2 AS double, upper(other) AS other FROM events WHERE price > 1 AND n < 5
    mode: append
    sink: {sqlite: {path: out.db, table: rows}}
""",
    "joined": SOURCES
    + """queries:
  q:
    select: >
      SELECT e.id, e.action, c.price, c.cost FROM events e JOIN clicks c
      ON e.id = c.id AND e.action = c.action AND c.time BETWEEN e.time AND e.time + INTERVAL 1 HOUR
    mode: append
    sink: {sqlite: {path: out.db, table: joined}}
""",
    "distinct": SOURCES
    + """views:
  unique: {select: "SELECT DISTINCT id, n, action, other, time FROM events"}
queries:
  q:
    select: SELECT id, n, action, other FROM unique
    mode: append
    sink: {sqlite: {path: out.db, table: unique}}
""",
    "enriched": SOURCES
    + DIMS
    + """queries:
  q:
    select: >
      SELECT e.id, names.name, e.price, list_price FROM events e JOIN names ON e.id = names.id
      LEFT JOIN prices ON e.id = prices.id
    mode: append
    sink: {sqlite: {path: out.db, table: enriched}}
""",
    "twice": SOURCES
    + DIMS
    + """queries:
  q:
    select: >
      SELECT e.id, a.name AS name, b.name AS other FROM events e JOIN names a ON e.id = a.id JOIN names b ON e.n = b.id
    mode: append
    sink: {sqlite: {path: out.db, table: named}}
""",
    "first": SOURCES
    + """queries:
  q:
    select: SELECT action, count(*) AS n FROM events GROUP BY action ORDER BY n DESC, action LIMIT 1
    mode: complete
    sink: {sqlite: {path: out.db, table: firsts}}
""",
    "cheapest": SOURCES
    + """tables:
  names: {select: "SELECT id, name FROM VALUES (1, 'one'), (1, 'two') AS t(id, name) ORDER BY name LIMIT 1"}
queries:
  q:
    select: SELECT e.id, name FROM events e JOIN names ON e.id = names.id
    mode: append
    sink: {sqlite: {path: out.db, table: named}}
""",
    "complete": SOURCES
    + """queries:
  q:
    select: SELECT action, count(*) AS n, sum(price) AS total FROM events GROUP BY action
    mode: complete
    sink: {sqlite: {path: out.db, table: totals}}
""",
    "sessions": SOURCES
    + """queries:
  q:
    select: >
      SELECT action, session_window.start AS begins, count(*) AS n
      FROM events GROUP BY action, session_window(time, '5 minutes')
    mode: append
    sink: {sqlite: {path: out.db, table: sessions}}
""",
    "united": SOURCES
    + """queries:
  q:
    select: SELECT id, action, 1 AS side FROM events UNION ALL SELECT id, action, 2 AS side FROM clicks
    mode: append
    sink: {files: {path: out, format: csv}}
""",
    "topic": SOURCES
    + """queries:
  q:
    select: SELECT id, action FROM events
    mode: append
    sink: {kafka: {bootstrap_servers: "127.0.0.1:9", topic: rows}}
""",
    "ticks": """name: ticks
sources:
  ticks:
    rate: {rows_per_second: 2}
queries:
  q:
    select: SELECT timestamp, value FROM ticks
    mode: append
    sink: {files: {path: out, format: json}}
""",
    "clock": SOURCES
    + """queries:
  q:
    select: SELECT id, current_timestamp() AS seen, current_date() AS day, rand() AS chance FROM events
    mode: append
    sink: {files: {path: out, format: json}}
""",
}

# Python files of a project, one after another.
PYTHON = f"""# file: helpers.py
import os

RATE = 1.5
UNUSED = 1

def scaled(value):
    return value * RATE

def unused(value):
    return value

# file: pipeline.py
from functools import partial

import headrace as hr
from pyspark.sql import functions as F

import helpers

events = hr.source.files("in", format="json", schema="{SCHEMA}", watermark=("time", "10 minutes"))
LIMIT = 3

def clipped(value, limit=5, *, floor=0):
    return None if value is None else max(min(value, limit), floor)

class Weight:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, value):
        return value * self.factor

def make(offset):
    def shifted(value):
        return value + offset
    return shifted

clip = F.udf(clipped, "double")

@hr.view
def priced(events):
    return events.where(F.col("price") > LIMIT)

@hr.table
def names(spark):
    return spark.createDataFrame([(1, "one"), (2, "two")], "id LONG, name STRING")
"""
BASES |= {
    "functions": PYTHON
    + """
@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(priced):
    # each row by itself
    scale = F.udf(helpers.scaled, "double")
    weigh = F.udf(Weight(2.0), "double")
    shift = F.udf(make(7), "double")
    third = F.udf(lambda value: value / 3, "double")
    half = F.udf(partial(clipped, limit=8), "double")
    return priced.select("id", clip("price").alias("a"), scale("price").alias("b"), weigh("price").alias("c"),
                         shift("price").alias("d"), third("price").alias("e"), half("price").alias("f"))
""",
    "remembered": PYTHON
    + """
def totals(key, frames, state):
    total = state.getOption or 0
    for frame in frames:
        total += int(frame["n"].sum()) * 2
    state.update((total,))
    yield frame.head(1).assign(action=key[0], total=total)[["action", "total"]]

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["action"]), mode="update")
def q(priced):
    return priced.select("action", "other", "n").groupBy("action").applyInPandasWithState(
        totals, "action STRING, total LONG", "total LONG", "update", "NoTimeout")
""",
    "written": PYTHON
    + """
def write(frame, batch):
    # wherever it goes
    frame.limit(10).collect()

@hr.query(sink=hr.sink.foreach_batch(write))
def q(priced):
    return priced.select("id", "price")
""",
    "python_state": PYTHON
    + """
def batches(frames):
    for frame in frames:
        frame["price"] = frame["price"] + 1
        yield frame

@hr.query(sink=hr.sink.sqlite("out.db", table="counts", key=["action"]), mode="update")
def q(priced, names):
    mapped = priced.select("id", "action", "price").mapInPandas(batches, "id LONG, action STRING, price DOUBLE")
    kept = mapped.join(names, "id")
    return kept.groupBy("action").agg(F.sum(clip("price")).alias("total"), F.count("*").alias("n"))
""",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change. old, new: the texts; verdict: what `headrace plan` says."""

    base: str
    what: str
    old: str
    new: str
    verdict: str


def changes(base: str, *rows: tuple[str, str, str, str]) -> list[Change]:
    return [Change(base=base, what=title, old=old, new=new, verdict=verdict) for title, old, new, verdict in rows]


CHANGES = [
    *changes(
        "counts",
        ("a comment", "# how many", "# how many actions there were", "same"),
        ("SQL on one line", "\n      FROM events", " FROM events", "same"),
        ("lower-case keywords", "SELECT action, window.start AS hour", "select action, window.start as hour", "same"),
        ("an SQL comment", "FROM events WHERE", "FROM events /* all */ WHERE", "same"),
        ("an alias of the source", "FROM events WHERE price > 1", "FROM events AS e WHERE e.price > 1", "same"),
        ("a condition mirrored", "price > 1", "1 < price", "same"),
        ("conditions in another order", "price > 1 AND action <> 'x'", "action <> 'x' AND price > 1", "same"),
        ("a folded constant", "price > 1 ", "price > 3 - 2 ", "same"),
        ("NOT in place of <>", "action <> 'x'", "NOT action = 'x'", "same"),
        ("a redundant condition", "price > 1 ", "price > 1 AND price IS NOT NULL ", "same"),
        ("the window in minutes", "'1 hour'", "'60 minutes'", "same"),
        ("a slide as long as the window", "window(time, '1 hour')", "window(time, '1 hour', '1 hour')", "same"),
        ("count(1)", "count(*)", "count(1)", "same"),
        ("the watermark in seconds", "delay: 10 minutes", "delay: 600 seconds", "same"),
        ("a trigger", "every: 5 seconds", "every: 1 minute", "same"),
        ("a rate limit", "files: {path: in,", "files: {path: in, max_files_per_trigger: 3,", "same"),
        ("a path with a dot", "path: in,", "path: ./in,", "same"),
        ("a path with a slash", "path: in,", "path: in/,", "same"),
        ("a description", "    mode: update", "    description: counts\n    mode: update", "same"),
        ("a column without a reader", "n INT, time", "n INT, more STRING, time", "same"),
        ("a type without a reader", "cost DOUBLE, n INT", "cost STRING, n INT", "same"),
        ("a source renamed", "  events:|FROM events", "  visits:|FROM visits", "rebuild"),
        (
            "a source renamed, and declared so",
            "  events:|FROM events",
            "  visits:\n    renamed_from: events|FROM visits",
            "same",
        ),
        ("another source", "  clicks:", "  more:\n    rate: {}\n  clicks:", "same"),
        (
            "a WITH",
            "      SELECT action, window|FROM events WHERE",
            "      WITH e AS (SELECT * FROM events) SELECT action, window|FROM e WHERE",
            "same",
        ),
        ("a subquery", "FROM events WHERE", "FROM (SELECT * FROM events) WHERE", "same"),
        (
            "a filter in a subquery",
            "FROM events WHERE price > 1",
            "FROM (SELECT * FROM events WHERE price > 1) WHERE 1 = 1",
            "same",
        ),
        (
            "key columns after the counts",
            "SELECT action, window.start AS hour, count(*) AS n,",
            "SELECT count(*) AS n, action, window.start AS hour,",
            "safe",
        ),
        (
            "group keys swapped",
            "GROUP BY action, window(time, '1 hour')",
            "GROUP BY window(time, '1 hour'), action",
            "rebuild",
        ),
        (
            "another group key",
            "SELECT action,|GROUP BY action",
            "SELECT other AS action,|GROUP BY other",
            "rebuild",
        ),
        ("sum becomes max", "sum(price) AS total", "max(price) AS total", "forbidden"),
        ("sum becomes avg", "sum(price) AS total", "avg(price) AS total", "rebuild"),
        (
            "max and min swapped",
            "max(price) AS high, min(price) AS low",
            "min(price) AS low, max(price) AS high",
            "rebuild",
        ),
        (
            "max becomes min under its name",
            "max(price) AS high, min(price) AS low",
            "min(price) AS high, max(price) AS low",
            "rebuild",
        ),
        ("the aggregated column", "sum(price)", "sum(cost)", "rebuild"),
        ("an aggregate added", "count(*) AS n,", "count(*) AS n, avg(cost) AS mean,", "forbidden"),
        ("an aggregate removed", ", min(price) AS low", "", "forbidden"),
        ("the window's length", "'1 hour'", "'30 minutes'", "rebuild"),
        ("a sliding window", "window(time, '1 hour')", "window(time, '1 hour', '30 minutes')", "rebuild"),
        (
            "a window's start",
            "window(time, '1 hour')",
            "window(time, '1 hour', '1 hour', '5 minutes')",
            "rebuild",
        ),
        ("a filter before the aggregation", "price > 1 ", "price > 2 ", "rebuild"),
        ("a filter removed", "price > 1 AND action <> 'x'", "action <> 'x'", "rebuild"),
        ("a filter added", "action <> 'x'", "action <> 'x' AND n > 0", "rebuild"),
        ("AND becomes OR", "price > 1 AND", "price > 1 OR", "rebuild"),
        ("a list of values", "action <> 'x'", "action NOT IN ('x', 'y')", "rebuild"),
        (
            "a long list of values",
            "action <> 'x'",
            "action NOT IN ('a','b','c','d','e','f','g','h','i','j','k','x')",
            "rebuild",
        ),
        ("an expression under an aggregate", "sum(price)", "sum(price * 2)", "rebuild"),
        ("a rounded aggregate", "sum(price) AS total", "round(sum(price), 1) AS total", "forward"),
        ("another name of a column", "AS total", "AS sum", "forward"),
        ("HAVING", "window(time, '1 hour')\n", "window(time, '1 hour') HAVING count(*) > 1\n", "forward"),
        ("a constant column", "count(*) AS n,", "count(*) AS n, 7 AS seven,", "forward"),
        ("update becomes complete", "mode: update", "mode: complete", "rebuild"),
        ("update becomes append", "mode: update", "mode: append", "rebuild"),
        ("the sink's key", "key: [action, hour]", "key: [action, hour, n]", "rebuild"),
        ("the sink's table", "table: counts", "table: other_counts", "forbidden"),
        ("the watermark's delay", "delay: 10 minutes", "delay: 1 minute", "forward"),
        ("the source's directory", "path: in,", "path: clicks,", "rebuild"),
        ("the source's name", "  events:\n|FROM events", "  happened:\n|FROM happened", "rebuild"),
        ("the source itself", "FROM events", "FROM clicks", "rebuild"),
        ("the type of a column", "price DOUBLE", "price INT", "rebuild"),
        (
            "a filter on the counts",
            "      SELECT action, window|GROUP BY action, window(time, '1 hour')",
            "      SELECT * FROM (SELECT action, window|GROUP BY action, window(time, '1 hour')) WHERE n > 1",
            "forward",
        ),
        (
            "no aggregation",
            "count(*) AS n, sum(price) AS total, max(price) AS high, min(price) AS low|GROUP BY action, window(time, '1 hour')|window.start AS hour",
            "1 AS n, price AS total, price AS high, price AS low||time AS hour",
            "rebuild",
        ),
    ),
    *changes(
        "rows",
        ("columns in another order", "SELECT id, action,", "SELECT action, id,", "safe"),
        ("conditions in another order", "price > 1 AND n < 5", "n < 5 AND price > 1", "same"),
        ("factors in another order", "price * 2", "2 * price", "same"),
        ("bad rows into quarantine", "files: {path: in,", "files: {path: in, on_bad_row: quarantine,", "same"),
        ("append becomes update", "mode: append", "mode: update", "safe"),
        ("a filter", "n < 5", "n < 6", "forward"),
        ("a filter removed", " AND n < 5", "", "forward"),
        ("an expression", "price * 2", "price * 3", "forward"),
        ("a function", "upper(other)", "lower(other)", "forward"),
        ("a column added", "SELECT id,", "SELECT id, n,", "forward"),
        ("a column removed", ", upper(other) AS other", "", "forward"),
        (
            "a stateful operation",
            "SELECT id, action, price * 2 AS double, upper(other) AS other FROM events WHERE price > 1 AND n < 5",
            "SELECT DISTINCT id, action, time FROM events",
            "forbidden",
        ),
        ("LIMIT", "n < 5", "n < 5 LIMIT 10", "forbidden"),
        ("the directory", "path: in,", "path: clicks,", "forward"),
        ("the format", "format: json", "format: csv", "forward"),
        ("a reader's option", "files: {path: in,", "files: {path: in, options: {dateFormat: yyyy},", "forward"),
        ("the table", "table: rows", "table: others", "forbidden"),
        ("the sink", "sqlite: {path: out.db, table: rows}", "files: {path: out, format: json}", "forbidden"),
        (
            "a union",
            "FROM events WHERE price > 1 AND n < 5",
            "FROM (SELECT * FROM events UNION ALL SELECT * FROM clicks) WHERE price > 1 AND n < 5",
            "forward",
        ),
        ("the watermark of a query without a state", "delay: 10 minutes", "delay: 1 minute", "same"),
    ),
    *changes(
        "joined",
        ("the sides of an equality", "e.id = c.id", "c.id = e.id", "same"),
        (
            "BETWEEN written out",
            "c.time BETWEEN e.time AND e.time + INTERVAL 1 HOUR",
            "c.time >= e.time AND c.time <= e.time + INTERVAL 1 HOUR",
            "same",
        ),
        (
            "other aliases",
            "e.id, e.action, c.price, c.cost FROM events e JOIN clicks c\n      ON e.id = c.id AND e.action = c.action AND c.time BETWEEN e.time AND e.time",
            "a.id, a.action, b.price, b.cost FROM events a JOIN clicks b\n      ON a.id = b.id AND a.action = b.action AND b.time BETWEEN a.time AND a.time",
            "same",
        ),
        ("the interval in minutes", "INTERVAL 1 HOUR", "INTERVAL 60 MINUTES", "same"),
        ("INNER JOIN", "e JOIN clicks", "e INNER JOIN clicks", "same"),
        (
            "conditions of the key swapped",
            "e.id = c.id AND e.action = c.action",
            "e.action = c.action AND e.id = c.id",
            "rebuild",
        ),
        ("the time range", "INTERVAL 1 HOUR", "INTERVAL 2 HOURS", "rebuild"),
        ("another key", "e.action = c.action", "e.action = c.other", "rebuild"),
        ("a key less", "e.action = c.action AND ", "", "forbidden"),
        ("left outer", "e JOIN clicks", "e LEFT JOIN clicks", "rebuild"),
        ("a column of the other side", "c.price, c.cost", "c.price, c.n", "rebuild"),
        ("columns of the state swapped by type", "c.price, c.cost FROM", "c.cost, c.price FROM", "safe"),
        ("a filter below", "c.time BETWEEN", "c.n > 1 AND c.time BETWEEN", "rebuild"),
        ("a filter above", "INTERVAL 1 HOUR", "INTERVAL 1 HOUR WHERE c.price > e.id", "rebuild"),
        ("a delay", "delay: 20 minutes", "delay: 40 minutes", "forward"),
        ("an expression above", "c.price, c.cost", "c.price + 1 AS price, c.cost", "forward"),
        ("the streams swapped", "FROM events e JOIN clicks c", "FROM clicks c JOIN events e", "rebuild"),
        ("a deduplication below", "FROM events e", "FROM (SELECT DISTINCT * FROM events) e", "forbidden"),
    ),
    *changes(
        "distinct",
        ("the view's name", "unique: {|FROM unique", "once: {|FROM once", "same"),
        (
            "keys in another order",
            "DISTINCT id, n, action, other, time",
            "DISTINCT n, id, action, other, time",
            "rebuild",
        ),
        (
            "keys of one type swapped",
            "DISTINCT id, n, action, other, time",
            "DISTINCT id, n, other, action, time",
            "rebuild",
        ),
        ("a key more", "DISTINCT id, n,", "DISTINCT id, n, cost,", "forbidden"),
        ("a filter below", "FROM events", "FROM events WHERE n > 1", "rebuild"),
        ("a filter above", "FROM unique", "FROM unique WHERE n > 1", "rebuild"),
        (
            "a column above",
            "SELECT id, n, action, other FROM",
            "SELECT id, n, action, lower(other) AS other FROM",
            "forward",
        ),
        ("no deduplication", "SELECT DISTINCT", "SELECT", "rebuild"),
        ("the delay", "delay: 10 minutes", "delay: 15 minutes", "forward"),
    ),
    *changes(
        "enriched",
        ("a literal row", "(2, 'two')", "(2, 'zwei')", "forward"),
        ("rows in another order", "(1, 'one'), (2, 'two')", "(2, 'two'), (1, 'one')", "same"),
        ("a row more", "(2, 'two')", "(2, 'two'), (3, 'three')", "forward"),
        ("another file", "prices.csv", "more.csv", "forward"),
        ("another key", "e.id = prices.id", "e.n = prices.id", "forward"),
        ("inner in place of left", "LEFT JOIN prices", "JOIN prices", "forward"),
        ("the tables swapped", "JOIN names ON e.id = names.id\n", "JOIN names ON names.id = e.id\n", "same"),
        (
            "the table's name",
            "  names:|names.name|JOIN names|names.id",
            "  labels:|labels.name|JOIN labels|labels.id",
            "same",
        ),
    ),
    *changes(
        "twice",
        (
            "the uses of a table swapped in the result",
            "a.name AS name, b.name AS other",
            "b.name AS name, a.name AS other",
            "forward",
        ),
        ("the uses of a table swapped in the keys", "e.id = a.id|e.n = b.id", "e.n = a.id|e.id = b.id", "forward"),
        (
            "other aliases of a table",
            "a.name AS name|names a ON e.id = a.id",
            "o.name AS name|names o ON e.id = o.id",
            "same",
        ),
    ),
    *changes(
        "first",
        ("the order below a limit", "ORDER BY n DESC", "ORDER BY n ASC", "safe"),
        ("the limit", "LIMIT 1", "LIMIT 2", "safe"),
    ),
    *changes(
        "cheapest",
        ("the order below the limit of a table", "ORDER BY name", "ORDER BY name DESC", "forward"),
    ),
    *changes(
        "complete",
        ("an expression above", "sum(price) AS total", "round(sum(price), 2) AS total", "safe"),
        (
            "columns in another order",
            "count(*) AS n, sum(price) AS total",
            "count(*) AS n, sum(price) AS total",
            "same",
        ),
        ("aggregates swapped", "count(*) AS n, sum(price) AS total", "sum(price) AS total, count(*) AS n", "rebuild"),
        ("HAVING", "GROUP BY action", "GROUP BY action HAVING count(*) > 1", "safe"),
        ("complete becomes update", "mode: complete", "mode: update", "rebuild"),
        ("ORDER BY", "GROUP BY action", "GROUP BY action ORDER BY action", "same"),
        ("a filter below", "FROM events", "FROM events WHERE n > 1", "rebuild"),
        ("count of a column", "count(*)", "count(n)", "rebuild"),
    ),
    *changes(
        "sessions",
        ("the gap", "'5 minutes'", "'6 minutes'", "rebuild"),
        ("the gap in seconds", "'5 minutes'", "'300 seconds'", "same"),
        (
            "a key of one type",
            "SELECT action,|GROUP BY action",
            "SELECT other AS action,|GROUP BY other",
            "rebuild",
        ),
        (
            "a window in place of sessions",
            "session_window.start|session_window(time, '5 minutes')",
            "window.start|window(time, '5 minutes')",
            "rebuild",
        ),
    ),
    *changes(
        "united",
        (
            "the sides swapped",
            "SELECT id, action, 1 AS side FROM events UNION ALL SELECT id, action, 2 AS side FROM clicks",
            "SELECT id, action, 2 AS side FROM clicks UNION ALL SELECT id, action, 1 AS side FROM events",
            "same",
        ),
        ("a side less", " UNION ALL SELECT id, action, 2 AS side FROM clicks", "", "forward"),
        (
            "columns swapped in a file without names",
            "id, action, 1|id, action, 2",
            "action, id, 1|action, id, 2",
            "forward",
        ),
        ("a side's filter", "FROM clicks", "FROM clicks WHERE n > 1", "forward"),
        ("a side's constant", "2 AS side", "3 AS side", "forward"),
    ),
    *changes(
        "functions",
        ("a comment", "# each row by itself", "# by itself", "same"),
        (
            "a docstring",
            "def clipped(value, limit=5, *, floor=0):\n",
            'def clipped(value, limit=5, *, floor=0):\n    """Clip."""\n',
            "same",
        ),
        ("type hints", "def scaled(value):", "def scaled(value: float) -> float:", "same"),
        (
            "a renamed helper",
            "def clipped(|F.udf(clipped,|partial(clipped,",
            "def bounded(|F.udf(bounded,|partial(bounded,",
            "same",
        ),
        (
            "a renamed parameter",
            "def scaled(value):\n    return value",
            "def scaled(number):\n    return number",
            "same",
        ),
        ("a renamed constant", "RATE = 1.5|value * RATE", "FACTOR = 1.5|value * FACTOR", "same"),
        ("a constant without a reader", "UNUSED = 1", "UNUSED = 2", "same"),
        (
            "a function without a call",
            "def unused(value):\n    return value",
            "def unused(value):\n    return 2 * value",
            "same",
        ),
        ("a blank line", "LIMIT = 3", "\n\nLIMIT = 3", "same"),
        (
            "a renamed view",
            "def priced(|def q(priced)|return priced.select",
            "def dear(|def q(dear)|return dear.select",
            "same",
        ),
        (
            "another spelling of the plan",
            '.where(F.col("price") > LIMIT)',
            ".filter(events.price > LIMIT)",
            "same",
        ),
        ("a constant in a function", "value / 3", "value / 4", "forward"),
        ("a default", "limit=5", "limit=6", "forward"),
        ("a default of a keyword", "floor=0", "floor=1", "forward"),
        ("a global", "RATE = 1.5", "RATE = 2.5", "forward"),
        ("a helper's code", "value * RATE", "value + RATE", "forward"),
        ("an attribute", "Weight(2.0)", "Weight(3.0)", "forward"),
        ("a method", "value * self.factor", "value - self.factor", "forward"),
        ("a captured value", "make(7)", "make(8)", "forward"),
        ("a partial's argument", "limit=8", "limit=9", "forward"),
        ("a constant of the plan", "LIMIT = 3", "LIMIT = 4", "forward"),
        (
            "the type that a function returns",
            'F.udf(clipped, "double")',
            'F.udf(clipped, "string")',
            "forward",
        ),
        ("another function", "F.udf(helpers.scaled", "F.udf(helpers.unused", "forward"),
    ),
    *changes(
        "topic",
        ("another topic", "topic: rows", "topic: others", "forward"),
        (
            "files in place of a topic",
            'kafka: {bootstrap_servers: "127.0.0.1:9", topic: rows}',
            "files: {path: out, format: json}",
            "forbidden",
        ),
        (
            "a table in place of a topic",
            'kafka: {bootstrap_servers: "127.0.0.1:9", topic: rows}',
            "sqlite: {path: out.db, table: rows}",
            "forbidden",
        ),
        ("another broker of the cluster", "127.0.0.1:9", "127.0.0.1:10", "same"),
    ),
    *changes(
        "rows",
        (
            "a topic in place of a table",
            "sqlite: {path: out.db, table: rows}",
            'kafka: {bootstrap_servers: "127.0.0.1:9", topic: rows}',
            "forward",
        ),
    ),
    *changes(
        "remembered",
        ("a comment", "def totals(key, frames, state):", "def totals(key, frames, state):  # by action", "same"),
        (
            "a renamed variable",
            "total = state.getOption or 0|total += int|update((total,))|total=total)",
            "s = state.getOption or 0|s += int|update((s,))|total=s)",
            "same",
        ),
        ("the function of a state", '["n"].sum()) * 2', '["n"].sum()) * 3', "rebuild"),
        ("the key of a state", 'groupBy("action")', 'groupBy("other")', "rebuild"),
        ("what a state holds", '"total LONG", "update"', '"total INT", "update"', "rebuild"),
        ("the timeout of a state", '"NoTimeout"', '"ProcessingTimeTimeout"', "rebuild"),
        ("a filter below a state", "LIMIT = 3", "LIMIT = 4", "rebuild"),
    ),
    *changes(
        "written",
        ("a comment", "# wherever it goes", "# anywhere", "same"),
        ("the sink's code", "limit(10)", "limit(20)", "safe"),
        ("columns swapped for a function", 'select("id", "price")', 'select("price", "id")', "forward"),
    ),
    *changes(
        "python_state",
        ("a comment", "for frame in frames:", "for frame in frames:  # each", "same"),
        (
            "a renamed variable",
            'for frame in frames:\n        frame["price"] = frame["price"] + 1\n        yield frame',
            'for rows in frames:\n        rows["price"] = rows["price"] + 1\n        yield rows',
            "same",
        ),
        ("a function below the state", 'frame["price"] + 1', 'frame["price"] + 2', "rebuild"),
        ("a function under an aggregate", "limit=5", "limit=6", "rebuild"),
        ("a row of a table", '(2, "two")', '(3, "two")', "rebuild"),
        ("rows of a table in another order", '(1, "one"), (2, "two")', '(2, "two"), (1, "one")', "same"),
        ("the aggregated expression", 'F.sum(clip("price"))', 'F.sum("price")', "rebuild"),
        (
            "the aggregates swapped",
            'F.sum(clip("price")).alias("total"), F.count("*").alias("n")',
            'F.count("*").alias("n"), F.sum(clip("price")).alias("total")',
            "rebuild",
        ),
    ),
    *changes(
        "ticks",
        ("the rate", "rows_per_second: 2", "rows_per_second: 3", "forward"),
        ("the number of its partitions", "rows_per_second: 2", "rows_per_second: 2, num_partitions: 3", "same"),
        (
            "another kind of source",
            "rate: {rows_per_second: 2}",
            "rate_micro_batch: {rows_per_batch: 2}",
            "forbidden",
        ),
    ),
    *changes(
        "clock",
        ("nothing", "mode: append", "mode: append ", "same"),
        ("now() for current_timestamp()", "current_timestamp()", "now()", "same"),
        ("the clock's type", "current_date()", "current_timestamp()", "forward"),
        ("a filter", "FROM events", "FROM events WHERE n > 1", "forward"),
    ),
]
