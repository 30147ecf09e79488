"""Further changes of queries in Python: the query's function, what it calls, and how Spark calls back."""

# ruff: noqa: E501

from __future__ import annotations

from .catalogue import SCHEMA, Change, changes

HEAD = f"""import os

import headrace as hr
import pandas as pd
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import DoubleType

events = hr.source.files("in", format="json", schema="{SCHEMA}", watermark=("time", "10 minutes"))
clicks = hr.source.files("clicks", format="json", schema="{SCHEMA}", watermark=("time", "20 minutes"))
"""
PIPELINE = f"# file: pipeline.py\n{HEAD}"
RATES = """# file: rates.py
import os
ACTIVE = os.environ.get("HEADRACE_TEST_RATE", "1.5")
TABLE = {"a": 1.0, "b": 2.0}
def rate(name):
    return TABLE.get(name, float(ACTIVE))
"""

PYTHON_BASES = {
    "given": f"""{PIPELINE}
from pyspark.sql.datasource import DataSource, DataSourceReader

class Rates(DataSource):
    @classmethod
    def name(cls):
        return "rates"
    def schema(self):
        return "id LONG, rate DOUBLE"
    def reader(self, schema):
        return Reader(float(self.options.get("level", "1")))

class Reader(DataSourceReader):
    def __init__(self, level):
        self.level = level
    def read(self, partition):
        yield (1, self.level * 2)

@hr.table
def rates(spark):
    spark.dataSource.register(Rates)
    return spark.read.format("rates").option("level", "3").option("password", "hidden").load()

@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(events, rates):
    return events.join(rates, "id").select("id", "rate")
""",
    "taken": f"""{PIPELINE}
import logging
LOG = logging.getLogger("q")

class Taker:
    def process(self, row):
        print("one row", row)
        self.taken = row.id + 1

@F.udf("double")
def scaled(value):
    LOG.info("scaled %s", value)
    return value * 2

@hr.query(sink=hr.sink.foreach(Taker()))
def q(events):
    return events.select("id", scaled("price").alias("price"))
""",
    "frames": f"""{PIPELINE}
LIMIT = 3

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["action", "hour"]), mode="update")
def q(events, clicks):
    dear = events.where((F.col("price") > LIMIT) & (F.col("n") < 5))
    both = dear.select("action", "price", "time").unionByName(clicks.select("time", "price", "action"))
    return both.groupBy("action", F.window("time", "1 hour").alias("w")).agg(
        F.sum("price").alias("total"), F.count("*").alias("n")).select("action", F.col("w.start").alias("hour"), "total", "n")
""",
    "distinct_rows": f"""{PIPELINE}
@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(events):
    return events.dropDuplicates(["id", "action", "time"]).select("id", "action", "other")
""",
    "distinct_soon": f"""{PIPELINE}
@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(events):
    return events.dropDuplicatesWithinWatermark(["id", "n"]).select("id", "action")
""",
    "marked": f"""# file: pipeline.py
{HEAD.replace(', watermark=("time", "10 minutes")', "")}
@hr.query(sink=hr.sink.sqlite("out.db", table="counts"))
def q(events):
    late = events.withWatermark("time", "10 minutes")
    return late.groupBy(F.window("time", "1 hour"), "action").count().select("action", F.col("window.start").alias("hour"), "count")
""",
    "pandas": f"""{PIPELINE}
@F.pandas_udf("double")
def scaled(value: pd.Series) -> pd.Series:
    return value * 2

@F.pandas_udf("double")
def middle(value: pd.Series) -> float:
    return float(value.median())

@F.udf(returnType=DoubleType())
def half(value):
    return value / 2

def spread(frames):
    for frame in frames:
        yield frame.assign(cost=frame["cost"] + 1)

@hr.query(sink=hr.sink.sqlite("out.db", table="rows", key=["action"]), mode="update")
def q(events):
    spreaded = events.select("action", "price", "cost").mapInPandas(spread, "action STRING, price DOUBLE, cost DOUBLE")
    return spreaded.select("action", scaled("price").alias("price"), half("cost").alias("cost")).groupBy("action").agg(
        middle("price").alias("middle"), F.sum("cost").alias("cost"))
""",
    "called_by_name": f"""{RATES}{PIPELINE}
import importlib
import rates

def by_name(value):
    return value * importlib.import_module("rates").rate("a")

def by_attribute(value):
    return value * float(getattr(rates, "ACTIVE"))

class Ends:
    def eval(self, text):
        for part in (text or "").split(","):
            yield (part.strip(),)

ends = F.udtf(Ends, returnType="part STRING")
RULES = [(lambda value: value > 1, "many"), (lambda value: True, "few")]

def judged(value):
    return next(name for rule, name in RULES if rule(value))

@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(events):
    spark = events.sparkSession
    spark.udf.register("named", by_name, "double")
    spark.udtf.register("parts", ends)
    rows = events.select("id", F.expr("named(price)").alias("a"), F.udf(by_attribute, "double")("price").alias("b"),
                         F.udf(judged, "string")("n").alias("c"), "other")
    rows.createOrReplaceTempView("headrace_test_rows")
    return spark.sql("SELECT id, a, b, c, part FROM headrace_test_rows, LATERAL parts(other)")
""",
    "processed": f"""{PIPELINE}
from pyspark.sql.streaming import StatefulProcessor

class Totals(StatefulProcessor):
    def __init__(self, factor):
        self.factor = factor
    def init(self, handle):
        self.total = handle.getValueState("total", "total LONG", 60000)
        self.seen = handle.getMapState("seen", "id LONG", "n LONG")
    def handleInputRows(self, key, rows, timers):
        total = (self.total.get() or (0,))[0] if self.total.exists() else 0
        for frame in rows:
            total += int(frame["n"].sum()) * self.factor
        self.total.update((total,))
        yield pd.DataFrame({{"action": [key[0]], "total": [total]}})
    def close(self):
        pass

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["action"]), mode="update")
def q(events):
    return events.select("action", "other", "n").groupBy("action").transformWithStateInPandas(
        Totals(2), outputStructType="action STRING, total LONG", outputMode="update", timeMode="processingTime")
""",
}

