"""A query that has run, and its rebuild that has caught up, made without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.connectors.exactly_once import Admitted, KeptLine
from headrace.connectors.sql.ledger import Ledger
from headrace.generations.facts import sink_context
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.generations.log import Directory, LogRecord, QueryLayout, append, begin
from headrace.generations.manifest import QueryRevision, enter, forms
from headrace.model import Project
from headrace.planner.ends import place_of
from headrace.starter.rename import enter_sink
from headrace.starter.sink_work import ignore
from tests.connectors.sql.databases import Database, checkpoint_of
from tests.registered import latest_generation, layout_in
from tests.runner.projects import write_project

BODY = """
@hr.query(sink={sink}, mode="update")
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))

@hr.query(sink=hr.sink.foreach(print), mode="append")
def printed(events):
    return events

@hr.query(sink=hr.sink.sqlite("other.db", table="copies"), mode="append")
def copies(events):
    return events
"""
ROWS = {1: [("a", 1), ("b", 2)], 2: [("a", 10), ("c", 30)]}


class Killed(BaseException):
    """The process is gone."""


def kill_at(wanted: str) -> Callable[[str], None]:
    def reached(step: str) -> None:
        if step == wanted:
            raise Killed(step)

    return reached


def project_of(root: Path, database: Database, *, options: str = "", storage: str = "") -> Project:
    made = {"sqlite": "sqlite", "postgres": "postgres", "mariadb": "mysql"}[database.kind]
    sink = f'hr.sink.{made}("{database.place}{options}", table="Totals", key=["name"])'
    write_project(root, BODY.format(sink=sink))
    if storage:
        (root / "headrace.yml").write_text(f"name: {root.name}\nstorage: {storage}\n")
    return hr.load(root)


def scene(project: Project) -> LogRecord:
    """Generation 1 has run and generation 2 was rebuilt next to it, three batches each."""
    query, live = project.queries["totals"], layout_in(project.storage, "totals", 1)
    _write(project, query, live, rebuilds=False)
    made = Directory(generation=2, made=2)
    record = append(
        live.folder,
        "totals",
        replace(
            begin(live.folder),
            kind="building",
            change="rebuild",
            of=0,
            begun="",
            target=made,
            building=made,
            following=3,
            facts={"former": "g1.1", "made": str(made), "since": "", "notes": []},
        ),
    )
    rebuilt = replace(query, sink=query.sink.swap.shadow)
    _write(project, rebuilt, layout_in(project.storage, "totals", 2), rebuilds=True)
    return record


def _write(project: Project, query: Any, layout: QueryLayout, *, rebuilds: bool) -> None:
    checkpoint_of(layout.checkpoint, f"checkpoint-{layout.generation}", offsets=2, commits=2)
    enter_sink(project, query, layout)
    form = {"sink": {"kind": query.sink_kind, **place_of(project, query.sink)}}
    enter(layout, QueryRevision(fingerprint="", from_batch=0, at="", headrace="", spark="", form=form))
    described = layout.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    described.parent.mkdir(parents=True)
    described.write_text(json.dumps({"schema": _schema_file(layout)}))
    context = replace(sink_context(project, query, layout), rebuilds=rebuilds)
    dialect = query.sink.dialect()
    with closing(dialect.connect()) as connection:
        ledger = Ledger(connection, dialect, context, dialect.real_name(connection, query.sink.table))
        ledger.create()
        cursor = connection.cursor()
        table = dialect.quote(ledger.table)
        cursor.execute(f"CREATE TABLE {table} (name VARCHAR(20) PRIMARY KEY, total BIGINT)")
        for name, total in ROWS[layout.generation]:
            cursor.execute(f"INSERT INTO {table} VALUES ('{name}', {total})")
        ledger.own("{}")
        ledger.enter_epoch(3)
        for batch in range(3):
            line = KeptLine(batch=batch, checkpoint=f"checkpoint-{layout.generation}")
            ledger.add(Admitted(line), epoch=3, rows=2, quarantined=0)


def _schema_file(layout: QueryLayout) -> str:
    """The file of a schema, as Spark names it."""
    home = str(layout.home.absolute())
    return f"{home if '://' in home else f'file:{home}'}/checkpoint/state/0/schema"


def swap_in(project: Project, reached: Callable[[str], None] = ignore) -> None:
    """Exchange the two generations, as the command does once the new one has caught up."""
    change = hr.rebuild(project, "totals")
    with change._open(), change._hold_stopped(False):
        change._swap(reached)


def state(project: Project, database: Database) -> dict[str, Any]:
    """All that a rebuild may change, as far as any start sees it."""

    def rows_of(table: str) -> list[tuple[Any, ...]] | None:
        there = [name for name in tables(database) if name.lower() == table.lower()]
        return database.query(f'SELECT * FROM "{there[0]}" ORDER BY 1') if there else None

    generation = latest_generation(layout_in(project.storage, "totals"))
    layout = layout_in(project.storage, "totals", generation)
    described = layout.checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    forms_of = [form.form["sink"]["place"] for form in forms(layout.manifest) if form.form]
    return {
        "generation": generation,
        "checkpoint": json.loads((layout.checkpoint / "metadata").read_text())["id"],
        "schema is in its place": json.loads(described.read_text())["schema"] == _schema_file(layout),
        "sink": (json.loads(layout.sink.read_text())["name"].lower(), *(place.lower() for place in forms_of)),
        "rows": rows_of("Totals"),
        "rebuilt": rows_of("Totals__rebuild"),
        "owners": sorted(
            (name.lower(), generation)
            for name, generation in database.query(
                "SELECT table_name, generation FROM _headrace_tables WHERE query = 'totals'"
            )
            if not name.startswith("_headrace")
        ),
        "lines": sorted(
            (name.lower(), *rest)
            for name, *rest in database.query(
                "SELECT table_name, generation, COUNT(*) FROM _headrace_ledger GROUP BY table_name, generation"
            )
        ),
    }


def tables(database: Database) -> list[str]:
    if database.kind == "sqlite":
        return [name for (name,) in database.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    schema = "current_schema()" if database.kind == "postgres" else "database()"
    return [
        name
        for (name,) in database.query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}")
    ]


T, B = "totals", "totals__rebuild"
_ONE = {"generation": 1, "checkpoint": "checkpoint-1", "schema is in its place": True, "sink": (T, T), "rows": ROWS[1]}
BUILT = {**_ONE, "rebuilt": ROWS[2], "owners": [(T, 1), (B, 2)], "lines": [(T, 1, 3), (B, 2, 3)]}
OLD = {**_ONE, "rebuilt": None, "owners": [(T, 1)], "lines": [(T, 1, 3)]}
NEW = {
    **{**_ONE, "generation": 2, "checkpoint": "checkpoint-2", "rows": ROWS[2]},
    **{"rebuilt": None, "owners": [(T, 2)], "lines": [(T, 1, 3), (T, 2, 3)]},
}
FINAL = {**NEW, "lines": [(T, 2, 3)]}


def codes(project: Project) -> list[str]:
    """What keeps the next start from beginning."""
    findings = inspect_checkpoint(project, project.queries["totals"]).findings
    return [
        finding.code
        for finding in findings
        if finding.severity == "error" and finding.code.startswith(("HR57", "HR58"))
    ]
