"""Two generations are exchanged, exchanged back and made final, and a crash between any two steps loses neither."""

from __future__ import annotations

import fcntl
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli.entry import main
from headrace.connectors.sql import generations
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.sqlite.dialect import SqliteDialect
from headrace.errors import HeadraceError
from headrace.frames import project_session
from headrace.generations.log import append, as_facts, log_of, rebuild_storage
from headrace.model import Project
from tests.changes.rebuild.scenes import (
    BUILT,
    FINAL,
    NEW,
    OLD,
    Killed,
    codes,
    kill_at,
    project_of,
    scene,
    state,
    swap_in,
)
from tests.connectors.sql.databases import Database
from tests.registered import layout_in

pytestmark = pytest.mark.plain
STEPS = ["recorded", "sink", "rewritten"]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database("sqlite", str(tmp_path / "p" / "out.db"))


@pytest.fixture
def project(tmp_path: Path, database: Database) -> Project:
    """A project whose query has run, and was rebuilt."""
    project = project_of(tmp_path / "p", database)
    scene(project)
    return project


def phase(project: Project) -> str:
    status = hr.rebuild(project, "totals").status
    assert status is not None
    return status.phase


@pytest.mark.parametrize("step", STEPS)
def test_a_swap_that_is_killed_is_ended_or_taken_back(project: Project, database: Database, step: str) -> None:
    assert state(project, database) == BUILT
    with pytest.raises(Killed):
        swap_in(project, kill_at(step))
    assert codes(project) == ["HR581"]
    (finding,) = (finding for finding in hr.verify(project, "totals").findings if finding.code != "HR701")
    assert (finding.code, "headrace change resume totals" in finding.fix) == ("HR581", True)
    with pytest.raises(HeadraceError, match="HR581"):
        hr.reset(project, "totals", result="drop").apply()
    for kill in STEPS:
        with pytest.raises(Killed):
            hr.rebuild(project, "totals").apply(reached=kill_at(kill))
    assert hr.rebuild(project, "totals").apply().done == "swapped"
    assert (state(project, database), codes(project)) == (NEW, [])
    assert not rebuild_storage(project.storage, layout_in(project.storage, "totals")).exists()


@pytest.mark.parametrize("step", STEPS)
def test_a_swap_that_is_killed_is_given_up(project: Project, database: Database, step: str) -> None:
    with pytest.raises(Killed):
        swap_in(project, kill_at(step))
    assert hr.rebuild(project, "totals").discard().done == "abandoned"
    assert (state(project, database), codes(project)) == (OLD, [])
    record = log_of(layout_in(project.storage, "totals"))
    assert record is not None
    assert record.current is None


@pytest.mark.parametrize("step", STEPS)
def test_a_roll_back_that_is_killed_is_ended(project: Project, database: Database, step: str) -> None:
    swap_in(project)
    assert (state(project, database), codes(project)) == (NEW, [])
    with pytest.raises(Killed):
        hr.rebuild(project, "totals").undo(reached=kill_at(step))
    assert codes(project) == ["HR581"]
    with pytest.raises(HeadraceError, match="HR571"):
        hr.rebuild(project, "totals").discard()
    assert hr.rebuild(project, "totals").undo().generation == 1
    assert (state(project, database), codes(project)) == (BUILT, [])
    swap_in(project)
    assert state(project, database) == NEW


@pytest.mark.parametrize("step", ["recorded-abandoning", "dropped", "removed"])
def test_what_is_given_up_leaves_nothing(project: Project, database: Database, step: str) -> None:
    with pytest.raises(Killed):
        hr.rebuild(project, "totals").discard(reached=kill_at(step))
    assert codes(project) == []
    assert hr.rebuild(project, "totals").discard().done == "abandoned"
    assert state(project, database) == OLD
    assert database.query("SELECT query FROM _headrace_epochs") == [("totals",)]


def test_the_former_generation_is_deleted_for_good(project: Project, database: Database) -> None:
    swap_in(project)
    assert hr.rebuild(project, "totals").discard().generation == 2
    assert state(project, database) == FINAL
    assert not layout_in(project.storage, "totals", 1).home.exists()
    assert not [name for (name,) in database.query("SELECT name FROM sqlite_master") if "aside" in name]


def test_a_rebuild_that_is_done_is_discarded_after_a_later_change_was_taken_back(
    project: Project, database: Database
) -> None:
    swap_in(project)
    live = layout_in(project.storage, "totals")
    done = log_of(live)
    assert done is not None
    facts = {"former": str(done.live)}
    taken_back = replace(done, kind="undone", change="rewind", target=None, facts=facts, before=as_facts(done))
    append(live.folder, "totals", taken_back)
    assert hr.rebuild(project, "totals").discard().done == "discarded"
    assert state(project, database) == FINAL


