"""`headrace inspect checkpoint` says which file is bad, before anything is started."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from headrace.checkpoint import Archive, Checkpoint, OffsetEntry
from headrace.cli.entry import main
from headrace.contract import BatchRecord
from headrace.contract.batch_record import SourceProgress
from headrace.generations.log import history_file
from headrace.history import History
from tests.registered import layout_in
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="t", key=["name"]), mode="update")
def counts(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


def remove(name: str) -> Callable[[Path], object]:
    return lambda home: (home / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda home: (home / name).write_bytes(content)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = write_project(tmp_path / "p", BODY)
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout_in(root / ".headrace", "counts").home / "checkpoint")
    return root


@pytest.mark.parametrize(
    ("damage", "code", "exit_code"),
    [
        (lambda home: None, None, 0),
        (write("checkpoint/state/0/0/3.changelog", b""), "HR516", 1),
        (remove("checkpoint/sources/events/2"), "HR509", 1),
        (remove("checkpoint/offsets/1"), "HR514", 1),
        (write("manifest.jsonl", b"\xff\xfe"), "HR584", 1),
        (write("archive.jsonl", b"\xff\xfe\n{}\n"), "HR523", 0),
        (write("repartitions.jsonl", b"\xff\n"), "HR503", 1),
    ],
    ids=["whole", "state", "source log", "offsets", "manifest", "archive", "repartitions"],
)
def test_what_is_bad_is_reported_once_with_what_to_do(
    project: Path,
    damage: Callable[[Path], object],
    code: str | None,
    exit_code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(layout_in(project / ".headrace", "counts").home)
    assert main(["inspect", "checkpoint", "-C", str(project), "--json"]) == exit_code
    (query,) = json.loads(capsys.readouterr().out)["queries"]
    assert [finding["code"] for finding in query["findings"]] == [code] * (code is not None)
    assert all(finding["fix"] and finding["where"]["file"] for finding in query["findings"])
    assert (query["planned"], query["committed"], query["usable"]) == (2, 2, exit_code == 0)
    assert main(["inspect", "checkpoint", "counts", "-C", str(project)]) == exit_code
    shown = capsys.readouterr().out
    assert shown.startswith("counts: planned up to batch 2, committed up to 2; ")
    assert ("fix: " in shown) is (code is not None)


def test_a_query_that_never_ran_is_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_project(tmp_path / "p", BODY)
    assert main(["inspect", "checkpoint", "-C", str(root)]) == 0
    assert capsys.readouterr().out == "counts: no batch yet; usable\n"


TWO_SOURCES = """
views = hr.source.files("views", format="json", schema="name STRING, at TIMESTAMP", watermark=("at", "10 minutes"))
clicks = hr.source.kafka(bootstrap_servers="nowhere:1", subscribe="clicks", value="json",
                         schema="name STRING, at TIMESTAMP", watermark=("at", "1 hour"))

@hr.query(sink=hr.sink.sqlite("out.db", table="t", key=["name"]), mode="update")
def counts(views, clicks):
    return (views.unionByName(clicks.select("name", "at"))
            .groupBy(F.window(F.col("at"), "1 hour", "30 minutes"), "name").count())
