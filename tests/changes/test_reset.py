"""A query is reset, that is taken back, and a crash between any two steps leaves one of the two."""

from __future__ import annotations

import ast
import errno
import fcntl
import io
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.changes import change
from headrace.checkpoint import Checkpoint
from headrace.cli.entry import main
from headrace.connectors.exactly_once import Admitted, KeptLine
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.errors import AttemptFailed, HeadraceError, LeaseLost
from headrace.generations import driver_lock
from headrace.generations.changes import Choice
from headrace.generations.facts import sink_context
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.generations.log import LogRecord, log_of
from headrace.generations.register import layout_of
from headrace.model import Project
from headrace.storage.private import unwritable
from tests.registered import latest_generation, layout_in
from tests.runner.projects import rows, write_project

pytestmark = pytest.mark.plain
FIXTURES = Path(__file__).parent.parent / "checkpoint" / "fixtures"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="Totals", key=["name"]), mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.sqlite("out.db", table="copies"), mode="append")
def copies(events):
    return events

@hr.query(sink=hr.sink.files("s3a://lake/out", format="json"), mode="append")
def remote(events):
    return events

@hr.query(sink=hr.sink.foreach(print), mode="append")
def printed(events):
    return events

@hr.query(sink=hr.sink.console(), mode="append")
def shown(events):
    return events
"""


class Killed(BaseException):
    """The process is gone."""


def kill_at(wanted: str) -> Callable[[str], None]:
    def reached(step: str) -> None:
        if step == wanted:
            raise Killed(step)

    return reached


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose query has run: its checkpoint, its table of two rows, three lines of the ledger."""
    root = write_project(tmp_path / "p", BODY)
    project = hr.load(root)
    layout = layout_in(project.storage, "totals")
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout.checkpoint)
    context = sink_context(project, project.queries["totals"], layout)
    dialect = SqliteDialect(str(root / "out.db"))
    with closing(dialect.connect()) as connection:
        ledger = Ledger(connection, dialect, context, "Totals")
        ledger.create()
        for statement in (
            "CREATE TABLE Totals (name TEXT PRIMARY KEY, total INTEGER)",
            "INSERT INTO Totals VALUES ('a', 1), ('b', 2)",
            "CREATE VIEW seen AS SELECT total FROM totals",
        ):
            connection.cursor().execute(statement)
        ledger.own("{}")
        for batch in range(3):
            line = KeptLine(batch=batch, checkpoint=Checkpoint(layout.checkpoint).id or "")
            ledger.add(Admitted(line), epoch=0, rows=2, quarantined=0)
    return project


def state(project: Project) -> dict[str, Any]:
    """All that a reset may change, as far as the next start sees it."""
    root = project.root
    tables = {name for (name,) in rows(root / "out.db", "SELECT name FROM sqlite_master WHERE type = 'table'")}
    generation = latest_generation(layout_in(project.storage, "totals"))
    checkpoint = Checkpoint(layout_in(project.storage, "totals", generation).checkpoint)
    owner = rows(root / "out.db", "SELECT query, generation = 1 FROM _headrace_tables WHERE table_name = 'Totals'")
    return {
        "is first": generation == 1,
        "batch": checkpoint.last_batch,
        "rows": rows(root / "out.db", "SELECT * FROM totals ORDER BY 1") if "Totals" in tables else None,
        "owner": owner,
        "lines": rows(root / "out.db", "SELECT COUNT(*) FROM _headrace_ledger WHERE generation = 1"),
    }


OLD = {
    "is first": True,
    "batch": 2,
    "rows": [("a", 1), ("b", 2)],
    "owner": [("totals", 1)],
    "lines": [(3,)],
}
DROPPED = {"is first": False, "batch": None, "rows": None, "owner": [("", 0)], "lines": [(3,)]}
KEPT = {**OLD, "is first": False, "batch": None, "owner": [("totals", 0)]}


def codes(project: Project) -> list[str]:
    """What keeps the next start from beginning."""
    findings = inspect_checkpoint(project, project.queries["totals"]).findings
    return [finding.code for finding in findings if finding.severity == "error"]


def test_an_undo_that_was_cut_off_once_the_sink_had_undone_is_not_taken_for_one_that_has_done_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    hr.reset(project, "totals", result="keep").apply()
    with pytest.raises(Killed):
        hr.reset(project, "totals").undo(reached=kill_at("sink"))
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "create", raising(sqlite3.OperationalError("disk I/O error")))
        with pytest.raises(AttemptFailed, match="HR587"):
            hr.reset(project, "totals").undo()
    assert "HR581" in codes(project), "a start waits for the end of the undo"
    hr.reset(project, "totals").undo()
    assert state(project) == OLD
    assert codes(project) == []


