"""What a child writes to standard error arrives, but for the one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.plain

SCRIPT = """
import subprocess, sys
from headrace.run.errors_stream import dropping_line
say = "import sys, time; print('WARNING: noise', 'heard', sep='\\\\n', file=sys.stderr, flush=True); time.sleep({0}); print('late', file=sys.stderr)"
with dropping_line(b"WARNING: noise"):
    child = subprocess.Popen([sys.executable, "-c", say.format(0.3)])
print("WARNING: noise of our own", file=sys.stderr, flush=True)
child.wait()
import time; time.sleep(0.3)
"""


def test_one_line_is_dropped_and_what_comes_after_the_block_still_arrives() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert sorted(ended.stderr.split("\n")) == ["", "WARNING: noise of our own", "heard", "late"]
