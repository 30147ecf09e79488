"""Commands that are stopped for longer than their lease, over real stores, while others work: they change nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from headrace.cli.entry import main
from headrace.generations import driver_lock
from headrace.generations.log import log_of
from headrace.model import Project
from services import HdfsServer, S3Server
from tests.changes.test_rewind import made, state
from tests.registered import layout_in
from tests.rounds import as_long
from tests.storage.stores import new_bucket
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.services
LEASE_SECONDS = 4.0
# Stops itself at a step: before the transaction of its sink, or before a request to the store that writes.
COMMAND = """
import os, signal, sys
from headrace.cli.entry import main
from headrace.connectors.sql.sink_table import SinkTable
from headrace.generations import driver_lock
from headrace.storage.hdfs import Hdfs
from headrace.storage.s3 import S3

def stops(owner, name, at):
    act, left = getattr(owner, name), iter(range(at))
    def acts(*given, **more):
        if next(left, None) == at - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return act(*given, **more)
    setattr(owner, name, acts)

seconds, where, at, *command = sys.argv[1:]
driver_lock.LEASE_SECONDS, driver_lock.RENEW_SECONDS = float(seconds), 0.5
for owner in (SinkTable,) if where == "_lock_ledger" else (S3, Hdfs):
    stops(owner, where, int(at))
sys.exit(main(command))
"""


@pytest.fixture(params=["s3a", as_long("hdfs")])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """A query of three batches, with its storage in a store."""
    if request.param == "s3a":
        server: S3Server = request.getfixturevalue("s3_server")
        return made(tmp_path / "p", place=new_bucket(server).place)
    hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
    spark = {"spark.hadoop.dfs.namenode.http-address": hdfs.web_address}
    return made(tmp_path / "p", place={"storage": f"{hdfs.url()}/{request.node.name}", "spark": spark})


# What is done before the command, and the command that is stopped.
COMMANDS = {
    "reset": ("", "reset totals --drop-result --yes"),
    "rewind": ("", "rewind totals --to-batch 1 --yes"),
    "undo of a reset": ("reset totals --drop-result --yes", "change undo totals"),
    "undo of a rewind": ("rewind totals --to-batch 1 --yes", "change undo totals"),
    "discard of a rewind": ("rewind totals --to-batch 1 --yes", "change discard totals --yes"),
}
STOPS = [
    ("rewind", "_lock_ledger", 1, ["change undo totals"]),
    *map(
        as_long,
        [
            ("rewind", "copy", 2, ["change undo totals"]),
            ("reset", "_lock_ledger", 1, ["change undo totals"]),
            ("undo of a reset", "_lock_ledger", 1, ["change resume totals"]),
            ("undo of a rewind", "_lock_ledger", 1, ["change resume totals"]),
            ("discard of a rewind", "delete", 1, ["change resume totals"]),
        ],
    ),
]


@pytest.mark.parametrize(("stopped", "where", "at", "others"), STOPS)
def test_a_command_that_was_stopped_for_longer_than_its_lease_fails_and_changes_nothing(
    project: Project,
    stopped: str,
    where: str,
    at: int,
    others: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_lock, "LEASE_SECONDS", LEASE_SECONDS)
    before, command = COMMANDS[stopped]

    def run(line: str) -> bool:
        return main([*line.split(), "-C", str(project.root)]) == 0

    assert not before or run(before)
    arguments = [sys.executable, "-c", COMMAND, str(LEASE_SECONDS), where, str(at), *command.split()]
    late = subprocess.Popen([*arguments, "-C", str(project.root)], stderr=subprocess.PIPE, text=True)
    try:
        until("stopped process", lambda: _is_stopped(late.pid))
        for other in others:
            until(f"end of the lease for: {other}", partial(run, other), pause=1.0)
        after, newest = state(project), log_of(layout_in(project.storage, "totals"))
        late.send_signal(signal.SIGCONT)
        said = late.communicate(timeout=PATIENCE_SECONDS)[1]
    finally:
        late.kill()
        late.wait()
    assert (late.returncode, "HR526" in said) == (1, True), said
    assert state(project) == after
    assert log_of(layout_in(project.storage, "totals")) == newest


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