@pytest.mark.parametrize(("result", "new"), [("drop", DROPPED), ("keep", KEPT)])
@pytest.mark.parametrize("step", ["recorded", "sink", "done"])
def test_a_reset_that_is_killed_is_ended_or_taken_back(
    project: Project, result: Choice, new: dict[str, Any], step: str
) -> None:
    assert state(project) == OLD
    for ends in ("undo", "again"):
        with pytest.raises(Killed):
            hr.reset(project, "totals", result=result).apply(reached=kill_at(step))
        assert codes(project) == ([] if step == "done" else ["HR581"])
        if step != "done":
            verdict = hr.verify(project, "totals")
            assert (verdict.state, [finding.code for finding in verdict.findings]) == ("undecided", ["HR581"])
        if ends == "undo":
            hr.reset(project, "totals").undo()
            assert (state(project), codes(project)) == (OLD, [])
    if step != "done":
        assert hr.reset(project, "totals", result=result).apply().generation > 1
    assert (state(project), codes(project)) == (new, [])
    # Given once more, as after a crash behind the last step, it says that there is nothing to do.
    assert main(["reset", "totals", f"--{result}-result", "--yes", "-C", str(project.root)]) == 0
    assert state(project) == new


@pytest.mark.parametrize(("result", "new"), [("drop", DROPPED), ("keep", KEPT)])
@pytest.mark.parametrize("step", ["recorded", "sink", "done"])
def test_taking_a_reset_back_is_ended_after_a_kill(
    project: Project, result: Choice, new: dict[str, Any], step: str
) -> None:
    hr.reset(project, "totals", result=result).apply()
    assert state(project) == new
    with pytest.raises(Killed):
        hr.reset(project, "totals").undo(reached=kill_at(step))
    assert codes(project) == ([] if step == "done" else ["HR581"])
    if step != "done":
        with pytest.raises(HeadraceError, match="HR580"):
            hr.reset(project, "totals", result=result).apply()
        assert hr.reset(project, "totals").undo().generation == 1
    assert (state(project), codes(project)) == (OLD, [])


