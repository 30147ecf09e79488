"""The state store of the guide: its two providers, every option, and what a checkpoint fixes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import load, run, status, verify
from headrace.checkpoint import Checkpoint
from headrace.cli.view.formatting import sentence
from headrace.cli.view.tables import status_table
from headrace.contract import BatchRecord
from headrace.errors import Finding, ProjectError
from headrace.model.state_store import OPTIONS, PREFIX
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.jvm.settings import CHECKPOINT_FORMAT, settings
from headrace.starter.start import start
from tests.registered import layout_in
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import FRUIT, TOTALS, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each option with a value that is not the default, the field of RocksDBConf that must hold it, and, where RocksDB
# writes the option down next to its data, the line there.
ARRIVES = [
    ("changelog_checkpointing", "false", "enableChangelogCheckpointing", None),
    ("min_deltas_for_snapshot", "3", "minDeltasForSnapshot", None),
    ("compact_on_commit", "true", "compactOnCommit", None),
    ("block_size_kb", "8", "blockSizeKB", "block_size=8192"),
    ("block_cache_size_mb", "16", "blockCacheSizeMB", None),
    ("lock_acquire_timeout_ms", "90000", "lockAcquireTimeoutMs", None),
    ("reset_stats_on_load", "false", "resetStatsOnLoad", None),
    ("max_open_files", "100", "maxOpenFiles", "max_open_files=100"),
    ("track_total_number_of_rows", "false", "trackTotalNumberOfRows", None),
    ("write_buffer_size_mb", "3", "writeBufferSizeMB", f"write_buffer_size={3 * 1024 * 1024}"),
    ("max_write_buffer_number", "4", "maxWriteBufferNumber", "max_write_buffer_number=4"),
    ("bounded_memory_usage", "true", "boundedMemoryUsage", "cache_index_and_filter_blocks=true"),
    ("max_memory_usage_mb", "64", "totalMemoryUsageMB", None),
    ("write_buffer_cache_ratio", "0.4", "writeBufferCacheRatio", None),
    ("high_priority_pool_ratio", "0.2", "highPriorityPoolRatio", None),
    ("format_version", "4", "formatVersion", "format_version=4"),
    ("allow_fallocate", "false", "allowFAllocate", "allow_fallocate=false"),
    ("compression", "zstd", "compression", "compression=kZSTD"),
]
# State of few figures and long keys, of which few rows come out.
SEEN = """
@hr.query(sink=hr.sink.sqlite("out.db", table="seen"), trigger=hr.available_now)
def seen(events):
    return events.dropDuplicates(["name"]).where("amount < 5").select("amount")
"""
SELECT = "SELECT name, amount FROM totals ORDER BY 1"


@pytest.mark.plain
@pytest.mark.parametrize(("cores", "limit"), [(1, "128"), (2, "64"), (8, "16"), (64, "8")])
def test_the_partitions_of_a_local_state_share_a_cache(monkeypatch: pytest.MonkeyPatch, cores: int, limit: str) -> None:
    monkeypatch.setitem(settings.__globals__, "default_partitions", lambda: cores)
    key = OPTIONS["block_cache_size_mb"].spark_key
    local, cluster = (
        {setting.key: setting.value for setting in settings(master=master, purpose="stream")}
        for master in ("local[*]", "spark://host:7077")
    )
    assert (local[key], cluster.get(key)) == (limit, None)


def project(
    root: Path, options: dict[str, Any], body: str = TOTALS, batches: list[Any] = FRUIT, more: str = ""
) -> Path:
    """A project of one stateful query with a section `state_store`; files land only the first time."""
    write_project(root, body, batches=() if (root / "landing").exists() else batches)
    lines = "".join(f"  {name}: {value}\n" for name, value in options.items())
    (root / "headrace.yml").write_text("name: p\n" + (f"state_store:\n{lines}" if options else "") + more)
    return root


def state_of(root: Path, query: str = "totals") -> Path:
    return layout_in(root / ".headrace", query).checkpoint / "state" / "0"


def ran(root: Path, spark: SparkSession, recorder: Recorder | None = None) -> Recorder:
    recorder = recorder or Recorder()
    result = run(load(root), spark=spark, reporter=recorder)
    assert [str(end.finding) for end in result.outcomes if end.finding] == []
    return recorder


@pytest.fixture
def unbounded_again(spark: SparkSession) -> Iterator[None]:
    """The bound of RocksDB's memory is fixed by the first query of a process, and tests share one."""
    assert spark._jvm is not None
    manager = spark._jvm.org.apache.spark.sql.execution.streaming.state.RocksDBMemoryManager
    manager.resetWriteBufferManagerAndCache()
    yield
    manager.resetWriteBufferManagerAndCache()


