"""What a query promises about its result, computed from the facts of its sources, plan and sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headrace.model import Continuous, Project, Query
from headrace.spark.plans.analysed import PlanFacts

Level = Literal["exactly once", "at least once", "none"]
_ORDER: tuple[Level, ...] = ("none", "at least once", "exactly once")


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link of the chain: which part it is, how much it bears, and why."""

    part: str
    level: Level
    reason: str


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The level of the weakest link. `proven` is False as long as Spark has not accepted the plan."""

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

    def as_dict(self) -> dict[str, Any]:
        """The guarantee as plain data, for `--json`."""
        return {**asdict(self), "sentence": self.sentence}


def guarantee(project: Project, query: Query, plan: PlanFacts | None = None) -> Guarantee:
    """The guarantee of `query`; without `plan` only sources and sink are looked at.

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
