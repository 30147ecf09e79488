"""Paths of sources and sinks in a store that cannot be used, or kept exact, are one sentence before Spark starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from headrace.api import load
from headrace.checks.structure import check_structure
from headrace.errors import Finding
from headrace.frames.project_session import jars_of, listing_settings
from headrace.storage import hdfs, s3
from headrace.storage.store import forget
from tests.checks.test_remote_storage import bucket_that

pytestmark = pytest.mark.plain
PROJECT = """
name: p
sources: {{events: {{files: {{path: '{source}', format: json, schema: a INT}}}}}}
queries: {{q: {{select: SELECT a FROM events, sink: {sink}}}}}
targets: {{dev: {{master: '{master}', spark: {spark}}}}}
"""
SILENT = "hdfs://127.0.0.1:9/in"
LOCAL = "files: out"
ICEBERG = "iceberg: {table: n.t, catalog: {type: sql, uri: 'sqlite:///c.db', warehouse: 'hdfs://name:9000/w'}}"


def project_of(root: Path, source: str, sink: str, master: str = "local[1]", **settings: str) -> Path:
    root.mkdir(exist_ok=True)
    keys = {"access.key": "me", "secret.key": "mine", "path.style.access": "true", **settings}
    spark = {f"spark.hadoop.fs.s3a.{name}": value for name, value in keys.items()}
    spark["spark.hadoop.dfs.namenode.http-address"] = "127.0.0.1:9"
    text = PROJECT.format(source=source, sink="{" + sink + "}", master=master, spark=json.dumps(spark))
    (root / "headrace.yml").write_text(text)
    return root


def findings_of(root: Path) -> list[Finding]:
    for name in ("lake", "127.0.0.1:9"):
        forget("s3a", name)
        forget("hdfs", name)
    return list(check_structure(load(root)))


@pytest.mark.parametrize(
    ("source", "sink", "code", "words"),
    [
        (SILENT, LOCAL, "HR831", f"the source 'events' has the path {SILENT}: the storage hdfs://127.0.0.1:9"),
        ("in", f"files: '{SILENT}'", "HR831", "the sink of query 'q' has the path hdfs://127.0.0.1:9/in"),
        ("s3://lake/in", LOCAL, "HR838", "the source 'events' has the path s3://lake/in"),
        ("in", "files: 'gs://lake/out'", "HR838", "gs://lake/out is on gs://, where Headrace cannot read Spark's log"),
        ("gs://lake/in", "delta: 'abfss://lake/out'", None, ""),
        ("in", "files: 'hdfs:///out'", "HR838", "hdfs:///out is on hdfs://, where Headrace cannot read"),
        ("hdfs:///in", "delta: 'abfss://lake/out'", None, ""),
        ("in", ICEBERG, "HR838", "the warehouse hdfs://name:9000/w is on HDFS"),
    ],
    ids=["source-silent", "sink-silent", "s3", "gs-sink", "by-spark-alone", "no-host", "source-no-host", "iceberg"],
)
def test_a_path_that_cannot_be_used_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, sink: str, code: str | None, words: str
) -> None:
    monkeypatch.setattr(hdfs, "_PAUSES", ())
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    findings = findings_of(project_of(tmp_path, source, sink))
    assert [finding.code for finding in findings] == ([] if code is None else [code])
    assert all(words in finding.what and finding.fix and finding.where.line for finding in findings), findings
    # What Headrace cannot reach, Spark may read all the same; a files sink needs both.
    assert [finding.severity for finding in findings if source == SILENT] == ["warning"] * (source == SILENT)


def test_a_bucket_is_asked_for_what_sources_and_sinks_need_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    files, delta = "files: 's3a://lake/out'", "delta: 's3a://lake/out'"
    with bucket_that(expires=True) as old, bucket_that(expires=False) as careless:
        for endpoint, source, sink, expected in (
            ("http://127.0.0.1:9", "s3a://lake/in", LOCAL, ["HR831"]),
            (old, "s3a://lake/in", LOCAL, ["HR833"]),
            (careless, "s3a://lake/in", LOCAL, []),
            (old, "in", files, ["HR833"]),
            (careless, "in", files, []),
            (careless, "in", delta, ["HR840"]),
        ):
            findings = findings_of(project_of(tmp_path, source, sink, endpoint=endpoint))
            assert [finding.code for finding in findings] == expected, (source, sink, findings)
    assert findings[0].severity == "note"
    forget("s3a", "lake")


def test_a_package_for_a_path_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headrace.storage.hdfs", None)
    (finding,) = findings_of(project_of(tmp_path, SILENT, LOCAL))
    assert (finding.code, "a path on hdfs:// needs the package" in finding.what) == ("HR011", True)
    assert finding.severity == "warning"


def test_a_path_in_a_bucket_brings_its_jars_with_storage_on_a_disk(tmp_path: Path) -> None:
    for source, sink in (("s3a://lake/in", LOCAL), ("in", "files: 's3a://lake/out'")):
        assert [jar.name for jar in jars_of(load(project_of(tmp_path, source, sink)))] == ["s3"]


def test_only_local_paths_are_out_of_reach_of_a_master_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdfs, "_PAUSES", ())
    findings = findings_of(
        project_of(tmp_path, SILENT, "files: 'file:///out'", master="spark://elsewhere.invalid:7077")
    )
    places = [finding.what.partition(",")[0] for finding in findings if finding.code == "HR829"]
    assert len(places) == 2
    assert places[0].startswith("the storage ")
    assert places[1] == "the sink of query 'q' has the path file:///out on this machine"


@pytest.mark.parametrize(
    ("source", "sink", "on_the_driver"),
    [
        ("in", LOCAL, True),
        ("file:///in", LOCAL, True),
        ("s3a://lake/in", LOCAL, False),
        (SILENT, LOCAL, False),
        ("in", "files: 's3a://lake/out'", False),
    ],
    ids=["local", "file-scheme", "s3", "hdfs", "s3-sink"],
)
def test_only_local_files_are_all_listed_by_the_driver(
    tmp_path: Path, source: str, sink: str, on_the_driver: bool
) -> None:
    assert bool(listing_settings(load(project_of(tmp_path, source, sink)))) is on_the_driver
