"""A guarantee is as strong as the weakest fact."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.checks.result import compute_guarantee
from headrace.contract import SinkFacts, SourceFacts
from headrace.model import NamedSource, Project, Query, SqlTransform
from headrace.spark.plans.analysed import PlanFacts

pytestmark = pytest.mark.plain

FAITHFUL = SourceFacts(replayable=True)
FORGETFUL = SourceFacts(replayable=False)
APPEND = frozenset({"append"})
LEDGER = SinkFacts(modes=APPEND, transactional=True, idempotent=False)
REPLACING = SinkFacts(modes=APPEND, transactional=False, idempotent=True)
PLAIN = SinkFacts(modes=APPEND, transactional=False, idempotent=False)
SCREEN = SinkFacts(modes=APPEND, transactional=False, idempotent=False, durable=False)
SURE = PlanFacts(streaming=True, indeterminate=())
CHANCE = PlanFacts(streaming=True, indeterminate=("rand()",))


@dataclass(frozen=True)
class Declared:
    facts: SourceFacts | SinkFacts = field()


def project_with(source: SourceFacts, sink: SinkFacts) -> tuple[Project, Query]:
    query = Query(
        name="q",
        transform=SqlTransform(sql="SELECT * FROM events", inputs=("events",)),
        sink=Declared(sink),  # type: ignore[arg-type]
        sink_kind="somewhere",
    )
    declared = NamedSource(name="events", kind="x", connector=Declared(source))  # type: ignore[arg-type]
    return Project(name="p", root=Path(), sources={"events": declared}, queries={"q": query}), query


@pytest.mark.parametrize(
    ("source", "sink", "plan", "level", "weakest"),
    [
        pytest.param(FAITHFUL, LEDGER, SURE, "exactly once", None, id="ledger"),
        pytest.param(FAITHFUL, REPLACING, SURE, "exactly once", None, id="idempotent"),
        pytest.param(FAITHFUL, LEDGER, CHANCE, "at least once", "the plan", id="chance"),
        pytest.param(FAITHFUL, PLAIN, SURE, "at least once", "the sink somewhere", id="plain sink"),
        pytest.param(FAITHFUL, SCREEN, SURE, "none", "the sink somewhere", id="screen"),
        pytest.param(FORGETFUL, LEDGER, SURE, "none", "the source 'events'", id="forgetful source"),
        pytest.param(FORGETFUL, PLAIN, CHANCE, "none", "the source 'events'", id="weakest of three"),
    ],
)
def test_the_guarantee_is_that_of_the_weakest_link(
    source: SourceFacts, sink: SinkFacts, plan: PlanFacts, level: str, weakest: str | None
) -> None:
    guarantee = compute_guarantee(*project_with(source, sink), plan)
    assert (guarantee.level, guarantee.weakest.part if guarantee.weakest else None) == (level, weakest)
    assert guarantee.sentence.startswith("no guarantee" if level == "none" else level)


def test_before_spark_has_analysed_the_plan_the_sentence_says_so() -> None:
    guarantee = compute_guarantee(*project_with(FAITHFUL, LEDGER))
    assert not guarantee.proven
    assert "before Spark" in guarantee.sentence
