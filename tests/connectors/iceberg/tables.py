"""Iceberg tables for tests: a catalog in a SQLite file, its warehouse next to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("inner", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.string()))])),
    ]
)


def properties(home: Path) -> dict[str, str]:
    """The catalog's properties, as a project would declare them."""
    (home / "warehouse").mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}


def catalog(home: Path) -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **properties(home))


def table(home: Path, name: str, schema: pa.Schema | None = None) -> Table:
    """The table; it is created where it does not exist."""
    warehouse = catalog(home)
    warehouse.create_namespace_if_not_exists(name.rpartition(".")[0])
    return warehouse.create_table_if_not_exists(name, schema=EVENTS if schema is None else schema)


def add(home: Path, name: str, rows: Sequence[dict[str, Any]], schema: pa.Schema | None = None) -> Table:
    """Append rows as one snapshot."""
    there = table(home, name, schema)
    there.append(pa.Table.from_pylist(list(rows), schema=EVENTS if schema is None else schema))
    return there


def content(home: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table, as another reader sees them."""
    return sorted(catalog(home).load_table(name).scan().to_arrow().to_pylist(), key=repr)
