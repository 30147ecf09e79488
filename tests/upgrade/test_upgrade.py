"""A project that an earlier version ran: its checkpoints, ledgers and tables are taken on without a step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from headrace.api import load, run, verify
from headrace.model.layout import QueryLayout
from headrace.testing.conformance import forget_commit
from tests.upgrade.make_fixture import FILES, HOME, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors, pytest.mark.timeout(600)]

FIXTURE = Path(__file__).parent / "0.1.0.tar.xz"


@pytest.fixture
def project(postgres_url: str, mariadb_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project where it was made, and its databases."""
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


def test_every_durable_sink_goes_on_with_the_batch_that_an_earlier_version_had_not_committed(
    project: Path, spark: SparkSession
) -> None:
    loaded = load(project)
    for query in loaded.queries:
        # As after a kill between the sink's transaction and Spark's commit: the ledger alone tells that it is in.
        forget_commit(QueryLayout(loaded.storage, query).checkpoint)
    land(project, FILES)

    result = run(loaded, spark=spark)

    assert {outcome.query: str(outcome.finding) for outcome in result.outcomes if outcome.finding} == {}
    verdicts = {query: verify(loaded, query, spark=spark) for query in loaded.queries}
    open_yet = {query: verdict for query, verdict in verdicts.items() if verdict.state != "equal"}
    assert {query: (each.state, each.findings) for query, each in open_yet.items()} == {
        "sqlite_windows": ("pending", ())
    }
    assert counted(loaded.root, spark) == true_counts(project)


def true_counts(project: Path) -> Counter[str]:
    """How often each action happened, counted here."""
    lines = [line for file in (project / "landing").glob("*.json") for line in file.read_text().splitlines()]
    return Counter(json.loads(line)["action"] for line in lines)


def counted(project: Path, spark: SparkSession) -> Counter[str]:
    """What the table of counts holds, read past Headrace."""
    rows = spark.read.format("delta").load(str(project / "out" / "delta_counts")).collect()
    return Counter({row["action"]: row["n"] for row in rows})
