"""What is asked of a Delta table beside what Spark's readers and writers do, by Delta's own classes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.connectors.delta.log import LOG, Add, Commit, commit, file_name, in_order, local, local_commits
from headrace.errors import Finding, HeadraceError
from headrace.spark.jvm.gateway import java_session, jvm_of
from headrace.spark.jvm.session_conf import activate
from headrace.spark.messages.refusals import first_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME = re.compile(r"(?:spark_catalog\.)?(?:\w+\.)?\w+")
# How many versions of the log are read at once where the newest ones are looked through.
_TOGETHER = 8
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
    def has_rows(self) -> bool:
        found = self.snapshot.checksumOpt()
        return int(found.get().numFiles() if found.isDefined() else self.snapshot.numOfFiles()) > 0

    @property
    def txn_ids(self) -> dict[str, int]:
        """The transaction identifiers of all writers, each with its last version.

        Delta keeps them in the checksum beside the log of a version; where they are not there, a job of Spark replays
        the log.
        """
        checksum = self.snapshot.checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        found = known.get() if known.isDefined() else self.snapshot.setTransactions()
        each = [found.apply(at) for at in range(found.size())]
        return {str(mark.appId()): int(mark.version()) for mark in each}

    @property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.snapshot.metadata().schemaString()))

    @property
    def partitions(self) -> list[str]:
        found = self.snapshot.metadata().partitionColumns()
        return [str(found.apply(at)) for at in range(found.size())]

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
        found = self.snapshot.allFiles().collect()
        adds = {}
        for at in range(len(found)):
            vector = found[at].deletionVector()
            adds[str(found[at].path()), "" if vector is None else str(vector.uniqueId())] = str(found[at].json())
        return adds

    def rows(self) -> DataFrame:
        """What a batch query reads of this version."""
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
        found = self.table.log.createDataFrame(
            self.snapshot, jvm.PythonUtils.toSeq(adds), False, jvm.scala.Option.empty()
        )
        return DataFrame(found, self.table.spark)


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
            found = {each.version: each for each in local_commits(place, first, last)}
        else:
            found = self._read(wanted)
        if missing := [version for version in wanted if version not in found]:
            raise LogCutError(f"version {missing[0]}")
        return found

    def newest_first(self, version: int) -> Iterator[Commit]:
        """The versions from `version` down to the oldest that the log still has."""
        while version >= 0:
            first = max(0, version - _TOGETHER + 1)
            try:
                found = self.commits(first, version)
            except LogCutError:
                if first == version:
                    return
                try:
                    found = self.commits(version, version)
                except LogCutError:
                    return
                first = version
            yield from (found[each] for each in range(version, first - 1, -1))
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

    def mark(self, txn_ids: Mapping[str, int], *, seen: Mapping[str, int]) -> bool:
        """Enter transaction identifiers in a version of their own, if those of `seen` still have these values.

        False where another writer was quicker; then nothing was written.
        """
        jvm = jvm_of(self.spark)
        # Delta takes a commit's note from the settings of the session that is active in the thread.
        activate(self.spark)
        delta = jvm.org.apache.spark.sql.delta
        transaction = self.log.startTransaction()
        known = State(self, transaction.snapshot()).txn_ids
        for app in {*txn_ids, *seen}:
            # What Delta's `txnVersion` does as well, which replays the log: no other writer may enter them meanwhile.
            transaction.readTxn().append(app)
            if known.get(app, -1) != seen.get(app, -1):
                return False
        now = jvm.scala.Option.apply(int(time.time() * 1000))
        actions = jvm.java.util.ArrayList()
        for app, version in txn_ids.items():
            actions.add(delta.actions.SetTransaction(app, version, now))
        # It says that no file changes: after a `ManualUpdate` Delta replays the whole log for the version's checksum.
        operation = getattr(delta, "DeltaOperations$EmptyCommit$").__getattr__("MODULE$")
        try:
            transaction.commit(jvm.PythonUtils.toSeq(actions), operation)
        except Exception as error:
            if "DELTA_CONCURRENT" in str(error):
                return False
            raise
        return True

    def restore(self, former: State, txn_ids: Mapping[str, int], *, seen: State) -> bool:
        """Let the table have the files of `former`, in a version of its own with these transaction identifiers.

        False where the table is no longer as it was `seen`; then nothing was written.
        """
        jvm = jvm_of(self.spark)
        activate(self.spark)
        delta = jvm.org.apache.spark.sql.delta
        transaction = self.log.startTransaction()
        if int(transaction.snapshot().version()) != seen.version:
            return False
        # What comes in between is in the way, whatever it changes.
        transaction.readWholeTable()
        for app in txn_ids:
            transaction.txnVersion(app)
        then, now = former.actions, seen.actions
        actions = jvm.java.util.ArrayList()
        for place in now.keys() - then.keys():
            actions.add(delta.actions.Action.fromJson(now[place]).remove())
        for place in then.keys() - now.keys():
            actions.add(delta.actions.Action.fromJson(then[place]))
        moment = jvm.scala.Option.apply(int(time.time() * 1000))
        for app, version in txn_ids.items():
            actions.add(delta.actions.SetTransaction(app, version, moment))
        operation = getattr(delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        try:
            transaction.commit(jvm.PythonUtils.toSeq(actions), operation)
        except Exception as error:
            if "DELTA_CONCURRENT" in str(error):
                return False
            raise
        return True

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


def require_delta(spark: SparkSession, error: type[HeadraceError]) -> None:
    """Raise `error` where the session has no Delta Lake."""
    missing = []
    if _EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")):
        missing.append(f"spark.sql.extensions does not name {_EXTENSION}")
    if spark.conf.get("spark.sql.catalog.spark_catalog", "") != _CATALOG:
        missing.append(f"spark.sql.catalog.spark_catalog is not {_CATALOG}")
    if missing:
        what = f"the Spark session has no Delta Lake: {' and '.join(missing)}"
        fix = "let Headrace start the session, or start your own with Delta's jars and these two settings"
        raise error(Finding(code="HR125", what=what, fix=fix))


def at_path(spark: SparkSession, path: str, error: type[HeadraceError]) -> DeltaTable | None:
    """The table in a directory; None where there is none. Raises `error` where its log cannot be read."""
    jvm = jvm_of(spark)
    with _translate_errors(path, error):
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
        table = DeltaTable(spark, log)
        return table if table.now().version >= 0 else None


def named(spark: SparkSession, name: str, error: type[HeadraceError]) -> tuple[DeltaTable | None, str]:
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


@contextmanager
def _translate_errors(name: str, error: type[HeadraceError]) -> Iterator[None]:
    """Let what Delta says of a log that it cannot read be one finding."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as cause:
        what = f"the log of the Delta table '{name}' cannot be read: {first_sentence(cause)}"
        fix = "restore the files of its directory _delta_log, or the right to read them, and start again"
        raise error(Finding(code="HR349", what=what, fix=fix)) from cause