def test_of_two_commands_at_once_the_second_sees_what_the_first_has_done(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one comes between the second's look at the query and its lock."""
    take = driver_lock.take

    def behind_another(*given: Any) -> Any:
        monkeypatch.setattr(driver_lock, "take", take)
        hr.reset(project, "totals", result="drop").apply()
        return take(*given)

    monkeypatch.setattr(driver_lock, "take", behind_another)
    with pytest.raises(HeadraceError, match="HR582"):
        hr.reset(project, "totals", result="drop").apply()
    assert state(project) == DROPPED
    hr.reset(project, "totals").undo()
    assert state(project) == OLD


def test_a_database_that_refuses_leaves_the_query_as_it_was(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(dialect: SqliteDialect, connection: Any, table: str, name: str) -> None:
        connection.cursor().execute("ALTER TABLE missing RENAME TO nothing")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteDialect, "rename", refused)
        with pytest.raises(HeadraceError, match="HR587"):
            hr.reset(project, "totals", result="drop").apply()
    assert (state(project), codes(project)) == (OLD, [])
    hr.reset(project, "totals", result="drop").apply()
    monkeypatch.setattr(SqliteDialect, "rename", refused)
    with pytest.raises(HeadraceError, match="HR587"):
        hr.reset(project, "totals").undo()
    assert (state(project), codes(project)) == (DROPPED, [])


def test_what_was_set_aside_is_deleted_and_the_next_generation_stays(project: Project) -> None:
    hr.reset(project, "totals", result="drop").apply()
    assert hr.reset(project, "totals").discard().set_aside == ()
    tables = {name for (name,) in rows(project.root / "out.db", "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not [name for name in tables if "aside" in name]
    assert state(project) == {**DROPPED, "lines": [(0,)]}
    with pytest.raises(HeadraceError, match="HR583"):
        hr.reset(project, "totals").undo()
    with pytest.raises(HeadraceError, match="HR582"):
        hr.reset(project, "totals").discard()


def test_a_view_of_the_table_reads_the_new_one(project: Project) -> None:
    hr.reset(project, "totals", result="drop").apply()
    with closing(SqliteDialect(str(project.root / "out.db")).connect()) as connection:
        connection.cursor().execute("CREATE TABLE totals (name TEXT, total INTEGER)")
    assert rows(project.root / "out.db", "SELECT * FROM seen") == []


def planned_since(project: Project) -> None:
    hr.reset(project, "totals", result="drop").apply()
    plan_batches(project)


def plan_batches(project: Project) -> None:
    with zipfile.ZipFile(FIXTURES / "rocksdb_few.zip") as archive:
        archive.extractall(layout_in(project.storage, "totals", 2).checkpoint)


def rows_since(project: Project) -> None:
    hr.reset(project, "totals", result="drop").apply()
    with closing(SqliteDialect(str(project.root / "out.db")).connect()) as connection:
        connection.cursor().execute("CREATE TABLE totals AS SELECT 1 AS name")


def another_choice(project: Project) -> None:
    with pytest.raises(Killed):
        hr.reset(project, "totals", result="keep").apply(reached=kill_at("recorded"))


def damaged_record(project: Project) -> None:
    (layout_in(project.storage, "totals").folder / "log" / "000002.json").write_text("{")


def no_database(project: Project) -> None:
    (project.root / "out.db").write_text("this is not a database, but a text that is long enough\n" * 9)


def no_log(project: Project) -> None:
    shutil.rmtree(layout_in(project.storage, "totals").folder / "log")


def running(project: Project) -> None:
    file = (layout_in(project.storage, "totals").folder / "driver.lock").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    held.append(file)


held: list[Any] = []


STEPS_LOST = {
    "a full disk": (lambda project: OSError(errno.ENOSPC, "No space left on device"), "headrace change resume totals"),
    "a lost lease": (lambda project: OSError(errno.ENOENT, "No such file or directory"), "headrace status"),
}


@pytest.mark.parametrize(("fault", "fix"), STEPS_LOST.values(), ids=STEPS_LOST)
def test_a_change_that_a_fault_cuts_off_names_what_ends_it(
    project: Project, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Project], OSError], fix: str
) -> None:
    def fail(step: str) -> None:
        if step == "sink":
            if "status" in fix:
                gone = LeaseLost(code="HR526", what="another process has taken it over", fix="look: headrace status")
                monkeypatch.setattr(driver_lock.DriverLock, "require_held", raising(gone))
            raise unwritable(project.storage, fault(project))

    with pytest.raises(HeadraceError) as caught:
        hr.reset(project, "totals", result="drop").apply(reached=fail)
    assert caught.value.findings[0].fix.endswith(fix)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_an_undoing_whose_record_came_after_a_driver_has_run_is_given_up(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is stopped between its look at the checkpoint and its record for longer than its lease."""
    hr.reset(project, "totals", result="drop").apply()
    append = change.append

    def append_late(folder: Path, query: str, record: LogRecord) -> LogRecord:
        if record.kind == "undoing":
            plan_batches(project)
        return append(folder, query, record)

    monkeypatch.setattr(change, "append", append_late)
    assert main(["change", "undo", "totals", "--json", "-C", str(project.root)]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], "it has run since" in finding["what"]) == ("HR583", True)
    newest = log_of(layout_of(project, project.query("totals")))
    assert newest is not None
    assert (newest.kind, newest.live.generation) == ("done", 2)


@pytest.mark.parametrize(
    ("before", "command", "code", "words"),
    [
        (None, "reset unknown --drop-result --yes", "HR091", "no query 'unknown'"),
        (None, "reset copies --drop-result --yes", "HR582", "no checkpoint yet"),
        (None, "reset copies --keep-result --yes", "HR580", "headrace reset copies --drop-result"),
        (None, "reset printed --drop-result --yes", "HR580", "headrace reset printed --keep-result"),
        (None, "reset shown --drop-result --yes", "HR582", "keeps nothing"),
        (None, "reset remote --drop-result --yes", "HR587", "s3a://lake/out"),
        (None, "change undo totals", "HR582", "has no change to undo"),
        (None, "change resume totals", "HR582", "has no change to resume"),
        (planned_since, "change undo totals", "HR583", "it has run since"),
        (rows_since, "change undo totals", "HR583", "holds rows again"),
        (another_choice, "reset totals --drop-result --yes", "HR580", "headrace reset totals --keep-result"),
        (another_choice, "change discard totals --yes", "HR580", "cut off"),
        (damaged_record, "reset totals --drop-result --yes", "HR584", "cannot be read"),
        (damaged_record, "change undo totals", "HR584", "cannot be read"),
        (no_database, "reset totals --drop-result --yes", "HR425", "out.db"),
        (no_log, "reset totals --drop-result --yes", "HR584", "it is not there, and g1.1 is"),
        (running, "reset totals --drop-result --yes", "HR526", "already running"),
    ],
)
def test_what_cannot_be_reset_is_said_in_a_sentence(
    project: Project,
    before: Callable[[Project], None] | None,
    command: str,
    code: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if before is not None:
        before(project)
    try:
        ended = main([*command.split(), "--json", "-C", str(project.root)])
        assert ended in ((0,) if code == "HR582" else (1, 2))
    finally:
        while held:
            held.pop().close()
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == code
    assert words in finding["what"] + finding["fix"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["totals"], "choose --drop-result or --keep-result"),
        (["totals", "--drop-result"], "give --yes"),
        (["totals", "--drop-result", "--keep-result", "--yes"], "give one of --drop-result and --keep-result"),
    ],
)
def test_nothing_is_done_without_a_word(
    project: Project, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reset", *arguments, "-C", str(project.root)]) == 2
    assert words in capsys.readouterr().err
    assert state(project) == OLD


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code", "new"), [("drop\ny\n", 0, DROPPED), ("keep\nn\n", 1, OLD)])
def test_at_a_terminal_it_asks(
    project: Project, typed: str, code: int, new: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert main(["reset", "totals", "-C", str(project.root)]) == code
    assert state(project) == new


def test_it_says_what_it_moves_with_numbers(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", "totals", "--drop-result", "--yes", "-C", str(project.root)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for words in ("3 committed batches", "bytes of state", "2 rows of table 'Totals'", "3 lines of its ledger"):
        assert words in output
    assert "headrace change undo totals" in output
    assert main(["change", "status", "totals", "-C", str(project.root)]) == 0
    assert "totals: query 'totals' was reset, and is generation 2; take it back: " in capsys.readouterr().out
    assert main(["change", "undo", "totals", "--json", "-C", str(project.root)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "query": "totals",
        "done": "undo",
        "generation": 1,
        "set_aside": [],
    }


def test_a_sink_that_was_changed_leaves_the_former_result_where_it_is(project: Project) -> None:
    record = {"kind": "sqlite", "name": "former", "systems": [""], "shown": "table 'former' in old.db"}
    layout_in(project.storage, "totals").sink.write_text(json.dumps(record))
    plan = hr.reset(project, "totals", result="drop").plan
    assert (plan.held, "table 'former' in old.db" in plan.notes[0]) == ((), True)
    hr.reset(project, "totals", result="drop").apply()
    assert state(project) == {**OLD, "is first": False, "batch": None}


def test_a_database_that_ends_its_transaction_with_a_rename_is_caught_up_with(project: Project) -> None:
    """As MySQL does: the table has its other name, and the line that says whose it is was not written."""
    path = project.root / "out.db"
    dialect = SqliteDialect(str(path))

    def done(*statements: str) -> None:
        with closing(dialect.connect()) as connection:
            for statement in ("PRAGMA legacy_alter_table = ON", *statements):
                connection.cursor().execute(statement)

    hr.reset(project, "totals", result="drop").apply()
    ((aside,),) = rows(path, "SELECT name FROM sqlite_master WHERE name LIKE '%aside%' AND type = 'table'")
    line = "INSERT OR REPLACE INTO _headrace_tables SELECT '{}', application, project, query_id, query, generation, "
    line += "spark_schema FROM _headrace_tables WHERE table_name = '{}'"
    hr.reset(project, "totals").undo()
    with pytest.raises(Killed):
        hr.reset(project, "totals", result="drop").apply(reached=kill_at("recorded"))
    done(line.format(aside, "Totals"), f"ALTER TABLE Totals RENAME TO {aside}")
    hr.reset(project, "totals", result="drop").apply()
    assert state(project) == DROPPED
    with pytest.raises(Killed):
        hr.reset(project, "totals").undo(reached=kill_at("recorded"))
    done(f"ALTER TABLE {aside} RENAME TO Totals")
    hr.reset(project, "totals").undo()
    assert state(project) == OLD
    assert rows(path, f"SELECT * FROM _headrace_tables WHERE table_name = '{aside}'") == []


def test_who_reads_the_result_is_named(tmp_path: Path) -> None:
    body = """
    copied = hr.source.files("out", format="json", schema="name STRING")

    @hr.query(sink=hr.sink.files("out", format="json"), mode="append")
    def copies(events):
        return events

    @hr.query(sink=hr.sink.sqlite("out.db", table="t"), mode="append")
    def reader(copied):
        return copied
    """
    root = write_project(tmp_path / "p", body)
    (root / "out" / "name=_a").mkdir(parents=True)
    (root / "out" / "_headrace_schema.json").write_text("{}")
    (root / "out" / "name=_a" / "part-0.json").write_text("{}")
    plan = hr.reset(hr.load(root), "copies", result="drop").plan
    assert [entry.count for entry in plan.held] == [1]
    assert "query 'reader' reads the result" in plan.notes[0]
    hr.reset(hr.load(root), "copies", result="drop").apply()
    assert not (root / "out").exists()
    hr.reset(hr.load(root), "copies").undo()
    assert (root / "out" / "name=_a" / "part-0.json").exists()


def test_every_message_that_asks_for_a_reset_names_the_command() -> None:
    lacking = []
    for file in Path(hr.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in pieces):
                text = ast.unparse(node)
                if "reset the query" in text and "headrace reset QUERY" not in text and "reset_command" not in text:
                    lacking.append(f"{file.name}: {text}")
    assert lacking == []
