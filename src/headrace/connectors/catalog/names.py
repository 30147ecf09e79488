"""Spark's own catalog of tables, as the source and the sink that use it name what lies there."""

from __future__ import annotations


def canonical(table: str) -> str:
    """`database.table` in lower case: one text for each table, however it is written."""
    parts = table.lower().split(".")
    if len(parts) > 1 and parts[0] == "spark_catalog":
        parts = parts[1:]
    return ".".join(parts if len(parts) > 1 else ["default", *parts])
