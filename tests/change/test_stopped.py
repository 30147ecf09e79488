"""Commands that are stopped for longer than their lease over real stores, while others work: they change nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.entry import main
from headrace.model import Project
from headrace.queries import lease
from headrace.queries.layout import log_of
from services import HdfsServer, S3Server
from tests.registered import layout_in
from tests.rounds import as_long
from tests.run.test_rewind import AFTER, Driver, made, state
from tests.storage.stores import new_bucket
from tests.waiting import until

pytestmark = pytest.mark.services
LEASE_SECONDS = 4.0
# Stops itself at a step: before the transaction of its sink, or before a request to the store that writes.
COMMAND = """
import os, signal, sys
from headrace.cli.entry import main
from headrace.connectors.sql.sink_table import SinkTable
from headrace.queries import lease
from headrace.storage.hdfs import Hdfs
from headrace.storage.s3 import S3

def stops(owner, name, at):
    act, left = getattr(owner, name), iter(range(at))
    def acts(*given, **more):
        if next(left, None) == at - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return act(*given, **more)
    setattr(owner, name, acts)

where, at, *command = sys.argv[1:]
lease.LEASE_SECONDS, lease.RENEW_SECONDS = %s, 0.5
for owner in (SinkTable,) if where == "_locked" else (S3, Hdfs):
    stops(owner, where, int(at))
sys.exit(main(command))
""" % LEASE_SECONDS


@pytest.fixture(params=["s3a", as_long("hdfs")])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """A query of three batches, with its storage in a store."""
    if request.param == "s3a":
        server: S3Server = request.getfixturevalue("s3_server")
        return made(tmp_path / "p", place=new_bucket(server).place)
    hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
    spark = {"spark.hadoop.dfs.namenode.http-address": hdfs.web_address}
    return made(tmp_path / "p", place={"storage": f"{hdfs.url()}/{request.node.name}", "spark": spark})


def drive(project: Project) -> None:
    """A driver begins and makes the next batch."""
    Driver(project).write(3, {"a": 7})


Work = Callable[[Project], Any]
RESET: Work = lambda project: hr.reset(project, "totals", result="drop").apply()
REWIND: Work = lambda project: hr.rewind(project, "totals", to_batch=1).apply()
BEGUN: dict[str, tuple[Work | None, str]] = {
    "reset": (None, "reset totals --drop-result --yes"),
    "rewind": (None, "rewind totals --to-batch 1 --yes"),
    "undo of a reset": (RESET, "change undo totals"),
    "undo of a rewind": (REWIND, "change undo totals"),
    "discard of a rewind": (REWIND, "change discard totals --yes"),
}
STOPS = [
    ("rewind", "_locked", 1, ["change undo totals"]),
    *map(
        as_long,
        [
            ("rewind", "copy", 2, ["change undo totals"]),
            ("rewind", "create", 2, ["change undo totals", "change discard totals --yes"]),
            ("reset", "_locked", 1, ["change undo totals"]),
            ("reset", "create", 2, ["change resume totals"]),
            ("undo of a reset", "_locked", 1, ["change resume totals"]),
            ("undo of a rewind", "_locked", 1, ["change resume totals"]),
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
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", LEASE_SECONDS)
    before, command = BEGUN[stopped]
    if before is not None:
        before(project)
    root = str(project.root)
    arguments = [sys.executable, "-c", COMMAND, where, str(at), *command.split(), "-C", root]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as late:
        until(lambda: _is_stopped(late.pid))
        for other in others:
            until(lambda other=other: main([*other.split(), "-C", root]) == 0)
        after, newest = state(project), log_of(layout_in(project.storage, "totals"))
        late.send_signal(signal.SIGCONT)
        said = late.communicate()[1]
    assert (late.returncode, "HR526" in said) == (1, True), said
    assert state(project) == after
    assert log_of(layout_in(project.storage, "totals")) == newest


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