def test_a_database_that_ends_its_transaction_with_a_rename_is_caught_up_with(
    project: Project, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MySQL does: the tables have their names, and the lines of the ledger were not written."""

    def cut_off(ledger: Any, names: list[tuple[str, str]]) -> None:
        ledger.dialect.rename_together(ledger.connection, names)
        ledger.connection.execute("COMMIT")
        raise Killed("after the renames")

    def killed(do: Callable[[], Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(generations, "_rename", cut_off)
            with pytest.raises(Killed):
                do()

    monkeypatch.setattr(SqliteDialect, "transactional_ddl", False)
    monkeypatch.setattr(Ledger, "continue_change", lambda _: None)
    killed(lambda: swap_in(project))
    assert (codes(project), state(project, database)["rows"]) == (["HR581"], NEW["rows"])
    assert hr.rebuild(project, "totals").apply().done == "swapped"
    assert state(project, database) == NEW
    killed(lambda: hr.rebuild(project, "totals").undo())
    hr.rebuild(project, "totals").undo()
    assert state(project, database) == BUILT
    killed(lambda: swap_in(project))
    hr.rebuild(project, "totals").discard()
    assert state(project, database) == OLD


def test_a_database_that_refuses_leaves_both_as_they_were(
    project: Project, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(dialect: SqliteDialect, connection: Any, table: str, name: str) -> None:
        connection.cursor().execute("ALTER TABLE missing RENAME TO nothing")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteDialect, "rename", refused)
        with pytest.raises(HeadraceError, match="HR587"):
            swap_in(project)
    assert (state(project, database), codes(project), phase(project)) == (BUILT, [], "building")
    swap_in(project)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteDialect, "rename", refused)
        with pytest.raises(HeadraceError, match="HR587"):
            hr.rebuild(project, "totals").undo()
    assert (state(project, database), codes(project), phase(project)) == (NEW, [], "swapped")


def test_a_table_of_somebody_else_is_not_taken(project: Project, database: Database) -> None:
    database.query("UPDATE _headrace_tables SET query_id = 'other' WHERE table_name = 'Totals'")
    with pytest.raises(HeadraceError, match="would be taken from its owner"):
        swap_in(project)
    assert phase(project) == "building"


def swap(project: Project) -> None:
    swap_in(project)


def no_rebuild(project: Project) -> None:
    hr.rebuild(project, "totals").discard()


def damaged_record(project: Project) -> None:
    (layout_in(project.storage, "totals").folder / "log" / "000002.json").write_text('{"phase": "unknown"}')


def another_sink(project: Project) -> None:
    swap(project)
    record = {"kind": "sqlite", "name": "former", "systems": [""], "shown": "table 'former' in old.db"}
    layout_in(project.storage, "totals").sink.write_text(json.dumps(record))


def lock_record(name: str) -> Callable[[Project], None]:
    def lock(project: Project) -> None:
        file = (layout_in(project.storage, "totals").folder / name).open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        held.append(file)

    return lock


def swapped_and_running(project: Project) -> None:
    swap(project)
    lock_record("driver.lock")(project)


held: list[Any] = []


@pytest.mark.parametrize(
    ("before", "command", "code", "words"),
    [
        (None, "rebuild unknown --yes", "HR091", "no query 'unknown'"),
        (None, "rebuild printed --yes", "HR580", "headrace reset printed --keep-result"),
        (None, "rebuild copies --yes", "HR580", "it has never run"),
        (None, "change undo totals", "HR571", "headrace change discard totals"),
        (None, "reset totals --drop-result --yes", "HR571", "headrace change discard totals"),
        (no_rebuild, "change discard totals --yes", "HR582", "has no change to discard"),
        (damaged_record, "change discard totals --yes", "HR584", "cannot be read"),
        (swap, "rebuild totals --yes", "HR571", "headrace change discard totals; or bring it back: "),
        (swap, "change resume totals", "HR582", "was cut off"),
        (another_sink, "change undo totals", "HR580", "table 'former' in old.db"),
        (swapped_and_running, "change undo totals", "HR526", "already running"),
        (lock_record("rebuild.lock"), "rebuild totals --yes", "HR571", "already being rebuilt"),
        (lock_record("rebuild.lock"), "change discard totals --yes", "HR571", "already being rebuilt"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    project: Project,
    before: Callable[[Project], None] | None,
    command: str,
    code: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(project_session, "session", lambda *_, **__: pytest.fail("this needs no Spark"))
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
        (["rebuild", "totals"], "give --yes or --no-swap"),
        (["change", "discard", "totals"], "give --yes"),
    ],
)
def test_nothing_is_done_without_a_word(
    project: Project, database: Database, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "-C", str(project.root)]) == 2
    assert words in capsys.readouterr().err
    assert state(project, database) == BUILT


def test_of_several_changes_the_last_one_is_undone_first(project: Project, database: Database) -> None:
    swap(project)
    hr.reset(project, "totals", result="drop").apply()
    with pytest.raises(HeadraceError, match=r"HR583.*a reset came after it"):
        hr.rebuild(project, "totals").undo()
    for done, name in (("undo", "reset"), ("rolled-back", "rebuild")):
        change = hr.change(project, "totals")
        assert change is not None
        assert (change.name, change.undo().done) == (name, done)
    assert state(project, database) == BUILT
    with pytest.raises(Killed):
        swap_in(project, kill_at("sink"))
    assert main(["change", "undo", "totals", "-C", str(project.root)]) == 0
    assert (state(project, database), codes(project)) == (BUILT, [])
    with pytest.raises(Killed):
        swap_in(project, kill_at("sink"))
    assert main(["change", "resume", "totals", "-C", str(project.root)]) == 0
    assert (state(project, database), codes(project)) == (NEW, [])


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_it_asks_before_it_deletes(
    project: Project, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(text: str, verb: str) -> int:
        monkeypatch.setattr("sys.stdin", Terminal(text))
        return main(["change", verb, "totals", "-C", str(project.root)])

    assert (typed("n\n", "discard"), state(project, database)) == (1, BUILT)
    swap(project)
    assert (typed("n\n", "discard"), state(project, database)) == (1, NEW)
    assert (typed("", "undo"), state(project, database)) == (0, BUILT)
    assert (typed("y\n", "discard"), state(project, database)) == (0, OLD)


CHILD = """
import os, sys
import headrace as hr
from headrace.connectors.sql import generations

root, step = sys.argv[1:]

def killed(at):
    if at == step:
        os._exit(9)

def inside(ledger, names):
    ledger.dialect.rename_together(ledger.connection, names)
    killed("inside the transaction")

generations._rename = inside
change = hr.rebuild(hr.load(root), "totals")
with change._open(), change._hold_stopped(False):
    change._swap(killed)
"""


def test_a_process_that_dies_in_the_swap_leaves_what_another_one_ends(project: Project, database: Database) -> None:
    for step, rows in (("inside the transaction", BUILT["rows"]), ("sink", NEW["rows"]), ("rewritten", NEW["rows"])):
        done = subprocess.run([sys.executable, "-c", CHILD, str(project.root), step], check=False)
        assert (done.returncode, codes(project)) == (9, ["HR581"])
        assert state(project, database)["rows"] == rows
    assert hr.rebuild(project, "totals").apply().done == "swapped"
    assert state(project, database) == NEW


def test_it_waits_until_the_query_is_stopped(project: Project, database: Database) -> None:
    with pytest.raises(Killed):
        swap_in(project, kill_at("recorded"))
    lock_record("driver.lock")(project)
    with pytest.raises(HeadraceError, match="HR526") as raised:
        hr.rebuild(project, "totals").apply()
    assert "--wait" in raised.value.findings[0].fix
    stop = threading.Timer(0.2, held.pop().close)
    stop.start()
    assert hr.rebuild(project, "totals").apply(wait=True).done == "swapped"
    stop.join()
    assert state(project, database) == NEW


def test_the_status_says_how_far_it_is(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["change", "status", "totals", "-C", str(project.root)]) == 0
    assert "building; generation 2 next to 1" in (shown := capsys.readouterr().out)
    assert "3 batches" in shown
    assert main(["status", "-C", str(project.root)]) == 0
    assert "a rebuild is building" in capsys.readouterr().out
    with pytest.raises(Killed):
        swap_in(project, kill_at("sink"))
    assert main(["status", "--json", "-C", str(project.root)]) == 0
    (rebuild,) = json.loads(capsys.readouterr().out)["rebuilds"]
    assert (rebuild["query"], rebuild["phase"]) == ("totals", "swapping")
    assert main(["status", "-C", str(project.root)]) == 0
    assert "end it: headrace change resume totals" in capsys.readouterr().out
