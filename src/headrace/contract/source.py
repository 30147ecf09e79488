"""The source: an unbounded input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.checkpoint.identity import log_offset
from headrace.checkpoint.sources import SourcePrefix
from headrace.contract.connector import Connector, OptionError, overrides
from headrace.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What a source promises, where it does not follow from what its class overrides.

    replayable: the same offsets always give the same rows, also in a new process.
    rate_limited: a batch's size can be bounded by an option of the source.
    continuous, real_time: the triggers of these names take it.
    ephemeral: it gives only what comes while the query runs: no start can resume from a checkpoint, and a trigger that
        ends by itself finds nothing.
    change_data: its rows are changes of a table; one more column, the struct `__change`, describes each change.
    own_order: no column of a change orders it, but what the source says of it.
    """

    replayable: bool
    rate_limited: bool = False
    continuous: bool = False
    real_time: bool = False
    ephemeral: bool = False
    change_data: bool = False
    own_order: bool = False


def bad_rows_metric(source: str) -> str:
    """Return the observed metric under which a quarantining source counts its bad rows, as column `rows`."""
    return f"headrace_bad_rows_{source}"


@dataclass(frozen=True, kw_only=True)
class Lag:
    """What a source still holds that no batch has taken yet. `unit` is the field's word: files, rows, messages.

    left_out: how many more no batch will ever take; changed: how many of them are no longer what a batch has read.
    problem: why no batch takes it now, as the end of a sentence; empty: the next batch does.
    oldest_ms: when the oldest of it came, in milliseconds since 1970: a message's timestamp, a file's modification
        time; None: not known, or nothing waits.
    at_ms: when it was so; None: now, or when what it stands in was written.
    """

    count: int
    unit: str
    bytes: int | None = None
    left_out: int = 0
    changed: int = 0
    problem: str = field(default="", compare=False)
    oldest_ms: int | None = field(default=None, compare=False)
    at_ms: int | None = field(default=None, compare=False)

    def waiting_seconds(self, now: float) -> float | None:
        """Return how long the oldest has waited at `now` (seconds since 1970); 0: nothing waits, None: not known."""
        if not self.count:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, now - self.oldest_ms / 1000)


