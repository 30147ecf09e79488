"""The source: an unbounded input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headrace.checkpoint.identity import log_offset
from headrace.checkpoint.prefix import SourcePrefix
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
    """

    replayable: bool
    rate_limited: bool = False
    continuous: bool = False
    real_time: bool = False
    ephemeral: bool = False


def bad_rows_metric(source: str) -> str:
    """The name of the observed metric under which a quarantining source counts its bad rows, as column `rows`."""
    return f"headrace_bad_rows_{source}"


@dataclass(frozen=True, kw_only=True)
class Lag:
    """What a source still holds that no batch has taken yet. `unit` is the field's word: files, rows, messages.

    left_out: how many besides no batch will ever take; changed: how many of them are no longer what a batch has read.
    problem: why no batch takes it now, as the end of a sentence; empty: the next batch does.
    oldest_ms: when the oldest of it came, in milliseconds since 1970: a message's timestamp, a file's modification
        time; None: not known, or nothing waits.
    at_ms: when it was so; None: just now, or when what it stands in was written.
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
        """How long the oldest has waited at `now`, in seconds since 1970; 0 where nothing waits, None: not known."""
        if not self.count:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, now - self.oldest_ms / 1000)


class Source(Connector):
    """An unbounded input. To write: `facts` and `stream`; with `read`, `verify` can prove what was made of it.

    A bounded input is no source: give a function that returns its DataFrame, for use under `@table`.

    object_kind: what `object_ids` gives ids of.
    """

    object_kind: ClassVar[str] = "table"

    @property
    @abstractmethod
    def facts(self) -> SourceFacts:
        """What this source, with its options, promises; a class-level value will do where no option matters."""

    @abstractmethod
    def stream(self, spark: SparkSession, name: str) -> DataFrame:
        """A streaming DataFrame of the source, named `name` for Spark's source evolution.

        Called once for each start of each query that uses the source, and by checks; it must not read rows.
        """

    # -------------------------------------------------------------------------------------------- before a start

    def problems(self) -> Iterator[OptionError]:
        """Faults of the options that can be seen without Spark; called without a JVM by each command."""
        return iter(())

    def declared_schema(self) -> str | None:
        """The schema of `stream` as a DDL text, where an option declares it; a watermark is then checked by it."""
        return None

    def check_connection(self, spark: SparkSession) -> None:
        """Raise SourceError when the system does not answer or lacks what is to be read; called before each start."""

    def ensure_available(self, prefix: SourcePrefix) -> None:
        """Raise SourceError if rows of `prefix` can be seen, without a JVM, to be no longer there.

        Called before each start with the batches that were planned and not committed: Spark makes them again, and what
        it does not find then is silently left out of them (files), or lost.
        """

    def changed(self, prefix: SourcePrefix) -> OptionError | None:
        """What of `prefix` is seen, without a JVM, to hold something else than when its batches were planned.

        Asked before each start of the batches that were planned and not committed: the sink may hold them already, and
        state that is made again of other rows would not fit it. Such a start is refused.
        """
        return None

    def object_ids(self, spark: SparkSession) -> Mapping[str, str]:
        """The ids that the system has drawn for what is read, by name, as of each topic; '' where it draws none.

        They are kept before the first batch and compared before each later start: what has another id was deleted and
        created again under its name, and offsets in the former one mean nothing in it.
        """
        return {}

    @property
    def accepted_ids(self) -> Mapping[str, str]:
        """The ids, by name, that an option accepts in place of those that were kept."""
        return {}

    def compare_ids(self, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[OptionError]:
        """What is to be said of ids that differ from those that were kept; an error: something was created again."""
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

    def recreated(self, before: Mapping[str, str], now: Mapping[str, str]) -> OptionError | None:
        """That something has another id `now` than `before`, and no option accepts it."""
        return next((problem for problem in self.compare_ids(before, now) if problem.severity == "error"), None)

    def require_same(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Raise SourceError where something has another id `now` than `before`, and no option accepts it."""
        if problem := self.recreated(before, now):
            raise SourceError(code=problem.code, what=problem.what, fix=problem.fix)

    def ends_before(self, spark: SparkSession, prefix: SourcePrefix) -> OptionError | None:
        """That the source now ends before the newest batch of `prefix` did, so that no start can resume from there.

        Asked before each start, before anything is written, and from time to time while the query runs.
        """
        return None

    def accepting(self, name: str, id_: str) -> str:
        """How an option accepts the new id, as the end of a fix."""
        return ""

    def starting_position(self) -> str:
        """Where a query without a checkpoint begins, as the end of a sentence: `at the earliest messages`.

        Empty where there is no choice. Told once, at the first start.
        """
        return ""

    def mismatch(self, prefix: SourcePrefix) -> str:
        """Why a query that read `prefix` without Headrace cannot have read this source, as the end of a sentence.

        Empty: nothing speaks against it. Asked without a JVM before a checkpoint is adopted; `prefix` holds the offsets
        and the log as Spark's own source has written them, which `stream` is to continue.
        """
        last = prefix.batches[-1].end if prefix.batches else None
        return "its offsets are those of a directory of files" if log_offset(last) is not None else ""

    def has_no_effect(self, option: str, value: str, log: Path) -> bool:
        """Whether an option leaves all rows that a query has read as they are; a change of it then changes nothing.

        Asked of both values of an option that has changed; `place` stands for those that say which directory it is.
        log: Spark's own log of what the query has read, in its checkpoint.
        """
        return False

    def without_rate_limit(self) -> Source:
        """The same source without a bound on the size of batches, for a trigger that has none."""
        return self

    def parallelism(self, spark: SparkSession) -> int:
        """How many tasks read it all the time under the trigger continuous; each needs a core of its own."""
        return int(spark.sparkContext.defaultParallelism)

    # -------------------------------------------------------------------------------------------- read once more

    def unreachable(self, spark: SparkSession, prefix: SourcePrefix) -> str:
        """What of `prefix`, which a query has read, another one would not be given from the beginning; '': nothing.

        Told before a rebuild, as the end of a sentence: `its messages begin at offset 70 of partition 0`.
        """
        if self.facts.ephemeral or not self.facts.replayable:
            return "it does not keep what it has given, so that the new result would have none of it"
        try:
            self.ensure_available(prefix)
        except SourceError as error:
            return error.findings[0].what
        return ""

    def since(self, spark: SparkSession, prefix: SourcePrefix) -> Source:
        """The same source, whose first batch begins where that of `prefix` began, as far as its rows are there.

        It is read beside a running query, so that it must take nothing away. Without batches: from the beginning.
        """
        return self

    def since_time(self, spark: SparkSession, at: datetime) -> Source | None:
        """The same, whose first batch begins with what came at a time, which has a zone; None: it cannot."""
        return None

    # -------------------------------------------------------------------------------------------- while it runs

    @property
    def archive_path(self) -> str | None:
        """The directory that files are moved to once they were read, each below its whole former path; None: none."""
        return None

    def lag(self, prefix: SourcePrefix) -> Lag | None:
        """What lies after `prefix`, asked of the source itself without a JVM; None where that cannot be done cheaply.

        Called after a batch, at a scrape of the metrics and by commands, also while nothing runs, in a thread of its
        own: it may take some seconds, and a system that does not answer is None. `prefix` has the source's own log,
        which may be ahead, and the newest committed batch alone; none before the first.
        """
        return None

    def reported_lag(self, end: str, latest: str) -> Lag | None:
        """What lies between two offsets of Spark's, where a batch ended and where the source did when it was planned.

        Asked after each batch of which Spark reports both, so that it asks nobody; then `lag` is not asked after it.
        """
        return None

    def left_out(self, prefix: SourcePrefix) -> Iterator[OptionError]:
        """What lies there and is not given, for ever or by now; asked by `verify`, and from time to time by `run`.

        It starts no JVM. `prefix` has the source's own log, and perhaps the newest batch alone.
        """
        return iter(())

    def health(self, spark: SparkSession) -> OptionError | None:
        """What keeps a query that has begun its second batch from getting rows, of which Spark says nothing.

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
        """A batch DataFrame of exactly the rows of `prefix.batches`, with the schema of `stream`.

        With `batch_column`, one more column (LONG) of that name, last, tells the batch each row came in.
        Raises SourceError when rows of the prefix are no longer there. Called by `verify` and the like, in a session
        of their own.
        """
        message = f"what the source {type(self).__name__} has given cannot be read again"
        raise SourceError(code="HR433", what=message, fix="read from a source that keeps its rows, such as files")

    def read_placed(
        self, spark: SparkSession, prefix: SourcePrefix, *, batch_column: str, place_column: str
    ) -> DataFrame:
        """As `read` with `batch_column`, and one more column (STRING): where each row lies, empty if in no file."""
        from pyspark.sql import functions as F

        return self.read(spark, prefix, batch_column=batch_column).withColumn(place_column, F.input_file_name())

    @property
    def again(self) -> str:
        """What to do with rows that were rejected, for a finding."""
        return "correct them, and give them to the source again"

    def rejected_rows(self, spark: SparkSession, prefix: SourcePrefix) -> DataFrame | None:
        """The rows of `prefix` that were quarantined: (file STRING, record STRING, batch LONG); None: none ever are."""
        return None
