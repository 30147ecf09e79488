"""What a query keeps as state: its operators, their columns, how many keys, and samples of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.directory import Part, StateOperator
from headrace.errors import CheckpointError
from headrace.frames.project_session import borrow
from headrace.generations.blame import name_command
from headrace.generations.facts import StartFacts, require_usable
from headrace.model import Project, Query
from headrace.spark.jvm.session_conf import apply_settings
from headrace.spark.messages.refusals import sentence_of
from headrace.spark.stream.state import PARTITIONS, read_state
from headrace.starter.state_store import checkpoint_format
from headrace.storage.durable import size_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN = "symmetricHashJoin"


@dataclass(frozen=True, kw_only=True)
class StatePart:
    """A part of an operator's state.

    name: a side of a join, or a variable of a processor; empty where the operator has one part. key, value: the columns
    and their types, as Spark writes a schema. rows: how many the part has. sample: some of them, `key` and `value` each
    by its columns.
    """

    name: str
    key: str
    value: str
    rows: int
    sample: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """The state of one operator. size_bytes: of its files, those of older batches among them."""

    number: int
    name: str
    partitions: int
    size_bytes: int
    parts: tuple[StatePart, ...]


@dataclass(frozen=True, kw_only=True)
class StateLook:
    """The state of a query after a batch.

    Attributes:
        batch: The batch.
        operators: The operators with their columns, rows and samples.
    """

    query: str
    batch: int
    operators: tuple[OperatorState, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain data, for `--json`."""
        return asdict(self)


def show_state(
    project: Project,
    query: str,
    *,
    key: Mapping[str, str] | None = None,
    batch: int | None = None,
    limit: int = 5,
    spark: SparkSession | None = None,
) -> StateLook:
    """Read the state that `batch` of `query` (None: the last committed one) left; nothing is changed.

    key: only rows whose key has these values, by the names of its columns. limit: so many samples of each part.
    Raises CheckpointError where there is no state, or Spark has none of that batch any more.
    """
    declared = project.queries[query]
    facts = StartFacts.read(project, declared)
    with name_command(declared):
        require_usable(facts)
        checkpoint, partitions, last = facts.checkpoint, facts.partitions, facts.last_committed
        if last is None or partitions is None:
            raise _missing(declared, "it keeps no state", f"run it first: headrace run {query}, if it is to keep some")
        if batch is not None and batch > last:
            raise _missing(declared, f"batch {batch} is not committed", f"name one up to {last}")
        shown = last if batch is None else batch
        settings = {PARTITIONS: str(partitions), **checkpoint_format(project, checkpoint)}
        with borrow(project, spark) as session, apply_settings(session, settings):
            operators = _operators(session, declared, checkpoint, shown, key or {}, limit)
            return StateLook(query=query, batch=shown, operators=tuple(operators))


def _operators(
    spark: SparkSession, query: Query, checkpoint: Checkpoint, batch: int, key: Mapping[str, str], limit: int
) -> Iterator[OperatorState]:
    for operator in checkpoint.state_operators():
        folder = checkpoint.root / Part.STATE / str(operator.number)
        try:
            parts = tuple(
                _part(query, name, frame, key, limit) for name, frame in _frames(spark, checkpoint, operator, batch)
            )
        except CheckpointError:
            raise
        except Exception as error:
            problem = f"Spark cannot read what batch {batch} left in operator {operator.number}: {sentence_of(error)}"
            raise _missing(
                query, problem, "name a newer batch with --batch; Spark keeps the newest ones alone"
            ) from error
        yield OperatorState(
            number=operator.number,
            name=operator.name,
            partitions=operator.partitions,
            size_bytes=size_of(folder),
            parts=parts,
        )


def _part(query: Query, name: str, frame: DataFrame, key: Mapping[str, str], limit: int) -> StatePart:
    # A variable that is a list or a map has columns of its own names after the key.
    held = [column for column in frame.columns if column not in ("key", "partition_id")]
    chosen = _filter_by_key(query, frame, key)
    return StatePart(
        name=name,
        key=frame.schema["key"].dataType.simpleString(),
        value=", ".join(f"{part} {frame.schema[part].dataType.simpleString()}" for part in held),
        rows=chosen.count(),
        sample=tuple(row.asDict(recursive=True) for row in chosen.select("key", *held).limit(limit).collect()),
    )


def _frames(
    spark: SparkSession, checkpoint: Checkpoint, operator: StateOperator, batch: int
) -> Iterator[tuple[str, DataFrame]]:
    """Yield the parts of an operator's state by their names."""
    option, names = ("joinSide", ("left", "right")) if operator.name == JOIN else ("stateVarName", operator.variables)
    for name in names or ("",):
        options = {option: name} if name else {}
        yield name, read_state(spark, checkpoint.root, operator=operator.number, batch=batch, options=options)


def _filter_by_key(query: Query, frame: DataFrame, key: Mapping[str, str]) -> DataFrame:
    """Return the rows with these values in the key, each read as the column's type."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kind = frame.schema["key"].dataType
    fields = {field.name: field.dataType for field in kind.fields} if isinstance(kind, StructType) else {}
    for name, value in key.items():
        if name not in fields:
            raise _missing(query, f"its state has no key column '{name}'", f"name one of: {', '.join(fields)}")
        column = F.col("key").getField(name)
        frame = frame.where(column.cast("string") == value if value else column.isNull())
    return frame


def _missing(query: Query, problem: str, fix: str) -> CheckpointError:
    return CheckpointError(code="HR588", what=f"the state of query '{query.name}' cannot be shown: {problem}", fix=fix)
