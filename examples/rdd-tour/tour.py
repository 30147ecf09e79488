"""The tables of Spark's RDD guide, each operation with what it gives, and a stream that asks for chapters of them."""

from collections.abc import Mapping
from functools import partial
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark import RDD, Accumulator, StorageLevel
from pyspark.sql import DataFrame, SparkSession

import headrace as hr

POEMS = str(Path(__file__).with_name("poems"))
HADOOP = "org.apache.hadoop"
INT_AND_TEXT = (f"{HADOOP}.io.IntWritable", f"{HADOOP}.io.Text")
LEVELS = sorted(name for name in vars(StorageLevel) if name.isupper() and name != "NONE")

asked = hr.source.files("landing", format="json", schema="chapter STRING")


def as_frame(spark: SparkSession, chapter: str, results: Mapping[str, Any]) -> DataFrame:
    rows = [(chapter, number, operation, str(result)) for number, (operation, result) in enumerate(results.items())]
    return spark.createDataFrame(rows, "chapter STRING, number INT, operation STRING, result STRING")


@hr.table
def external_data(spark: SparkSession) -> DataFrame:
    """Collections of the driver in slices, and text files of every sort."""
    sc = spark.sparkContext
    files = sc.wholeTextFiles(POEMS, minPartitions=2)
    results = {
        "parallelize, in 3 slices": sc.parallelize([1, 2, 3, 4, 5], numSlices=3).glom().collect(),
        "textFile, a directory": sorted(sc.textFile(POEMS).collect()),
        "textFile, compressed, by a wildcard": sc.textFile(f"{POEMS}/*.gz").collect(),
        "textFile, at least 4 partitions": sc.textFile(f"{POEMS}/rain.txt", 4).getNumPartitions() >= 4,
        "wholeTextFiles": sorted((Path(name).name, text.count("\n")) for name, text in files.collect()),
    }
    return as_frame(spark, "external data", results)


@hr.table
def transformations(spark: SparkSession) -> DataFrame:
    """The first half of the guide's table: what becomes of single elements, sets and partitions."""
    sc = spark.sparkContext
    numbers, more = sc.parallelize([1, 2, 3, 4], 1), sc.parallelize([3, 4, 4, 5], 1)
    halves = sc.parallelize([1, 2, 3, 4], 2)
    results: dict[str, RDD[Any]] = {
        "map": numbers.map(lambda x: x * 10),
        "filter": numbers.filter(lambda x: x % 2 == 0),
        "flatMap": numbers.flatMap(lambda x: [x] * (x % 3)),
        "mapPartitions": halves.mapPartitions(lambda part: [sum(part)]),
        "mapPartitionsWithIndex": halves.mapPartitionsWithIndex(lambda at, part: [(at, max(part))]),
        "sample": numbers.sample(withReplacement=False, fraction=1.0, seed=7),
        "union": numbers.union(more),
        "intersection": numbers.intersection(more),
        "distinct": more.distinct(numPartitions=1),
        "cartesian": numbers.filter(lambda x: x < 3).cartesian(sc.parallelize("ab", 1)),
        "pipe": sc.parallelize(["rain", "snow"], 1).pipe("tr a-z A-Z"),
        "coalesce": sc.parallelize(range(8), 3).coalesce(1).glom().map(len),
        "repartition": numbers.repartition(2),
        "sortBy": numbers.sortBy(lambda x: -x, numPartitions=1).glom(),
    }
    return as_frame(spark, "transformations", in_order(results))


@hr.table
def pairs(spark: SparkSession) -> DataFrame:
    """The other half: pairs of a key and a value, brought together by a shuffle, and put into order after it."""
    sc = spark.sparkContext
    sold = sc.parallelize([("tea", 2), ("rum", 5), ("tea", 3)], 1)
    price = sc.parallelize([("tea", 4), ("milk", 1)], 1)
    by_number = sc.parallelize([(5, "e"), (2, "b"), (4, "d"), (1, "a")], 1)
    results: dict[str, RDD[Any]] = {
        "groupByKey": sold.groupByKey(1).mapValues(sorted),
        "reduceByKey": sold.reduceByKey(add, 1),
        "aggregateByKey": sold.aggregateByKey((0, 0), lambda a, x: (a[0] + x, a[1] + 1), both),
        "sortByKey, downwards": by_number.sortByKey(ascending=False, numPartitions=1).glom(),
        "join": sold.join(price, 1),
        "leftOuterJoin": sold.leftOuterJoin(price, 1),
        "rightOuterJoin": sold.rightOuterJoin(price, 1),
        "fullOuterJoin": sold.fullOuterJoin(price, 1),
        "cogroup": sold.cogroup(price, 1).mapValues(lambda sides: tuple(sorted(side) for side in sides)),
        "mapPartitions, sorted after the shuffle": by_number.partitionBy(2, odd).mapPartitions(sorted).glom(),
        "repartitionAndSortWithinPartitions": by_number.repartitionAndSortWithinPartitions(2, odd).glom(),
    }
    return as_frame(spark, "key-value pairs", in_order(results))


def odd(key: int) -> int:
    return key % 2


def both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def add_label(name: str, item: Any) -> tuple[str, Any]:
    return name, item


