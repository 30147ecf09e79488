"""What a verification found, what kept a query from being verified, and which rows it dropped as late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.errors import Finding, HeadraceError, PlainData, SinkError
from headrace.model import Query
from headrace.spark.messages.failures import python_error
from headrace.spark.messages.refusals import is_from_spark, sentence_of
from headrace.spark.stream.foreach_batch import compute_all

if TYPE_CHECKING:
    from headrace.contract import Snapshot, Source

State = Literal["equal", "open", "late", "mismatch", "undecided"]
Kind = Literal["missing", "unexpected", "different"]
_WORDS = {"missing": "missing in the sink", "unexpected": "unexpected in the sink", "different": "with other values"}
ShownBy = Literal["batch", "rerun"]
_EQUAL: Mapping[ShownBy, str] = {
    "batch": "equal to the batch query over the same input",
    "rerun": "equal to another run over the same batches",
}


@dataclass(frozen=True, kw_only=True)
class InputRow:
    """A row of a source that fed a row of the result.

    Attributes:
        source: The name of the source.
        batch: The batch that took the row.
        file: The file, or topic/partition/offset of a message; empty for other sources.
        row: The row as JSON.
    """

    source: str
    batch: int
    file: str
    row: str

    def __str__(self) -> str:
        # A path of a file has a scheme.
        place = self.file.rpartition("/")[2] if ":" in self.file else self.file
        where = f" ({place})" if place else ""
        return f"{self.source}, batch {self.batch}{where}: {self.row}"


@dataclass(frozen=True, kw_only=True)
class Difference(PlainData):
    """One row in which the sink and the batch answer differ.

    Attributes:
        kind: `missing`, `unexpected` or `different`.
        key: The key of the row; empty if the sink has no key.
        expected: The row of the batch answer; None if it has none.
        actual: The row of the sink; None if it has none.
        fed_by: Input rows that the row was made of, newest batch first, at most a handful of each source. None if that
            cannot be determined; empty if the query never wrote such a row.
    """

    derived: ClassVar[tuple[str, ...]] = ("last_batch",)
    kind: Kind
    key: Mapping[str, Any]
    expected: Mapping[str, Any] | None
    actual: Mapping[str, Any] | None
    fed_by: tuple[InputRow, ...] | None = None

    @property
    def last_batch(self) -> int | None:
        """The last batch that a row of the key came in; None: it is not known, or none did."""
        return self.fed_by[0].batch if self.fed_by else None


@dataclass(frozen=True, kw_only=True)
class LateRow(PlainData):
    """One row that Spark dropped as late.

    Attributes:
        operator: The operator that dropped the row.
        batch: The batch.
        watermark: The watermark of that batch.
        time: The event time of the row, or the end of its window if the operator does not see the event time.
        row: The row at the operator.
    """

    derived: ClassVar[tuple[str, ...]] = ("behind_seconds",)
    operator: str
    batch: int
    watermark: datetime
    time: datetime
    row: Mapping[str, Any]

    @property
    def behind(self) -> timedelta:
        """How far the row was behind the watermark, which itself is the delay behind the newest event time."""
        return self.watermark - self.time

    @property
    def behind_seconds(self) -> float:
        """The same in seconds."""
        return self.behind.total_seconds()


@dataclass(frozen=True, kw_only=True)
class Verdict(PlainData):
    """Whether a sink holds the batch answer over the committed prefix.

    Attributes:
        batch: The last committed batch; None if there is none.
        state: `equal`; `open`: equal apart from groups that the watermark has not closed; `late`: equal without the
            rows that Spark dropped as late; `mismatch`; `undecided`: `findings` say why.
        rows_read: The number of rows read from the sources.
        rows_expected: The rows of the batch answer, without late rows and open groups.
        rows_actual: The rows of the sink.
        rows_open: The groups that are still open.
        rows_late: The late rows, counted at the operator: once for each of several sliding windows.
        rows_replayed: The late rows that `headrace late --replay` brought back; `rows_late` leaves them out.
        rows_set_aside: The rows that the sink did not take and keeps in its quarantine.
        missing: The number of rows that the sink lacks.
        unexpected: The number of rows that the batch answer lacks.
        different: The number of rows with other values.
        differences: The first rows that differ.
        late: The first late rows.
        rows_untimed: The rows of the sources whose event time is NULL.
        shown_by: `batch`: the sink was compared with the batch query. `rerun`: with another run over the same batches,
            because the batch query does not decide; rows that the batch query gives and the run does not count as open
            if they may still come, else as missing, and rows that only the run gives as unexpected.
        shares: What the verdict shares with the run, so that a fault in it would be in both.
        scope: Which rows were compared, in words; empty: all.
        seconds: How long it took.
        findings: Why the verdict is undecided, and what else is wrong.
    """

    query: str
    batch: int | None
    state: State
    rows_read: int = 0
    rows_expected: int = 0
    rows_actual: int = 0
    rows_open: int = 0
    rows_late: int = 0
    rows_replayed: int = 0
    rows_set_aside: int = 0
    missing: int = 0
    unexpected: int = 0
    different: int = 0
    differences: tuple[Difference, ...] = ()
    late: tuple[LateRow, ...] = ()
    rows_untimed: int = 0
    shown_by: ShownBy = "batch"
    shares: tuple[str, ...] = ()
    scope: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 when the sink is proved right, 1 otherwise."""
        return 1 if self.state in ("mismatch", "undecided") else 0

    @property
    def rate(self) -> float:
        """How many rows of the sources were verified in a second."""
        return self.rows_read / self.seconds if self.seconds > 0 else 0.0

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        if self.state in ("mismatch", "undecided"):
            return f"{'wrong' if self.state == 'mismatch' else 'undecided'}: {self.why}"
        open_unit = "row" if self.shown_by == "rerun" else "group"
        apart = (
            (self.rows_late, f"{count_text(self.rows_late, 'late row')} left out as Spark left them out"),
            (self.rows_replayed, f"{count_text(self.rows_replayed, 'late row')} brought back"),
            (self.rows_open, f"{count_text(self.rows_open, open_unit)} still open"),
            (self.missing, f"{count_text(self.missing, 'row')} of the batch query missing for good"),
            (self.unexpected, f"{count_text(self.unexpected, 'row')} more than the batch query gives"),
            (self.rows_untimed, f"{count_text(self.rows_untimed, 'row')} read without an event time"),
            (self.rows_set_aside, f"{count_text(self.rows_set_aside, 'row')} in the sink's quarantine"),
        )
        whole = "" if self.missing or self.unexpected else "correct: "
        return "; ".join([f"{whole}{_EQUAL[self.shown_by]}", *(words for holds, words in apart if holds)])

    @property
    def why(self) -> str:
        """What is wrong, or what keeps the verdict open."""
        counts = [(getattr(self, kind), words) for kind, words in _WORDS.items()]
        rows = ", ".join(f"{count_text(count, 'row')} {words}" for count, words in counts if count)
        if self.state == "mismatch" and rows:
            return rows
        return self.findings[0].what if self.findings else rows

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data, for `--json` and the history."""
        return {
            **{"query": self.query, "batch": self.batch, "verdict": self.state},
            **super().as_dict(),
            "sentence": self.sentence,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate, 1),
        }


@dataclass(frozen=True, kw_only=True)
class OperatorLateRows(PlainData):
    """How many rows one operator dropped in one batch.

    Attributes:
        operator: The operator.
        batch: The batch.
        watermark: The watermark that the rows were behind.
        rows: The number of rows.
    """

    operator: str
    batch: int
    watermark: datetime
    rows: int


@dataclass(frozen=True, kw_only=True)
class Replayed(PlainData):
    """What a replay of late rows changed in the result.

    Attributes:
        late: The number of late rows.
        written: The number of rows written into the result.
        deleted: The number of rows deleted from the result.
    """

    late: int
    written: int
    deleted: int


@dataclass(frozen=True, kw_only=True)
class Lateness(PlainData):
    """The rows that a query dropped as late in its committed batches, counted at the operators.

    Attributes:
        batch: The last committed batch; None if there is none.
        since: The first batch that was examined.
        batches: The count for each operator and batch that dropped rows.
        rows: The first of the rows, oldest batch first.
        replayed: The last batch whose late rows were brought back into the result.
        replay: What this call brought back.
        exported: The files with the late rows, in the form of their sources.
        findings: Why something cannot be determined.
    """

    derived: ClassVar[tuple[str, ...]] = ("count", "sentence")
    query: str
    batch: int | None
    since: int = 0
    batches: tuple[OperatorLateRows, ...] = ()
    rows: tuple[LateRow, ...] = ()
    replayed: int | None = None
    replay: Replayed | None = None
    exported: tuple[Path, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def count(self) -> int:
        """How many rows were dropped."""
        return sum(dropped.rows for dropped in self.batches)

    @property
    def exit_code(self) -> int:
        """0 when the rows could be determined, 1 otherwise."""
        return 1 if any(finding.severity == "error" for finding in self.findings) else 0

    @property
    def sentence(self) -> str:
        """The count in one line."""
        if self.exit_code:
            return f"it cannot be determined which rows came late: {self.findings[0].what}"
        since = f" since batch {self.since}" if self.since else ""
        dropped = f"{count_text(self.count, 'row')} dropped as late{since}, up to batch {self.batch}"
        if self.replayed is None:
            return dropped
        return f"{dropped}; those up to batch {self.replayed} were brought back into the result"

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data; `rows` are left out, since each is a line of its own with `--json`."""
        return {name: value for name, value in super().as_dict().items() if name != "rows"}


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


