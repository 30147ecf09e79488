"""The tables and broadcasts of one query that are recomputed while it runs: each version a directory of files.

Spark fixes the bounded side of a join when the query is started, and a batch that is made again after a crash has to
see what it saw before. So each version is kept, and the record says from which batch on it counts. Each query keeps its
own, so that one process alone writes a directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.checkpoint import Checkpoint
from headrace.errors import CheckFailed, Finding, HeadraceError
from headrace.frames.plan_builder import TableRefused, build, value_of
from headrace.generations.log import QueryLayout
from headrace.model import NamedSource, Project, Query, Table
from headrace.spark.jvm.hadoop_files import escape_pattern
from headrace.spark.jvm.settings import WHOLE_JSON
from headrace.spark.messages.failures import python_error
from headrace.spark.messages.refusals import sentence_of
from headrace.spark.stream import broadcasts
from headrace.spark.stream.broadcasts import pickle_value, unpickle_value
from headrace.storage import json_lines
from headrace.storage.durable import publish, remove_tree
from headrace.storage.private import writing_to

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

# How many versions of a table outlive the newest one, for `verify`.
KEPT = 100
_FACTS = "_version.json"
_VALUE = "value.pickle"
_GOES_ON = "; it continues with the last version"


@dataclass(frozen=True, kw_only=True)
class Version:
    """What is known of one version; `digest` is the same for the same rows in any order.

    schema: Spark's JSON; empty for the value of a broadcast.
    """

    schema: str
    digest: str
    at: str


class Tables:
    """The versions of one generation of a query's tables; none if its sink keeps nothing either.

    faults: of the tables that continue with their last version since the start.
    """

    def __init__(self, project: Project, query: Query, layout: QueryLayout, spark: SparkSession) -> None:
        declared = project.refreshed_tables_of(query) if query.sink.facts.durable else ()
        self.declared = {table.name: table for table in declared}
        self.record = TableVersions(layout.table_record)
        self._project = project
        self._query = query
        self._home = layout.tables
        self._checkpoint = Checkpoint(layout.checkpoint)
        self._spark = spark
        self._sent: dict[tuple[str, int], Broadcast[Any]] = {}
        self.faults: dict[str, Finding] = {}

    @property
    def next_batch(self) -> int:
        """The first batch that was not committed."""
        committed = self._checkpoint.last_committed
        return 0 if committed is None else committed + 1

    def planned_versions(self) -> dict[str, int] | None:
        """Return the versions with which a batch was begun that was not committed; None if there is no such batch."""
        last = self._checkpoint.last_batch
        if not self.declared or last is None or last == self._checkpoint.last_committed:
            return None
        versions = self.record.in_force(last)
        return versions if set(versions) == set(self.declared) and not self.missing_versions(versions) else None

    def missing_versions(self, versions: Mapping[str, int]) -> tuple[str, ...]:
        """Return the tables whose version was removed."""
        return tuple(name for name, number in versions.items() if self.version(name, number) is None)

    def begin(self) -> tuple[dict[str, int], tuple[Finding, ...]]:
        """Compute every table; return the versions, and a finding for each that continues with its last version.

        Raises CheckFailed for a table that has no version yet.
        """
        versions: dict[str, int] = {}
        notes, self.faults = tuple(self._lost_versions()), {}
        last = self.record.latest()
        self._sweep()
        for name in self.declared:
            try:
                versions[name] = self.compute(name, {**last, **versions})
            except CheckFailed as error:
                if name not in last or self.missing_versions({name: last[name]}):
                    raise
                versions[name] = last[name]
                self.faults[name] = error.findings[0].with_severity("warning")
        return versions, (*notes, *self.faults.values())

    def compute(self, name: str, versions: Mapping[str, int], *, same_schema: bool = False) -> int:
        """Compute a table over the others' `versions`, and keep it; the number is the old one if nothing has changed.

        Raises CheckFailed when it cannot be computed, or has other columns although they must be the same.
        """
        table = self.declared[name]
        number = self._free(name)
        making = self._home / name / f".{number}"
        try:
            names = [thing.name for thing in self._project.upstream(table.transform) if thing.name in self.declared]
            others = {other: self.frame(other, versions[other]) for other in names}
            fresh = self._value(table, others, making) if table.broadcast else self._rows(table, others, making)
            before = self.version(name, versions[name]) if name in versions else None
            if same_schema and before is not None and _shape(fresh) != _shape(before):
                raise TableRefused(self._other_columns(table, before, fresh))
            if before is not None and (fresh.digest, _shape(fresh)) == (before.digest, _shape(before)):
                return versions[name]
            (making / _FACTS).write_text(json.dumps(asdict(fresh)), encoding="utf-8")
            publish(making, self._home / name / str(number), last=(_FACTS,))
        except Exception as error:
            raise CheckFailed(self._failure(table, error, versions)) from error
        finally:
            with suppress(OSError):
                remove_tree(making)
        return number

    def _rows(self, table: Table, others: Mapping[str, Any], making: Path) -> Version:
        frame = build(self._project, table.transform, self._spark, _no_source, others)
        frame.write.mode("overwrite").parquet(str(making))
        written = self._spark.read.schema(frame.schema).parquet(escape_pattern(str(making)))
        return Version(schema=frame.schema.json(), digest=digest(written), at=_now())

    def _value(self, table: Table, others: Mapping[str, Any], making: Path) -> Version:
        value = value_of(self._project, table, self._spark, _no_source, others)
        making.mkdir(parents=True, exist_ok=True)
        (making / _VALUE).write_bytes(pickle_value(value))
        return Version(schema="", digest=broadcasts.digest(value), at=_now())

    def frames(self, versions: Mapping[str, int]) -> dict[str, Any]:
        """Return the tables and broadcasts in these versions."""
        return {name: self.frame(name, number) for name, number in versions.items()}

    def frame(self, name: str, number: int) -> Any:
        """Return a table or a broadcast in one version; raises CheckFailed if it was removed."""
        from pyspark.sql.types import StructType

        version = self.version(name, number)
        word = self.declared[name].word
        if version is None:
            raise CheckFailed(
                code="HR563",
                what=f"version {number} of the {word} '{name}' of query '{self._query.name}' is gone from {self._home}",
                fix="start the query again: it computes its tables; let nothing else remove files there",
                where=self.declared[name].where,
            )
        place = self._home / name / str(number)
        if not version.schema:
            if (name, number) not in self._sent:
                value = unpickle_value((place / _VALUE).read_bytes())
                self._sent[name, number] = broadcasts.broadcast(self._spark, value, refreshed=name)
            return self._sent[name, number]
        schema = StructType.fromJson(json.loads(version.schema))
        return self._spark.read.schema(schema).parquet(escape_pattern(str(place)))

    def version(self, name: str, number: int) -> Version | None:
        """Return what is known of a version; None if it was removed or cannot be read."""
        try:
            return Version(**json.loads((self._home / name / str(number) / _FACTS).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def enter(self, versions: Mapping[str, int]) -> None:
        """Record that the next batch is the first with `versions`, unless it is known; and let old versions go."""
        if self.declared and self.record.enter(self.next_batch, versions):
            self._sweep()
        for name, number in [key for key in self._sent if versions.get(key[0]) != key[1]]:
            broadcasts.release(self._sent.pop((name, number)))

    def _lost_versions(self) -> Iterator[Finding]:
        """Whether a batch that comes again will see another version than the first time, for its own was removed."""
        last = self._checkpoint.last_batch
        if last is None or last == self._checkpoint.last_committed:
            return
        versions = self.record.in_force(last)
        for name in self.missing_versions({name: number for name, number in versions.items() if name in self.declared}):
            yield Finding(
                code="HR563",
                what=f"batch {last} of query '{self._query.name}' was begun with a version of the "
                f"{self.declared[name].word} '{name}' that is gone, and is made again with a new one",
                fix=f"look at that batch's rows; let nothing else remove files below {self._home}",
                where=self.declared[name].where,
                severity="warning",
            )

    def _sweep(self) -> None:
        """Remove what a killed process left half made or unused, and all but the newest versions."""
        uses = self.record.uses()
        for folder in self._home.glob("*"):
            used = list(dict.fromkeys(use.versions.get(folder.name) for use in reversed(uses)))
            pickle_value = {str(number) for number in used[: KEPT + 1]}
            for version in folder.iterdir():
                if version.name not in pickle_value:
                    with suppress(OSError):
                        remove_tree(version)

    def _free(self, name: str) -> int:
        there = [int(path.name) for path in (self._home / name).glob("[0-9]*") if path.name.isdigit()]
        used = [use.versions.get(name, 0) for use in self.record.uses()]
        return max([0, *there, *used]) + 1

    def _failure(self, table: Table, error: Exception, versions: Mapping[str, int]) -> Finding:
        if isinstance(error, TableRefused):
            return error.findings[0]
        if isinstance(error, HeadraceError):
            reason, where = error.findings[0].what, error.findings[0].where
        else:
            reason, where = python_error(str(error)) or sentence_of(error), table.transform.where
        return Finding(
            code="HR561",
            what=f"{table.whose} of query '{self._query.name}' could not be computed: {reason}"
            + (_GOES_ON if table.name in versions else ""),
            fix="correct the cause; a running query tries again at the next interval",
            where=where,
        )

    def _other_columns(self, table: Table, before: Version, fresh: Version) -> Finding:
        return Finding(
            code="HR562",
            what=f"table '{table.name}' of query '{self._query.name}' has other columns than at the start: "
            f"{_text(fresh)} in place of {_text(before)}{_GOES_ON}",
            fix="stop the query, make it fit the new columns, and start it again; or bring the old columns back",
            where=table.where,
        )


def digest(frame: DataFrame) -> str:
    """Return the same text for frames that hold the same rows, in whatever order, and another one for others."""
    from pyspark.sql import functions as F

    columns = [_hashable(field) for field in frame.schema]
    # Spark's hash passes over a NULL, so that (NULL, 1) and (1, NULL) would be alike.
    nulls = [F.col(_quote(field.name)).isNull() for field in frame.schema]
    row = F.xxhash64(*columns, *nulls)
    total = frame.select(row.alias("row")).agg(
        F.count(F.lit(1)), F.sum(F.col("row").cast("decimal(38,0)")), F.bit_xor("row")
    )
    return " ".join(str(value) for value in total.collect()[0])


def _hashable(field: StructField) -> Column:
    """Return a column as Spark can hash it; what has parts, as text, with all its NULLs and microseconds."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import AtomicType, VariantType

    column = F.col(_quote(field.name))
    if isinstance(field.dataType, AtomicType) and not isinstance(field.dataType, VariantType):
        return column
    return F.to_json(F.struct(column), WHOLE_JSON)


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _shape(version: Version) -> list[tuple[str, str]]:
    """Names and types; files know no column that may not be NULL."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(version.schema)) if version.schema else StructType()
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _text(version: Version) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in _shape(version))


def _no_source(source: NamedSource) -> DataFrame:
    """Raise for a source: a table reads none, as `check` says before any start."""
    raise CheckFailed(code="HR253", what=f"a table reads the source '{source.name}'", where=source.where)


@dataclass(frozen=True, kw_only=True)
class Use:
    """From batch `from_batch` on, until another line says otherwise, these versions by the table's name."""

    from_batch: int
    versions: Mapping[str, int]
    at: str


