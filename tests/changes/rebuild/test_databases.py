"""The swap in each database server: one step for readers, and one that a reader who holds the table can delay."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.connectors.sql import generations
from headrace.errors import HeadraceError
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
from tests.connectors.sql.databases import Database, database  # noqa: F401

pytestmark = pytest.mark.services


def swap(project: hr.Project, step: str = "") -> None:
    swap_in(project, kill_at(step))


@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_two_tables_are_exchanged_and_exchanged_back(
    database: Database,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = project_of(tmp_path / "p", database)
    scene(project)
    assert state(project, database) == BUILT

    def cut_off(ledger: Any, names: list[tuple[str, str]]) -> None:
        """The renames are done, and nothing after them."""
        ledger.dialect.rename_together(ledger.connection, names)
        raise Killed("after the renames")

    def killed(do: Callable[[], Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(generations, "_rename", cut_off)
            with pytest.raises(Killed):
                do()

    if database.kind == "postgres":
        database.query("CREATE USER reader")
        database.query('GRANT SELECT ON "Totals" TO reader')
    database.query("CREATE VIEW seen AS SELECT total FROM \"Totals\" WHERE name <> 'b%'")

    def seen() -> list[Any]:
        """What a user who may read the table and a view of it reads."""
        if database.kind == "postgres":
            assert database.query("SELECT has_table_privilege('reader', '\"Totals\"', 'SELECT')") == [(True,)]
        return [total for (total,) in database.query("SELECT total FROM seen ORDER BY 1")]

    for _ in range(2):
        assert seen() == [1, 2]
        killed(lambda: swap(project))
        with pytest.raises(Killed):
            swap(project, "sink")
        assert codes(project) == ["HR581"]
        assert hr.rebuild(project, "totals").apply().done == "swapped"
        assert (state(project, database), seen()) == (NEW, [10, 30])
        killed(lambda: hr.rebuild(project, "totals").undo())
        assert hr.rebuild(project, "totals").undo().done == "rolled-back"
        assert (state(project, database), codes(project)) == (BUILT, [])
    killed(lambda: swap(project))
    assert hr.rebuild(project, "totals").discard().done == "abandoned"
    assert (state(project, database), seen()) == (OLD, [1, 2])


@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_a_reader_who_holds_the_table_delays_the_swap(database: Database, tmp_path: Path) -> None:  # noqa: F811
    options = {"postgres": "?options=-c%20lock_timeout%3D300", "mariadb": "?lock_timeout=1"}[database.kind]
    project = project_of(tmp_path / "p", database, options=options)
    scene(project)
    if database.kind == "postgres":
        database.query('CREATE MATERIALIZED VIEW kept AS SELECT total FROM "Totals"')
        with pytest.raises(HeadraceError, match=r"HR587.*materialized view public.kept reads table"):
            swap(project)
        assert (state(project, database), codes(project)) == (BUILT, [])
        database.query("DROP MATERIALIZED VIEW kept")
    with closing(database.connect()) as reader:
        cursor = reader.cursor()
        cursor.execute("BEGIN")
        cursor.execute('SELECT * FROM "Totals"'.replace('"', "`" if database.kind == "mariadb" else '"'))
        cursor.fetchall()
        with pytest.raises(HeadraceError) as raised:
            swap(project)
        (finding,) = raised.value.findings
        assert (finding.code, "lock" in finding.what) == ("HR587", True)
        assert finding.what.startswith("the results of query 'totals' cannot be exchanged")
        cursor.execute("COMMIT")
    assert (state(project, database), codes(project)) == (BUILT, [])
    swap(project)
    assert (state(project, database), codes(project)) == (NEW, [])
    hr.rebuild(project, "totals").discard()
    assert state(project, database) == FINAL
