"""What a check of a project came to, with what its queries will ask of disks and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from headrace.checks.state_bounds import StateBound
from headrace.errors import Finding, PlainData
from headrace.model import Continuous, Default, Every, Project, Query, RealTime
from headrace.spark.plans.analysed import PlanFacts

# A directory of more files than that a day is slow to list, and a table's log to read.
MANY_FILES = 10_000
# How much of the memory may be state before the garbage collector has no room.
MOST_OF_MEMORY = 0.5
_DAY_SECONDS = 86_400


@dataclass(frozen=True, kw_only=True)
class HeldState(PlainData):
    """What a query's operators held in its newest batch, as the history has it; None: not known."""

    derived: ClassVar[tuple[str, ...]] = ("sentence",)
    batch: int
    rows: int | None
    bytes: int | None

    @property
    def sentence(self) -> str:
        """The state in one line."""
        rows = "rows that were not counted" if self.rows is None else f"{self.rows:,} rows"
        size = "" if self.bytes is None else f" in {size_text(self.bytes)} of memory"
        return f"{rows}{size} after batch {self.batch}"


@dataclass(frozen=True, kw_only=True)
class CheckResult(PlainData):
    """The findings on a project, and what each query guarantees and keeps.

    Attributes:
        findings: All findings.
        guarantees: The guarantee of each query that passed.
        states: What each operator of a query keeps, and for how long.
        held: What the operators of a query held when it last ran.
        no_rewind: Why a query cannot be rewound although its sink could keep what a rewind needs.
    """

    findings: tuple[Finding, ...]
    guarantees: Mapping[str, Guarantee]
    states: Mapping[str, tuple[StateBound, ...]] = field(default_factory=dict)
    held: Mapping[str, HeldState] = field(default_factory=dict)
    no_rewind: Mapping[str, str] = field(default_factory=dict)

    def only(self, codes: Sequence[str]) -> CheckResult:
        """Return the result with only the findings whose code begins with one of `codes`; all, if there are none."""
        kept = tuple(finding for finding in self.findings if not codes or finding.code.startswith(tuple(codes)))
        return replace(self, findings=kept)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the project from running."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def exit_code(self) -> int:
        """1 when there is an error, else 0."""
        return 1 if self.errors else 0


def check_small_files(query: Query, *, tasks: int) -> Iterator[Finding]:
    """Report a sink that would add very many files to a directory; `tasks` write each batch."""
    if not query.sink.facts.adds_files:
        return
    folders = tuple(getattr(query.sink, "partition_by", ()))
    per_batch = f"{tasks} tasks write each batch" if tasks > 1 else "each batch writes a file or more"
    per_batch += f", a file for each value of {', '.join(map(str, folders))}" if folders else ""
    fix = "make batches less often, as every('1 minute'), let fewer tasks write (spark.sql.shuffle.partitions, "
    fix += "coalesce), or compact the table from time to time"
    if isinstance(query.trigger, Every):
        seconds = max(query.trigger.interval.seconds, 0.1)
        files = round(_DAY_SECONDS / seconds) * tasks
        if files >= MANY_FILES:
            yield query.finding(
                "HR646",
                f"may write {files:,} files a day: a batch every {query.trigger.interval}, and {per_batch}",
                fix,
            )
    elif isinstance(query.trigger, (Default, RealTime)) and (tasks > 1 or folders):
        yield query.finding(
            "HR646",
            f"may write very many small files: a batch follows the other as soon as there are rows, and {per_batch}",
            fix,
        )


def check_memory(
    query: Query, held: HeldState | None, *, in_memory: bool, memory_bytes: int | None
) -> Iterator[Finding]:
    """Report a state that leaves too little memory, if the state store keeps it there."""
    if held is None or held.bytes is None or not in_memory or not memory_bytes:
        return
    if held.bytes > MOST_OF_MEMORY * memory_bytes:
        yield query.finding(
            "HR647",
            f"held {held.sentence}, and Spark has {size_text(memory_bytes)} of it",
            "keep the state on disk, in RocksDB (state_store: {provider: rocksdb}; then "
            f"headrace reset {query.name}), bound it, or give Spark more memory",
        )


def size_text(count: int) -> str:
    """Return a number of bytes in words."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


Level = Literal["exactly once", "at least once", "none"]
_ORDER: tuple[Level, ...] = ("none", "at least once", "exactly once")


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link of the chain from the sources to the sink.

    Attributes:
        part: The part of the chain, as a source or the sink.
        level: The guarantee that it allows.
        reason: Why.
    """

    part: str
    level: Level
    reason: str


@dataclass(frozen=True, kw_only=True)
class Guarantee(PlainData):
    """The guarantee of a query: that of its weakest link.

    Attributes:
        level: `exactly once`, `at least once` or `none`.
        weakest: The link that limits the guarantee; None if none does.
        proven: Whether Spark has accepted the plan.
    """

    derived: ClassVar[tuple[str, ...]] = ("sentence",)
    level: Level
    weakest: Link | None
    proven: bool

    @property
    def sentence(self) -> str:
        """The guarantee as one sentence."""
        start = {"exactly once": "exactly once", "at least once": "at least once", "none": "no guarantee"}[self.level]
        if self.weakest is not None:
            return f"{start}: {self.weakest.part} {self.weakest.reason}"
        return start if self.proven else f"{start}, as far as can be determined before Spark has accepted the plan"


def compute_guarantee(project: Project, query: Query, plan: PlanFacts | None = None) -> Guarantee:
    """Return the guarantee of `query`; without `plan` only sources and sink are looked at.

    Exactly once needs replayable sources, a deterministic plan, and a sink that is transactional or idempotent
    (Structured Streaming guide, "Fault Tolerance Semantics").
    """
    weak = sorted(_weak_links(project, query, plan), key=lambda link: _ORDER.index(link.level))
    return Guarantee(level=weak[0].level if weak else "exactly once", weakest=next(iter(weak), None), proven=bool(plan))


def _weak_links(project: Project, query: Query, plan: PlanFacts | None) -> Iterator[Link]:
    for source in project.sources_of(query):
        if not source.connector.facts.replayable:
            yield Link(
                part=f"the source '{source.name}'",
                level="none",
                reason="cannot be read again: what it gave is lost when the driver dies before the batch is committed",
            )
    if isinstance(query.trigger, Continuous):
        yield Link(part="the trigger continuous", level="at least once", reason="gives rows again after a crash")
    sink = query.sink.facts
    if not sink.durable:
        yield Link(part=f"the sink {query.sink_kind}", level="none", reason="keeps nothing once the driver has stopped")
    elif not (sink.transactional or sink.idempotent):
        yield Link(
            part=f"the sink {query.sink_kind}",
            level="at least once",
            reason="takes batches again, as many as async_progress has not recorded, when the driver dies"
            if sink.async_progress
            else "takes a batch again when the driver dies before it is committed",
        )
    if plan is not None and not plan.deterministic:
        yield Link(
            part="the plan",
            level="at least once",
            reason=f"is not deterministic ({', '.join(plan.indeterminate[:3])}): a batch made again may differ",
        )
