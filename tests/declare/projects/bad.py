"""Mistakes that a type checker has to find: each is in a line that ends with the code of its error."""

from pyspark.sql import DataFrame, SparkSession

import headrace as hr

a = hr.source.files("landing", format="jsn", schema="a INT")  # error: arg-type
b = hr.source.kafka("localhost:9092", subscribe="a", valeu="json")  # error: call-arg
c = hr.source.files("landing", schema="a INT")  # error: call-arg
d = hr.source.files("landing", format="json", watermark="time, 2 hours")  # error: arg-type
e = hr.source.socket("localhost", port="9999")  # error: arg-type
f = hr.sink.sqlite("out.db", tabel="counts")  # error: call-arg
g = hr.sink.kafka("localhost:9092", topic="a", delivery_guarantee="exactly once")  # error: arg-type
h = hr.sink.sqlite("out.db", "counts")  # error: call-arg
i = hr.sorce  # error: attr-defined


@hr.query()  # error: call-arg
def without_sink(a: DataFrame) -> DataFrame:
    return a


@hr.query(sink=hr.sink.console(), mode="updates")  # error: arg-type
def wrong_mode(a: DataFrame) -> DataFrame:
    return a


@hr.query(sink=hr.source.rate())  # error: arg-type
def source_as_sink(a: DataFrame) -> DataFrame:
    return a


@hr.query(sink=hr.sink.console(), restart={"limits": 3})  # error: arg-type
def wrong_restart(a: DataFrame) -> DataFrame:
    return a


@hr.query(sink=hr.sink.console())  # error: type-var
def no_frame(a: DataFrame) -> int:
    return a.count()


@hr.view
def plain(a: DataFrame) -> DataFrame:
    return a


def used(spark: SparkSession, frame: DataFrame) -> None:
    plain("a")  # error: arg-type
    plain(b=frame)  # error: call-arg
    plain(frame).wehre("a = 1")  # error: operator
    plain.start(spark)  # error: attr-defined
    wrong_mode.start(spark, trigger=5)  # error: arg-type
    project = hr.load(".")
    hr.run(project, trigger="1 second")  # error: arg-type
    hr.status(project, since=3)  # error: call-arg
