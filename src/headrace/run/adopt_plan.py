"""What an adoption takes over, and what came of it; as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from headrace.checkpoint import StateOperator
from headrace.contract import Held
from headrace.errors import Finding

# What the user says of a batch that is planned and not committed: whether the result has its rows.
PlannedIs: TypeAlias = Literal["written", "not-written"]


@dataclass(frozen=True, kw_only=True)
class AdoptedSource:
    """A source: its name, its kind, what the former job's checkpoint calls it, and how far it was read.

    waits: what no batch has taken yet, which the first start gives; empty where that is not known without Spark.
    """

    name: str
    kind: str
    position: str
    reached: str
    waits: str = ""


@dataclass(frozen=True, kw_only=True)
class AdoptionPlan:
    """What an adoption does.

    checkpoint: the former job's directory; id: of its query. first, committed, planned: its batches; planned is None
    where the newest is committed. batch: the last one that the result has; None: none. provider: of the state.
    result: what the sink holds. notes: what is to be known, continues: it ends an adoption that was cut off.
    """

    query: str
    checkpoint: str
    id: str
    generation: int
    first: int
    committed: int | None
    planned: int | None
    batch: int | None
    sources: tuple[AdoptedSource, ...]
    operators: tuple[StateOperator, ...]
    provider: str | None
    settings: Mapping[str, str]
    size_bytes: int
    result: tuple[Held, ...]
    notes: tuple[Finding, ...] = ()
    continues: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data, for `--json`."""
        plain = asdict(self)
        plain["operators"] = [{**asdict(each), "stores": list(each.stores)} for each in self.operators]
        plain["sources"] = [asdict(each) for each in self.sources]
        plain["result"] = [asdict(each) for each in self.result]
        plain["notes"] = [each.as_dict() for each in self.notes]
        return plain


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """What was done, and the first batch that Headrace makes."""

    query: str
    next_batch: int
    plan: AdoptionPlan

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return {"query": self.query, "next_batch": self.next_batch, "plan": self.plan.as_dict()}
