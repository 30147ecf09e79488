"""A query whose storage is on HDFS: exact after a crash, looked at without a JVM, and run by one driver at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, repartition, reset, rewind, verify
from headrace.checkpoint import Archive
from headrace.cli.entry import main
from headrace.errors import CheckFailed
from headrace.runner.supervise import run
from services import HdfsServer
from tests.connectors.sql.databases import Database
from tests.registered import latest_generation, layout_in
from tests.rounds import rounds
from tests.runner.projects import land
from tests.starter.test_driver_lock import holder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.services
PROJECT = """
name: shop
sources:
  events:
    files: {{path: landing, format: json, schema: "name STRING, amount INT", max_files_per_trigger: 1}}
queries:
  counts:
    select: SELECT name, count(*) AS n, sum(amount) AS total FROM events GROUP BY name
    mode: update
    trigger: available_now
    sink: {{postgres: {{url: "{url}", table: counts, key: [name], rewindable: 7 days}}}}
storage: {storage}
spark: {{spark.hadoop.dfs.namenode.http-address: "{web}"}}
"""
NAMES = ("a", "b", "a", "c", "b", "a")


def project_on(server: HdfsServer, root: Path, url: str, batches: int, place: str = "") -> Path:
    root.mkdir()
    (root / "landing").mkdir()
    storage = f"{server.url()}/{place or f'{root.name} of {server.user.name}'}"
    (root / "headrace.yml").write_text(PROJECT.format(url=url, storage=storage, web=server.web_address))
    for number in range(batches):
        land_next(root, number)
    return root


def land_next(root: Path, number: int) -> None:
    land(root, number, [{"name": NAMES[number % len(NAMES)], "amount": number}])


def make_trouble(server: HdfsServer, *, dies: bool) -> Callable[[str, int], None]:
    """The store may die in the midst of batch 1 and come back; the driver dies once batch 2 is in the database."""
    died = set[str]()

    def reached(where: str, number: int) -> None:
        if (where, number) == ("inside-transaction", 1) and dies and not died:
            died.add("store")
            server.kill()
            server.start()
        if (where, number) == ("after-transaction", 2):
            raise RuntimeError("the driver dies here")

    return reached


# In `make test`, tests/runner/test_s3.py has a store that dies, a query that goes back, a new name and a reset.
@pytest.mark.parametrize("store_dies", rounds([False, True]), ids=["the driver dies", "the store dies too"])
def test_a_query_is_exact_with_its_storage_on_hdfs(
    store_dies: bool,
    hdfs_server: HdfsServer,
    postgres_url: str,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One story, as each start takes its time: a store that dies, a crash, a second driver, a restart, a proof."""
    root = project_on(hdfs_server, tmp_path / "shop", postgres_url, 4, place="killed shop" if store_dies else "")
    project = load(root)
    reached = make_trouble(hdfs_server, dies=store_dies)
    broken = run(project, spark=spark, reached=reached)
    if store_dies and stored_batches(root, capsys)[0] < 2:
        # Spark's client has asked over a connection of the store that died. A query that goes on for ever starts again.
        assert broken.outcomes[0].finding.passes
        broken = run(project, spark=spark, reached=reached)
    assert (broken.exit_code, stored_batches(root, capsys)) == (1, (2, 1)), broken

    with holder(root) as other:
        assert main(["run", "-C", str(root)]) == 1
        assert f"HR526: query 'counts' is already running as process {other.pid}" in capsys.readouterr().err
        assert main(["status", "--storage-only", "-C", str(root)]) == 0
        assert f"process {other.pid}" in capsys.readouterr().out

    assert run(project, spark=spark).exit_code == 0
    land_next(root, 4)
    assert run(project, spark=spark).exit_code == 0
    database = Database("postgres", postgres_url)
    assert database.query("SELECT name, n, total FROM counts ORDER BY name") == [("a", 2, 2), ("b", 2, 5), ("c", 1, 3)]
    assert verify(project, "counts", spark=spark).state == "equal"

    layout = layout_in(project.storage, "counts", latest_generation(layout_in(project.storage, "counts")))
    assert sorted(Archive(layout.archive).entries()) == [0, 1, 2, 3, 4]
    assert [path.name for path in layout.checkpoint.rglob("*.tmp")] == []
    assert stored_batches(root, capsys) == (4, 4)
    for words in (["status"], ["inspect", "checkpoint", "counts"], ["inspect", "offsets", "counts"]):
        assert main([*words, "-C", str(root)]) == 0, words
    # The history and the sockets are this machine's.
    assert {"history.db", "logs"} <= {path.name for path in (root / ".headrace" / "targets" / "dev").iterdir()}
    assert not (root / ".headrace" / "queries").exists()

    if not store_dies:
        return
    # Back to an earlier batch, and under another name: one start resumes from both.
    rewind(project, "counts", to_batch=2, spark=spark).apply()
    assert stored_batches(root, capsys) == (2, 2)
    assert database.query("SELECT name, n, total FROM counts ORDER BY name") == [("a", 2, 2), ("b", 1, 1)]
    rewind(project, "counts", spark=spark).discard()
    with pytest.raises(CheckFailed, match=r"HR580: .* because of the ' ' in its path"):
        repartition(project, "counts", 3, spark=spark)
    text = (root / "headrace.yml").read_text()
    (root / "headrace.yml").write_text(text.replace("  counts:\n", "  tallies:\n    renamed_from: counts\n"))
    project = load(root)
    assert run(project, spark=spark).exit_code == 0
    assert database.query("SELECT name, n, total FROM counts ORDER BY name") == [("a", 2, 2), ("b", 2, 5), ("c", 1, 3)]
    assert not list((layout_in(project.storage, "counts").folder).glob("g*"))
    assert verify(project, "tallies", spark=spark).state == "equal"
    reset(project, "tallies", result="drop", spark=spark).apply()
    assert run(project, spark=spark).exit_code == 0
    assert database.query("SELECT name, n, total FROM counts ORDER BY name") == [("a", 2, 2), ("b", 2, 5), ("c", 1, 3)]
    assert latest_generation(layout_in(project.storage, "tallies")) == 2


@pytest.mark.long
def test_the_state_is_brought_into_other_partitions_on_hdfs(
    hdfs_server: HdfsServer, postgres_url: str, spark: SparkSession, tmp_path: Path
) -> None:
    root = project_on(hdfs_server, tmp_path / "shop", postgres_url, 2, place="parts")
    project = load(root)
    assert run(project, spark=spark).exit_code == 0
    layout = layout_in(project.storage, "counts", latest_generation(layout_in(project.storage, "counts")))
    before = len(list((layout.checkpoint / "state" / "0").glob("[0-9]*")))
    done = repartition(project, "counts", 5, spark=spark)
    assert (done.before, done.after, done.batch) == (before, 5, 2)
    land_next(root, 2)
    assert run(project, spark=spark).exit_code == 0
    assert len(list((layout.checkpoint / "state" / "0").glob("[0-9]*"))) == 5 != before
    database = Database("postgres", postgres_url)
    assert database.query("SELECT name, n, total FROM counts ORDER BY name") == [("a", 2, 2), ("b", 1, 1)]
    assert verify(project, "counts", spark=spark).state == "equal"


def stored_batches(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """The planned and the committed batch, as `headrace status --storage-only` shows them."""
    capsys.readouterr()
    assert main(["status", "--storage-only", "--json", "-C", str(root)]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["queries"]
    assert (entry["query"], entry["driver"], entry["fault"]) == ("counts", None, None)
    return entry["planned"], entry["committed"]
