"""What the state of a query holds after a committed batch: operators, stores, schemas, rows, bytes and some keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headrace.build.project_session import borrowed
from headrace.checkpoint import Checkpoint
from headrace.errors import CheckFailed, Finding, HeadraceError, nearest
from headrace.model import Project, Query
from headrace.model.layout import QueryLayout, latest_generation
from headrace.run.checkpoint_facts import size_of
from headrace.spark.messages import sentence_of
from headrace.spark.state_reader import StateStore, counted_and_shown, key_fields, state_rows, state_stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class StoreShown:
    """One thing that an operator keeps: its columns, how many rows it has, of which some are shown.

    rows: those with the asked key alone, if one was asked for.
    """

    operator: int
    operator_name: str
    name: str
    partitions: int
    columns: tuple[str, ...]
    rows: int
    shown: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class StateShown:
    """The state of a query after `batch`. sizes_bytes: of each operator's files, all their versions together."""

    query: str
    batch: int
    stores: tuple[StoreShown, ...]
    sizes_bytes: Mapping[int, int]

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return asdict(self)


def show_state(
    project: Project,
    query: Query,
    *,
    key: Mapping[str, str] | None = None,
    limit: int = 10,
    batch: int | None = None,
    spark: SparkSession | None = None,
) -> StateShown:
    """The state of `query` after `batch`, or after the newest committed one; read by Spark, and left as it is.

    key: values by the names of the key's columns; stores whose key lacks one of them are left out. Raises CheckFailed.
    """
    layout = QueryLayout(project.storage, query.name, latest_generation(project.storage, query.name))
    checkpoint = Checkpoint(layout.checkpoint)
    committed = checkpoint.last_committed
    if committed is None:
        raise _unshown(query, "it has committed no batch", f"run it first: headrace run {query.name}")
    if not checkpoint.state_operators():
        raise _unshown(query, "it keeps none", "nothing is to be done")
    number = committed if batch is None else batch
    if number > committed:
        raise _unshown(query, f"batch {number} is not committed", f"name one up to {committed}")
    try:
        with borrowed(project, spark) as session:
            found = list(state_stores(session, checkpoint.root))
            shown = tuple(_shown(session, query, checkpoint, found, number, key or {}, limit))
    except HeadraceError:
        raise
    except Exception as error:
        fix = f"look at the checkpoint: headrace inspect checkpoint {query.name}"
        fix += "" if batch is None else "; Spark keeps the state of about the last 100 batches"
        raise _unshown(query, f"Spark cannot read it after batch {number}: {sentence_of(error)}", fix) from error
    sizes = {number: size_of(checkpoint.root / "state" / str(number)) for number in {each.operator for each in found}}
    return StateShown(query=query.name, batch=number, stores=shown, sizes_bytes=dict(sorted(sizes.items())))


def _shown(
    session: SparkSession,
    query: Query,
    checkpoint: Checkpoint,
    stores: list[StateStore],
    batch: int,
    key: Mapping[str, str],
    limit: int,
) -> list[StoreShown]:
    found, known = [], set[str]()
    for store in stores:
        frame = state_rows(session, checkpoint.root, store, batch)
        fields = key_fields(frame.schema)
        known |= set(fields)
        if not set(key) <= set(fields):
            continue
        for name, value in key.items():
            frame = frame.where(fields[name].cast("string") == value)
        rows, shown = counted_and_shown(frame, limit)
        found.append(
            StoreShown(
                operator=store.operator,
                operator_name=store.operator_name,
                name=store.name,
                partitions=store.partitions,
                columns=tuple(f"{each.name} {each.dataType.simpleString()}" for each in frame.schema.fields),
                rows=rows,
                shown=tuple(shown),
            )
        )
    if key and not found:
        missing = next((name for name in key if name not in known), min(key))
        raise _unshown(query, f"no operator's key has the column '{missing}'", nearest(missing, known))
    return found


def _unshown(query: Query, why: str, fix: str) -> CheckFailed:
    what = f"the state of query '{query.name}' cannot be shown: {why}"
    return CheckFailed(Finding(code="HR586", what=what, fix=fix, where=query.where))
