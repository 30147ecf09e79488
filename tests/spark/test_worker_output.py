"""What a Python worker prints and logs says which query and batch it serves, and the user's own handlers stay."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.spark.jvm.stderr_filter import SparkLine

pytestmark = pytest.mark.plain

WORKER = """
import logging, sys
from pyspark import TaskContext
from headrace.spark.jvm.stderr_filter import install
install()
print("before any task")

def task(batch, query="totals"):
    context = TaskContext()
    context._localProperties = {"mdc.headrace.query": query, "streaming.sql.batchId": batch} if query else {}
    TaskContext._setTaskContext(context)

task("3")
print("one", "two")
print("half", end="")
print(" a line")
print("careful", file=sys.stderr)
logging.getLogger("mine").warning("price of %s", "apples")
logging.getLogger("mine").info("of no interest")
logging.basicConfig(level="INFO", format="by the user's handler: %(message)s")
logging.getLogger("mine").info("of interest")
logging.getLogger("mine").info("%d", "no number")
print("no end", end="")
TaskContext._setTaskContext(None)
task("4", None)
print("of a batch query")
print("Streaming TransformWithStateInPandas Python worker of Spark's")
"""


def test_lines_of_a_task_carry_its_query_and_batch() -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True)
    records = [SparkLine.read(line) for line in done.stderr.split("\n") if line]
    assert {(record.query, record.batch) for record in records if record.to != "both" or record.query} == {
        ("totals", 3)
    }
    assert [(record.level, record.message) for record in records if record.query and record.to != "stderr"] == [
        ("info", "one two"),
        ("info", "half a line"),
        ("warning", "careful"),
        ("warning", "mine: price of apples"),
        ("info", "mine: of interest"),
        ("info", "mine: %d"),
        ("info", "no end"),
    ]
    shown = [record.message for record in records if record.to != "log"]
    assert {"one two", "price of apples", "by the user's handler: of interest"} <= set(shown)
    assert "by the user's handler: price of apples" not in shown
    assert [line for line in done.stdout.splitlines() if line] == [
        "before any task",
        "of a batch query",
        "Streaming TransformWithStateInPandas Python worker of Spark's",
    ]
