"""A sink keeps the mark of the newest change of a query: who wakes late, or runs an older copy, changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connectors.exactly_once import Admitted, KeptLine
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.sink_table import SinkTable
from headrace.errors import HeadraceError
from headrace.generations.facts import sink_context
from headrace.model import Project
from tests.changes.test_rewind import AFTER, Driver, make_project, state
from tests.registered import layout_in
from tests.runner.projects import rows

pytestmark = pytest.mark.plain
CHANGES: dict[str, Callable[[Project], Any]] = {
    "reset": lambda project: hr.reset(project, "totals", result="drop"),
    "rewind": lambda project: hr.rewind(project, "totals", to_batch=1),
}
MARK = "SELECT change_number, change_of, change_way FROM _headrace_epochs"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "p")


def drive(project: Project) -> None:
    """A driver begins and makes the next batch."""
    driver = Driver(project)
    for planned in ("offsets/2", "sources/events/2"):
        shutil.copy(driver.layout.checkpoint / planned, driver.layout.checkpoint / planned.replace("2", "3"))
    driver.write(3, {"a": 7})


def meanwhile(monkeypatch: pytest.MonkeyPatch, others: Callable[[], None]) -> None:
    """Let a process be stopped just before its transaction begins, while others work."""
    locked = SinkTable._lock_ledger

    def stopped(self: SinkTable, *given: Any) -> Any:
        monkeypatch.setattr(SinkTable, "_lock_ledger", locked)
        others()
        return locked(self, *given)

    monkeypatch.setattr(SinkTable, "_lock_ledger", stopped)


@pytest.mark.parametrize("change", CHANGES)
def test_a_command_that_was_undone_while_it_was_stopped_leaves_a_running_result(
    project: Project, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others() -> None:
        CHANGES[change](project).undo()
        drive(project)

    meanwhile(monkeypatch, others)
    with pytest.raises(HeadraceError, match="HR526"):
        CHANGES[change](project).apply()
    assert state(project)["rows"] == {**AFTER["update"][2], "a": 7}
    assert rows(project.root / "out.db", MARK) == [(3, 2, "back")]


def test_a_reset_whose_result_stays_is_not_undone_over_rows_of_the_next_generation(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was stopped for long writes its first batch once the undoing has begun."""
    hr.reset(project, "totals", result="keep").apply()
    generation = layout_in(project.storage, "totals", 2)
    sink = project.queries["totals"].sink

    def written() -> None:
        context = replace(sink_context(project, project.queries["totals"], generation), mark=None)
        with closing(sink.dialect().connect()) as connection:
            ledger = Ledger(connection, sink.dialect(), context, "Totals")
            ledger.add(Admitted(KeptLine(batch=0, checkpoint="later")), epoch=0, rows=1, quarantined=0)

    meanwhile(monkeypatch, written)
    with pytest.raises(HeadraceError, match=r"HR583.*generation 2"):
        hr.reset(project, "totals").undo()
    status = hr.reset(project, "totals").status
    assert status is not None
    assert status.phase == "done"
    assert rows(project.root / "out.db", "SELECT generation FROM _headrace_tables WHERE table_name = 'Totals'") == [
        (2,)
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_an_older_copy_of_the_storage_is_refused_before_anything_is_written(project: Project, change: str) -> None:
    copy = project.root / "copy"
    shutil.copytree(project.storage, copy)
    CHANGES[change](project).apply()
    shutil.rmtree(project.storage)
    copy.rename(project.storage)
    before = state(project) if change == "rewind" else None
    with pytest.raises(HeadraceError, match=r"HR410.*has seen change 2.*is 1: the storage is an older copy"):
        Driver(project)
    assert change == "reset" or state(project) == before


def test_of_two_copies_that_change_the_query_the_second_is_refused(project: Project) -> None:
    copy = project.root / "copy"
    shutil.copytree(project.storage, copy)
    hr.rewind(project, "totals", to_batch=1).apply()
    shutil.rmtree(project.storage)
    copy.rename(project.storage)
    with pytest.raises(HeadraceError, match=r"HR410.*is 2: the storage is another copy"):
        hr.rewind(project, "totals", to_batch=0).apply()
    assert rows(project.root / "out.db", MARK) == [(2, 2, "there")]
    assert layout_in(project.storage, "totals").made == 1