def count(counter: Accumulator[int], number: int) -> int:
    counter.add(1)
    return number


def in_order(results: Mapping[str, RDD[Any]]) -> dict[str, list[Any]]:
    """What RDDs hold, computed in one job; a shuffle leaves it in no order, but what was put into lists on purpose."""
    named = [rdd.map(partial(add_label, name)) for name, rdd in results.items()]
    together = named[0].context.union(named).collect()

    def order(item: Any) -> str:
        return "" if isinstance(item, list) else str(item)

    return {name: sorted((item for at, item in together if at == name), key=order) for name in results}


@hr.table
def actions(spark: SparkSession) -> DataFrame:
    """The guide's table of actions: what comes back to the driver, or goes into files."""
    sc = spark.sparkContext
    numbers = sc.parallelize([4, 1, 3, 2], 1)
    total = sc.accumulator(0)
    numbers.foreach(total.add)
    with TemporaryDirectory() as home:
        numbers.saveAsTextFile(f"{home}/text")
        saved = sorted(sc.textFile(f"{home}/text").collect())
    results = {
        "reduce": numbers.reduce(add),
        "collect": numbers.collect(),
        "count": numbers.count(),
        "first": numbers.first(),
        "take": numbers.take(3),
        "takeSample": len(numbers.takeSample(False, 3, seed=7)),
        "takeOrdered": numbers.takeOrdered(2),
        "takeOrdered, by a key": numbers.takeOrdered(2, key=lambda x: -x),
        "countByKey": sorted(numbers.keyBy(lambda x: x % 2).countByKey().items()),
        "foreach, with an accumulator": total.value,
        "saveAsTextFile": saved,
    }
    return as_frame(spark, "actions", results)


@hr.table
def formats(spark: SparkSession) -> DataFrame:
    """Files of Hadoop's formats and of Python's objects, written and read. On a cluster, name a path that all see."""
    sc = spark.sparkContext
    named = sc.parallelize([(1, "one"), (2, "two")], 1)
    old, new = f"{HADOOP}.mapred.SequenceFile", f"{HADOOP}.mapreduce.lib"
    lines = {"mapreduce.input.fileinputformat.inputdir": f"{POEMS}/rain.txt"}
    line = (f"{HADOOP}.io.LongWritable", f"{HADOOP}.io.Text")
    with TemporaryDirectory() as home:
        named.saveAsSequenceFile(f"{home}/sequence")
        named.saveAsHadoopFile(f"{home}/old", f"{old}OutputFormat")
        named.saveAsNewAPIHadoopFile(f"{home}/new", f"{new}.output.SequenceFileOutputFormat")
        named.map(lambda pair: {"objects": pair}).saveAsPickleFile(f"{home}/pickled")
        named.values().saveAsTextFile(f"{home}/gzip", f"{HADOOP}.io.compress.GzipCodec")
        results = {
            "sequenceFile": sc.sequenceFile(f"{home}/sequence").collect(),
            "hadoopFile": sc.hadoopFile(f"{home}/old", f"{old}InputFormat", *INT_AND_TEXT).collect(),
            "newAPIHadoopFile": sc.newAPIHadoopFile(
                f"{home}/new", f"{new}.input.SequenceFileInputFormat", *INT_AND_TEXT
            ).collect(),
            "hadoopRDD": sc.hadoopRDD(f"{HADOOP}.mapred.TextInputFormat", *line, conf=lines).collect(),
            "newAPIHadoopRDD": sc.newAPIHadoopRDD(f"{new}.input.TextInputFormat", *line, conf=lines).collect(),
            "pickleFile": sc.pickleFile(f"{home}/pickled").collect(),
            "saveAsTextFile, compressed": sc.textFile(f"{home}/gzip").collect(),
        }
    return as_frame(spark, "formats", results)


@hr.table
def storage_levels(spark: SparkSession) -> DataFrame:
    """Every level that Python has: what is kept is computed once for two actions, until it is let go."""
    sc = spark.sparkContext
    computed = {name: sc.accumulator(0) for name in LEVELS}
    kept = []
    for name, counter in computed.items():
        rdd = sc.parallelize([1, 2, 3], 1).map(partial(count, counter))
        kept.append(rdd.persist(getattr(StorageLevel, name)))
    rows = [sc.union(kept).count() for _ in range(2)]
    assert rows == [3 * len(LEVELS)] * 2
    results = {
        name: f"computed {computed[name].value}, kept {rdd.is_cached}, then {rdd.unpersist().is_cached}"
        for name, rdd in zip(LEVELS, kept, strict=True)
    }
    return as_frame(spark, "storage levels", results)


@hr.query(sink=hr.sink.sqlite("result.db", table="answers"), trigger=hr.available_now)
def answers(
    asked: DataFrame,
    external_data: DataFrame,
    transformations: DataFrame,
    pairs: DataFrame,
    actions: DataFrame,
    formats: DataFrame,
    storage_levels: DataFrame,
) -> DataFrame:
    """A chapter that is asked for comes with all of its operations."""
    tour = external_data.union(transformations).union(pairs).union(actions).union(formats).union(storage_levels)
    return asked.join(tour, "chapter")
