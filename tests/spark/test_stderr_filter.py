"""What a child writes to standard error arrives, but for the lines that begin with a given text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHILD = """
import sys, time
print("WARNING: noise", "heard", chr(9) + "at a.b(C.java:1)", sep=chr(10), file=sys.stderr, flush=True)
time.sleep(0.3)
print("late", file=sys.stderr)
"""
PARENT = f"""
import subprocess, sys, threading
from headrace.spark.jvm.stderr_filter import drop_lines
with drop_lines(b"WARNING: noise", b"\\tat "):
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print("WARNING: noise of our own", file=sys.stderr, flush=True)
child.wait()
for thread in threading.enumerate():
    if thread.name == "standard error":
        thread.join(60)
"""


@pytest.mark.plain
def test_lines_are_dropped_and_what_comes_after_the_block_still_arrives() -> None:
    ended = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=True)
    assert sorted(ended.stderr.split("\n")) == ["", "WARNING: noise of our own", "heard", "late"]


TRACED = """
import time
from headrace.spark.jvm.session import start
spark = start(name="traced", master="local[1]", purpose="short")
spark._jvm.java.lang.IllegalStateException("seen").printStackTrace()
time.sleep(0.3)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize("level", ["", "error"])
def test_of_a_raw_trace_of_the_jvm_the_first_line_arrives_and_all_of_it_when_the_log_is_asked_for(level: str) -> None:
    errors = subprocess.run(
        [sys.executable, "-c", TRACED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HEADRACE_SPARK_LOG": level},
    ).stderr
    assert "java.lang.IllegalStateException: seen" in errors
    assert ("\tat " in errors) == bool(level)
