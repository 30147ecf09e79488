"""A ledger and a checkpoint are judged as they stand: same, ahead, or of other batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.checkpoint import chain_digest
from headrace.connectors.exactly_once.acceptance import (
    Acceptance,
    Ahead,
    Behind,
    BrokenChain,
    CheckpointView,
    KeptLine,
    NotRestorable,
    OtherBatch,
    OtherCheckpoint,
    Same,
    is_same_batch,
    judge,
)

pytestmark = pytest.mark.plain


def ledger(*digests: str | None, first: int = 0, **more: Any) -> list[KeptLine]:
    """Lines with these digests; None makes a line without a digest."""
    lines, chain = [], None
    for batch, digest in enumerate(digests, start=first):
        chain = None if digest is None else chain_digest(chain, digest)
        facts = {"checkpoint": "c", "planned": None if digest is None else "plan", **more}
        lines.append(KeptLine(batch=batch, digest=digest, chain=chain, **facts))
    return lines


def checkpoint(
    planned: int | None, committed: int | None, *digests: str, first: int = 0, **more: Any
) -> CheckpointView:
    by_batch = dict(enumerate(digests, start=first))
    return replace(CheckpointView(id="c", planned=planned, committed=committed, digests=by_batch), **more)


CASES: dict[str, tuple[list[KeptLine], CheckpointView, Acceptance]] = {
    "before the first start": ([], CheckpointView(), Same()),
    "the first batch is planned": ([], checkpoint(0, None, "a"), Same()),
    "all is in and committed": (ledger("a", "b"), checkpoint(1, 1, "a", "b"), Same()),
    "in, and not committed": (ledger("a", "b"), checkpoint(1, 0, "a", "b"), Same()),
    "planned, and not in": (ledger("a"), checkpoint(1, 0, "a", "b"), Same()),
    "the same number over other rows": (ledger("a", "b"), checkpoint(1, 0, "a", "x"), OtherBatch(1)),
    "an older batch over other rows": (ledger("a", "b", "c"), checkpoint(2, 2, "x", "b", "c"), OtherBatch(0)),
    "lines without digests": (ledger(None, None), checkpoint(1, 0, "a", "b"), Same()),
    "lines without digests, then newer ones": (ledger(None, "b"), checkpoint(1, 0, "a", "b"), Same()),
    "older lines were pruned": (ledger("f", "g", first=5), checkpoint(6, 6, "f", "g", first=5), Same()),
    "one batch ahead": (ledger("a", "b"), checkpoint(0, 0, "a"), Ahead((1,))),
    "ahead of a checkpoint without plans": (ledger("a", "b"), checkpoint(None, None), Ahead((0, 1))),
    "several ahead, one given to no sink": (
        [
            *ledger("a"),
            KeptLine(
                batch=2, checkpoint="c", digest="c", chain=chain_digest(ledger("a")[0].chain, "c"), planned="plan"
            ),
        ],
        checkpoint(0, 0, "a", empty=frozenset({1})),
        Ahead((2,)),
    ),
    "ahead, and other rows before": (ledger("a", "b"), checkpoint(0, 0, "x"), OtherBatch(0)),
    "ahead by lines without digests": (ledger("a", None), checkpoint(0, 0, "a"), NotRestorable(1, 1)),
    "ahead by lines that keep no plan": (
        ledger("a", "b", "c", planned=None),
        checkpoint(0, 0, "a"),
        NotRestorable(1, 2),
    ),
    "ahead, and a line is gone": (
        [ledger("a", "b", "c")[0], *ledger("c", first=2)],
        checkpoint(0, 0, "a"),
        BrokenChain(2),
    ),
    "another checkpoint": (ledger("a"), checkpoint(0, 0, "a", id="d"), OtherCheckpoint("d")),
    "no checkpoint any more": (ledger("a"), CheckpointView(), OtherCheckpoint(None)),
    "the ledger is gone": ([], checkpoint(3, 3, "d", first=3), Behind(0, None)),
    "the ledger is an old copy": (ledger("a"), checkpoint(2, 1, "a", "b", "c"), Behind(1, 0)),
    "an old copy, and the commits are lost": (ledger("a"), checkpoint(2, None, "a", "b", "c"), Behind(1, 0)),
    "state was repartitioned since": (ledger("a"), checkpoint(1, 0, "a", "b", empty=frozenset({1})), Same()),
    "a line was changed": (
        [*ledger("a"), replace(ledger("a", "b")[1], chain="z")],
        checkpoint(1, 1, "a", "b"),
        BrokenChain(1),
    ),
}


@pytest.mark.parametrize(("lines", "here", "expected"), CASES.values(), ids=CASES)
def test_acceptance(lines: list[KeptLine], here: CheckpointView, expected: Acceptance) -> None:
    assert judge(lines, here) == expected


SKIPS = {
    "the same": (ledger("a", "b")[1], ledger("a")[0], "b", True),
    "other rows": (ledger("a", "b")[1], ledger("a")[0], "x", False),
    "the same rows after others": (ledger("a", "b")[1], ledger("x")[0], "b", False),
    "the first": (ledger("a")[0], None, "a", True),
    "a line without a digest": (ledger(None)[0], None, "a", True),
}


@pytest.mark.parametrize(("line", "before", "digest", "same"), SKIPS.values(), ids=SKIPS)
def test_a_batch_is_skipped_only_if_it_is_the_same(
    line: KeptLine, before: KeptLine | None, digest: str, same: bool
) -> None:
    assert is_same_batch(line, before, digest) is same