@pytest.mark.spark
@pytest.mark.capability("STORE-02")
def test_every_option_arrives_in_rocksdb(tmp_path: Path, spark: SparkSession, unbounded_again: None) -> None:
    assert {name for name, *_ in ARRIVES} == set(OPTIONS) - {"provider"}
    root = project(tmp_path / "p", {name: value for name, value, *_ in ARRIVES})
    declared = load(root)
    running = start(declared, declared.queries["totals"], spark)
    running.handle.awaitTermination()
    assert rows(root / "out.db", SELECT) == [("apple", 4), ("pear", 2)]
    assert spark._jvm is not None
    store = spark._jvm.org.apache.spark.sql.execution.streaming.state
    session = running.handle._jsq.streamingQuery().lastExecution().sparkSession()
    read = store.RocksDBConf.apply(store.StateStoreConf.apply(session.sessionState().conf()))
    assert {name: str(getattr(read, field)()).lower() for name, _, field, _ in ARRIVES} == {
        name: value for name, value, *_ in ARRIVES
    }
    (made,) = (state_of(root) / "0").glob("2[._]*zip")
    with zipfile.ZipFile(made) as snapshot:
        (name,) = [name for name in snapshot.namelist() if name.startswith("OPTIONS")]
        written = {line.strip() for line in snapshot.read(name).decode().splitlines()}
    assert {line for *_, line in ARRIVES if line} - written == set()
    gets = [
        json.loads(progress.json)["stateOperators"][0]["customMetrics"]["rocksdbGetCount"]
        for progress in _progress(running)
    ]
    assert gets[1] > gets[0], "the counters were reset though they were not to be"
    assert [spark.conf.get(OPTIONS[name].spark_key, None) for name in ("block_size_kb", "compression")] == [None, None]


def _progress(running: Any) -> list[Any]:
    return [progress for progress in running.handle.recentProgress if progress.numInputRows]


@pytest.mark.plain
@pytest.mark.capability("STORE-02")
@pytest.mark.parametrize(
    ("section", "code", "words"),
    [
        ("block_size: 8", "HR103", "did you mean 'block_size_kb'"),
        ("provider: rocksdbs", "HR285", "rocksdb or hdfs"),
        ("compact_on_commit: 1", "HR285", "true or false"),
        ("block_size_kb: 0", "HR285", "a whole number from 1"),
        ("block_size_kb: 4.5", "HR285", "a whole number from 1"),
        ("max_open_files: 0", "HR285", "a whole number from 1, or -1"),
        ("max_write_buffer_number: 1", "HR285", "a whole number from 2, or -1"),
        ("{bounded_memory_usage: true, write_buffer_cache_ratio: 1.5}", "HR285", "a number from 0 to 1"),
        ("{bounded_memory_usage: true, high_priority_pool_ratio: .nan}", "HR285", "a number from 0 to 1"),
        ("format_version: 7", "HR285", "a whole number from 2 to 6"),
        ("compression: gzip", "HR285", "lz4 or snappy or zstd"),
        ("max_memory_usage_mb: 100", "HR286", "no effect without bounded_memory_usage"),
        ("{provider: hdfs, block_size_kb: 8}", "HR286", "an option of RocksDB"),
        (
            "{block_cache_size_mb: 9}\nspark: {spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB: 7}",
            "HR286",
            "set the same",
        ),
        ("[provider]", "HR104", "not a mapping"),
    ],
)
def test_an_option_that_cannot_work_is_refused(tmp_path: Path, section: str, code: str, words: str) -> None:
    root = project(tmp_path / "p", {})
    (root / "headrace.yml").write_text(
        f"name: p\nstate_store: {section}\n" if section[0] in "{[" else f"name: p\nstate_store:\n  {section}\n"
    )
    with pytest.raises(ProjectError) as caught:
        load(root)
    (finding,) = caught.value.findings
    assert finding.code == code
    assert words in str(finding)
    assert finding.where.line in (2, 3)


@pytest.mark.plain
@pytest.mark.capability("STORE-02")
def test_a_target_has_options_of_its_own_over_those_of_the_project(tmp_path: Path) -> None:
    prod = "vars: {SIZE: '16'}, state_store: {block_size_kb: '${SIZE}', provider: rocksdb}"
    more = f"targets:\n  dev: {{}}\n  prod: {{{prod}}}\n"
    root = project(tmp_path / "p", {"block_size_kb": 8, "compact_on_commit": "true"}, more=more)
    dev, prod = (load(root, target=name).target.state_store for name in ("dev", "prod"))
    assert {key.removeprefix(PREFIX): value for key, value in dev.items()} == {
        "rocksdb.blockSizeKB": "8",
        "rocksdb.compactOnCommit": "true",
    }
    assert (prod[OPTIONS["block_size_kb"].spark_key], prod[OPTIONS["compact_on_commit"].spark_key]) == ("16", "true")
    assert prod[OPTIONS["provider"].spark_key].endswith(".RocksDBStateStoreProvider")


