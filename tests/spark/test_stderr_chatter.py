"""What PySpark's workers print past their errors is left out of standard error, and nothing else is."""

from __future__ import annotations

import pytest

from headrace.spark.jvm.stderr_filter import telling

pytestmark = pytest.mark.plain

FLUSH = (
    "PySpark daemon failed to flush the output to the worker process:\nTraceback (most recent call last):\n  File x\n"
)


@pytest.mark.parametrize(
    ("said", "passed_on"),
    [
        pytest.param(
            "Starting Streaming TransformWithStateInPandas Python worker.\n\n"
            "Streaming TransformWithStateInPandas Python worker finish init stage of Python runner.\n\nan error\n\n",
            "an error\n\n",
            id="the worker of a state function",
        ),
        pytest.param(f"{FLUSH}BrokenPipeError: [Errno 32] Broken pipe\n\nnext\n", "next\n", id="a closed pipe"),
        pytest.param(f"{FLUSH}OSError: no space left\nnext\n", f"{FLUSH}OSError: no space left\nnext\n", id="a fault"),
        pytest.param(FLUSH, FLUSH, id="a trace that breaks off"),
        pytest.param("WARNING: known\n\nWARNING: other\n", "\nWARNING: other\n", id="a line of a known beginning"),
        pytest.param("Traceback\n  File x\nValueError: y\n", "Traceback\n  File x\nValueError: y\n", id="a trace"),
    ],
)
def test_only_lines_that_tell_nothing_are_left_out(said: str, passed_on: str) -> None:
    lines = [line.encode() for line in said.splitlines(keepends=True)]
    assert b"".join(telling(lines, (b"WARNING: known",))).decode() == passed_on
