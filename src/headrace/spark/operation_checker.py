"""Spark's own check of a streaming plan, made before the query is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.plan_rewrite import jvm_of
from headrace.spark.plans import analysed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refusal(frame: DataFrame, mode: str, *, continuous: bool = False) -> Exception | None:
    """What Spark would raise when `frame` is started in the output mode `mode`; None: it would start."""
    sql = jvm_of(frame.sparkSession).org.apache.spark.sql
    output_mode = getattr(sql.streaming.OutputMode, mode.capitalize())()
    checker = sql.catalyst.analysis.UnsupportedOperationChecker
    check = checker.checkForContinuous if continuous else checker.checkForStreaming
    try:
        check(analysed_plan(frame), output_mode)
    except Exception as error:
        return error
    return None
