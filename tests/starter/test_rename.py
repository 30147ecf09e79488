"""A query continues under a new name, and a crash between any two steps is ended by the next start."""

from __future__ import annotations

import fcntl
import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace as hr
from headrace.changes.pending import changes
from headrace.checkpoint import Archive, Checkpoint
from headrace.connectors.exactly_once import Admitted, KeptLine
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.contract import Observer
from headrace.errors import CheckpointError, HeadraceError, LeaseLost
from headrace.generations import driver_lock
from headrace.generations.facts import StartFacts, sink_context
from headrace.generations.log import Directory, append, begin, history_file
from headrace.generations.register import enter_name, layout_of, read_register, register_query
from headrace.history import History
from headrace.model import Project
from headrace.runner.batch_records import Notes
from headrace.starter.rename import apply_renames, rename_table, report_unknown_former, waiting_renames
from tests.registered import layout_in
from tests.runner.projects import rows, write_project

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", renamed_from={former!r})
def {name}(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


def name_query(root: Path, name: str, former: object = ()) -> Project:
    """The project once its one query has this name."""
    return hr.load(write_project(root, BODY.format(name=name, former=former)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose query `old` has run: three batches, their lines in the ledger, and its files."""
    root = tmp_path / "p"
    has_run(name_query(root, "old"), "old")
    return root


def has_run(project: Project, name: str) -> None:
    register_query(project, project.queries[name])
    layout = layout_in(project.storage, name)
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout.checkpoint)
    schema = layout.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    schema.parent.mkdir(parents=True, exist_ok=True)
    schema.write_text(f'{{"path":"file:{layout.checkpoint}/state/0/_stateSchema"}}')
    Archive(layout.archive).catch_up(Checkpoint(layout.checkpoint))
    context = sink_context(project, project.queries[name], layout)
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


def apply_rename(project: Project, query: str) -> list[str]:
    """What a start does once all of it was looked at; what it says."""
    declared = project.queries[query]
    waiting = list(waiting_renames(project, declared))
    enter_name(project, declared, layout_of(project, declared))
    with closing(Notes(project, Observer())) as notes:
        notes.take_former_names(project, declared)
    return [finding.what for finding in waiting]


def state(project: Project, name: str) -> dict[str, Any]:
    """All that is kept of the query of this name."""
    layout = layout_of(project, project.queries[name])
    with History.open(history_file(project.storage), read_only=True) as history:
        runs = [status.query for status in history.statuses()]
    schema = layout.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    context = sink_context(project, project.queries[name], layout)
    with closing(SqliteDialect(str(project.root / "out.db")).connect()) as connection:
        ledger = Ledger(connection, SqliteDialect(str(project.root / "out.db")), context, "totals")
        owner = ledger.owner()
        lines = [line.batch for line in ledger.lines()]
    return {
        "batch": Checkpoint(layout.checkpoint).last_batch,
        "archived": list(Archive(layout.archive).batches()),
        "schema": str(layout.checkpoint) in schema.read_text(),
        "lines": lines,
        "is owner": owner is not None and owner.is_of(context),
        "history": runs,
        "verdicts": rows(history_file(project.storage), "SELECT query FROM verdicts"),
    }


def whole(name: str) -> dict[str, Any]:
    return {
        "batch": 2,
        "archived": [0, 1, 2],
        "schema": True,
        "lines": [0, 1, 2],
        "is owner": True,
        "history": [name],
        "verdicts": [(name,)],
    }


def test_a_rename_is_one_record_and_nothing_that_is_kept_moves(root: Path) -> None:
    assert state(name_query(root, "old"), "old") == whole("old")
    before = files(root)
    project = name_query(root, "new", "old")
    assert [finding.code for finding in waiting_renames(project, project.queries["new"])] == ["HR559"]
    assert state(project, "new") == whole("new") | {"history": ["old"], "verdicts": [("old",)]}, (
        "a look renames nothing"
    )
    (sentence,) = apply_rename(project, "new")
    assert "continues what ran as 'old'" in sentence
    assert state(project, "new") == whole("new")
    assert len(files(root) - before) == 1
    assert before - files(root) == set()
    assert [*waiting_renames(project, project.queries["new"]), *apply_rename(project, "new")] == []
    # The option may stay, and the query may get its old name again.
    back = name_query(root, "old", "new")
    apply_rename(back, "old")
    assert state(back, "old") == whole("old")


def files(root: Path) -> set[str]:
    return {str(file) for file in (root / ".headrace").rglob("*") if not file.name.startswith("history.db")}


def test_the_history_of_a_rename_that_was_cut_off_follows_at_the_next_start(root: Path) -> None:
    project = name_query(root, "new", "old")
    query = project.queries["new"]
    enter_name(project, query, layout_of(project, query))
    assert state(project, "new")["history"] == ["old"]
    project = name_query(root, "new")
    assert apply_rename(project, "new") == []
    assert state(project, "new") == whole("new")


def test_a_chain_of_names_is_followed_to_the_one_that_ran(root: Path) -> None:
    project = name_query(root, "third", ["new", "old"])
    apply_rename(project, "third")
    assert state(project, "third") == whole("third")


def test_a_start_that_failed_by_the_new_name_gives_way(root: Path) -> None:
    project = name_query(root, "new", "old")
    layout_in(project.storage, "new", 2).checkpoint.mkdir(parents=True)
    apply_rename(project, "new")
    assert state(project, "new") == whole("new")


@pytest.mark.parametrize("change", ["reset", "rebuild"])
def test_what_a_change_keeps_stays_with_a_query_that_is_renamed(root: Path, change: str) -> None:
    project = name_query(root, "new", "old")
    if change == "reset":
        hr.reset(name_query(root, "old"), "old", result="keep").apply()
    else:
        folder, made = layout_in(project.storage, "old").folder, Directory(generation=2, made=2)
        facts = {"former": "g1.1", "made": "g2.2", "since": "", "notes": []}
        begun_now = replace(begin(folder), kind="building", change="rebuild", building=made, facts=facts, of=0)
        append(folder, "old", begun_now)
    apply_rename(project, "new")
    (begun,) = changes(name_query(root, "new"), "new")
    assert begun.name == change
    if change == "reset":
        begun.undo()
        assert state(name_query(root, "new"), "new") == whole("new")


def ran_too(project: Project) -> None:
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout_in(project.storage, "new").checkpoint)


def third_ran(project: Project) -> None:
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout_in(project.storage, "third").checkpoint)


@pytest.mark.parametrize(
    ("before", "former", "words"),
    [(ran_too, "old", "have both run"), (third_ran, ["old", "third"], "'old' and 'third'")],
)
def test_what_cannot_be_renamed_is_said_in_a_sentence_and_stays(
    root: Path, before: Callable[[Project], None], former: object, words: str
) -> None:
    before(name_query(root, "new", former))
    project = name_query(root, "new", former)
    with pytest.raises(CheckpointError) as error:
        apply_renames(StartFacts.read(project, project.queries["new"]), None)  # type: ignore[arg-type]
    (finding,) = error.value.findings
    assert (finding.code, words in finding.what) == ("HR549", True)
    with pytest.raises(CheckpointError, match="HR549"):
        list(waiting_renames(project, project.queries["new"]))
    assert state(name_query(root, "old"), "old") == whole("old")


def test_a_name_that_has_never_run_is_no_fault(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "new", "old")
    assert list(waiting_renames(project, project.queries["new"])) == []
    (finding,) = report_unknown_former(project, project.queries["new"], read_register(project.storage))
    assert "renamed from 'old', and nothing is kept here by that name" in finding.what


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
    ("first", "second", "source", "words"),
    [
        ("two", (), "", "query 'two', which is declared as well".replace("query ", "")),
        ("two", "one", "", "renamed into each other"),
        ("one", (), "", "renamed from itself"),
        ("old", "old", "", "both renamed from 'old'"),
        ("../old", (), "", "not a valid name"),
        (3, (), "", "neither a name nor a list"),
        ((), (), 'events = hr.source.rate(renamed_from="events")', "source 'events' is renamed from itself"),
    ],
)
def test_what_cannot_be_declared_is_said_before_the_start(
    tmp_path: Path, first: object, second: object, source: str, words: str
) -> None:
    root = write_project(tmp_path / "p", TWO.format(source=source, first=first, second=second))
    try:
        findings = hr.check(hr.load(root), ["one"], spark=False).findings
    except HeadraceError as error:
        findings = error.findings
    faults = [finding for finding in findings if finding.code == "HR113"]
    assert [words in finding.what for finding in faults][:1] == [True], faults


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
    project = name_query(root, "new", "old")
    with (layout_in(project.storage, "old").folder / "driver.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"pid": 7, "host": "here", "started": "today"}))
        file.flush()
        with pytest.raises(HeadraceError, match="HR526"):
            driver_lock.take(project, project.queries["new"])


def test_a_driver_that_lost_its_lease_is_refused_though_the_query_has_another_name_since(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_lock, "store_at", lambda _: SimpleNamespace(has_locks=False))
    former, renamed = name_query(root, "old"), name_query(root, "new", "old")
    query, folder = former.queries["old"], layout_in(former.storage, "old").folder
    (folder / "driver.lock.leases").mkdir()
    lock = driver_lock.take(former, query)
    assert lock is not None
    driver_lock.require_held(former, query, folder)
    enter_name(renamed, renamed.queries["new"], layout_of(renamed, renamed.queries["new"]))
    (folder / "driver.lock.leases" / "000002.json").write_text("{}")
    with pytest.raises(LeaseLost, match="HR526"):
        driver_lock.require_held(former, query, folder)
    lock.release()


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


def execute(root: Path, *statements: str) -> None:
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
    execute(root, "CREATE VIEW seen AS SELECT name FROM totals", *before)
    project = table_renamed(root)
    query = project.queries["old"]
    for _ in range(2):
        rename_table(StartFacts.read(project, query), no_session)
        assert (of_table(root, "sums"), of_table(root, "totals")) == ((True, 3, ["old"]), (False, 0, []))
        # As if the process had ended before it was recorded.
        layout_in(project.storage, "old").sink.unlink()
    assert rows(root / "out.db", "SELECT * FROM seen") == [("a",)]
    rename_table(StartFacts.read(project, query), no_session)
    assert rename_table(StartFacts.read(project, query), no_session) == ()


def test_a_table_and_its_query_are_renamed_together(root: Path) -> None:
    project = hr.load(write_project(root, MOVED.format(name="new", former="old")))
    apply_rename(project, "new")
    rename_table(StartFacts.read(project, project.queries["new"]), no_session)
    assert (of_table(root, "sums"), of_table(root, "totals")) == ((True, 3, ["old"]), (False, 0, []))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE TABLE sums (name TEXT)", "which is there as well"),
        ("DROP TABLE totals", "neither table 'sums' nor 'totals'"),
    ],
)
def test_a_table_that_cannot_be_renamed_stays(root: Path, statement: str, words: str) -> None:
    execute(root, statement)
    project = table_renamed(root)
    with pytest.raises(HeadraceError, match=words) as error:
        rename_table(StartFacts.read(project, project.queries["old"]), no_session)
    assert [finding.code for finding in error.value.findings] == ["HR549"]
    assert of_table(root, "totals")[1:] == (3, ["old"])


def test_a_reset_waits_for_the_rename_of_its_table_and_the_rename_for_what_a_reset_keeps(root: Path) -> None:
    with pytest.raises(HeadraceError, match="HR580"):
        hr.reset(table_renamed(root), "old", result="drop").apply()
    hr.reset(name_query(root, "old"), "old", result="drop").apply()
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout_in(root / ".headrace", "old", 2).checkpoint)
    project = table_renamed(root)
    with pytest.raises(HeadraceError, match="HR549"):
        rename_table(StartFacts.read(project, project.queries["old"]), no_session)


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ('sqlite("out.db", table="t", renamed_from="t")', "cannot be renamed from 't'"),
        ('delta("out", renamed_from="old")', "no name but its directory"),
        ('delta(table="t", renamed_from="a b")', "cannot be renamed from 'a b'"),
        ('iceberg("db.t", renamed_from="db.t")', "cannot be renamed from 'db.t'"),
    ],
)
def test_a_wrong_former_table_is_reported_without_spark(tmp_path: Path, sink: str, words: str) -> None:
    body = f"@hr.query(sink=hr.sink.{sink})\ndef q(events):\n    return events\n"
    findings = hr.check(hr.load(write_project(tmp_path / "p", body)), spark=False).findings
    assert [words in finding.what for finding in findings if finding.code == "HR113"] == [True], findings
