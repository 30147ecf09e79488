"""A query goes back to an earlier batch, and forward again; a crash between any two steps leaves one of the two."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import headrace as hr
from headrace.checkpoint import Archive, Checkpoint, planned_batch
from headrace.checkpoint.state_files import version_of
from headrace.cli.entry import main
from headrace.connectors.exactly_once import Admitted, KeptLine, Retry, Standing
from headrace.connectors.sql import corrections
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.dialect import StagedTable, run
from headrace.connectors.sql.generations import TableReset
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.limits import BadRow
from headrace.connectors.sql.preparation import prepare
from headrace.connectors.sql.result_table import result_table
from headrace.connectors.sql.rewind import TableRewind
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.connectors.sql.staging import Content, Stage
from headrace.connectors.sql.system_tables import OWN_PREFIX, REPLAYS, make_all
from headrace.connectors.sql.takeover import TableRename
from headrace.connectors.sql.transactions import Transaction
from headrace.contract import Correction, OutputMode, Snapshot
from headrace.errors import HeadraceError
from headrace.generations.facts import sink_context
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.generations.log import log_of
from headrace.model import Project
from headrace.storage import json_lines
from tests.changes.test_reset import Killed, held, kill_at, running
from tests.registered import layout_in
from tests.runner.projects import rows, write_project

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="Totals", key=["name"], rewindable="7 days"), mode="MODE")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("out.db", table="plain", key=["name"]), mode="update")
def plain(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.foreach(print), mode="append")
def printed(events):
    return events

@hr.query(sink=hr.sink.console(), mode="append")
def shown(events):
    return events
"""
SCHEMA = StructType([StructField("name", StringType()), StructField("total", IntegerType())])
# What each batch writes, and what the table holds after it, by the output mode.
UPDATES = [{"a": 1, "b": 2}, {"a": 5, "c": 3}, {"b": 9, "d": 4}]
AFTER: dict[OutputMode, list[dict[str, int]]] = {
    "update": [{"a": 1, "b": 2}, {"a": 5, "b": 2, "c": 3}, {"a": 5, "b": 9, "c": 3, "d": 4}],
    "complete": UPDATES,
    "append": [{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}],
}


def no_session() -> Any:
    raise AssertionError("a database needs no session")


def batch_rows(mode: OutputMode, batch: int) -> dict[str, int]:
    """The rows that a batch gives to the sink."""
    return {"abc"[batch]: batch + 1} if mode == "append" else UPDATES[batch]


class Driver:
    """Writes batches of the query `totals` as one start of it does, without Spark."""

    def __init__(
        self, project: Project, mode: OutputMode = "update", schema: StructType = SCHEMA, generation: int = 1
    ) -> None:
        self.layout = layout_in(project.storage, "totals", generation)
        context = sink_context(project, project.queries["totals"], self.layout)
        self.context = replace(context, mode=mode)
        dialect = SqliteDialect(str(project.root / "out.db"))
        table = result_table("Totals", ["name"], schema, self.context)
        ready = prepare(dialect, table, schema.json(), self.context, adds=True, rewindable=True)
        stage = Stage(
            dialect=dialect,
            prefix="",
            columns=ready.table.columns,
            key=("name",),
            limits={},
            clustered=False,
            quarantines=True,
            driver_rows=100,
        )
        self.store = SqlStore(
            dialect=dialect,
            table=ready.table,
            context=self.context,
            epoch=ready.epoch,
            stage=stage,
            retry=Retry(attempts=1),
            rewindable_seconds=3600.0,
            widened=ready.widened,
        )

    def write(
        self, batch: int, values: dict[str, int], *, staged: bool = False, bad: bool = False, **more: list[Any]
    ) -> None:
        """One batch. staged: by a task of Spark, into a table of its own. bad: with a row that is quarantined."""

        def admit(standing: Standing) -> Admitted:
            assert not standing.newer
            line = KeptLine.of(self.context, batch, planned_batch(Checkpoint(self.layout.checkpoint), batch))
            return Admitted(line.after(standing.before))

        table = pa.table({"name": list(values), "total": pa.array(values.values(), pa.int32()), **more})
        content = Content(table=table, bad=(BadRow("bad", {"name": f"bad {batch}"}),) if bad else ())
        if staged:
            stager = self.store.dialect.stager(f"{OWN_PREFIX}s_{batch}", self.store.table.columns)
            stager.add(table)
            stager.finish()
            part = StagedTable(f"{OWN_PREFIX}s_{batch}", table.num_rows)
            content = replace(content, table=table.slice(0, 0), parts=(part,))
        self.store.commit(content, batch, admit)


