"""One project whose queries are all wrong, each in its own way: a row of the table is a file of SQL or of Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("spark.txt")
_EVENTS = "id INT, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, payload STRUCT<a: INT, b: STRING>"
_INPUTS = f"""
import headrace as hr

events = hr.source.files("landing", format="json", schema="{_EVENTS}", watermark=("at", "1 hour"))
plain = hr.source.files("landing", format="json", schema="id INT, name STRING")
clicks = hr.source.files("landing", format="json", schema="id INT, seen TIMESTAMP", watermark=("seen", "1 hour"))


@hr.table
def users(spark):
    return spark.sql("SELECT 1 AS id, 'a' AS name")
"""
# The user's own line begins below these.
_PYTHON = """import headrace as hr
import pandas as pd
from pyspark.sql import Window, functions as F

@hr.query(name="{id}", sink=hr.sink.console(), mode="{mode}")
def query(events, plain, clicks, users, spark):
"""
FIRST_LINE = {"sql": 2, "python": 1 + _PYTHON.count("\n")}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One wrong query; at: the line of its own text, from 1, or 0 where the query is declared."""

    id: str
    kind: str
    mode: str
    text: str
    at: int
    code: str
    what: str
    fix: str


def rows(table: Path = TABLE) -> list[Row]:
    """Every row of the table."""
    rows = []
    for line in table.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            id_, kind, text, at, code, sentence, fix = (cell.strip(" ") for cell in line.split(" | "))
            kind, mode = kind.split(" ")
            written = text.replace("\\n", "\n")
            rows.append(Row(id=id_, kind=kind, mode=mode, text=written, at=int(at), code=code, what=sentence, fix=fix))
    return rows


def write(root: Path, rows: Sequence[Row]) -> Path:
    """The project of all rows."""
    (root / "landing").mkdir(parents=True)
    (root / "inputs.py").write_text(_INPUTS)
    modules, queries = ["inputs.py"], []
    for row in rows:
        if row.kind == "sql":
            (root / f"{row.id}.sql").write_text(f"-- Wrong.\n{row.text}\n")
            queries.append(f"  {row.id}: {{sql: {row.id}.sql, mode: {row.mode}, sink: console}}\n")
        else:
            body = "".join(f"    {line}\n" for line in row.text.split("\n"))
            (root / f"{row.id}.py").write_text(_PYTHON.format(id=row.id, mode=row.mode) + body)
            modules.append(f"{row.id}.py")
    (root / "headrace.yml").write_text(f"modules: [{', '.join(modules)}]\nqueries:\n{''.join(queries)}")
    return root
