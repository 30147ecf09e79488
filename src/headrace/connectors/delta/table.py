"""A Delta table by Delta's own classes, for all that Spark's readers and writers do not offer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.connectors.delta.log import LOG, Add, Commit, commit, file_name, in_order, local, local_commits
from headrace.connectors.exactly_once import Conflict
from headrace.connectors.spark_catalog import no_name, quote, require_database
from headrace.contract import Identity, OptionError, canonical_path, canonical_table
from headrace.errors import HeadraceError, SinkError, SourceError
from headrace.spark.jvm.gateway import java_session, jvm_of
from headrace.spark.jvm.session_conf import activate
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# How many versions of the log are read at once where the newest ones are looked through.
_TOGETHER = 8
# What Delta's errors about another writer's commit begin with, and the setting that is a commit's note.
CONFLICTS = "DELTA_CONCURRENT"
NOTE = "spark.databricks.delta.commitInfo.userMetadata"
CREATE = "create it, or correct its name; a query that writes it must have started before"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


class LogCutError(Exception):
    """Versions of the log are asked for that are no longer there; the message names the first."""


@dataclass(frozen=True)
class State:
    """A table as it is at one version."""

    table: DeltaTable
    snapshot: Any

    @property
    def version(self) -> int:
        return int(self.snapshot.version())

    @property
    def id(self) -> str:
        """Drawn when the table was created, or created again."""
        return str(self.snapshot.metadata().id())

    @property
    def timestamp_ms(self) -> int:
        return int(self.snapshot.timestamp())

    def table_property(self, name: str) -> str | None:
        """A property of the table; None where it is not set."""
        value = self.snapshot.metadata().configuration().get(name)
        return str(value.get()) if value.isDefined() else None

    @property
    def has_rows(self) -> bool:
        checksum = self.snapshot.checksumOpt()
        return int(checksum.get().numFiles() if checksum.isDefined() else self.snapshot.numOfFiles()) > 0

    @cached_property
    def txn_ids(self) -> dict[str, int]:
        """The transaction identifiers of all writers, each with its last version.

        Delta keeps them in the checksum next to the log of a version; where they are not there, a job of Spark replays
        the log.
        """
        checksum = self.snapshot.checksumOpt()
        kept = checksum.get().setTransactions() if checksum.isDefined() else checksum
        transactions = kept.get() if kept.isDefined() else self.snapshot.setTransactions()
        marks = [transactions.apply(at) for at in range(transactions.size())]
        return {str(mark.appId()): int(mark.version()) for mark in marks}

    @property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.snapshot.metadata().schemaString()))

    @property
    def partitions(self) -> list[str]:
        columns = self.snapshot.metadata().partitionColumns()
        return [str(columns.apply(at)) for at in range(columns.size())]

    def files(self) -> list[Add]:
        """Every file, in the order in which a stream reads them."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        every = DataFrame(self.snapshot.allFiles().toDF(), self.table.spark)
        lines = every.drop("stats").select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
        return in_order([json.loads(line[0]) for line in lines])

    @cached_property
    def actions(self) -> dict[tuple[str, str], str]:
        """The action that adds each file, as Delta's JSON, by its path and its deleted rows."""
        files = self.snapshot.allFiles().collect()
        adds = {}
        for at in range(len(files)):
            vector = files[at].deletionVector()
            adds[str(files[at].path()), "" if vector is None else str(vector.uniqueId())] = str(files[at].json())
        return adds

    def enter(self, txn_ids: Mapping[str, int], *, seen: Mapping[str, int] | None = None) -> None:
        """Enter transaction identifiers in a version of their own, if they still have the values that they had here.

        seen: the values that they must have instead. Raises Conflict where another writer was quicker; then nothing
        was written.
        """
        if seen is None:
            seen = {app: self.txn_ids[app] for app in txn_ids if app in self.txn_ids}
        transaction = self.table.begin()
        current = State(self.table, transaction.snapshot()).txn_ids
        for app in txn_ids:
            # What Delta's `txnVersion` does as well, which replays the log: no other writer may enter them meanwhile.
            transaction.readTxn().append(app)
            if current.get(app, -1) != seen.get(app, -1):
                raise Conflict("another writer was quicker")
        # It says that no file changes: after a `ManualUpdate` Delta replays the whole log for the version's checksum.
        self.table.finish(transaction, (), txn_ids, "EmptyCommit")

    def restore(self, former: State, txn_ids: Mapping[str, int]) -> None:
        """Restore the files of `former`, in a version of its own with these transaction identifiers.

        Raises Conflict where the table is no longer as it is here; then nothing was written.
        """
        transaction = self.table.begin()
        if int(transaction.snapshot().version()) != self.version:
            raise Conflict("another writer was quicker")
        # What comes in between is in the way, whatever it changes.
        transaction.readWholeTable()
        for app in txn_ids:
            transaction.txnVersion(app)
        action = jvm_of(self.table.spark).org.apache.spark.sql.delta.actions.Action
        then, now = former.actions, self.actions
        removes = [action.fromJson(now[place]).remove() for place in now.keys() - then.keys()]
        adds = [action.fromJson(then[place]) for place in then.keys() - now.keys()]
        self.table.finish(transaction, (*removes, *adds), txn_ids, "ManualUpdate")

    def rows(self) -> DataFrame:
        """Read this version as a batch query does."""
        reader = self.table.spark.read.format("delta").option("versionAsOf", self.version)
        return reader.load(self.table.location)

    def rows_of(self, files: Iterable[Add]) -> DataFrame:
        """The rows of some files, which may belong to other versions, with this version's columns."""
        from pyspark.sql import DataFrame

        jvm = jvm_of(self.table.spark)
        actions = jvm.org.apache.spark.sql.delta.actions.Action
        adds = jvm.java.util.ArrayList()
        for add in files:
            plain = {name: value for name, value in add.items() if name != "stats"}
            adds.add(actions.fromJson(json.dumps({"add": plain})))
        frame = self.table.log.createDataFrame(
            self.snapshot, jvm.PythonUtils.toSeq(adds), False, jvm.scala.Option.empty()
        )
        return DataFrame(frame, self.table.spark)