class Source(Connector):
    """An unbounded input. To write: `facts` and `stream`; with `read`, `verify` can prove what was made of it.

    A bounded input is not a source: give a function that returns its DataFrame, for use under `@table`.

    object_kind: what `object_ids` gives ids of.
    """

    object_kind: ClassVar[str] = "table"

    @property
    @abstractmethod
    def facts(self) -> SourceFacts:
        """What this source, with its options, promises; a class-level value will do where no option matters."""

    @abstractmethod
    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a streaming DataFrame of the source, named `name` for Spark's source evolution.

        Called once for each start of each query that uses the source, and by checks; it must not read rows.
        """

    # -------------------------------------------------------------------------------------------- before a start

    def problems(self) -> Iterator[OptionError]:
        """Yield the faults of the options that can be seen without Spark; called without a JVM by each command."""
        return iter(())

    def declared_schema(self) -> str | None:
        """Return the schema of `stream` as a DDL text, where an option declares it, for checks."""
        return None

    def check_connection(self, spark: SparkSession) -> None:
        """Ask the system whether the source can be read; called before each start.

        Raises:
            SourceError: The system does not answer, or lacks what is to be read.
        """

    def ensure_available(self, prefix: SourcePrefix) -> None:
        """Report rows of `prefix` that can be seen, without a JVM, to be no longer there.

        Called before each start with the batches that were planned and not committed: Spark makes them again, and
        leaves out what is missing then without an error (files), or loses it.

        Raises:
            SourceError: Rows are missing.
        """

    def changed(self, prefix: SourcePrefix) -> OptionError | None:
        """Return what of `prefix` is seen, without a JVM, to differ from when its batches were planned.

        Asked before each start about the batches that were planned and not committed: the sink may hold them already,
        and state that is made again from other rows would not fit it. Such a start is refused.
        """
        return None

    def object_ids(self, spark: SparkSession) -> Mapping[str, str]:
        """Return the ids that the system gave to what is read, by name, as each topic's; '' where it gives none.

        They are kept before the first batch and compared before each later start: what has another id was deleted and
        created again under its name, and offsets in the former one mean nothing in it.
        """
        return {}

    @property
    def accepted_ids(self) -> Mapping[str, str]:
        """The ids, by name, that an option accepts in place of those that were kept."""
        return {}

    def compare_ids(self, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[OptionError]:
        """Yield what to report of ids that differ from those that were kept; an error: something was created again."""
        for name, id_ in sorted(now.items()):
            thing, former = f"{self.object_kind} '{name}'", before.get(name)
            if not id_:
                message = f"the id of {thing} is not known, so that it is not seen if it is deleted and created again"
                yield OptionError(code="HR347", what=message, fix="use a broker of Kafka 2.8 or newer", severity="note")
            elif former and id_ != former and id_ == self.accepted_ids.get(name):
                message = f"{thing} has another id than before, which is accepted: {id_}, was {former}"
                yield OptionError(code="HR538", what=message, severity="note")
            elif former and id_ != former:
                message = (
                    f"{thing} was deleted and created again: its id is {id_}, and was {former} when the query first "
                )
                fix = f"reset the query (headrace reset QUERY){self.accepting(name, id_)}"
                yield OptionError(code="HR346", what=f"{message}read it", fix=fix)

    def find_recreated(self, before: Mapping[str, str], now: Mapping[str, str]) -> OptionError | None:
        """Return the error for something whose id is not that of `before`, and which no option accepts, or None."""
        return next((problem for problem in self.compare_ids(before, now) if problem.severity == "error"), None)

    def require_same(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Refuse a source that was created again.

        Raises:
            SourceError: Something has another id `now` than `before`, and no option accepts it.
        """
        if problem := self.find_recreated(before, now):
            raise SourceError(code=problem.code, what=problem.what, fix=problem.fix)

    def ends_before(self, spark: SparkSession, prefix: SourcePrefix) -> OptionError | None:
        """Return the error for a source that now ends before the newest batch of `prefix`; no start can resume there.

        Asked before each start, before anything is written, and from time to time while the query runs.
        """
        return None

    def list_changes(
        self, spark: SparkSession, before: Mapping[str, str], now: Mapping[str, str], reached: SourcePrefix | None
    ) -> Iterator[OptionError]:
        """Yield what to report of a source against what was read of it; an error: no start can resume there.

        Args:
            spark: The session that asks.
            before: The ids of what was read.
            now: The ids of what is there.
            reached: The newest batch that was planned; None: there is none, or the source had no part in it.
        """
        yield from self.compare_ids(before, now)
        if reached is not None and self.find_recreated(before, now) is None:
            yield from filter(None, [self.ends_before(spark, reached)])

    def accepting(self, name: str, id_: str) -> str:
        """Return how an option accepts the new id, as the end of a fix."""
        return ""

    def starting_position(self) -> str:
        """Return where a query without a checkpoint begins, as the end of a sentence: `at the earliest messages`.

        Empty where there is no choice. Shown once, at the first start.
        """
        return ""

    def mismatch(self, prefix: SourcePrefix) -> str:
        """Return why a query that read `prefix` without Headrace cannot have read this source: the end of a sentence.

        Empty: nothing contradicts it. Asked without a JVM before a checkpoint is adopted; `prefix` holds the offsets
        and the log as Spark's own source has written them, which `stream` is to continue.
        """
        last = prefix.batches[-1].end if prefix.batches else None
        return "its offsets are those of a directory of files" if log_offset(last) is not None else ""

    def has_no_effect(self, option: str, value: str, log: Path) -> bool:
        """Return whether an option leaves all rows that a query has read as they are, so that its change has no effect.

        Args:
            option: An option that has changed; `place` stands for those that say which directory it is.
            value: The value before or after the change; both are asked about.
            log: Spark's own log of what the query has read, in its checkpoint.
        """
        return False

    def without_rate_limit(self) -> Source:
        """Return the same source without a bound on the size of batches, for a trigger that has none."""
        return self

    def parallelism(self, spark: SparkSession) -> int:
        """Return how many tasks read it all the time under the trigger continuous; each needs a core of its own."""
        return int(spark.sparkContext.defaultParallelism)

    # -------------------------------------------------------------------------------------------- read once more

    def unreachable(self, spark: SparkSession, prefix: SourcePrefix) -> str:
        """Return what of `prefix`, which a query has read, another one would not get from the beginning; '': nothing.

        Shown before a rebuild, as the end of a sentence: `its messages begin at offset 70 of partition 0`.
        """
        if self.facts.ephemeral or not self.facts.replayable:
            return "it does not keep what it has given, so that the new result would have none of it"
        try:
            self.ensure_available(prefix)
        except SourceError as error:
            return error.findings[0].what
        return ""

    def with_positions(self) -> tuple[Source, tuple[str, ...]] | None:
        """Return the same source, whose rows have the columns `partition` and `offset`, and those that this adds.

        Of two changes with one sequence the one with the later offset holds. None: it has no offsets.
        """
        return None

    def with_keys(self, keys: tuple[str, ...]) -> Source:
        """Return the same source of change data, which refuses a change whose key has other columns than `keys`."""
        return self

    def since(self, spark: SparkSession, prefix: SourcePrefix) -> Source:
        """Return the same source, whose first batch begins where that of `prefix` began, as far as its rows are there.

        It is read while another query runs, so it must take nothing away. Without batches: from the beginning.
        """
        return self

    def since_time(self, spark: SparkSession, at: datetime) -> Source | None:
        """Return the same source from what came at a time on, which has a zone; None: it cannot."""
        return None

    # -------------------------------------------------------------------------------------------- while it runs

    @property
    def archive_path(self) -> str | None:
        """The directory that files are moved to once they were read, each below its whole former path; None: none."""
        return None

    def lag(self, prefix: SourcePrefix) -> Lag | None:
        """Return what lies after `prefix`, read from the source itself without a JVM; None where that is not cheap.

        Called after a batch, at a scrape of the metrics and by commands, also while nothing runs, in a thread of its
        own: it may take some seconds, and a system that does not answer is None. `prefix` has the source's own log,
        which may be ahead, and the newest committed batch alone; none before the first.
        """
        return None

    def reported_lag(self, end: str, latest: str) -> Lag | None:
        """Return what lies between two offsets of Spark's: a batch's end, and the source's when it was planned.

        Called after each batch of which Spark reports both, in place of `lag`, so that no system is asked.
        """
        return None

    def left_out(self, prefix: SourcePrefix) -> Iterator[OptionError]:
        """Yield what lies in the source and is not given, for ever or so far; for `verify`, and now and then `run`.

        It starts no JVM. `prefix` has the source's own log, and perhaps the newest batch alone.
        """
        return iter(())

    def health(self, spark: SparkSession) -> OptionError | None:
        """Return what keeps a query that has begun its second batch from getting rows, of which Spark says nothing.

        Asked about once a second.
        """
        return None

    # -------------------------------------------------------------------------------------------- what it gave

    @property
    def readable_as_batch(self) -> bool:
        """Whether `read` works with these options; by default, whether there is one."""
        return overrides(self, "read")

    @property
    def columns_by_position(self) -> bool:
        """Whether the declared columns are those of the rows by their place, so that their order counts."""
        return False

    @property
    def quarantines(self) -> bool:
        """Whether rows that do not fit are quarantined with these options; by default, if `rejected_rows` is there.

        Such a source counts them in each batch's progress, under the observed metric that `bad_rows_metric` names.
        """
        return overrides(self, "rejected_rows")

    def read(self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str | None = None) -> DataFrame:
        """Return a batch DataFrame of exactly the rows of `prefix.batches`, with the schema of `stream`.

        Called by `verify` and the like, in a session of their own.

        Args:
            spark: The session to read in.
            prefix: The batches.
            batch_column: The name of one more column (LONG), the last: the batch in which each row came.

        Raises:
            SourceError: Rows of the prefix are no longer there.
        """
        message = f"what the source {type(self).__name__} has given cannot be read again"
        raise SourceError(code="HR433", what=message, fix="read from a source that keeps its rows, such as files")

    def read_placed(
        self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str, place_column: str
    ) -> DataFrame:
        """Return what `read` does with `batch_column`, and one more column (STRING): each row's file, or ''.

        Raises:
            SourceError: Rows of the prefix are no longer there.
        """
        from pyspark.sql import functions as F

        return self.read(spark, prefix, batch_column=batch_column).withColumn(place_column, F.input_file_name())

    @property
    def again(self) -> str:
        """What to do with rows that were rejected, for a finding."""
        return "correct them, and give them to the source again"

    def rejected_rows(self, spark: SparkSession, prefix: SourcePrefix) -> DataFrame | None:
        """Return the quarantined rows of `prefix`: (file STRING, record STRING, batch LONG); None: none ever are."""
        return None