@contextmanager
def blame_the_sink(query: Query, snapshot: Snapshot | None = None) -> Iterator[None]:
    """Raise SinkError for a failure inside if the rows of `snapshot` cannot be read; without one, for any failure."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        cause = error if snapshot is None else _reading_error(snapshot)
        if cause is None:
            raise
        raise SinkError(
            code="HR714",
            what=f"the sink of query '{query.name}' cannot be read: {sentence_of(cause)}",
            fix="restore what is damaged there, or reset the query (headrace reset QUERY)",
            where=query.where,
        ) from error


def findings_of(query: Query, error: Exception, sources: Iterable[Source] = ()) -> tuple[Finding, ...]:
    """Return why the verdict on `query`, which reads `sources`, is undecided after `error`."""
    if isinstance(error, HeadraceError):
        return error.findings
    text = str(error)
    for problem in filter(None, (source.explain_failure(text) for source in sources)):
        return (query.finding(problem.code, f"cannot be verified: {problem.what}", problem.fix),)
    kind = "" if is_from_spark(error) else f"{type(error).__name__}: "
    message = f"the batch query of '{query.name}' failed: {python_error(text) or kind + sentence_of(error)}"
    fix = "correct what the message names; the result itself was not changed"
    return (Finding(code="HR713", what=message, fix=fix, where=query.where),)


def _reading_error(snapshot: Snapshot) -> Exception | None:
    """Return the error of reading all rows of the sink, and nothing else."""
    try:
        for frame in (snapshot.rows, snapshot.rejected):
            if frame is not None:
                compute_all(frame)
    except Exception as error:
        return error
    return None
