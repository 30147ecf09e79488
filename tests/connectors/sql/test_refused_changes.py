"""A row that the database refuses of a table of change data is named, or quarantined alone; read by plain clients."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.contract import ChangeCounts
from headrace.errors import SinkError
from tests.rounds import only_usual

from .changed import Change, ChangeLife, change_options
from .databases import EVERY_WITHOUT_SPARK, Database, database

__all__ = ["database"]
DATABASES = pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)
TEXT = {"sqlite": "TEXT", "postgres": "TEXT", "mariadb": "VARCHAR(60) COLLATE utf8mb4_nopad_bin"}
LONG = {**TEXT, "mariadb": "LONGTEXT COLLATE utf8mb4_nopad_bin"}
NO_DELETE = {
    "sqlite": [
        "CREATE TRIGGER t BEFORE DELETE ON result WHEN old.id = 9 BEGIN SELECT RAISE(ABORT, 'kept for ever'); END"
    ],
    "postgres": [
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF OLD.id = 9 THEN RAISE 'kept for ever'; END IF; RETURN OLD; END $$",
        "CREATE TRIGGER t BEFORE DELETE ON result FOR EACH ROW EXECUTE FUNCTION f()",
    ],
    "mariadb": [
        "CREATE TRIGGER t BEFORE DELETE ON result FOR EACH ROW IF OLD.id = 9 THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'kept for ever'; END IF"
    ],
}


def life(database: Database, home: Path, *, scd_type: Any = 1, more: str = "", **options: Any) -> ChangeLife:
    """A life whose table was made by hand: a city is neither NULL nor 'bad', and a note has three characters."""
    text, long = TEXT[database.kind], LONG[database.kind]
    own = '"__START_AT" BIGINT, "__END_AT" BIGINT, PRIMARY KEY (id, "__START_AT")'
    if scd_type == 1:
        own = f'"__ORDER" {long}, "__OLDER" {long}, PRIMARY KEY (id)'
    note = "VARCHAR(3)" if database.kind == "postgres" else text
    checks = f"city {text} NOT NULL CHECK (city <> 'bad'), note {note} CHECK (length(note) <= 3)"
    database.query(f"CREATE TABLE result (id BIGINT NOT NULL, {checks}, {own}{more})")
    return ChangeLife(
        cast(Any, None),
        home,
        database,
        options={"rewindable": "7 days", **options},
        change_options=change_options(scd_type=scd_type),
    )


def upsert(sequence: int, key: int, city: str | None, note: str | None = None, **more: Any) -> Change:
    return Change("upsert", sequence, sequence, key, city, note, **more)


@dataclass(frozen=True)
class Case:
    """The changes before, those of a batch, and the rows after it; `bad`: the keys refused, and the reason."""

    before: Sequence[Change]
    batch: Sequence[Change]
    rows: Sequence[tuple[Any, ...]]
    bad: Sequence[int]
    words: str
    scd_type: int = 1


HELD = (upsert(1, 1, "x"), upsert(2, 2, "y", "abc"), upsert(3, 9, "z"))
CASES = {
    "NULL": Case(
        HELD,
        [upsert(4, 1, None), upsert(5, 3, None), upsert(6, 4, "new")],
        [(1, "x", None), (2, "y", "abc"), (4, "new", None), (9, "z", None)],
        [1, 3],
        "(?i)not.null|cannot be null",
    ),
    "CHECK": Case(
        HELD,
        [upsert(4, 1, "bad"), upsert(5, 2, "good", "new")],
        [(1, "x", None), (2, "good", "new"), (9, "z", None)],
        [1],
        "(?i)check|constraint",
    ),
    "too long": Case(
        HELD,
        [upsert(4, 1, "a", "long"), upsert(5, 2, "b", "abc")],
        [(1, "x", None), (2, "b", "abc"), (9, "z", None)],
        [1],
        "(?i)check|constraint|3 characters",
    ),
    "next to deletes": Case(
        HELD,
        [upsert(4, 1, "bad"), Change("delete", 5, 5, 2), upsert(6, 3, "new")],
        [(1, "x", None), (3, "new", None), (9, "z", None)],
        [1],
        "(?i)check|constraint",
    ),
    "next to a truncate": Case(
        HELD[:2],
        [upsert(4, 1, "bad"), Change("truncate", 5, 5), upsert(6, 3, "new"), upsert(7, 4, None)],
        [(3, "new", None)],
        [4],
        "(?i)not.null|cannot be null",
    ),
    "a value that a truncate has taken": Case(
        HELD[:2],
        [upsert(6, 1, None, "n", lacks=("city",)), Change("truncate", 5, 5), upsert(7, 3, "new")],
        [(3, "new", None)],
        [1],
        "(?i)not.null|cannot be null",
    ),
    "a delete": Case(
        HELD,
        [Change("delete", 5, 5, 9), Change("delete", 6, 6, 1), upsert(4, 9, "older")],
        [(2, "y", "abc"), (9, "z", None)],
        [9],
        "kept for ever",
    ),
    "a truncate": Case(HELD, [Change("truncate", 5, 5)], [(9, "z", None)], [9], "kept for ever"),
    "of a history": Case(
        HELD,
        [upsert(4, 1, "bad"), upsert(6, 1, "w"), upsert(7, 2, None), upsert(8, 3, "new")],
        [
            (1, "w", None, 6, None),
            (1, "x", None, 1, 4),
            (2, "y", "abc", 2, 7),
            (3, "new", None, 8, None),
            (9, "z", None, 3, None),
        ],
        [1, 2],
        "(?i)not.null|cannot be null|check|constraint",
        scd_type=2,
    ),
}


# Tasks stage their rows alike, whatever is refused.
STAGED = ("NULL", "a truncate", "of a history")
BY_PATH = [
    *(pytest.param(case, False, id=name) for name, case in CASES.items()),
    *(pytest.param(CASES[name], True, id=f"{name}, staged") for name in STAGED),
]


# Of both servers, one shows a case in `make test`.
BY_DATABASE = [
    pytest.param(*given.values, *path.values, id=f"{path.id}-{given.values[0]}", marks=[*given.marks, *further])
    for at, path in enumerate(BY_PATH)
    for given in EVERY_WITHOUT_SPARK
    for further in ([pytest.mark.long] if given.values[0] == ("postgres", "mariadb")[at % 2] else [],)
]


@pytest.mark.parametrize(("database", "case", "staged"), BY_DATABASE, indirect=["database"])
def test_a_change_that_the_database_refuses_is_named_or_quarantined(
    database: Database, tmp_path: Path, case: Case, staged: bool
) -> None:
    refused = life(database, tmp_path, scd_type=case.scd_type)
    for statement in NO_DELETE[database.kind]:
        database.query(statement)
    refused.resume(0)(refused.frame(case.before), 0)
    before = refused.rows()

    writer = refused.resume(1, staged=staged)
    with pytest.raises(SinkError, match="HR408: batch 1 of query 'q' was not written") as error:
        writer(refused.frame(case.batch), 1)
    [finding] = error.value.findings
    assert any(f"(id={key}" in finding.what for key in case.bad), finding.what
    assert re.search(case.words, finding.what), finding.what
    assert refused.rows() == before

    refused.options |= {"on_bad_row": "quarantine"}
    refused.resume(1, staged=staged)(refused.frame(case.batch), 1)
    assert refused.rows() == list(case.rows)
    lines = database.query("SELECT reason, row_values FROM _headrace_quarantine")
    assert sorted(json.loads(values)["id"] for _, values in lines) == list(case.bad)
    assert all(re.search(case.words, reason) for reason, _ in lines), lines
    assert database.batches()[-1][2] == len(case.bad)
    assert [entry.code for entry in refused.noted] == ["HR412"]
    assert database.left_over() == []

    refused.sink.rewind.go_back(refused.run, 0, cast(Any, None))
    assert refused.rows() == before


@DATABASES
def test_what_is_refused_counts_as_if_it_had_not_come(database: Database, tmp_path: Path) -> None:
    """An older change that comes later is applied, and what is sent again is not quarantined again."""
    refused = life(database, tmp_path, on_bad_row="quarantine")
    batches = [[upsert(1, 1, "x"), upsert(2, 2, "y")], [upsert(9, 1, "bad")], [upsert(9, 1, "bad"), upsert(5, 1, "w")]]
    for batch, changes in enumerate(batches):
        refused.resume(batch)(refused.frame(changes), batch)
    assert refused.rows() == [(1, "x", None), (2, "y", None)]
    refused.resume(3)(refused.frame([upsert(6, 1, "v")]), 3)
    assert refused.rows() == [(1, "v", None), (2, "y", None)]
    assert [bad for _, _, bad in database.batches()] == [0, 1, 0, 0]
    assert refused.counts[1] == ChangeCounts()


@DATABASES
def test_a_refused_part_of_a_history_is_quarantined_once(database: Database, tmp_path: Path) -> None:
    refused = life(database, tmp_path, scd_type=2, on_bad_row="quarantine")
    for batch, change in enumerate((upsert(1, 1, "x"), upsert(3, 1, "bad"), upsert(5, 1, "y"), upsert(7, 1, "z"))):
        refused.resume(batch)(refused.frame([change]), batch)
    assert [row[1:] for row in refused.rows()] == [("x", None, 1, 3), ("y", None, 5, 7), ("z", None, 7, None)]
    # The current row, and the one that ended at 5.
    assert [bad for _, _, bad in database.batches()] == [0, 1, 1, 0]


WHOLE, GAP = upsert(1, 1, "x", "abc"), upsert(3, 1, "y", lacks=("note",))
CUTS = {
    "one batch": [[WHOLE, Change("delete", 2, 2, 1), GAP]],
    "a delete in its batch": [[WHOLE], [Change("delete", 2, 2, 1), GAP]],
    "a delete before its batch": [[WHOLE, Change("delete", 2, 2, 1)], [GAP]],
    "a truncate in its batch": [[WHOLE], [Change("truncate", 2, 2), GAP]],
    "sent again": [[WHOLE, Change("delete", 2, 2, 1), GAP], [Change("delete", 2, 2, 1), GAP]],
}


@DATABASES
@pytest.mark.parametrize(
    "batches", only_usual(CUTS.values(), CUTS["a truncate in its batch"], CUTS["sent again"]), ids=CUTS
)
def test_a_row_of_which_no_change_has_sent_a_value_is_quarantined(
    database: Database, tmp_path: Path, batches: Sequence[Sequence[Change]]
) -> None:
    """However the changes are cut, the copy has no row of the key until a change sends all of it."""
    ordered = life(database, tmp_path, on_bad_row="quarantine")
    ordered.change_options = change_options(refuses_gaps=True)
    for batch, changes in enumerate(batches):
        ordered.resume(batch)(ordered.frame([*changes, upsert(3, 2, "whole", "abc")]), batch)
    assert ordered.rows() == [(2, "whole", "abc")]
    [(reason, values)] = database.query("SELECT reason, row_values FROM _headrace_quarantine")
    assert (reason, json.loads(values)["id"]) == ("a value that its change leaves out is not in the table", 1)
    after = [upsert(4, 1, "z", "abc"), upsert(5, 1, "w", lacks=("note",))]
    ordered.resume(len(batches))(ordered.frame(after), len(batches))
    assert ordered.rows() == [(1, "w", "abc"), (2, "whole", "abc")]


@DATABASES
def test_few_refused_changes_among_many_are_found_without_trying_each(database: Database, tmp_path: Path) -> None:
    refused = life(database, tmp_path, on_bad_row="quarantine")
    writer = refused.resume(0)
    changes = [upsert(at, at, "bad" if at in (17, 1711) else "good") for at in range(2_000)]
    tried: list[str] = []
    dialect = cast(Any, writer.store).dialect
    statement = type(dialect).upsert_from

    def count(self: Any, *given: Any) -> Any:
        tried.append("")
        return statement(self, *given)

    type(dialect).upsert_from = count
    try:
        writer(refused.frame(changes), 0)
    finally:
        type(dialect).upsert_from = statement
    assert len(tried) < 60
    assert database.query("SELECT count(*) FROM result") == [(1_998,)]
    assert database.batches() == [(0, 1_998, 2)]


@pytest.mark.services
@pytest.mark.parametrize("database", ["postgres", "mariadb"], indirect=True)
def test_a_row_without_its_parent_and_a_parent_that_is_deleted_are_refused_when_they_have_waited(
    database: Database, tmp_path: Path
) -> None:
    database.query(f"CREATE TABLE cities (city {TEXT[database.kind]} PRIMARY KEY)")
    database.query("INSERT INTO cities VALUES ('x')")
    reference = ", FOREIGN KEY (city) REFERENCES cities (city)"
    refused = life(database, tmp_path, more=reference, retry_seconds=0.5)
    refused.resume(0)(refused.frame([upsert(1, 1, "x"), upsert(2, 9, "x")]), 0)
    database.query("CREATE TABLE child (id BIGINT, FOREIGN KEY (id) REFERENCES result (id))")
    database.query("INSERT INTO child VALUES (9)")
    batch = [upsert(4, 2, "y"), Change("delete", 5, 5, 9), upsert(6, 3, "x")]
    with pytest.raises(SinkError, match=r"HR408: .*refuses the row \(id=(2|9).*foreign key"):
        refused.resume(1)(refused.frame(batch), 1)
    assert {entry.code for entry in refused.noted} == {"HR411"}
    refused.options |= {"on_bad_row": "quarantine"}
    refused.resume(1)(refused.frame(batch), 1)
    assert [row[0] for row in refused.rows()] == [1, 3, 9]
    lines = database.query("SELECT row_values FROM _headrace_quarantine")
    assert sorted(json.loads(values)["id"] for (values,) in lines) == [2, 9]


OWN = '"__ORDER" TEXT, "__OLDER" TEXT'
TABLES = {
    "no order of the rows": ("id BIGINT PRIMARY KEY, city TEXT, note TEXT", False, "HR406", "no column '__ORDER'"),
    "no column of the result": (f"id BIGINT PRIMARY KEY, city TEXT, {OWN}", False, "HR406", "no column 'note'"),
    "no index on the keys": (f"id BIGINT, city TEXT, note TEXT, {OWN}", False, "HR406", "unique index on (id)"),
    "rows of another program": (
        f"id BIGINT PRIMARY KEY, city TEXT, note TEXT, {OWN}",
        True,
        "HR407",
        "already holds rows that no query wrote",
    ),
}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.plain
@pytest.mark.parametrize(("columns", "has_rows", "code", "words"), TABLES.values(), ids=TABLES)
def test_a_table_that_cannot_take_changes_is_refused_before_the_start(
    database: Database, tmp_path: Path, columns: str, has_rows: bool, code: str, words: str
) -> None:
    database.query(f"CREATE TABLE result ({columns})")
    if has_rows:
        database.query("INSERT INTO result (id, city) VALUES (1, 'x')")
    refused = ChangeLife(cast(Any, None), tmp_path, database)
    findings = list(refused.sink.check_connection(refused.frame([]), refused.run))
    assert [finding.code for finding in findings if words in finding.what] == [code], findings
    with pytest.raises(SinkError, match=code):
        refused.resume(0)
