"""The state of a query's operators, read by Spark's own state data source; nothing of the checkpoint is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_JOIN = "symmetricHashJoin"
_PROCESSOR = "transformWithState"
_PARTITION = "partition_id"


@dataclass(frozen=True, kw_only=True)
class StateStore:
    """One thing that an operator keeps: a store, a side of a join, or a variable of a processor, and how to read it."""

    operator: int
    operator_name: str
    name: str
    partitions: int
    options: Mapping[str, str]


def state_stores(spark: SparkSession, checkpoint: Path) -> Iterator[StateStore]:
    """Everything that the operators of a checkpoint keep, in the order of the operators."""
    rows = spark.read.format("state-metadata").load(str(checkpoint)).collect()
    known = {(row["operatorId"], row["stateStoreName"]): row for row in rows}
    seen: set[int] = set()
    for (operator, store), row in sorted(known.items()):
        kind = str(row["operatorName"])
        things: list[tuple[str, dict[str, str]]] = [(store, {"storeName": store})]
        if _JOIN in kind or kind.startswith(_PROCESSOR):
            # A join keeps several stores, or column families, for its two sides.
            if operator in seen:
                continue
            sides = [(f"{side} side", {"joinSide": side}) for side in ("left", "right")]
            things = sides if _JOIN in kind else list(_variables(row["operatorProperties"]))
        seen.add(operator)
        for name, options in things:
            yield StateStore(
                operator=operator,
                operator_name=kind,
                name=name,
                partitions=int(row["numPartitions"]),
                options={"operatorId": str(operator), **options},
            )


def state_rows(spark: SparkSession, checkpoint: Path, store: StateStore, batch: int) -> DataFrame:
    """The rows of a store after `batch`, which is committed, without the number of the partition."""
    reader = spark.read.format("statestore").options(**store.options).option("batchId", str(batch))
    return reader.load(str(checkpoint)).drop(_PARTITION)


def key_fields(schema: StructType) -> dict[str, Column]:
    """The fields of the key, also those inside of a window, by their names."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType as Struct

    def walk(kind: StructType, names: tuple[str, ...]) -> Iterator[tuple[str, Column]]:
        for field in kind.fields:
            path = (*names, field.name)
            if isinstance(field.dataType, Struct):
                yield from walk(field.dataType, path)
            else:
                quoted = ".".join(f"`{name}`" for name in ("key", *path))
                yield ".".join(path), F.col(quoted)

    key = schema["key"].dataType if "key" in schema.names else None
    return dict(walk(key, ())) if isinstance(key, Struct) else {}


def counted_and_shown(frame: DataFrame, limit: int) -> tuple[int, list[Any]]:
    """How many rows there are, and the first few as plain data."""
    from pyspark.sql import functions as F

    shown = (
        frame.limit(limit).select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect() if limit else []
    )
    return frame.count(), [json.loads(row[0]) for row in shown]


def _variables(properties: str) -> Iterator[tuple[str, dict[str, str]]]:
    facts = json.loads(properties)
    for variable in facts.get("stateVariables", ()):
        name = str(variable["stateName"])
        # Spark keeps timers beside the variables, under a name of its own.
        if not name.startswith("$"):
            yield f"variable {name}", {"stateVarName": name}
    if facts.get("timeMode", "NoTime") != "NoTime":
        yield "timers", {"readRegisteredTimers": "true"}
