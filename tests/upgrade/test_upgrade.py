"""A project that an earlier version ran: its checkpoints, ledgers and tables are taken on without a step."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.api import load
from headrace.testing.conformance import forget_commit
from services import connectors
from tests.conftest import ROOT, WITHOUT_CODE_GENERATION
from tests.registered import layout_in
from tests.upgrade.make_fixture import FILES, HOME, land

pytestmark = [pytest.mark.services, pytest.mark.connectors, pytest.mark.timeout(600)]

# The first form of checkpoints, records and ledgers that each later version reads.
FIXTURE = Path(__file__).parent / "form_1.tar.xz"
# Both commands in one session, which has the project's warehouse.
RUN_AND_VERIFY = """
import sys

import pytest

from headrace.api import load
from headrace.frames.project_session import session
from headrace.cli import main
from tests.in_session import lend

lend(session(load(sys.argv[1]), purpose="stream"), pytest.MonkeyPatch())
sys.exit(main(["run", "-C", sys.argv[1]]) or main(["verify", "-C", sys.argv[1], "--json"]))
"""


@pytest.fixture
def project(postgres_url: str, mariadb_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project where it was made, and its databases."""
    with HOME.with_name(f"{HOME.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # The paths in a checkpoint are whole ones: one run at a time.
        shutil.rmtree(HOME, ignore_errors=True)
        with tarfile.open(FIXTURE) as archive:
            archive.extractall(HOME, filter="data")
        subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", HOME / "postgres.sql", postgres_url], check=True)
        parts = urlsplit(mariadb_url)
        subprocess.run(
            [
                *("mariadb", "--protocol=tcp", "--skip-ssl", f"--host={parts.hostname}", f"--port={parts.port}"),
                *(f"--user={parts.username}", parts.path[1:]),
            ],
            check=True,
            stdin=(HOME / "mariadb.sql").open("rb"),
            env={**os.environ, "MYSQL_PWD": parts.password or ""},
        )
        monkeypatch.setenv("POSTGRES_URL", postgres_url)
        monkeypatch.setenv("MARIADB_URL", mariadb_url)
        yield HOME
        shutil.rmtree(HOME)


def test_every_durable_sink_goes_on_with_the_batch_that_an_earlier_version_had_not_committed(project: Path) -> None:
    connectors.use()
    loaded = load(project)
    for query in loaded.queries:
        # As after a kill between the sink's transaction and Spark's commit: the ledger alone shows that it is in.
        forget_commit(layout_in(loaded.storage, query).checkpoint)
    land(project, FILES)

    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_VERIFY, str(project)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": " ".join(WITHOUT_CODE_GENERATION)},
    )
    print(done.stdout[-3000:], done.stderr[-3000:])
    entries = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    verdicts = {entry["query"]: (entry["verdict"], entry["findings"]) for entry in entries}
    assert verdicts == {query: ("equal", []) for query in loaded.queries} | {"sqlite_windows": ("open", [])}

    with closing(sqlite3.connect(project / "out" / "result.db")) as connection:
        assert Counter(dict(connection.execute("SELECT action, n FROM counts"))) == true_counts(project)


def true_counts(project: Path) -> Counter[str]:
    """How often each action happened, counted here."""
    lines = [line for file in (project / "landing").glob("*.json") for line in file.read_text().splitlines()]
    return Counter(json.loads(line)["action"] for line in lines)
