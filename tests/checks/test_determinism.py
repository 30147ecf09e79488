"""What a result depends on, other than its rows, is reported with its effect on exactly once and on verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import check, load
from tests.runner.projects import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BODY = """
import random
from datetime import datetime

timed = hr.source.files("landing", format="json", schema="name STRING, time TIMESTAMP", watermark=("time", "1 hour"))

@F.udf("int")
def tossed(x):
    return random.randint(1, 6)

@F.udf("int")
def doubled(x):
    return 2 * x

@F.udf("int")
def guessed(x):
    return x

def shuffled(frames):
    for frame in frames:
        yield frame.assign(amount=random.random())

"""
AGGREGATED = "events.groupBy('name').agg({})"
# What a query returns; the codes of the family, and whether it is exactly once.
QUERIES: dict[str, tuple[str, set[str], bool]] = {
    "plain": ("events.where('amount > 1')", set(), True),
    "chance": ("events.withColumn('r', F.rand())", {"HR241"}, False),
    "another_uuid": ("events.select(F.expr('uuid()').alias('u'))", {"HR241"}, False),
    "said_so": ("events.select(guessed.asNondeterministic()('amount').alias('d'))", {"HR241"}, False),
    "planned_now": ("events.select(F.now().alias('n'))", {"HR241"}, False),
    "batch_time": ("events.select(F.current_timestamp().alias('n'), F.current_date().alias('d'))", {"HR640"}, True),
    "unix": ("events.select(F.unix_timestamp().alias('n'))", {"HR640"}, True),
    "first": (AGGREGATED.format("F.first('amount')"), {"HR641"}, True),
    "first_value": (AGGREGATED.format("F.first_value('amount')"), {"HR641"}, True),
    "array_agg": (AGGREGATED.format("F.array_agg('amount')"), {"HR641"}, True),
    "by_alias": (AGGREGATED.format("F.expr('string_agg(name)')"), {"HR641"}, True),
    "collected": (AGGREGATED.format("F.collect_list('amount')"), {"HR641"}, True),
    "sorted": (AGGREGATED.format("F.sort_array(F.collect_list('amount'))"), set(), True),
    "counted": (AGGREGATED.format("F.size(F.collect_set('amount'))"), set(), True),
    "ties": (AGGREGATED.format("F.max_by('name', 'amount')"), {"HR641"}, True),
    "largest": (AGGREGATED.format("F.max('amount')"), set(), True),
    "came_first": ("events.dropDuplicates(['name'])", set(), True),
    "by_all": ("events.select('name').dropDuplicates(['name'])", set(), True),
    "limited": ("events.groupBy('name').count().orderBy('count').limit(3)", {"HR641"}, True),
    "dice": ("events.select(tossed('amount').alias('d'))", {"HR241"}, False),
    "honest": ("events.select(doubled('amount').alias('d'))", set(), True),
    "in_pandas": ("events.mapInPandas(shuffled, 'name STRING, amount DOUBLE')", {"HR241"}, False),
    "frozen": ("events.where(F.lit(datetime.now()) > '2026-01-01')", {"HR644"}, True),
    "setting": ("(spark.conf.set('spark.sql.shuffle.partitions', '7'), events)[1]", {"HR643"}, True),
    "by_sql": ("(spark.sql('SET headrace.of_a_test=1'), events)[1]", {"HR643"}, True),
}
FAMILY = ("HR241", "HR64")


@pytest.mark.spark
def test_each_cause_has_its_code_and_the_guarantee_follows(tmp_path: Path, spark: SparkSession) -> None:
    text = BODY
    for name, (body, _, _) in QUERIES.items():
        mode = "complete" if name == "limited" else "update" if "groupBy" in body else "append"
        key = ", key=['name']" if mode == "update" else ""
        text += f"@hr.query(sink=hr.sink.sqlite('o.db', table='{name}'{key}), mode='{mode}')\n"
        text += f"def {name}(events, spark):\n    return {body}\n\n"
    before = spark.conf.get("spark.sql.shuffle.partitions")
    result = check(load(write_project(tmp_path / "p", text), environ={}), spark=spark, connect=False)
    assert [str(error) for error in result.errors] == []
    codes: dict[str, set[str]] = {name: set() for name in QUERIES}
    for finding in result.findings:
        if finding.code.startswith(FAMILY):
            [name] = {name for name in QUERIES if f"query '{name}'" in finding.what}
            codes[name].add(finding.code)
    assert codes == {name: expected for name, (_, expected, _) in QUERIES.items()}
    once = {name: guarantee.level == "exactly once" for name, guarantee in result.guarantees.items()}
    assert once == {name: exact for name, (_, _, exact) in QUERIES.items()}
    assert (spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("headrace.of_a_test", None)) == (
        before,
        None,
    )
    dice = next(finding for finding in result.findings if "query 'dice'" in finding.what)
    assert "calls random.randint, so that it is not deterministic: a batch that is made again" in dice.what
    assert "tossed calls random.randint" in result.guarantees["dice"].sentence