@pytest.mark.spark
@pytest.mark.capability("STORE-01", "STORE-06")
def test_the_hdfs_provider_keeps_the_state_and_counts_how_often_it_was_at_hand(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = project(tmp_path / "p", {"provider": "hdfs"})
    first = ran(root, spark).all(BatchRecord)
    assert [path.name for path in sorted((state_of(root) / "0").glob("[0-9]*"))] == ["1.delta", "2.delta"]
    assert [(record.state_rows, record.state_misses) for record in first] == [(2, 0), (2, 0)]
    assert first[1].state_hits == 4, "an aggregation opens each of its two stores twice, to read and to write"
    land(root, 2, [{"name": "fig", "amount": 7}])
    (again,) = ran(root, spark).all(BatchRecord)
    assert (again.state_rows, again.state_misses) == (3, 2)
    assert rows(root / "out.db", SELECT) == [("apple", 4), ("fig", 7), ("pear", 2)]
    assert verify(load(root), "totals", spark=spark).state == "equal"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("begun", "asked", "provider"), [("1", "2", "rocksdb"), ("2", "1", "rocksdb"), ("1", "2", "hdfs")]
)
def test_a_checkpoint_keeps_the_format_that_it_was_begun_in(
    tmp_path: Path, spark: SparkSession, begun: str, asked: str, provider: str
) -> None:
    root = project(tmp_path / "p", {"provider": provider})
    for file, format_ in ((2, asked if provider == "hdfs" else begun), (3, asked)):
        with apply_settings(spark, {CHECKPOINT_FORMAT: format_}):
            land(root, file, [{"name": "fig", "amount": 7}])
            ran(root, spark)
    commits = Checkpoint(layout_in(load(root).storage, "totals").checkpoint).commits()
    assert {commit.version for commit in commits.values()} == {int(begun)}
    assert verify(load(root), "totals", spark=spark).state == "equal"