@dataclass(frozen=True)
class DeltaTable:
    """A table, as Delta's log of it, in a session."""

    spark: SparkSession
    log: Any

    @property
    def location(self) -> str:
        return str(self.log.dataPath().toString())

    def now(self) -> State:
        """The newest version."""
        none = jvm_of(self.spark).scala.Option.empty()
        return State(self, self.log.update(False, none, none))

    def at(self, version: int) -> State:
        """An older version. Raises LogCutError."""
        none = jvm_of(self.spark).scala.Option.empty()
        try:
            return State(self, self.log.getSnapshotAt(version, none, none, False))
        except Exception as error:
            raise LogCutError(f"version {version}") from error

    def commits(self, first: int, last: int) -> dict[int, Commit]:
        """The versions from `first` to `last`. Raises LogCutError where one is missing."""
        wanted = range(first, last + 1)
        place = local(self.location)
        if place is not None:
            commits = {entry.version: entry for entry in local_commits(place, first, last)}
        else:
            commits = self._read(wanted)
        if missing := [version for version in wanted if version not in commits]:
            raise LogCutError(f"version {missing[0]}")
        return commits

    def newest_first(self, version: int) -> Iterator[Commit]:
        """The versions from `version` down to the oldest that the log still has."""
        together = _TOGETHER
        while version >= 0:
            first = max(0, version - together + 1)
            try:
                commits = self.commits(first, version)
            except LogCutError:
                if together == 1:
                    return
                together = 1
                continue
            yield from (commits[number] for number in range(version, first - 1, -1))
            version = first - 1

    def version_at(self, timestamp: str) -> int:
        """The version that a stream begins with which is to start at `timestamp`."""
        from pyspark.sql import functions as F

        jvm = jvm_of(self.spark)
        moment = F.unix_millis(F.lit(timestamp).cast("timestamp"))
        moment = jvm.java.sql.Timestamp(self.spark.range(1).select(moment).collect()[0][0])
        source = jvm.org.apache.spark.sql.delta.sources.DeltaSource
        session, none = java_session(self.spark), jvm.scala.Option.empty()
        return int(source.getStartingVersionFromTimestamp(session, self.log, none, moment, False))

    def begin(self) -> Any:
        """A transaction. Delta takes its note from the settings of the session that is active in the thread."""
        activate(self.spark)
        return self.log.startTransaction()

    def finish(self, transaction: Any, actions: Iterable[Any], txn_ids: Mapping[str, int], operation: str) -> None:
        """Commit actions with transaction identifiers. Raises Conflict where another writer was quicker."""
        jvm = jvm_of(self.spark)
        delta = jvm.org.apache.spark.sql.delta
        now = jvm.scala.Option.apply(int(time.time() * 1000))
        entered = jvm.java.util.ArrayList()
        for action in (*actions, *(delta.actions.SetTransaction(app, txn_ids[app], now) for app in txn_ids)):
            entered.add(action)
        made = getattr(delta, f"DeltaOperations${operation}$").__getattr__("MODULE$")
        try:
            transaction.commit(jvm.PythonUtils.toSeq(entered), made)
        except Exception as error:
            if CONFLICTS in str(error):
                raise Conflict(first_sentence(error)) from error
            raise

    def _read(self, versions: Sequence[int]) -> dict[int, Commit]:
        from pyspark.errors import AnalysisException

        paths = [f"{self.location}/{LOG}/{file_name(version)}" for version in versions]
        if not paths:
            return {}
        try:
            lines = self.spark.read.option("wholetext", True).text(paths).select("value", "_metadata.file_name")
        except AnalysisException as error:
            raise LogCutError(f"one of the versions {versions[0]} to {versions[-1]}") from error
        texts = {int(name.partition(".")[0]): text for text, name in lines.collect()}
        return {version: commit(version, text) for version, text in texts.items()}


