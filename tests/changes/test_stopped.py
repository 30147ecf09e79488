"""Commands that are stopped for longer than their lease, over real stores, while others work: they change nothing."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.entry import main
from headrace.errors import HeadraceError
from headrace.generations import driver_lock
from headrace.generations.log import log_of
from headrace.model import Project
from services import HdfsServer, S3Server
from tests.changes.rebuild import scenes
from tests.changes.test_rewind import make_project, state
from tests.connectors.sql.databases import Database
from tests.registered import layout_in
from tests.rounds import as_long
from tests.storage.stores import new_bucket
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.services
LEASE_SECONDS = 4.0
# Stops itself at a step: before the transaction of its sink, a record of the log, or a request that writes.
COMMAND = """
import os, signal, sys
from headrace.changes import change
from headrace.connectors.sql.sink_table import SinkTable
from headrace.generations import driver_lock
from headrace.storage.hdfs import Hdfs
from headrace.storage.s3 import S3
from tests.changes.test_stopped import run

def stops(owner, name, at):
    act, left = getattr(owner, name), iter(range(at))
    def acts(*given, **more):
        if next(left, None) == at - 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return act(*given, **more)
    setattr(owner, name, acts)

seconds, where, at, *command = sys.argv[1:]
driver_lock.LEASE_SECONDS, driver_lock.RENEW_SECONDS = float(seconds), 0.5
for owner in {"_lock_ledger": (SinkTable,), "append": (change,)}.get(where, (S3, Hdfs)):
    stops(owner, where, int(at))
sys.exit(0 if run(*command) else 1)
"""
SWAP = "swap of a rebuild"


def run(command: str, root: str) -> bool:
    """Run a command line in the project; of a rebuild the part after it has caught up."""
    if command != SWAP:
        return main([*command.split(), "-C", root]) == 0
    try:
        scenes.swap_in(hr.load(root))
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return False
    return True


@pytest.fixture(params=["s3a", as_long("hdfs")])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where the storage of a project is."""
    if request.param == "s3a":
        server: S3Server = request.getfixturevalue("s3_server")
        return new_bucket(server).place
    hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
    spark = {"spark.hadoop.dfs.namenode.http-address": hdfs.web_address}
    return {"storage": f"{hdfs.url()}/{request.node.name.replace(' ', '-')}", "spark": spark}


def scene(root: Path, place: dict[str, Any], command: str) -> tuple[Project, Callable[[], Any]]:
    """A query of three batches, rebuilt if the command swaps it, and a view of what the command may change."""
    if command != SWAP:
        project = make_project(root, place=place)
        return project, partial(_state, project)
    database = Database("sqlite", str(root / "out.db"))
    scenes.project_of(root, database)
    (root / "headrace.yml").write_text(json.dumps({"name": "p", **place}))
    project = hr.load(root)
    scenes.scene(project)
    return project, partial(scenes.state, project, database)


def _state(project: Project) -> dict[str, Any] | None:
    """None: a reset has dropped the result."""
    try:
        return state(project)
    except sqlite3.OperationalError:
        return None


# What is done before the command, and the command that is stopped.
COMMANDS = {
    "reset": ("", "reset totals --drop-result --yes"),
    "rewind": ("", "rewind totals --to-batch 1 --yes"),
    "undo of a reset": ("reset totals --drop-result --yes", "change undo totals"),
    "undo of a rewind": ("rewind totals --to-batch 1 --yes", "change undo totals"),
    "discard of a rewind": ("rewind totals --to-batch 1 --yes", "change discard totals --yes"),
}
COMMANDS[SWAP] = ("", SWAP)
STOPS = [
    ("rewind", "_lock_ledger", 1, ["change undo totals"]),
    *map(
        as_long,
        [
            ("rewind", "copy", 2, ["change undo totals"]),
            ("rewind", "append", 1, ["rewind totals --to-batch 0 --yes"]),
            ("rewind", "append", 2, ["change undo totals"]),
            ("reset", "_lock_ledger", 1, ["change undo totals"]),
            ("reset", "append", 1, ["reset totals --drop-result --yes"]),
            ("reset", "append", 2, ["change undo totals"]),
            ("undo of a reset", "_lock_ledger", 1, ["change resume totals"]),
            ("undo of a reset", "append", 2, ["change resume totals"]),
            ("undo of a rewind", "_lock_ledger", 1, ["change resume totals"]),
            ("undo of a rewind", "append", 1, ["rewind totals --to-batch 0 --yes"]),
            ("discard of a rewind", "delete", 4, ["change resume totals"]),
            ("discard of a rewind", "append", 1, ["change undo totals"]),
            (SWAP, "_lock_ledger", 1, ["change undo totals"]),
            (SWAP, "append", 1, [SWAP]),
            (SWAP, "append", 2, ["change undo totals"]),
        ],
    ),
]


@pytest.mark.parametrize(("stopped", "where", "at", "others"), STOPS)
def test_a_command_that_was_stopped_for_longer_than_its_lease_fails_and_changes_nothing(
    place: dict[str, Any],
    tmp_path: Path,
    stopped: str,
    where: str,
    at: int,
    others: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_lock, "LEASE_SECONDS", LEASE_SECONDS)
    before, command = COMMANDS[stopped]
    project, look = scene(tmp_path / "p", place, command)
    root = str(project.root)
    assert not before or run(before, root)
    arguments = [sys.executable, "-c", COMMAND, str(LEASE_SECONDS), where, str(at), command, root]
    late = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    try:
        until("stopped process", lambda: _is_stopped(late.pid))
        for other in others:
            until(f"end of the lease for: {other}", partial(run, other, root), pause=1.0)
        after, newest = look(), log_of(layout_in(project.storage, "totals"))
        late.send_signal(signal.SIGCONT)
        errors = late.communicate(timeout=PATIENCE_SECONDS)[1]
    finally:
        late.kill()
        late.wait()
    assert (late.returncode, "HR526" in errors) == (1, True), errors
    assert look() == after
    assert log_of(layout_in(project.storage, "totals")) == newest


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
