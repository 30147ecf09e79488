"""What a check of a project came to, with what its queries will ask of disks and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headrace.check.guarantee import Guarantee
from headrace.check.state_bounds import StateBound
from headrace.errors import Finding
from headrace.model import Default, Every, Query, RealTime

# A directory of more files than that a day is slow to list, and a table's log to read.
MANY_FILES = 10_000
# How much of the memory may be state before the garbage collector has no room.
MOST_OF_MEMORY = 0.5
_DAY_SECONDS = 86_400


@dataclass(frozen=True, kw_only=True)
class HeldState:
    """What a query's operators held in its newest batch, as the history has it; None: not known."""

    batch: int
    rows: int | None
    bytes: int | None

    @property
    def sentence(self) -> str:
        """The state in one line."""
        rows = "rows that were not counted" if self.rows is None else f"{self.rows:,} rows"
        size = "" if self.bytes is None else f" in {size_of(self.bytes)} of memory"
        return f"{rows}{size} after batch {self.batch}"

    def as_dict(self) -> dict[str, Any]:
        """The state as plain data, for `--json`."""
        return {**asdict(self), "sentence": self.sentence}


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Every finding, each query's guarantee, what each of its operators keeps, and what they held when it last ran."""

    findings: tuple[Finding, ...]
    guarantees: Mapping[str, Guarantee]
    states: Mapping[str, tuple[StateBound, ...]] = field(default_factory=dict)
    held: Mapping[str, HeldState] = field(default_factory=dict)

    def only(self, codes: Sequence[str]) -> CheckResult:
        """The result with the findings alone whose code begins with one of `codes`; all, if there are none."""
        kept = tuple(each for each in self.findings if not codes or each.code.startswith(tuple(codes)))
        return replace(self, findings=kept)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the project from running."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def exit_code(self) -> int:
        """1 when there is an error, else 0."""
        return 1 if self.errors else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return {
            "findings": [finding.as_dict() for finding in self.findings],
            "guarantees": {name: each.as_dict() for name, each in self.guarantees.items()},
            "states": {name: [each.as_dict() for each in bounds] for name, bounds in self.states.items()},
            "held": {name: each.as_dict() for name, each in self.held.items()},
        }


def small_files(query: Query, *, tasks: int) -> Iterator[Finding]:
    """Whether a sink that adds files to a directory gets very many of them; `tasks` write each batch."""
    if not query.sink.facts.adds_files:
        return
    folders = tuple(getattr(query.sink, "partition_by", ()))
    each = f"{tasks} tasks write each batch" if tasks > 1 else "each batch writes a file or more"
    each += f", a file for each value of {', '.join(map(str, folders))}" if folders else ""
    fix = "make batches less often, as every('1 minute'), let fewer tasks write (spark.sql.shuffle.partitions, "
    fix += "coalesce), or compact the table from time to time"
    if isinstance(query.trigger, Every):
        seconds = max(query.trigger.interval.seconds, 0.1)
        files = round(_DAY_SECONDS / seconds) * tasks
        if files >= MANY_FILES:
            yield Finding(
                code="HR646",
                what=f"query '{query.name}' may write {files:,} files a day: a batch every {query.trigger.interval}, "
                f"and {each}",
                fix=fix,
                where=query.where,
            )
    elif isinstance(query.trigger, (Default, RealTime)) and (tasks > 1 or folders):
        yield Finding(
            code="HR646",
            what=f"query '{query.name}' may write very many small files: a batch follows the other as soon as "
            f"there are rows, and {each}",
            fix=fix,
            where=query.where,
        )


def memory(query: Query, held: HeldState | None, *, in_memory: bool, memory_bytes: int | None) -> Iterator[Finding]:
    """Whether the state, where the state store keeps it in memory, leaves too little of that."""
    if held is None or held.bytes is None or not in_memory or not memory_bytes:
        return
    if held.bytes > MOST_OF_MEMORY * memory_bytes:
        yield Finding(
            code="HR647",
            what=f"query '{query.name}' held {held.sentence}, and Spark has {size_of(memory_bytes)} of it",
            fix="keep the state on disk, in RocksDB (state_store: {provider: rocksdb}; then "
            f"headrace reset {query.name}), bound it, or give Spark more memory",
            where=query.where,
        )


def size_of(count: int) -> str:
    """A number of bytes in words."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
