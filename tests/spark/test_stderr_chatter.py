"""What PySpark's workers print past their errors is left out of standard error, and nothing else is."""

from __future__ import annotations

import pytest

from headrace.spark.jvm.stderr_filter import informative_lines

pytestmark = pytest.mark.plain

FLUSH = (
    "PySpark daemon failed to flush the output to the worker process:\nTraceback (most recent call last):\n  File x\n"
)

# As the worker that prepares a transformWithState ends when Spark has not waited for it.
LATE = """Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/opt/v/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker_util.py", line 204, in get
  File "/usr/lib/python3.11/contextlib.py", line 137, in __enter__
    return next(self.gen)
           ^^^^^^^^^^^^^^
"""
TIMED_OUT = "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: timed out\n"
OF_USER = '  File "/home/me/pipeline.py", line 3, in handleInputRows\n    send(row)\n'


@pytest.mark.parametrize(
    ("words", "passed_on"),
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
        pytest.param(f"{LATE}{TIMED_OUT}\nnext\n", "next\n", id="a worker that came too late"),
        pytest.param(f"{LATE}BrokenPipeError: [Errno 32]\nnext\n", "next\n", id="a worker whose batch was broken off"),
        pytest.param(
            f"{LATE}BrokenPipeError: [Errno 32]\n\nDuring handling of the above exception, another exception "
            f"occurred:\n\n{LATE}BrokenPipeError: [Errno 32]\nnext\n",
            "next\n",
            id="a chain of them",
        ),
        pytest.param(f"{LATE}KeyError: 'a'\n", f"{LATE}KeyError: 'a'\n", id="another fault of a worker"),
        pytest.param(
            f"{LATE}{OF_USER}BrokenPipeError: [Errno 32]\n\n",
            f"{LATE}{OF_USER}BrokenPipeError: [Errno 32]\n\n",
            id="a pipe of the user's",
        ),
        pytest.param("Traceback\n  File x\nValueError: y\n", "Traceback\n  File x\nValueError: y\n", id="a trace"),
    ],
)
def test_only_lines_without_information_are_left_out(words: str, passed_on: str) -> None:
    lines = [line.encode() for line in words.splitlines(keepends=True)]
    assert b"".join(informative_lines(lines, (b"WARNING: known",))).decode() == passed_on