@pytest.mark.spark
@pytest.mark.capability("STORE-03")
@pytest.mark.usefixtures("checkpoint_format")
def test_changelog_checkpointing_goes_on_and_off_over_one_checkpoint(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", {}, batches=[])
    made = []
    for batch, on in enumerate(("true", "false", "true", "false")):
        project(root, {"changelog_checkpointing": on})
        land(root, batch, [{"name": name, "amount": 10**batch} for name in ("apple", "pear", f"only {batch}")])
        ran(root, spark)
        version = batch + 1
        made.append(
            [kind for kind in ("changelog", "zip") if any((state_of(root) / "0").glob(f"{version}[._]*{kind}"))]
        )
    assert made == [["changelog"], ["zip"], ["changelog"], ["zip"]]
    assert rows(root / "out.db", SELECT) == [
        ("apple", 1111),
        *((f"only {batch}", 10**batch) for batch in range(4)),
        ("pear", 1111),
    ]
    assert verify(load(root), "totals", spark=spark).state == "equal"


@pytest.mark.spark
@pytest.mark.capability("STORE-04")
def test_the_memory_of_all_stores_together_is_bounded(
    tmp_path: Path, spark: SparkSession, unbounded_again: None
) -> None:
    """Two queries of two stores each keep several times as much as the bound."""
    two = SEEN + SEEN.replace("def seen", "def others").replace("out.db", "two.db")
    batches = [[{"name": f"{batch} {n:0400d}", "amount": n} for n in range(10_000)] for batch in range(3)]
    megabytes, taken = 8, {}
    for bounded in ("false", "true"):
        options = {"bounded_memory_usage": bounded}
        if bounded == "true":
            options |= {"max_memory_usage_mb": str(megabytes), "write_buffer_cache_ratio": "0.5"}
        root = project(tmp_path / bounded, options, two, batches)
        last = {record.query: record for record in ran(root, spark).all(BatchRecord)}
        assert {record.state_rows for record in last.values()} == {30_000}
        taken[bounded] = sum(record.state_bytes or 0 for record in last.values()) / 1024 / 1024
        assert rows(root / "two.db", "SELECT count(*) FROM seen") == [(15,)]
    assert taken["true"] < 1.25 * megabytes, "the bound is soft: what is being read is held for the moment"
    assert taken["false"] > 3 * megabytes


@pytest.mark.spark
@pytest.mark.capability("STORE-05")
def test_rows_that_are_not_counted_are_unknown_and_not_none(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", {"track_total_number_of_rows": "false"})
    recorder = ran(root, spark)
    last = recorder.all(BatchRecord)[-1]
    assert last.state_rows is None
    assert last.state_bytes
    assert last.as_dict()["state_rows"] is None
    assert "state unknown rows" in sentence(last)
    (standing,) = status(load(root))
    assert (standing.state_rows, standing.as_dict()["state_rows"], standing.state_bytes) == (
        None,
        None,
        last.state_bytes,
    )
    (row,) = status_table(["totals"], [standing]).rows
    assert "unknown" in row
    project(root, {})
    land(root, 2, [{"name": "fig", "amount": 7}])
    (counted,) = ran(root, spark).all(BatchRecord)
    assert counted.state_rows == 3
    assert "state 3 rows" in sentence(counted)


@pytest.mark.spark
@pytest.mark.capability("STORE-06")
def test_kept_and_loaded_stores_are_counted(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", {}, SEEN)
    first = ran(root, spark).all(BatchRecord)
    assert [(record.state_hits, record.state_misses) for record in first] == [(2, 0), (2, 0)]
    land(root, 2, FRUIT[0])
    land(root, 3, FRUIT[1])
    moved, stayed = ran(root, spark).all(BatchRecord)
    assert (moved.state_hits, moved.state_misses) == (0, 2), "a new run has to load what the last one wrote"
    assert (stayed.state_hits, stayed.state_misses) == (2, 0)
    (standing,) = status(load(root))
    assert (standing.state_hits, standing.as_dict()["state_misses"]) == (2, 0)
    (row,) = status_table(["seen"], [standing]).rows
    assert "2 of 2" in row


@pytest.mark.spark
@pytest.mark.capability("STORE-06")
def test_what_rocksdb_does_not_count_of_an_aggregation_is_unknown(tmp_path: Path, spark: SparkSession) -> None:
    root = project(tmp_path / "p", {})
    assert {(record.state_hits, record.state_misses) for record in ran(root, spark).all(BatchRecord)} == {(None, None)}
    (row,) = status_table(["totals"], status(load(root))).rows
    assert row[-2] == "unknown"


@pytest.mark.spark
@pytest.mark.capability("STORE-06")
def test_the_locality_wait_of_the_project_reaches_the_scheduler(tmp_path: Path) -> None:
    body = """
    @hr.query(sink=hr.sink.sqlite("out.db", table="waits"), trigger=hr.available_now)
    def waits(events, spark):
        wait = spark.sparkContext._jsc.sc().taskScheduler().sc().conf().get("spark.locality.wait")
        return events.select(F.lit(wait).alias("wait"))
    """
    root = project(tmp_path / "p", {}, body, FRUIT[:1], more="spark: {spark.locality.wait: 7s}\n")
    subprocess.run([sys.executable, "-m", "headrace", "run", "-C", str(root)], check=True, capture_output=True)
    assert rows(root / "out.db", "SELECT DISTINCT wait FROM waits") == [("7s",)]


@pytest.mark.spark
@pytest.mark.capability("STORE-07")
@pytest.mark.parametrize(("before", "after"), [("rocksdb", "hdfs"), ("hdfs", "rocksdb")])
def test_another_provider_is_refused_before_the_state_is_touched(
    tmp_path: Path, spark: SparkSession, before: str, after: str
) -> None:
    root = project(tmp_path / "p", {"provider": before})
    ran(root, spark)
    checkpoint = layout_in(root / ".headrace", "totals").checkpoint
    seen = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    land(root, 2, FRUIT[0])
    project(root, {"provider": after})
    (outcome,) = run(load(root), spark=spark).outcomes
    assert outcome.finding is not None
    assert (outcome.finding.code, outcome.state) == ("HR550", "failed")
    assert f"kept by {before}, and the project now asks for {after}" in outcome.finding.what
    assert f"provider: {before}" in outcome.finding.fix
    assert {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()} == seen
    project(root, {"provider": before})
    ran(root, spark)
    assert rows(root / "out.db", SELECT) == [("apple", 5), ("pear", 4)]


@pytest.mark.spark
@pytest.mark.capability("STORE-07")
def test_what_the_checkpoint_keeps_is_reported_when_the_project_asks_for_something_else(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = project(tmp_path / "p", {})
    ran(root, spark)
    land(root, 2, FRUIT[0])
    project(root, {"format_version": 4}, more="spark: {spark.sql.shuffle.partitions: 5}\n")
    recorder = ran(root, spark)
    notes = [note for note in recorder.all(Finding) if note.code == "HR551"]
    assert [re.sub(r".*continues with (.*), which.*not with (.*)", r"\1, \2", note.what) for note in notes] == [
        "state_store: format_version 5, 4",
        "spark.sql.shuffle.partitions 2, 5",
    ]
    assert "headrace state repartition totals 5" in notes[1].fix
    (batch,) = recorder.all(BatchRecord)
    assert batch.rows == 2
    assert rows(root / "out.db", SELECT) == [("apple", 5), ("pear", 4)]
