"""Small projects over files, for tests that run them."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

HEADER = """
import headrace as hr
from pyspark.sql import functions as F

events = hr.source.files("landing", format="json", max_files_per_trigger=1, schema="name STRING, amount INT")
"""


def write_project(root: Path, body: str, *, batches: Sequence[Iterable[dict[str, Any]]] = ()) -> Path:
    """A project of one Python file with a source `events` and `body`; one file lands for each of `batches`."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(f"name: {root.name}\n")
    (root / "pipeline.py").write_text(HEADER + dedent(body))
    (root / "landing").mkdir(exist_ok=True)
    for number, rows in enumerate(batches):
        land(root, number, rows)
    return root


def land(root: Path, number: int, rows: Iterable[dict[str, Any]]) -> Path:
    """Let one file land, whole."""
    return land_text(root, number, "".join(json.dumps(row) + "\n" for row in rows))


def land_text(root: Path, number: int, text: str) -> Path:
    """Let one file of any text land, a second after the one before: Spark takes the oldest first."""
    file = root / "landing" / f"{number:04d}.json"
    draft = file.with_name(f".{file.name}")
    draft.write_text(text)
    os.utime(draft, (1_700_000_000 + number, 1_700_000_000 + number))
    draft.rename(file)
    return file


def keep(root: Path) -> Path:
    """Copy a project next to itself; see `restore`."""
    shutil.copytree(root, root.with_name(f"{root.name} as it was"))
    return root


def restore(root: Path) -> Path:
    """Make a project again what it was when it was kept: several tests begin with its run."""
    shutil.rmtree(root)
    shutil.copytree(root.with_name(f"{root.name} as it was"), root)
    return root


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a SELECT on a SQLite file."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def ledger(database: Path) -> list[int]:
    """The batches that a SQLite sink has written, in order; none while the file or its tables do not exist yet.

    The driver makes the file first and its tables after it: who looks while a driver starts may see one without the
    other.
    """
    if not database.exists():
        return []
    try:
        return [batch for (batch,) in rows(database, "SELECT batch FROM _headrace_ledger ORDER BY batch")]
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