def make_project(
    root: Path,
    mode: OutputMode = "update",
    place: dict[str, Any] | None = None,
    checkpoint: str = "rocksdb2_few",
    **how: bool,
) -> Project:
    """A project whose query has made the batches 0 to 2; place: where its storage is, if not on the disk."""
    write_project(root, BODY.replace("MODE", mode))
    if place is not None:
        (root / "headrace.yml").write_text(json.dumps({"name": "p", **place}))
    project = hr.load(root)
    driver = Driver(project, mode)
    with zipfile.ZipFile(FIXTURES / f"{checkpoint}.zip") as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                (driver.layout.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
                (driver.layout.checkpoint / name).write_bytes(archive.read(name))
    for batch in range(3):
        driver.write(batch, batch_rows(mode, batch), **how)
    Archive(driver.layout.archive).catch_up(Checkpoint(driver.layout.checkpoint))
    form = {"fingerprint": "f", "at": "", "headrace": "", "spark": ""}
    json_lines.append(driver.layout.manifest, [{**form, "from_batch": 0}, {**form, "from_batch": 2}])
    for name in ("1.jsonl", "2.jsonl"):
        (driver.layout.quarantine / "events").mkdir(parents=True, exist_ok=True)
        (driver.layout.quarantine / "events" / name).write_text("{}\n")
    return project


@pytest.fixture(params=["rocksdb_few", "rocksdb2_few"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Project:
    return make_project(tmp_path / "p", checkpoint=request.param)


def state(project: Project) -> dict[str, Any]:
    """All that a rewind may change, as far as the next start sees it."""
    layout = layout_in(project.storage, "totals")
    root, database = layout.checkpoint, project.root / "out.db"
    versions = {version_of(file.name) or 0 for file in root.glob("state/0/[0-9]*/*.changelog")}
    lines = rows(database, "SELECT batch FROM _headrace_ledger WHERE table_name = 'Totals' ORDER BY 1")
    return {
        "rows": dict(rows(database, "SELECT name, total FROM Totals ORDER BY 1")),
        "ledger": [batch for (batch,) in lines],
        "offsets": sorted(int(file.name) for file in root.glob("offsets/[0-9]*")),
        "commits": sorted(int(file.name) for file in root.glob("commits/[0-9]*")),
        "log": sorted(int(file.name) for file in root.glob("sources/events/[0-9]*")),
        "state": sorted(versions),
        "archive": list(Archive(layout.archive).entries()),
        "forms": len(layout.manifest.read_text().splitlines()),
        "quarantined": sorted(file.name for file in layout.quarantine.rglob("*.jsonl")),
    }


def at(batch: int, mode: OutputMode = "update") -> dict[str, Any]:
    done = list(range(batch + 1))
    return {
        "rows": AFTER[mode][batch],
        "ledger": done,
        "offsets": done,
        "commits": done,
        "log": done,
        "state": [number + 1 for number in done],
        "archive": done,
        "forms": 2 if batch == 2 else 1,
        "quarantined": [f"{number}.jsonl" for number in done if number],
    }


def codes(project: Project) -> list[str]:
    """What keeps the next start from beginning."""
    findings = inspect_checkpoint(project, project.queries["totals"]).findings
    return [finding.code for finding in findings if finding.severity == "error"]


@pytest.mark.parametrize("mode", ["update", "complete", "append"])
def test_all_goes_back_together_and_comes_again(tmp_path: Path, mode: OutputMode) -> None:
    project = make_project(tmp_path / "p", mode)
    for batch in (1, 0):
        assert hr.rewind(project, "totals", to_batch=batch).apply().batch == batch
        assert (state(project), codes(project)) == (at(batch, mode), [])
        assert hr.rewind(project, "totals").undo().batch == 2
        assert (state(project), codes(project)) == (at(2, mode), [])
    epoch = rows(project.root / "out.db", "SELECT epoch FROM _headrace_epochs")
    hr.rewind(project, "totals", to_batch=1).apply()
    hr.rewind(project, "totals", to_batch=0).apply()
    assert state(project) == at(0, mode)
    assert rows(project.root / "out.db", "SELECT epoch FROM _headrace_epochs") > epoch
    # The batch that comes again has another row, and can be taken back as well.
    again = Driver(project, mode)
    record = log_of(again.layout)
    assert record is not None
    (former,) = map(again.layout.at, record.kept)
    for planned in ("offsets/1", "sources/events/1"):
        shutil.copy(former.checkpoint / planned, again.layout.checkpoint / planned)
    again.write(1, {"z": 7})
    assert state(project)["rows"] == ({"z": 7} if mode == "complete" else {**AFTER[mode][0], "z": 7})
    with pytest.raises(HeadraceError, match="HR583"):
        hr.rewind(project, "totals").undo()
    hr.rewind(project, "totals", to_batch=0).apply()
    assert state(project) == at(0, mode)
    hr.rewind(project, "totals").discard()
    live = layout_in(project.storage, "totals")
    assert [place.name for place in live.folder.glob("g*")] == [live.home.name]
    assert rows(project.root / "out.db", "SELECT COUNT(*) FROM _headrace_before WHERE void > 0") == [(0,)]


STEPS = ["recorded", "made", "sink", "history"]


@pytest.mark.parametrize("step", STEPS)
def test_a_rewind_that_is_killed_is_ended_or_taken_back(project: Project, step: str) -> None:
    assert state(project) == at(2)
    for ends in ("undo", "again"):
        with pytest.raises(Killed):
            hr.rewind(project, "totals", to_batch=1).apply(reached=kill_at(step))
        assert codes(project) == ["HR581"]
        with pytest.raises(HeadraceError, match="HR580"):
            hr.rewind(project, "totals", to_batch=0).apply()
        with pytest.raises(HeadraceError, match="HR581"):
            hr.reset(project, "totals", result="drop").apply()
        with pytest.raises(HeadraceError, match="HR581"):
            _ = hr.rebuild(project, "totals").plan
        if ends == "undo":
            hr.rewind(project, "totals").undo()
            assert (state(project), codes(project)) == (at(2), [])
    hr.rewind(project, "totals", to_batch=1).apply()
    assert (state(project), codes(project)) == (at(1), [])
    # Given once more, as after a crash behind the last step, it says that there is nothing to do.
    assert main(["rewind", "totals", "--to-batch", "1", "--yes", "-C", str(project.root)]) == 0
    hr.rewind(project, "totals").undo()
    assert state(project) == at(2)


@pytest.mark.parametrize("step", ["recorded", "sink", "history"])
def test_taking_a_rewind_back_is_ended_after_a_kill(project: Project, step: str) -> None:
    hr.rewind(project, "totals", to_batch=1).apply()
    with pytest.raises(Killed):
        hr.rewind(project, "totals").undo(reached=kill_at(step))
    assert codes(project) == ["HR581"]
    with pytest.raises(HeadraceError, match="HR580"):
        hr.rewind(project, "totals", to_batch=1).apply()
    assert hr.rewind(project, "totals").undo().batch == 2
    assert (state(project), codes(project)) == (at(2), [])


def test_it_says_what_it_takes_back_with_numbers(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(project)
    assert main(["rewind", "totals", "--to-batch", "0", "--dry-run", "-C", str(project.root)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for words in (
        "2 batches of generation 1 taken back",
        "2 rows of table 'Totals'",
        "get the values that they had",
        "are removed, as they came later",
        "read again by the next start",
    ):
        assert words in output
    assert state(project) == before
    assert main(["rewind", "totals", "--to-time", "2100-01-01", "--yes", "-C", str(project.root)]) == 0
    assert "HR582" in capsys.readouterr().err
    assert main(["rewind", "totals", "--to-batch", "1", "--yes", "--json", "-C", str(project.root)]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["batch"], done["plan"]["newest"], done["plan"]["lost"][:0]) == (1, 2, [])
    assert main(["change", "undo", "totals", "-C", str(project.root)]) == 0
    assert "as it was before the rewind" in capsys.readouterr().out


def no_state(project: Project) -> None:
    for file in (layout_in(project.storage, "totals").checkpoint / "state").glob("0/*/1[._]*changelog"):
        file.unlink()


def without_images(project: Project) -> None:
    connection = SqliteDialect(str(project.root / "out.db")).connect()
    run(connection, "DELETE FROM _headrace_before WHERE batch = 1")
    connection.close()


def cut_off(project: Project) -> None:
    with pytest.raises(Killed):
        hr.rewind(project, "totals", to_batch=1).apply(reached=kill_at("recorded"))


def damaged_record(project: Project) -> None:
    (layout_in(project.storage, "totals").folder / "log" / "000002.json").write_text("{")


def record_of_a_later_version(project: Project) -> None:
    log = layout_in(project.storage, "totals").folder / "log"
    record = json.loads((log / "000001.json").read_text())
    (log / "000002.json").write_text(json.dumps({**record, "number": 2, "form": 2}))


def record_that_lacks_a_fact(project: Project) -> None:
    log = layout_in(project.storage, "totals").folder / "log"
    record = json.loads((log / "000001.json").read_text())
    del record["live"]
    (log / "000002.json").write_text(json.dumps(record))


def no_database(project: Project) -> None:
    (project.root / "out.db").write_text("this is not a database, but a text that is long enough\n" * 9)


@pytest.mark.parametrize(
    ("before", "command", "code", "sentence"),
    [
        (None, "unknown --to-batch 1", "HR091", "no query 'unknown'"),
        (None, "plain --to-batch 1", "HR582", "planned no batch"),
        (None, "printed --to-batch 1", "HR582", "planned no batch"),
        (None, "shown --to-batch 1", "HR582", "keeps nothing"),
        (None, "totals --to-batch 2", "HR582", "is its newest"),
        (None, "totals --to-batch 7", "HR580", "newest committed batch is 2"),
        (None, "totals --to-time 2020-01-01", "HR580", "planned so early"),
        (no_state, "totals --to-batch 0", "HR580", "no longer has the state after batch 0"),
        (without_images, "totals --to-batch 0", "HR580", "headrace rewind totals --to-batch 1; "),
        (cut_off, "totals --to-batch 0", "HR580", "headrace rewind totals --to-batch 1; or take it back"),
        (cut_off, "discard", "HR580", "cut off"),
        (damaged_record, "totals --to-batch 1", "HR584", "cannot be read"),
        (record_of_a_later_version, "totals --to-batch 1", "HR584", "it has form 2"),
        (record_that_lacks_a_fact, "totals --to-batch 0", "HR584", "'live'"),
        (no_database, "totals --to-batch 1", "HR425", "out.db"),
        (running, "totals --to-batch 1", "HR526", "already running"),
    ],
)
def test_what_cannot_be_rewound_is_said_in_a_sentence(
    project: Project,
    before: Callable[[Project], None] | None,
    command: str,
    code: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if before is not None:
        before(project)
    try:
        words = ["rewind", *command.split()] if "--" in command else ["change", command, "totals"]
        ended = main([*words, "--yes", "--json", "-C", str(project.root)])
        assert ended in ((0,) if code == "HR582" else (1, 2))
    finally:
        while held:
            held.pop().close()
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == code
    assert sentence in finding["what"] + finding["fix"]


@pytest.mark.parametrize(("sink", "words"), [("printed", "stays there"), ("plain", "rewindable: 7 days")])
def test_a_sink_that_cannot_go_back_is_reported_with_another_way(project: Project, sink: str, words: str) -> None:
    shutil.copytree(layout_in(project.storage, "totals").home, layout_in(project.storage, sink).home)
    with pytest.raises(HeadraceError, match="HR580") as error:
        assert hr.rewind(project, sink, to_batch=1).plan
    (finding,) = error.value.findings
    assert words in finding.what + finding.fix
    assert f"headrace re{'set' if sink == 'printed' else 'build'} {sink}" in finding.fix


def test_a_database_that_refuses_leaves_the_query_as_it_was(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> str:
        return "INSERT INTO missing VALUES (1)"

    with monkeypatch.context() as patch:
        patch.setattr(SqliteDialect, "insert_from", refused)
        with pytest.raises(HeadraceError, match="HR587"):
            hr.rewind(project, "totals", to_batch=1).apply()
    assert (state(project), codes(project)) == (at(2), [])
    hr.rewind(project, "totals", to_batch=1).apply()
    with monkeypatch.context() as patch:
        patch.setattr(SqliteDialect, "insert_from", refused)
        with pytest.raises(HeadraceError, match="HR587"):
            hr.rewind(project, "totals").undo()
    assert (state(project), codes(project)) == (at(1), [])
    assert hr.rewind(project, "totals").undo().batch == 2


@pytest.mark.parametrize(
    ("option", "mode", "code"),
    [
        ('rewindable="7 days"', "append", "HR403"),
        ('key=["name"], rewindable="soon"', "update", "HR113"),
        ('key=["name"], rewindable="0 days"', "update", "HR113"),
        ('key=["name"], rewindable="7 days"', "append", None),
        ('rewindable="7 days"', "complete", None),
    ],
)
def test_what_rewindable_needs_is_checked(tmp_path: Path, option: str, mode: str, code: str | None) -> None:
    body = f"""
    @hr.query(sink=hr.sink.sqlite("out.db", table="t", {option}), mode="{mode}")
    def copies(events):
        return events
    """
    project = hr.load(write_project(tmp_path / "p", body))
    sink = project.queries["copies"].sink
    codes = [problem.code for problem in sink.problems(project.queries["copies"].mode)]
    assert codes == ([code] if code else [])


def test_what_is_older_than_declared_is_deleted(project: Project) -> None:
    database = project.root / "out.db"
    connection = SqliteDialect(str(database)).connect()
    run(connection, "UPDATE _headrace_before SET at = '2020-01-01T00:00:00.000+00:00' WHERE batch < 2")
    connection.close()
    driver = Driver(project)
    shutil.copy(driver.layout.checkpoint / "offsets" / "2", driver.layout.checkpoint / "offsets" / "3")
    driver.write(3, {"a": 6})
    ((images,),) = rows(database, "SELECT DISTINCT images FROM _headrace_before")
    assert rows(database, "SELECT batch FROM _headrace_before ORDER BY 1") == [(2,), (3,)]
    assert rows(database, f"SELECT DISTINCT _headrace_step FROM {images} ORDER BY 1") == [(3,), (4,)]


@pytest.mark.parametrize("mode", ["update", "complete", "append"])
def test_rows_that_tasks_have_staged_and_rows_that_were_quarantined_go_back_too(
    tmp_path: Path, mode: OutputMode
) -> None:
    project = make_project(tmp_path / "p", mode, staged=True, bad=True)

    def quarantined() -> list[int]:
        statement = "SELECT batch FROM _headrace_quarantine WHERE table_name = 'Totals' ORDER BY 1"
        return [batch for (batch,) in rows(project.root / "out.db", statement)]

    def kept(batch: int) -> list[int]:
        return [batch] if mode == "complete" else list(range(batch + 1))

    assert quarantined() == kept(2)
    hr.rewind(project, "totals", to_batch=0).apply()
    assert (state(project)["rows"], quarantined()) == (AFTER[mode][0], kept(0))
    hr.rewind(project, "totals").undo()
    assert (state(project)["rows"], quarantined()) == (AFTER[mode][2], kept(2))
    hr.rewind(project, "totals", to_batch=1).apply()
    assert (state(project)["rows"], quarantined()) == (AFTER[mode][1], kept(1))


def test_bad_rows_of_the_batches_that_stay_are_not_reported_again(project: Project) -> None:
    before = Driver(project).layout.quarantine
    (before / "events").mkdir(parents=True, exist_ok=True)
    for batch in range(3):
        (before / "events" / f"{batch}.jsonl").touch()
    (before / ".seen").write_text("2")
    hr.rewind(project, "totals", to_batch=1).apply()
    after = Driver(project).layout.quarantine
    files = sorted(str(file.relative_to(after)) for file in after.rglob("*") if file.is_file())
    assert (after == before, files) == (False, [".seen", "events/0.jsonl", "events/1.jsonl"])
    assert (after / ".seen").read_text() == "1"


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_late_rows_that_were_brought_back_are_taken_back(
    tmp_path: Path, mode: OutputMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correction that was made when batch 2 was the newest stays where a rewind goes to that batch alone."""
    project = make_project(tmp_path / "p", mode)
    driver = Driver(project, mode)
    dialect, table = driver.store.dialect, driver.store.table
    gone = pa.table({"name": ["b"]})
    monkeypatch.setattr(corrections, "_deleted_keys", lambda *_: gone)
    context = replace(driver.context, mode="update")
    frame: Any = None
    correction = Correction(snapshot=Snapshot(rows=frame, batch=2), rows=frame, deletes=frame, late=3)
    connection = dialect.connect()
    ledger = Ledger(connection, dialect, context, table.name)
    make_all(connection, dialect, [REPLAYS])
    images = BeforeImages.of(ledger, table)
    content = Content(table=pa.table({"name": ["a", "y"], "total": pa.array([8, 9], pa.int32())}))
    corrections._transact(ledger, table, content, correction, images, Transaction(), keeps=True)
    connection.close()
    corrected = {key: value for key, value in {**AFTER[mode][2], "a": 8, "y": 9}.items() if key != "b"}
    assert state(project)["rows"] == corrected
    for batch in (1, 0):
        plan = hr.rewind(project, "totals", to_batch=batch).plan
        assert any("corrections" in entry.what for entry in plan.held)
        hr.rewind(project, "totals", to_batch=batch).apply()
        assert state(project)["rows"] == AFTER[mode][batch]
        hr.rewind(project, "totals").undo()
        assert state(project)["rows"] == corrected
    driver = Driver(project, mode)
    for planned in ("offsets/2", "sources/events/2"):
        shutil.copy(driver.layout.checkpoint / planned, driver.layout.checkpoint / planned.replace("2", "3"))
    driver.write(3, {"a": 1})
    TableRewind(dialect=lambda: dialect, table="Totals", key=["name"]).go_back(driver.context, 2, no_session)
    assert state(project)["rows"] == corrected


def test_what_a_repair_put_right_stays_and_can_no_more_be_undone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(project)
    dialect, table = driver.store.dialect, driver.store.table
    monkeypatch.setattr(corrections, "_deleted_keys", lambda *_: pa.table({"name": pa.array([], pa.string())}))
    frame: Any = None
    correction = Correction(snapshot=Snapshot(rows=frame, batch=2), rows=frame, deletes=frame)
    connection = dialect.connect()
    ledger = Ledger(connection, dialect, driver.context, table.name)
    images = BeforeImages.of(ledger, table)
    content = Content(table=pa.table({"name": ["a", "y"], "total": pa.array([8, 9], pa.int32())}))
    corrections._transact(ledger, table, content, correction, images, Transaction(), keeps=True)
    connection.close()
    assert state(project)["rows"] == {**AFTER["update"][2], "a": 8, "y": 9}
    assert [entry.count for entry in hr.rewind(project, "totals", to_batch=1).plan.held] == [1, 1, 1]
    hr.rewind(project, "totals", to_batch=1).apply()
    assert state(project)["rows"] == {**AFTER["update"][1], "a": 8, "y": 9}
    repair = project.queries["totals"].sink.corrections.repair
    assert repair is not None
    with pytest.raises(HeadraceError, match="no repair"):
        repair.undo(Driver(project).context)


def test_a_table_under_another_name_or_with_one_more_column_goes_back(project: Project) -> None:
    wider = StructType([*SCHEMA, StructField("more", StringType())])
    driver = Driver(project, schema=wider)
    dialect, context = driver.store.dialect, driver.context
    for planned in ("offsets/2", "sources/events/2"):
        shutil.copy(driver.layout.checkpoint / planned, driver.layout.checkpoint / planned.replace("2", "3"))
    driver.write(3, {"a": 7, "z": 1}, more=["x", "y"])
    database = project.root / "out.db"
    assert rows(database, "SELECT * FROM Totals WHERE name = 'a'") == [("a", 7, "x")]
    renamed = replace(context, query="sums")
    sums: Any = {"dialect": lambda: dialect, "table": "sums", "key": ["name"]}
    TableRename(**sums, renamed_from="Totals").rename_table(renamed, no_session)
    rewind = TableRewind(**sums)
    assert rewind.earliest(renamed, 0, no_session) == 0
    rewind.go_back(renamed, 1, no_session)
    assert dict(rows(database, "SELECT name, total FROM sums")) == AFTER["update"][1]
    rewind.undo(renamed, 1, no_session)
    assert rows(database, "SELECT * FROM sums WHERE name IN ('a', 'z') ORDER BY 1") == [("a", 7, "x"), ("z", 1, "y")]
    TableReset(**sums).archive(renamed, no_session)
    TableReset(**sums).discard(renamed, no_session)
    assert (
        rows(database, "SELECT name FROM sqlite_master WHERE name LIKE '_headrace_before__%' AND type = 'table'") == []
    )


def test_the_ledger_as_the_page_asks_it_has_no_batch_that_was_taken_back(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "write-into-a-database.md"
    [statement] = re.findall(r"```sql\n(SELECT _headrace_ledger.*?)```", page.read_text(), re.DOTALL)
    project = make_project(tmp_path / "p")
    seen = [sorted(line[1] for line in rows(project.root / "out.db", statement))]
    for change in (hr.rewind(project, "totals", to_batch=1), hr.reset(project, "totals", result="drop")):
        change.apply()
        seen.append(sorted(line[1] for line in rows(project.root / "out.db", statement)))
    assert seen == [[0, 1, 2], [0, 1], []]
