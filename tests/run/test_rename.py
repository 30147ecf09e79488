"""A query continues under a new name, and a crash between any two steps is ended by the next start."""

from __future__ import annotations

import fcntl
import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.checkpoint import Archive, Checkpoint
from headrace.connectors.exactly_once import Admitted, KeptLine
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.contract import SinkContext
from headrace.errors import CheckpointError, HeadraceError
from headrace.history import History
from headrace.model import Project
from headrace.queries import driver_lock
from headrace.queries.application import application
from headrace.queries.changes import RebuildRecord
from headrace.queries.inspect_checkpoint import inspect_checkpoint
from headrace.queries.layout import QueryLayout, history_file, latest_generation
from headrace.queries.rename_record import RenameRecord, kept_in, pending
from headrace.run import rename
from headrace.run.rename import move, rename_table, take_over
from tests.run.projects import rows, write_project

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", renamed_from={former!r})
def {name}(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""
STEPS = ("recorded", "sink", "history", "moved", "schemas")


class Killed(BaseException):
    """The process is gone."""


def killed_at(wanted: str) -> Callable[[str], None]:
    def reached(step: str) -> None:
        if step == wanted:
            raise Killed(step)

    return reached


def called(root: Path, name: str, former: object = ()) -> Project:
    """The project once its one query has this name."""
    return hr.load(write_project(root, BODY.format(name=name, former=former)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose query `old` has run: three batches, their lines in the ledger, and what lies beside them."""
    root = tmp_path / "p"
    has_run(called(root, "old"), "old")
    return root


def has_run(project: Project, name: str) -> None:
    layout = QueryLayout(project.storage, name)
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout.checkpoint)
    schema = layout.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    schema.parent.mkdir(parents=True, exist_ok=True)
    schema.write_text(f'{{"path":"file:{layout.checkpoint}/state/0/_stateSchema"}}')
    Archive(layout.archive).catch_up(Checkpoint(layout.checkpoint))
    facts = application(project).facts()
    context = SinkContext(query=name, generation=1, mode="update", checkpoint=layout.checkpoint, **facts)
    dialect = SqliteDialect(str(project.root / "out.db"))
    with closing(dialect.connect()) as connection:
        ledger = Ledger(connection, dialect, context, "totals")
        ledger.create()
        ledger.own("{}")
        ledger.enter_epoch(5)
        for batch in range(3):
            line = KeptLine(batch=batch, checkpoint=Checkpoint(layout.checkpoint).id or "")
            ledger.add(Admitted(line), epoch=5, rows=2, quarantined=0)
        connection.cursor().execute("CREATE TABLE IF NOT EXISTS totals AS SELECT 'a' AS name, 1 AS total")
    with History.open(history_file(project.storage)) as history:
        run = history.begin_run(name, pid=1, mode="update", trigger="once", sink="sqlite", generation=1)
        history.end_run(run, "finished")
        history.record_verdict(name, "{}")


def no_session() -> Any:
    raise AssertionError("a database needs no session")


def renamed(project: Project, query: str, *, reached: Callable[[str], None] = lambda step: None) -> None:
    """What a start does, but for the comparison of the query with what ran."""
    found = pending(project, project.queries[query])
    assert found is not None
    list(move(project, project.queries[query], found, no_session, reached=reached))


def state(project: Project, name: str) -> dict[str, Any]:
    """All that has the query's name."""
    layout = QueryLayout(project.storage, name, latest_generation(project.storage, name))
    with History.open(history_file(project.storage), read_only=True) as history:
        runs = [status.query for status in history.statuses()]
    schema = layout.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    return {
        "batch": Checkpoint(layout.checkpoint).last_batch,
        "archived": list(Archive(layout.archive).batches()),
        "schema": f"queries/{name}/g1" in schema.read_text() if schema.exists() else None,
        "lines": rows(project.root / "out.db", f"SELECT COUNT(*) FROM _headrace_ledger WHERE query = '{name}'"),
        "owner": rows(project.root / "out.db", "SELECT query FROM _headrace_tables WHERE table_name = 'totals'"),
        "history": runs,
        "verdicts": rows(history_file(project.storage), "SELECT query FROM verdicts"),
    }


def whole(name: str) -> dict[str, Any]:
    return {
        "batch": 2,
        "archived": [0, 1, 2],
        "schema": True,
        "lines": [(3,)],
        "owner": [(name,)],
        "history": [name],
        "verdicts": [(name,)],
    }


@pytest.mark.parametrize("step", STEPS)
def test_a_rename_that_is_killed_is_ended_by_the_next_start_or_taken_back(root: Path, step: str) -> None:
    assert state(called(root, "old"), "old") == whole("old")
    project = called(root, "new", "old")
    for _ in range(2):  # Killed again while it is ended.
        with pytest.raises(Killed):
            renamed(project, "new", reached=killed_at(step))
        found = inspect_checkpoint(project, project.queries["new"])
        assert [finding.code for finding in found.findings if finding.severity != "note"][:1] == ["HR581"]
    with pytest.raises(HeadraceError, match="HR581"):
        hr.reset(project, "new", result="drop").apply()
    renamed(project, "new")
    assert state(project, "new") == whole("new")
    assert pending(project, project.queries["new"]) is None
    # The key may stay, and the query may get its old name again.
    (project.storage / "queries" / "old").rmdir()
    back = called(root, "old", "new")
    renamed(back, "old")
    assert state(back, "old") == whole("old")


def test_the_old_name_may_not_run_while_its_rename_is_cut_off(root: Path) -> None:
    with pytest.raises(Killed):
        renamed(called(root, "new", "old"), "new", reached=killed_at("sink"))
    project = called(root, "old")
    assert not inspect_checkpoint(project, project.queries["old"]).usable


def test_a_rename_beside_a_rebuild_that_begins_at_the_same_moment_is_taken_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = called(root, "new", "old")
    found = pending(project, project.queries["new"])
    assert found is not None
    enter = RenameRecord.enter

    def beside(record: RenameRecord, layout: QueryLayout) -> RenameRecord:
        RebuildRecord.begun(1, ()).enter(QueryLayout(project.storage, "old"))
        return enter(record, layout)

    monkeypatch.setattr(RenameRecord, "enter", beside)
    with pytest.raises(CheckpointError, match="a rebuild of 'old' is kept under that name"):
        list(move(project, project.queries["new"], found, no_session))
    assert RenameRecord.of(QueryLayout(project.storage, "new")) is None
    assert state(project, "old") == whole("old")


def test_what_is_written_under_the_old_name_after_the_move_does_not_keep_the_rename_from_its_end(root: Path) -> None:
    project = called(root, "new", "old")
    with pytest.raises(Killed):
        renamed(project, "new", reached=killed_at("moved"))
    late = QueryLayout(project.storage, "old").checkpoint / "offsets" / "3"
    late.parent.mkdir(parents=True)
    late.write_text("v1")
    renamed(project, "new")
    assert state(project, "new") == whole("new")
    assert late.exists()


def test_an_older_driver_of_the_old_name_is_fenced_off(root: Path) -> None:
    project = called(root, "new", "old")
    renamed(project, "new")
    assert sorted(rows(root / "out.db", "SELECT query, epoch FROM _headrace_epochs")) == [("new", 6), ("old", 6)]


def test_a_chain_of_names_is_followed_to_the_one_that_ran(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = called(root, "third", ["new", "old"])
    assert kept_in(project, project.queries["third"]).query == "old"
    with pytest.raises(Killed):
        renamed(called(root, "new", "old"), "new", reached=killed_at("history"))
    assert kept_in(project, project.queries["third"]).query == "old"
    # The rename that was cut off is ended before the next one.
    monkeypatch.setattr(rename, "_require_resumable", lambda *given, **named: None)
    rename.take_over(project, project.queries["third"], None)  # type: ignore[arg-type]
    assert state(project, "third") == whole("third")


def test_a_rename_that_was_cut_off_is_taken_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        renamed(called(root, "new", "old"), "new", reached=killed_at("sink"))
    project = called(root, "old", "new")
    monkeypatch.setattr(rename, "_require_resumable", lambda *given, **named: None)
    lock = driver_lock.take(project, project.queries["old"])
    rename.take_over(project, project.queries["old"], None)  # type: ignore[arg-type]
    assert state(project, "old") == whole("old")
    assert lock is not None
    assert Path(lock.path).exists()
    lock.release()


def test_a_start_that_failed_under_the_new_name_is_replaced(root: Path) -> None:
    project = called(root, "new", "old")
    QueryLayout(project.storage, "new", 2).checkpoint.mkdir(parents=True)
    renamed(project, "new")
    assert state(project, "new") == whole("new")


def nothing(project: Project) -> None:
    """The old query has run, and that is all."""


def ran_too(project: Project) -> None:
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(QueryLayout(project.storage, "new").checkpoint)


def third_ran(project: Project) -> None:
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(QueryLayout(project.storage, "third").checkpoint)


def was_reset(project: Project) -> None:
    hr.reset(called(project.root, "old"), "old", result="drop").apply()
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(QueryLayout(project.storage, "old", 2).checkpoint)


def reset_cut_off(project: Project) -> None:
    with pytest.raises(Killed):
        hr.reset(called(project.root, "old"), "old", result="drop").apply(reached=killed_at("recorded"))


def being_rebuilt(project: Project) -> None:
    RebuildRecord.begun(1, ()).enter(QueryLayout(project.storage, "old"))


def damaged_record(project: Project) -> None:
    (project.storage / "queries" / "new").mkdir()
    (project.storage / "queries" / "new" / "rename.json").write_text("{")


def lines_of_the_new_name(project: Project) -> None:
    with closing(SqliteDialect(str(project.root / "out.db")).connect()) as connection:
        connection.cursor().execute(
            "INSERT INTO _headrace_ledger SELECT application, 'new', generation, table_name, batch, epoch, checkpoint, "
            "row_count, quarantined, watermark, fingerprint, committed_at, digest, chain, planned FROM _headrace_ledger"
        )


@pytest.mark.parametrize(
    ("before", "former", "code", "said"),
    [
        (ran_too, "old", "HR549", "have both run"),
        (third_ran, ["old", "third"], "HR549", "'old' and 'third'"),
        (was_reset, "old", "HR549", "headrace change discard old"),
        (reset_cut_off, "old", "HR549", "headrace change undo old"),
        (being_rebuilt, "old", "HR549", "headrace change discard old"),
        (damaged_record, "old", "HR584", "cannot be read"),
        (lines_of_the_new_name, "old", "HR549", "of 'old' and of 'new'"),
    ],
)
def test_what_cannot_be_renamed_is_said_in_a_sentence_and_stays(
    root: Path, before: Callable[[Project], None], former: object, code: str, said: str
) -> None:
    project = called(root, "new", former)
    before(project)
    project = called(root, "new", former)
    with pytest.raises(HeadraceError) as error:
        renamed(project, "new")
    (finding,) = error.value.findings
    assert (finding.code, said in f"{finding.what}; {finding.fix}") == (code, True)
    if code == "HR549":
        assert RenameRecord.of(QueryLayout(project.storage, "new")) is None
    assert Checkpoint(kept_layout(project)).last_batch == 2


def kept_layout(project: Project) -> Path:
    return QueryLayout(project.storage, "old", latest_generation(project.storage, "old")).checkpoint


def test_a_name_that_has_never_run_is_no_fault(tmp_path: Path) -> None:
    project = called(tmp_path / "p", "new", "old")
    assert pending(project, project.queries["new"]) is None
    assert kept_in(project, project.queries["new"]).query == "new"


TWO = """
{source}

@hr.query(sink=hr.sink.sqlite("out.db", table="one"), renamed_from={first!r})
def one(events):
    return events

@hr.query(sink=hr.sink.sqlite("out.db", table="two"), renamed_from={second!r})
def two(events):
    return events
"""


@pytest.mark.parametrize(
    ("first", "second", "source", "said"),
    [
        ("two", (), "", "query 'two', which is declared as well".replace("query ", "")),
        ("two", "one", "", "renamed into each other"),
        ("one", (), "", "renamed from itself"),
        ("old", "old", "", "both renamed from 'old'"),
        ("../old", (), "", "no name"),
        (3, (), "", "neither a name nor a list"),
        ((), (), 'events = hr.source.rate(renamed_from="events")', "source 'events' is renamed from itself"),
    ],
)
def test_what_cannot_be_declared_is_said_before_the_start(
    tmp_path: Path, first: object, second: object, source: str, said: str
) -> None:
    root = write_project(tmp_path / "p", TWO.format(source=source, first=first, second=second))
    try:
        found = hr.check(hr.load(root), ["one"], spark=False).findings
    except HeadraceError as error:
        found = error.findings
    told = [finding for finding in found if finding.code == "HR113"]
    assert [said in finding.what for finding in told][:1] == [True], told


def test_yaml_takes_one_name_or_several(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text("""
sources:
  events: {rate: {}, renamed_from: ticks}
queries:
  q: {select: SELECT * FROM events, sink: console, renamed_from: [b, a]}
""")
    project = hr.load(tmp_path)
    assert (project.sources["events"].renamed_from, project.queries["q"].renamed_from) == (("ticks",), ("b", "a"))


def test_a_running_query_is_not_renamed(root: Path) -> None:
    project = called(root, "new", "old")
    with (project.storage / "queries" / "old" / "driver.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"pid": 7, "host": "here", "started": "today"}))
        file.flush()
        with pytest.raises(HeadraceError, match="HR526"):
            take_over(project, project.queries["new"], None)  # type: ignore[arg-type]


MOVED = BODY.replace('table="totals"', 'table="sums", renamed_from="totals"')


def table_renamed(root: Path) -> Project:
    """The same query, whose table has another name."""
    return hr.load(write_project(root, MOVED.format(name="old", former=())))


def of_table(root: Path, table: str) -> tuple[Any, ...]:
    """What the database has under this name: the rows, the lines of the ledger, and whose it is."""
    tables = {name for (name,) in rows(root / "out.db", "SELECT name FROM sqlite_master WHERE type = 'table'")}
    lines = rows(root / "out.db", f"SELECT COUNT(*) FROM _headrace_ledger WHERE table_name = '{table}'")
    owner = rows(root / "out.db", f"SELECT query FROM _headrace_tables WHERE table_name = '{table}' AND query <> ''")
    return table in tables, lines[0][0], [name for (name,) in owner]


def done(root: Path, *statements: str) -> None:
    with closing(SqliteDialect(str(root / "out.db")).connect()) as connection:
        for statement in statements:
            connection.cursor().execute(statement)


LEDGER_FOLLOWED = (
    "UPDATE _headrace_ledger SET table_name = 'sums'",
    "UPDATE _headrace_tables SET table_name = 'sums'",
)


@pytest.mark.parametrize(
    "before",
    [
        (),
        ("ALTER TABLE totals RENAME TO sums",),
        LEDGER_FOLLOWED,  # A database that ends the transaction with a rename was cut off before it.
        (*LEDGER_FOLLOWED, "ALTER TABLE totals RENAME TO sums"),  # And one that was cut off behind it.
    ],
    ids=["not yet", "by hand", "ledger alone", "both"],
)
def test_a_table_is_renamed_with_its_ledger(root: Path, before: tuple[str, ...]) -> None:
    done(root, "CREATE VIEW seen AS SELECT name FROM totals", *before)
    project = table_renamed(root)
    query = project.queries["old"]
    for _ in range(2):
        rename_table(project, query, no_session)
        assert (of_table(root, "sums"), of_table(root, "totals")) == ((True, 3, ["old"]), (False, 0, []))
        # As if the process had ended before it was recorded.
        QueryLayout(project.storage, "old").sink.unlink()
    assert rows(root / "out.db", "SELECT * FROM seen") == [("a",)]
    rename_table(project, query, no_session)
    assert rename_table(project, query, no_session) == ()


def test_a_table_and_its_query_are_renamed_together(root: Path) -> None:
    project = hr.load(write_project(root, MOVED.format(name="new", former="old")))
    renamed(project, "new")
    rename_table(project, project.queries["new"], no_session)
    assert (of_table(root, "sums"), of_table(root, "totals")) == ((True, 3, ["new"]), (False, 0, []))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE sums (name TEXT)", "which is there as well"),
        ("DROP TABLE totals", "neither table 'sums' nor 'totals'"),
    ],
)
def test_a_table_that_cannot_be_renamed_stays(root: Path, statement: str, said: str) -> None:
    done(root, statement)
    project = table_renamed(root)
    with pytest.raises(HeadraceError, match=said) as error:
        rename_table(project, project.queries["old"], no_session)
    assert [finding.code for finding in error.value.findings] == ["HR549"]
    assert of_table(root, "totals")[1:] == (3, ["old"])


def test_a_reset_waits_for_the_rename_of_its_table_and_the_rename_for_what_a_reset_keeps(root: Path) -> None:
    with pytest.raises(HeadraceError, match="HR580"):
        hr.reset(table_renamed(root), "old", result="drop").apply()
    was_reset(called(root, "old"))
    project = table_renamed(root)
    with pytest.raises(HeadraceError, match="HR549"):
        rename_table(project, project.queries["old"], no_session)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ('sqlite("out.db", table="t", renamed_from="t")', "cannot be renamed from 't'"),
        ('delta("out", renamed_from="old")', "no name but its directory"),
        ('delta(table="t", renamed_from="a b")', "cannot be renamed from 'a b'"),
        ('iceberg("db.t", renamed_from="db.t")', "cannot be renamed from 'db.t'"),
    ],
)
def test_a_wrong_former_table_is_told_without_spark(tmp_path: Path, sink: str, said: str) -> None:
    body = f"@hr.query(sink=hr.sink.{sink})\ndef q(events):\n    return events\n"
    found = hr.check(hr.load(write_project(tmp_path / "p", body)), spark=False).findings
    assert [said in each.what for each in found if each.code == "HR113"] == [True], found
