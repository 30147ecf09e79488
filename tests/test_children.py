"""What a process of Headrace has started ends when that process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.spark.jvm.gateway import wait_until_gone
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.plain
PROJECT = """
import os, time
from pathlib import Path
Path("{pid}.part").write_text(str(os.getpid()))
os.replace("{pid}.part", "{pid}")
time.sleep(600)
"""
CHILDREN = {
    "verify of the dashboard": """
from types import SimpleNamespace
from headrace.ui.verifying import Verifying
Verifying(SimpleNamespace(root=root, target=SimpleNamespace(name="dev"))).start("q")
""",
    "driver of the demo": """
from headrace.demo.flow import Child
child = Child(["headrace", "check", "-C", str(root)], log=root / "log")
""",
    "last commands of the demo": """
from headrace.demo.flow import run_command
run_command(["headrace", "check", "-C", str(root)])
""",
    "plan of a new start": """
from headrace.cli.command_line import CommandLine
words, environ = (sys.executable, "-m", "headrace"), dict(os.environ)
line = CommandLine(interpreter=words, words=(), environ=environ, directory=str(root), former=None, answer=None)
child = line.start_process("check", "-C", str(root))
""",
}


@pytest.mark.parametrize("start", CHILDREN.values(), ids=CHILDREN)
def test_a_command_ends_with_the_process_that_started_it_when_that_is_killed(tmp_path: Path, start: str) -> None:
    file = tmp_path / "pid"
    (tmp_path / "pipeline.py").write_text(PROJECT.format(pid=file))
    (tmp_path / "headrace.yml").write_text("name: p\nmodules: [pipeline.py]\ntargets: {dev: {}}\n")
    head = f"import os, sys, time\nfrom pathlib import Path\nroot = Path({str(tmp_path)!r})\n"
    parent = subprocess.Popen([sys.executable, "-c", f"{head}{start}time.sleep(600)\n"])
    try:
        until("child", lambda: file.exists() or parent.poll() is not None)
        child = int(file.read_text())
    finally:
        parent.kill()
        parent.wait()
    try:
        assert wait_until_gone([child], within=PATIENCE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