@dataclass(frozen=True)
class TableVersions:
    """An append-only file; one process writes, any may read.

    A line is written before Spark is started over the versions that it names. So a batch that was planned was planned
    after its line, and a line that a crash cut off has no batch.
    """

    path: Path

    def uses(self) -> list[Use]:
        """Return every whole line, oldest first."""
        uses = []
        for line in json_lines.read(self.path, skip="any"):
            with suppress(TypeError):
                uses.append(Use(**line))
        return uses

    def in_force(self, batch: int) -> dict[str, int]:
        """Return the versions that `batch` is or was made with; of two lines the later counts, as after a rewind."""
        return in_force(self.uses(), batch)

    def latest(self) -> dict[str, int]:
        """Return the version of each table that was used last."""
        versions: dict[str, int] = {}
        for use in self.uses():
            versions.update(use.versions)
        return versions

    def enter(self, from_batch: int, versions: Mapping[str, int]) -> bool:
        """Write that batches from `from_batch` on are made with `versions`; False where that is known."""
        if self.in_force(from_batch) == versions:
            return False
        with writing_to(self.path.parent):
            json_lines.append(self.path, [asdict(Use(from_batch=from_batch, versions=dict(versions), at=_now()))])
        return True


def in_force(uses: Sequence[Use], batch: int) -> dict[str, int]:
    """Return the versions that the last of `uses` for `batch` names."""
    return next((dict(use.versions) for use in reversed(uses) if use.from_batch <= batch), {})
