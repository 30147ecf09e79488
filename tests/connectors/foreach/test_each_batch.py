"""How the call for a batch ends, so that Spark can distinguish a stop from a fault, and a fault keeps its cause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from headrace.spark.stream.foreach_batch import BrokenOff, for_each_batch

pytestmark = pytest.mark.plain

# Gives back what Spark's writer would call.
WRITER: Any = SimpleNamespace(foreachBatch=lambda called: called)
LONG = "\tat org.apache.spark.Somewhere.deep(Somewhere.scala:1)\n" * 300
CANCELLED = "Caused by: [SPARK_JOB_CANCELLED] Job 4 cancelled Query q [id = 1, runId = 2] was stopped SQLSTATE: XXKDA\n"


def ended(error: Exception) -> BaseException:
    def take(frame: Any, batch: int) -> None:
        raise error

    with pytest.raises(type(error) if type(error).__module__ == "builtins" else Exception) as raised:
        for_each_batch(WRITER, take)(None, 0)
    return raised.value


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (LONG + CANCELLED + LONG, "java.lang.InterruptedException"),
        (LONG + "java.lang.InterruptedException\n" + LONG, "java.lang.InterruptedException"),
        ("java.io.InterruptedIOException: timeout\n" + LONG, "java.io.InterruptedIOException: timeout"),
    ],
    ids=["job", "thread", "timeout"],
)
def test_an_interruption_is_reported_shortly_and_with_its_cause(words: str, kept: str) -> None:
    error = ended(Py4JError(words))
    assert isinstance(error, BrokenOff)
    assert str(error) == f"py4j.protocol.Py4JJavaError: An error occurred while calling: {kept}"
    assert error.__suppress_context__


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("the SparkContext was stopped"),
        Py4JError("[SPARK_JOB_CANCELLED] Job 4 cancelled because killed via the Web UI"),
        ValueError("java.lang.InterruptedException, says a user's function"),
    ],
    ids=["context", "killed", "user"],
)
def test_any_other_fault_stays_as_it_is(error: Exception) -> None:
    assert ended(error) is error
