"""A query whose storage is in a bucket: exact after crashes and answers that were lost, with one driver at a time."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, repartition, reset, rewind, verify
from headrace.checkpoint import Archive
from headrace.checkpoint.sources import ReadFiles
from headrace.cli.entry import main
from headrace.runner.supervise import run
from headrace.spark.jvm import cds
from headrace.spark.jvm.jars import DIRECTORIES_VARIABLE, find, known_connectors
from services import S3Server, connectors
from services.proxy import Proxy
from tests.connectors.sql.databases import Database
from tests.registered import latest_generation, layout_in
from tests.runner.projects import rows
from tests.runner.test_hdfs import land_next, stored_batches
from tests.servers import unavailable
from tests.starter.test_driver_lock import holder
from tests.storage.stores import Bucket, new_bucket

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
storage: s3a://{bucket}/shop
spark: {spark}
"""


def project_on(bucket: Bucket, root: Path, url: str, batches: int) -> Path:
    (root / "landing").mkdir(parents=True)
    text = PROJECT.format(url=url, bucket=bucket.name, spark=json.dumps(bucket.settings()))
    (root / "headrace.yml").write_text(text)
    for number in range(batches):
        land_next(root, number)
    return root


@contextmanager
def reach_bucket(spark: SparkSession, bucket: Bucket, **other: str) -> Iterator[None]:
    """Let a session that is there reach the bucket; one of its own would, by the project's settings."""
    conf = spark._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    names = {key.removeprefix("spark.hadoop."): value for key, value in bucket.settings(**other).items()}
    for name, value in names.items():
        conf.set(name, value)
    yield
    for name in names:
        conf.unset(name)


def make_trouble(server: S3Server) -> Callable[[str, int], None]:
    """The store dies in the midst of batch 1 and comes back; the driver dies once batch 2 is in the database."""
    died = set[str]()

    def reached(where: str, number: int) -> None:
        if (where, number) == ("inside-transaction", 1) and not died:
            died.add("store")
            server.kill()
            server.start()
        if (where, number) == ("after-transaction", 2):
            raise RuntimeError("the driver dies here")

    return reached


