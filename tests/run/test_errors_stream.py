"""What a child writes to standard error arrives, but for the lines that begin as told."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.plain

CHILD = """
import sys, time
print("WARNING: noise", "heard", chr(9) + "at a.b(C.java:1)", sep=chr(10), file=sys.stderr, flush=True)
time.sleep(0.3)
print("late", file=sys.stderr)
"""
PARENT = f"""
import subprocess, sys, time
from headrace.run.errors_stream import dropping_lines
with dropping_lines(b"WARNING: noise", b"\\tat "):
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print("WARNING: noise of our own", file=sys.stderr, flush=True)
child.wait()
time.sleep(0.3)
"""


def test_lines_are_dropped_and_what_comes_after_the_block_still_arrives() -> None:
    ended = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=True)
    assert sorted(ended.stderr.split("\n")) == ["", "WARNING: noise of our own", "heard", "late"]
