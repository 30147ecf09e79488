"""Results of several kinds over storage that is not on this machine: each is exact after the same crash."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, verify
from headrace.runner.supervise import run
from services import HdfsServer, S3Server
from tests.runner.test_hdfs import land_next
from tests.runner.test_s3 import reach_bucket
from tests.storage.stores import new_bucket

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.connectors]
PROJECT = """
name: shop
sources:
  events:
    files: {{path: landing, format: json, schema: "name STRING, amount INT", max_files_per_trigger: 1}}
queries:
  in_mariadb:
    select: SELECT name, count(*) AS n FROM events GROUP BY name
    mode: update
    trigger: available_now
    sink: {{mysql: {{url: "{url}", table: counts, key: [name]}}}}
  in_delta:
    select: SELECT name, count(*) AS n FROM events GROUP BY name
    mode: complete
    trigger: available_now
    sink: {{delta: {{path: out/delta}}}}
  in_files:
    select: SELECT name, amount FROM events
    mode: append
    trigger: available_now
    sink: {{files: {{path: out/files, format: parquet}}}}
storage: {storage}
spark: {spark}
"""


@pytest.fixture
def store(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[tuple[str, dict[str, str]]]:
    """A place in a store of the kind, and the settings by which it is reached."""
    if request.param == "s3a":
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = new_bucket(server)
        with reach_bucket(spark, bucket):
            yield f"s3a://{bucket.name}/shop", bucket.settings()
        return
    hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
    address = {"spark.hadoop.dfs.namenode.http-address": hdfs.web_address}
    yield f"{hdfs.url()}/sinks of {getpass.getuser()}", address


# test_s3 and test_hdfs have one of these crashes each; the conformance suite has it with each sink.
@pytest.mark.long
@pytest.mark.parametrize("store", ["s3a", "hdfs"], indirect=True)
def test_each_sink_is_exact_after_a_crash(
    store: tuple[str, dict[str, str]], mariadb_url: str, spark: SparkSession, tmp_path: Path
) -> None:
    storage, settings = store
    root = tmp_path / "shop"
    (root / "landing").mkdir(parents=True)
    (root / "headrace.yml").write_text(
        PROJECT.format(url=mariadb_url, storage=json.dumps(storage), spark=json.dumps(settings))
    )
    for number in range(3):
        land_next(root, number)
    project, died = load(root), set[str]()

    def reached(where: str, number: int) -> None:
        if where == "after-transaction" and number == 1 and len(died) < 2:
            died.add(f"{where} {len(died)}")
            raise RuntimeError("the driver dies here")

    assert run(project, spark=spark, reached=reached).exit_code == 1
    assert died
    assert run(project, spark=spark).exit_code == 0
    verdicts = {name: verify(project, name, spark=spark).state for name in project.queries}
    assert verdicts == dict.fromkeys(("in_mariadb", "in_delta", "in_files"), "equal")
    rows = sorted(row.name for row in spark.read.parquet(str(root / "out" / "files")).collect())
    assert rows == ["a", "a", "b"]