@dataclass(frozen=True, kw_only=True)
class DeltaPlace:
    """Where a table is: its `path`, or the name `table` in Spark's own catalog.

    error: the kind by which its faults are reported, SourceError or SinkError.
    """

    path: str | None
    table: str | None
    error: type[HeadraceError]

    @property
    def text(self) -> str:
        return str(self.table if self.path is None else self.path)

    @property
    def directory(self) -> Path | None:
        """Its directory on this machine's file system; None elsewhere."""
        return None if self.path is None else local(self.path)

    @property
    def in_sql(self) -> str:
        if self.path is None:
            return str(self.table)
        return f"delta.{quote(str(self.directory.absolute() if self.directory else self.path))}"

    def __str__(self) -> str:
        return f"the Delta table '{self.text}'"

    def problems(self) -> Iterator[OptionError]:
        """Faults of the two options."""
        if (self.path is None) == (self.table is None):
            fault = "path and table are both given" if self.path is not None else "neither path nor table is given"
            yield OptionError(what=fault, fix="give one of the two")
        yield from no_name(self.table, "; or give the table's path")

    def identity(self) -> Identity:
        if self.path is None:
            return {"system": "catalog", "table": canonical_table(str(self.table)), "format": "delta"}
        return {"system": "delta", "path": canonical_path(self.path)}

    def find(self, spark: SparkSession) -> DeltaTable | None:
        """The table, None if there is none. Raises `error` for something else of its name, and without Delta Lake."""
        require_delta(spark, self.error)
        if self.path is not None:
            return at_path(spark, self.path, self.error)
        if self.error is SinkError:
            require_database(spark, str(self.table))
        table, kind = find_by_name(spark, str(self.table), self.error)
        if table is None and kind:
            code, fix = ("HR332", CREATE) if self.error is SourceError else ("HR419", "give the table another name")
            raise self.error(code=code, what=f"'{self.table}' is {kind} and no Delta table", fix=fix)
        return table


def require_delta(spark: SparkSession, error: type[HeadraceError]) -> None:
    """Raise `error` where the session has no Delta Lake."""
    missing = []
    if _EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        missing.append(f"spark.sql.extensions does not name {_EXTENSION}")
    if spark.conf.get("spark.sql.catalog.spark_catalog", "") != _CATALOG:
        missing.append(f"spark.sql.catalog.spark_catalog is not {_CATALOG}")
    if missing:
        fault = f"the Spark session has no Delta Lake: {' and '.join(missing)}"
        fix = "let Headrace start the session, or start your own with Delta's jars and these two settings"
        raise error(code="HR125", what=fault, fix=fix)


def at_path(spark: SparkSession, path: str, error: type[HeadraceError]) -> DeltaTable | None:
    """The table in a directory; None where there is none. Raises `error` where its log cannot be read."""
    jvm = jvm_of(spark)
    with _translate_errors(path, error):
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
        table = DeltaTable(spark, log)
        return table if table.now().version >= 0 else None


def find_by_name(spark: SparkSession, name: str, error: type[HeadraceError]) -> tuple[DeltaTable | None, str]:
    """The table of a name in Spark's own catalog; or None and the kind of what has that name, `` for nothing.

    Raises `error` where its log cannot be read.
    """
    if not spark.catalog.tableExists(name):
        return None, ""
    kind = str(spark.catalog.getTable(name).tableType)
    if kind not in ("MANAGED", "EXTERNAL"):
        return None, "a view"
    state = java_session(spark).sessionState()
    identifier = state.sqlParser().parseTableIdentifier(re.sub(r"^spark_catalog\.", "", name))
    provider = state.catalog().getTableMetadata(identifier).provider()
    if provider.isEmpty() or str(provider.get()).lower() != "delta":
        return None, f"a table of format {'hive' if provider.isEmpty() else provider.get()}"
    with _translate_errors(name, error):
        log = jvm_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), identifier)
        table = DeltaTable(spark, log)
        table.now()
        return table, "delta"


def forget(spark: SparkSession, path: str) -> None:
    """Clear what Delta caches of a table by the table's path."""
    jvm = jvm_of(spark)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(java_session(spark), jvm.org.apache.hadoop.fs.Path(path))


@contextmanager
def _translate_errors(name: str, error: type[HeadraceError]) -> Iterator[None]:
    """Raise what Delta says of a log that it cannot read as one finding."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as cause:
        fault = f"the log of the Delta table '{name}' cannot be read: {first_sentence(cause)}"
        fix = "restore the files of its directory _delta_log, or the right to read them, and start again"
        raise error(code="HR349", what=fault, fix=fix) from cause