@pytest.mark.timeout(600)
def test_a_query_is_exact_with_its_storage_in_a_bucket(
    s3_server: S3Server,
    postgres_url: str,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One story, as each start takes its time: a store that dies, a crash, lost answers, a second driver, a proof."""
    bucket = new_bucket(s3_server)
    root = project_on(bucket, tmp_path / "shop", postgres_url, 4)
    project = load(root)
    database = Database("postgres", postgres_url)
    home = f"/{bucket.name}/shop/queries/{layout_in(project.storage, 'counts').directory}/g1.1/checkpoint"
    with (
        Proxy(s3_server.port, word=f"PUT {home}/offsets/4".encode()) as offsets,
        reach_bucket(spark, bucket, endpoint=f"http://127.0.0.1:{offsets.port}"),
    ):
        reached = make_trouble(s3_server)
        broken = run(project, spark=spark, reached=reached)
        if stored_batches(root, capsys)[0] < 2:
            assert broken.outcomes[0].finding.passes, broken
            broken = run(project, spark=spark, reached=reached)
        assert (broken.exit_code, stored_batches(root, capsys)) == (1, (2, 1)), broken

        with holder(root) as other:
            assert main(["run", "-C", str(root)]) == 1
            assert f"HR526: query 'counts' is already running as process {other.pid}" in capsys.readouterr().err
            assert main(["status", "--storage-only", "-C", str(root)]) == 0
            assert f"process {other.pid}" in capsys.readouterr().out

        assert run(project, spark=spark).exit_code == 0
        land_next(root, 4)
        offsets.swallow_commit_answer()
        lost = run(project, spark=spark)
        assert offsets.commits >= 2, "Hadoop's client has put it again"
        if lost.exit_code:
            # Its own first put is in the way of the second: it looks like another driver's.
            assert lost.outcomes[0].finding.passes, lost
            assert run(project, spark=spark).exit_code == 0
        assert stored_batches(root, capsys) == (4, 4)
        expected = [("a", 2, 2), ("b", 2, 5), ("c", 1, 3)]
        assert database.query("SELECT name, n, total FROM counts ORDER BY name") == expected
        assert verify(project, "counts", spark=spark).state == "equal"

        layout = layout_in(project.storage, "counts", latest_generation(layout_in(project.storage, "counts")))
        assert sorted(Archive(layout.archive).entries()) == [0, 1, 2, 3, 4]
        landed = {f"{root}/landing/{file.name}": file.stat().st_size for file in (root / "landing").iterdir()}
        assert {path: file.size_bytes for path, file in ReadFiles(layout.home).read().items()} == landed
        assert [path.name for path in layout.checkpoint.rglob("*.tmp")] == []
        for words in (["status"], ["inspect", "checkpoint", "counts"], ["inspect", "offsets", "counts"]):
            assert main([*words, "-C", str(root)]) == 0, words
        assert not (root / ".headrace" / "queries").exists()

        reset(project, "counts", result="drop", spark=spark).apply()
        assert run(project, spark=spark).exit_code == 0
        assert database.query("SELECT name, n, total FROM counts ORDER BY name") == expected
        assert latest_generation(layout_in(project.storage, "counts")) == 2

        # Into other partitions and under another name: one start resumes from both.
        assert repartition(project, "counts", 3, spark=spark).batch == 5
        reset(project, "counts", spark=spark).discard()
        text = (root / "headrace.yml").read_text()
        (root / "headrace.yml").write_text(text.replace("  counts:\n", "  tallies:\n    renamed_from: counts\n"))
        project = load(root)
        land_next(root, 5)
        assert run(project, spark=spark).exit_code == 0
        expected[0] = ("a", 3, 7)
        assert database.query("SELECT name, n, total FROM counts ORDER BY name") == expected
        assert not list((layout_in(project.storage, "counts").folder).glob("g*"))

        # Back to an earlier batch, and forth again from the state there.
        land_next(root, 6)
        assert run(project, spark=spark).exit_code == 0
        newest = database.query("SELECT name, n, total FROM counts ORDER BY name")
        assert newest != expected
        assert rewind(project, "tallies", to_batch=6, spark=spark).apply().batch == 6
        assert database.query("SELECT name, n, total FROM counts ORDER BY name") == expected
        assert run(project, spark=spark).exit_code == 0
        assert database.query("SELECT name, n, total FROM counts ORDER BY name") == newest
        assert verify(project, "tallies", spark=spark).state == "equal"


@pytest.mark.long
def test_the_first_start_on_a_machine_has_the_jar_that_it_compiles(s3_server: S3Server, tmp_path: Path) -> None:
    """With an empty cache. In place of Maven, a program copies the jars that Maven has brought for the tests."""
    connectors.use()
    jars = find(known_connectors()["s3"])
    if jars is None:
        unavailable("the jars for S3 are not here: python -m services install")
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    fetched = " ".join(shlex.quote(str(jar)) for jar in jars if not jar.name.startswith("headrace-"))
    maven.write_text(
        '#!/bin/sh\nfor word; do case "$word" in -DoutputDirectory=*) to="${word#*=}";; esac; done\n'
        f'grep -q hadoop-aws "$to/pom.xml" && cp {fetched} "$to"\n'
    )
    maven.chmod(0o755)
    bucket = new_bucket(s3_server)
    root = project_on(bucket, tmp_path / "shop", "none", 1)
    (root / "headrace.yml").write_text(
        re.sub(
            r"sink: .*",
            "sink: {sqlite: {path: out.db, table: counts, key: [name]}}",
            (root / "headrace.yml").read_text(),
        )
    )
    cache = tmp_path / "cache"
    environment = {**os.environ, "HEADRACE_CACHE": str(cache), cds.SWITCH: "off", DIRECTORIES_VARIABLE: ""}
    environment["PATH"] = f"{maven.parent}:{environment['PATH']}"
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert rows(root / "out.db", "SELECT name, n, total FROM counts") == [("a", 1, 0)]
    (compiled,) = cache.glob("connectors/s3-*/headrace-*.jar")
    assert compiled.stat().st_size > 0


def test_of_two_drivers_that_write_one_batch_one_is_the_first(
    s3_server: S3Server, spark: SparkSession, tmp_path: Path
) -> None:
    """By Spark's own writer of checkpoint files, without a lease: both begin a file, and only one can complete it."""
    from py4j.protocol import Py4JJavaError

    from headrace.spark.jvm.settings import FILE_MANAGERS

    bucket = new_bucket(s3_server)
    jvm = spark._jvm
    with reach_bucket(spark, bucket):
        path = jvm.org.apache.hadoop.fs.Path(f"s3a://{bucket.name}/offsets/7")  # type: ignore[union-attr]
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
        made = loader.loadClass(FILE_MANAGERS["s3a"]).getConstructors()[0]
        given = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 2)  # type: ignore[union-attr]
        given[0], given[1] = path, spark._jsc.hadoopConfiguration()  # type: ignore[union-attr]
        manager = made.newInstance(given)
        one, other = manager.createAtomic(path, False), manager.createAtomic(path, False)
        one.write(bytearray(b"one"))
        other.write(bytearray(b"other"))
        given_up = manager.createAtomic(path, False)
        given_up.write(bytearray(b"half"))
        given_up.cancel()
        files = s3_server.home / "data" / bucket.name / "offsets"
        assert not (files / "7").exists()
        other.close()
        with pytest.raises(Py4JJavaError):
            one.close()
        assert (files / "7").read_bytes() == b"other"
        assert [path.name for path in files.iterdir()] == ["7"]