"""
MINUTE_MS = 60_000
NOON_MS = 1_700_049_600_000


@pytest.fixture
def two_sources(tmp_path: Path) -> Path:
    """A query of files and Kafka: 4 batches, of which Spark has purged the first; Kafka gives rows in batch 0 alone."""
    root = write_project(tmp_path / "two", TWO_SOURCES)
    (root / "views").mkdir()
    layout = layout_in(root / ".headrace", "counts")
    for folder in ("offsets", "commits", "sources/views"):
        (layout.checkpoint / folder).mkdir(parents=True)
    (layout.checkpoint / "metadata").write_text('{"id":"one"}')
    marks = [0, NOON_MS, NOON_MS + 10 * MINUTE_MS, NOON_MS + 10 * MINUTE_MS]
    records = []
    for batch, mark in enumerate(marks):
        clicks = json.dumps({"clicks": {"0": 5, "1": 7 if batch == 0 else 9}})
        entry = OffsetEntry(
            batch=batch,
            watermark_ms=mark,
            timestamp_ms=NOON_MS + batch * 1000,
            conf={"spark.sql.shuffle.partitions": "2"},
            offsets={"views": json.dumps({"logOffset": batch}), "clicks": clicks},
        )
        (layout.checkpoint / "offsets" / str(batch)).write_text(entry.format())
        following = marks[min(batch + 1, 3)]
        (layout.checkpoint / "commits" / str(batch)).write_text(f'v1\n{{"nextBatchWatermarkMs":{following}}}')
        file = json.dumps({"path": f"file:///landing/{batch}.json", "timestamp": 1, "batchId": batch})
        (layout.checkpoint / "sources" / "views" / str(batch)).write_text(f"v1\n{file}")
        rows = {"views": 2, "clicks": 3 if batch == 0 else 0}
        records.append((batch, rows))
    Archive(layout.archive).catch_up(Checkpoint(layout.checkpoint))
    (layout.checkpoint / "offsets" / "0").unlink()
    with History.open(history_file(root / ".headrace")) as history:
        run = history.begin_run("counts", pid=1, mode="update", trigger="", sink="sqlite", generation=1)
        for batch, rows in records:
            sources = tuple(SourceProgress(name=name, rows=n, start=None, end=None) for name, n in rows.items())
            record = BatchRecord(
                query="counts",
                run_id="r",
                batch=batch,
                at=datetime.fromtimestamp(NOON_MS / 1000, timezone.utc),
                rows=sum(rows.values()),
                input_rate=0.0,
                processed_rate=0.0,
                duration_ms=1,
                sources=sources,
            )
            history.record(run, record)
    return root


def test_a_checkpoint_is_shown_with_its_batches_sizes_and_settings(
    two_sources: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "checkpoint", "counts", "-C", str(two_sources), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["queries"][0]["facts"]
    overview = {name: facts[name] for name in ("id", "kept", "archived", "purged", "unknown", "settings", "sources")}
    assert overview == {
        "id": "one",
        "kept": [[1, 3]],
        "archived": [[0, 3]],
        "purged": [[0, 0]],
        "unknown": [],
        "settings": {"spark.sql.shuffle.partitions": "2"},
        "sources": ["views", "clicks"],
    }
    assert main(["inspect", "checkpoint", "counts", "-C", str(project)]) == 0
    shown = capsys.readouterr().out
    assert "operator 0 stateStoreSave" in shown
    assert "setting     spark.sql.streaming.stateStore.providerClass = " in shown


def test_the_offsets_of_a_batch_are_shown_by_file_and_by_partition(
    two_sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "offsets", "counts", "--batch", "1", "-C", str(two_sources), "--json"]) == 0
    views, clicks = json.loads(capsys.readouterr().out)["sources"]
    assert (views["start"], views["end"]) == ('{"logOffset": 0}', '{"logOffset": 1}')
    assert [share["name"] for share in views["shares"]] == ["file:///landing/1.json"]
    assert views["lag"]["count"] == 0
    assert [(share["name"], share["count"]) for share in clicks["shares"]] == [("clicks-0", 0), ("clicks-1", 2)]
    assert clicks["lag"] is None
    assert main(["inspect", "offsets", "counts", "-C", str(two_sources)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("counts: batch 3, committed; known are 0 to 3\n")
    assert "part    clicks-1 from 9 to 9: 0" in shown


def test_the_watermark_is_shown_with_what_holds_it_back_and_what_closes_a_window(
    two_sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "watermark", "counts", "-C", str(two_sources), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [batch["watermark"] for batch in document["batches"]] == [
        None,
        "2023-11-15T12:00:00Z",
        "2023-11-15T12:10:00Z",
        "2023-11-15T12:10:00Z",
    ]
    assert (document["next_watermark"], document["since"]) == ("2023-11-15T12:10:00Z", 2)
    assert {source["source"]: source["holds_back"] for source in document["sources"]} == {
        "views": False,
        "clicks": True,
    }
    (window,) = document["windows"]
    assert window == {
        "length": "1 hour each 30 minutes",
        "ends": "2023-11-15T12:30:00Z",
        "needs": {"views": "2023-11-15T12:40:00Z", "clicks": "2023-11-15T13:30:00Z"},
    }
    assert main(["inspect", "watermark", "counts", "-C", str(two_sources), "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "clicks: at less 1 hour; 3 rows, last row in batch 0; it holds the watermark back" in shown
    assert shown.count("  batch ") == 1


@pytest.mark.parametrize(
    "command", [["offsets", "counts", "--batch", "9"], ["offsets", "counts"], ["watermark", "counts"]]
)
def test_a_batch_that_is_not_known_is_said_so(
    command: list[str], request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = len(command) > 2
    root = request.getfixturevalue("two_sources") if asked else write_project(tmp_path / "p", BODY)
    assert main(["inspect", *command, "-C", str(root), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], ("0 to 3" if asked else "no batch yet") in finding["what"]) == ("HR588", True)
