"""The tutorial of the cluster, typed as it stands, but for its ports: those of the test are free ones."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from headrace.checkpoint import Archive, Checkpoint, committed_prefix
from headrace.checkpoint.sources import SourceNames
from headrace.cli import main
from headrace.cluster import control
from headrace.cluster.daemons import HOME_VARIABLE
from headrace.connectors.spark_files.prefix import files
from headrace.errors import HeadraceError
from tests import in_session
from tests.conftest import ROOT, WITHOUT_CODE_GENERATION
from tests.crash.scenes import ClusterScene
from tests.docs.blocks import Block, blocks, not_printed
from tests.docs.test_tutorial import LONG, SHORT, alike
from tests.registered import layout_in
from tests.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "tutorial" / "laptop-to-cluster.md"
PLACE = "spark://127.0.0.1:7077"
CHECK, SUBMIT = "headrace check", "headrace submit"
# What needs no process of its own.
HERE = ("headrace cluster", "headrace stop", "headrace verify")


class Shell(ClusterScene):
    """What is typed: the driver and the generator run on, and all else ends before the next command."""

    def type(self, command: str) -> str:
        """What a command prints that is to end well."""
        if command.startswith(SUBMIT):
            self.start(*shlex.split(command)[1:])
            self.wait()
            return ""
        if command.endswith("&"):
            self.processes.append(subprocess.Popen(self.bash(command.replace(LONG, SHORT)[:-1]), env=self.environment))
            return ""
        done = subprocess.run(
            self.bash(command), env=self.environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def expected_code(self, command: str) -> int:
        """The exit code of a command of the cluster, a look at which shows that something has died."""
        return int(command == "headrace cluster status" and not control.status(self.home).is_whole)

    def bash(self, command: str) -> list[str]:
        return ["bash", "-c", f"export PATH={Path(sys.executable).parent}:$PATH\n{command}"]

    def wait(self) -> None:
        """Until all that has landed is in batches that are committed."""
        driver, *generators = self.processes
        for generator in generators:
            assert generator.wait(PATIENCE_SECONDS) == 0
        landed = len(list((self.root / "landing" / "events").glob("*.json")))

        layout = layout_in(self.root / ".headrace", "action_counts")

        def is_in() -> bool:
            assert driver.poll() is None, self.tail()
            checkpoint = Checkpoint(layout.checkpoint)
            # A batch may be cleaned up between two looks.
            with suppress(HeadraceError, OSError):
                last = checkpoint.last_committed
                if last is not None:
                    prefix = committed_prefix(checkpoint, Archive(layout.archive), SourceNames.same("events"), last)
                    return len(files(prefix["events"])) == landed
            return False

        until("result", is_in, pause=0.3)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "cluster"))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", " ".join(WITHOUT_CODE_GENERATION))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.chdir(tmp_path)
    shell = Shell(home=tmp_path / "cluster", root=tmp_path / "phones", log=tmp_path / "driver.log")
    try:
        yield shell
    finally:
        shell.stop_cluster()


def steps() -> Iterator[tuple[Block, str]]:
    """Each command with its block; the settings of the target have none."""
    for block in blocks():
        if block.page == PAGE and "run" in block.words:
            yield from ((block, command) for command in block.commands())
        elif block.page == PAGE and block.language == "yaml":
            yield block, ""


def shown_lines(block: Block, command: str) -> list[str]:
    """What the page shows below a command."""
    below = block.text.split(f"$ {command}\n")[1].split("$ ")[0]
    return below.splitlines()


@pytest.mark.long
def test_the_tutorial_of_the_cluster_goes_as_it_is_written(
    shell: Shell, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "phones"]) == 0
    monkeypatch.chdir(shell.root)
    typed = []
    for block, command in steps():
        typed.append(command)
        if not command:
            document = yaml.safe_load((shell.root / "headrace.yml").read_text())
            assert PLACE in block.text
            document |= yaml.safe_load(block.text.replace(PLACE, control.require(shell.home).url))
            (shell.root / "headrace.yml").write_text(yaml.safe_dump(document, sort_keys=False))
            continue
        if command == "headrace verify":
            in_session.lend(spark, monkeypatch)
        if command.startswith(HERE):
            capsys.readouterr()
            expected = shell.expected_code(command)
            words = shlex.split(command.replace("cluster start", "cluster start --port 0 --web-port 0"))
            assert main(words[1:]) == expected, capsys.readouterr()
            printed = "".join(capsys.readouterr())
        else:
            printed = shell.type(command)
        missing = not_printed(map(alike, shown_lines(block, command)), list(map(alike, printed.splitlines())))
        assert missing is None, f"{missing} is not there:\n$ {command}\n{printed}"
        if command.startswith("kill"):
            # Without what was killed.
            shell.wait()
    assert [sum(line.startswith(words) for line in typed) for words in (CHECK, SUBMIT, "kill ")] == [1, 1, 2]
    assert shell.processes[0].wait(PATIENCE_SECONDS) == 0, shell.tail()
    until("end of the executors", lambda: shell.executors() == [])
