"""What a rebuild found, how far it is, and what was done; as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from headrace.contract import Lag
from headrace.queries.changes import Phase

Done: TypeAlias = Literal["stopped", "compared", "swapped", "rolled-back", "abandoned", "discarded"]


@dataclass(frozen=True, kw_only=True)
class ResultDifferences:
    """How the rebuilt result differs from the one in use, in the columns that both have.

    only_before, only_after, different: rows; different ones have the same key. columns: what differs in names and
    types, a sentence's part each. batch: up to which the former result was, when it was read. samples: some rows that
    differ, `expected` as they were and `actual` as they are.
    """

    rows_before: int
    rows_after: int
    only_before: int
    only_after: int
    different: int
    batch: int | None = None
    columns: Sequence[str] = ()
    samples: Sequence[Mapping[str, Any]] = ()

    @property
    def equal(self) -> bool:
        """Whether both hold the same rows in the same columns."""
        return not (self.only_before or self.only_after or self.different or self.columns)


@dataclass(frozen=True, kw_only=True)
class RebuildReport:
    """What was found when the rebuilt generation had caught up.

    batch: its last. verdict, sentence: of the proof that its result is the batch answer. differences: from the former
    result; None: they could not be compared, as `notes` tell.
    """

    batch: int | None
    verdict: str
    sentence: str
    differences: ResultDifferences | None
    notes: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for `--json` and the record."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RebuildStatus:
    """How far the rebuild of a query is.

    former, generation: the numbers of the two. batches, rows: of the rebuilt one, so far. lag: what its sources still
    hold that it has not taken. notes: what was said before it began.
    """

    query: str
    phase: Phase
    former: int
    generation: int
    begun: str
    batches: int = 0
    rows: int = 0
    lag: Lag | None = None
    notes: Sequence[str] = ()
    report: Mapping[str, Any] | None = None

    @property
    def sentence(self) -> str:
        """How it stands, and the next command."""
        command = f"headrace rebuild {self.query}"
        return {
            "building": f"a rebuild is building generation {self.generation}, {self.batches} batches so far; "
            f"watch it: {command} --status",
            "swapping": f"the swap of its rebuild was cut off; end it: {command} --yes",
            "swapped": f"it was rebuilt, and generation {self.former} is kept; delete that: {command} --discard",
            "rolling-back": f"the roll-back of its rebuild was cut off; end it: {command} --roll-back",
            "abandoning": f"its rebuild was being abandoned; end that: {command} --abandon",
            "discarding": f"generation {self.former} is being discarded; end that: {command} --discard",
        }[self.phase]

    def as_dict(self) -> dict[str, Any]:
        """The status as plain data, for `--json`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RebuildResult:
    """What was done, and which generation the query now runs as. kept: the one that `--discard` deletes."""

    query: str
    done: Done
    generation: int
    kept: int | None = None
    notes: Sequence[str] = ()
    report: RebuildReport | None = None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return asdict(self)
