"""Payments above a limit, out again within milliseconds: rows one by one, without batches."""

from pyspark.sql import DataFrame

import headrace as hr

KAFKA = "${KAFKA:-localhost:9092}"

payments = hr.source.kafka(
    KAFKA, subscribe="payments", value="json", schema="account STRING, cents LONG", starting_offsets="earliest"
)


@hr.query(sink=hr.sink.kafka(KAFKA, topic="large_payments", key=["account"]), trigger=hr.continuous("1 second"))
def large_payments(payments: DataFrame) -> DataFrame:
    """Only what maps and filters single rows can run like this."""
    return payments.where("cents > 100000")