PYTHON_CHANGES: list[Change] = [
    *changes(
        "frames",
        (
            "a log line",
            "    dear = ",
            "    import logging\n    logging.getLogger(__name__).info('built')\n    dear = ",
            "same",
        ),
        ("filter", "events.where(", "events.filter(", "same"),
        (
            "two filters",
            '(F.col("price") > LIMIT) & (F.col("n") < 5)',
            'F.col("price") > LIMIT).where(F.col("n") < 5',
            "same",
        ),
        ("columns by attribute", 'F.col("price") > LIMIT', "events.price > LIMIT", "same"),
        (
            "a condition as a text",
            '(F.col("price") > LIMIT) & (F.col("n") < 5)',
            'f"price > {LIMIT} AND n < 5"',
            "same",
        ),
        (
            "conditions in another order",
            '(F.col("price") > LIMIT) & (F.col("n") < 5)',
            '(F.col("n") < 5) & (F.col("price") > LIMIT)',
            "same",
        ),
        ("a renamed variable", "dear = |both = dear.select", "rows = |both = rows.select", "same"),
        (
            "one expression",
            "    dear = events.where|    both = dear.select",
            "    where = events.where|    both = where.select",
            "same",
        ),
        ("a helper", "    return both.groupBy", "    return (lambda frame: frame)(both).groupBy", "same"),
        ("transform", "both.groupBy(", "both.transform(lambda frame: frame).groupBy(", "same"),
        ("type hints", "def q(events, clicks):", "def q(events: DataFrame, clicks: DataFrame) -> DataFrame:", "same"),
        ("a docstring", "def q(events, clicks):\n", 'def q(events, clicks):\n    """Count."""\n', "same"),
        ("parameters in another order", "def q(events, clicks):", "def q(clicks, events):", "same"),
        ("expr", 'F.sum("price")', 'F.expr("sum(price)")', "same"),
        ("sum of a column", 'F.sum("price")', 'F.sum(F.col("price"))', "same"),
        ("count of a literal", 'F.count("*")', "F.count(F.lit(1))", "same"),
        ("a length in minutes", '"1 hour"', '"60 minutes"', "same"),
        (
            "columns one by one",
            "both = dear.select",
            "both = dear.withColumn('unused', F.lit(1)).drop('unused').select",
            "same",
        ),
        (
            "union by place",
            'unionByName(clicks.select("time", "price", "action"))',
            'union(clicks.select("action", "price", "time"))',
            "same",
        ),
        (
            "the union's sides swapped",
            'dear.select("action", "price", "time").unionByName(clicks.select("time", "price", "action"))',
            'clicks.select("time", "price", "action").unionByName(dear.select("action", "price", "time"))',
            "same",
        ),
        ("a constant by name", "LIMIT = 3", "LEAST = 3\nLIMIT = LEAST", "same"),
        (
            "a second source",
            "LIMIT = 3",
            'LIMIT = 3\nmore = hr.source.files("more", format="json", schema="a INT")',
            "same",
        ),
        (
            "SQL in place of frames",
            """both.groupBy("action", F.window("time", "1 hour").alias("w")).agg(
        F.sum("price").alias("total"), F.count("*").alias("n")).select("action", F.col("w.start").alias("hour"), "total", "n")""",
            """events.sparkSession.sql("SELECT action, window.start AS hour, sum(price) AS total, count(*) AS n FROM {rows} GROUP BY action, window(time, '1 hour')", rows=both)""",
            "same",
        ),
        (
            "a union by wrong places",
            'unionByName(clicks.select("time", "price", "action"))',
            'union(clicks.select("other", "cost", "time"))',
            "rebuild",
        ),
        ("a constant", "LIMIT = 3", "LIMIT = 4", "rebuild"),
        ("a loop's constant", '(F.col("n") < 5)', '(F.col("n") < sum(range(4)))', "rebuild"),
        ("a side less", '.unionByName(clicks.select("time", "price", "action"))', "", "rebuild"),
        (
            "keys swapped",
            '"action", F.window("time", "1 hour").alias("w")',
            'F.window("time", "1 hour").alias("w"), "action"',
            "rebuild",
        ),
        (
            "aggregates swapped below a selection, which Spark undoes",
            'F.sum("price").alias("total"), F.count("*").alias("n")',
            'F.count("*").alias("n"), F.sum("price").alias("total")',
            "same",
        ),
        ("max in place of sum", 'F.sum("price")', 'F.max("price")', "rebuild"),
    ),
    *changes(
        "distinct_rows",
        ("keys in another order", '["id", "action", "time"]', '["action", "id", "time"]', "rebuild"),
        (
            "keys behind a selection",
            "events.dropDuplicates(",
            "events.select('id', 'action', 'other', 'time').dropDuplicates(",
            "same",
        ),
        ("within the watermark", "dropDuplicates(", "dropDuplicatesWithinWatermark(", "forbidden"),
        ("a key more", '"time"]', '"time", "n"]', "forbidden"),
        ("a filter above", '.select("id",', '.where("n > 1").select("id",', "forward"),
    ),
    *changes(
        "distinct_soon",
        ("keys in another order", '["id", "n"]', '["n", "id"]', "rebuild"),
        ("a key of one type", '["id", "n"]', '["id", "action"]', "rebuild"),
        ("without a bound", "dropDuplicatesWithinWatermark(", "dropDuplicates(", "forbidden"),
        ("the delay", '"10 minutes"', '"5 minutes"', "forward"),
    ),
    *changes(
        "marked",
        (
            "the watermark at the source",
            'TIMESTAMP")\nclicks|    late = events.withWatermark("time", "10 minutes")',
            'TIMESTAMP", watermark=("time", "10 minutes"))\nclicks|    late = events',
            "same",
        ),
        ("the watermark's delay", '"10 minutes"', '"30 minutes"', "forward"),
        ("the delay in seconds", '"10 minutes"', '"600 seconds"', "same"),
        (
            "a watermark in a view",
            "@hr.query",
            '@hr.view\ndef marked(events):\n    return events.withWatermark("time", "10 minutes")\n\n@hr.query',
            "same",
        ),
        ("rows lie elsewhere", "late.groupBy(", "late.repartition(7).groupBy(", "same"),
        ("the count spelled out", ".count()", '.agg(F.count("*").alias("count"))', "same"),
    ),
    *changes(
        "pandas",
        ("a type by its name", "returnType=DoubleType()", 'returnType="double"', "same"),
        (
            "a function in place of a decorator",
            "@F.udf(returnType=DoubleType())\ndef half(value):\n    return value / 2\n",
            "half = F.udf(lambda value: value / 2, 'double')\n",
            "same",
        ),
        ("a pandas function's code", "value * 2", "value * 3", "rebuild"),
        ("an aggregate's code", "value.median()", "value.mean()", "rebuild"),
        (
            "a pandas function's type",
            '@F.pandas_udf("double")\ndef scaled',
            '@F.pandas_udf("long")\ndef scaled',
            "rebuild",
        ),
        (
            "rows one by one",
            '@F.pandas_udf("double")\ndef scaled(value: pd.Series) -> pd.Series:',
            '@F.udf("double")\ndef scaled(value):',
            "rebuild",
        ),
        ("the code of frames", 'frame["cost"] + 1', 'frame["cost"] + 2', "rebuild"),
        (
            "columns of frames swapped",
            '"action STRING, price DOUBLE, cost DOUBLE"',
            '"action STRING, cost DOUBLE, price DOUBLE"',
            "rebuild",
        ),
        ("a type of frames", 'cost DOUBLE")', 'cost FLOAT")', "rebuild"),
        ("another function", 'half("cost")', 'F.col("cost")', "rebuild"),
    ),
    *changes(
        "called_by_name",
        ("a variable's name", "for part in|yield (part.strip(),)", "for item in|yield (item.strip(),)", "same"),
        ("another name of a function of SQL", '"named"|named(price)', '"scaled"|scaled(price)', "same"),
        ("an entry of a table of rates", '"a": 1.0', '"a": 1.5', "forward"),
        ("a default of the environment", '"1.5"', '"2.5"', "forward"),
        ("an attribute by its name", '"ACTIVE")', '"TABLE")', "forward"),
        ("the code of a table function", "part.strip()", "part.lower()", "forward"),
        ("what a table function takes", "parts(other)", "parts(upper(other))", "forward"),
        (
            "rules in another order",
            '(lambda value: value > 1, "many"), (lambda value: True, "few")',
            '(lambda value: True, "few"), (lambda value: value > 1, "many")',
            "forward",
        ),
        ("a rule", "value > 1", "value > 2", "forward"),
    ),
    *changes(
        "processed",
        (
            "a variable's name",
            "total = (self.total|total += int|self.total.update((total,))|[total]}",
            "sum_ = (self.total|sum_ += int|self.total.update((sum_,))|[sum_]}",
            "same",
        ),
        (
            "a docstring",
            "class Totals(StatefulProcessor):\n",
            'class Totals(StatefulProcessor):\n    """Sums."""\n',
            "same",
        ),
        ("an argument", "Totals(2)", "Totals(3)", "rebuild"),
        ("the name of a variable", '"total", "total LONG"', '"sum", "total LONG"', "rebuild"),
        ("the type of a variable", '"total", "total LONG"', '"total", "total INT"', "rebuild"),
        ("how long it is kept", "60000", "90000", "rebuild"),
        ("a variable gone", '        self.seen = handle.getMapState("seen", "id LONG", "n LONG")\n', "", "rebuild"),
        ("the code", 'frame["n"].sum()', 'frame["n"].max()', "rebuild"),
        ("the key", 'groupBy("action")', 'groupBy("other")', "rebuild"),
        ("the clock", '"processingTime"', '"none"', "rebuild"),
    ),
]
