"""A table equals the fold of its changes by their order, in whatever order, batches and crashes they come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .changed import COLUMNS, Change, ChangeLife, Doomed, Killed, change_options, cut
from .databases import EVERY_WITHOUT_SPARK, Database, database

__all__ = ["database"]
pytestmark = pytest.mark.parametrize("database", EVERY_WITHOUT_SPARK, indirect=True)

_numbers = count()
KINDS = {
    "newest": change_options(),
    "newest without NULLs": change_options(ignore_null_updates=True),
    "intervals": change_options(scd_type=2),
    "intervals of one column": change_options(scd_type=2, tracked=("city",)),
    "intervals without NULLs": change_options(scd_type=2, ignore_null_updates=True),
}


@st.composite
def feeds(draw: st.DrawFn) -> list[Change]:
    """Changes of a few keys, of which several have one sequence."""
    changes = []
    for offset in range(draw(st.integers(3, 14))):
        operation = draw(st.sampled_from(["upsert"] * 6 + ["delete"] * 2 + ["truncate", "none"]))
        is_row = operation == "upsert"
        lacks = draw(st.sampled_from([(), (), (), ("city",), ("note",), ("city", "note")])) if is_row else ()
        city, note = (
            draw(st.sampled_from(["x", "y", "é'\\", None])) if is_row and name not in lacks else None
            for name in COLUMNS[1:]
        )
        key = None if operation == "truncate" else draw(st.integers(0, 2))
        changes.append(Change(operation, draw(st.integers(-3, 4)), offset, key, city, note, lacks))
    return changes


def life(database: Database, home: Path, kind: str = "newest", **options: Any) -> ChangeLife:
    """A life with a table of its own."""
    number = next(_numbers)
    return ChangeLife(
        cast(Any, None),
        home / str(number),
        database,
        query=f"q{number}",
        options={"table": f"t{number}", "rewindable": "7 days", **options},
        change_options=KINDS[kind],
    )


def apply_through_faults(life: ChangeLife, batches: Sequence[list[Change]], chance: random.Random) -> None:
    """Offer each batch until it is in: by drivers that die in it, twice, and once more after a rewind."""
    done: list[list[Change]] = []
    left = list(batches)
    while left:
        batch, frame = len(done), life.frame(left[0])
        writer = life.resume(batch, staged=chance.random() < 0.3)
        if chance.random() < 0.4:
            store = cast(Any, writer.store)
            store._connection = Doomed(store.dialect.connect(), chance.randint(3, 40), chance.random() < 0.5)
            with suppress(Killed):
                writer(frame, batch)
            writer = life.resume(batch, staged=chance.random() < 0.3)
        for _ in range(1 + (chance.random() < 0.3)):
            writer(frame, batch)
        done.append(left.pop(0))
        assert life.rows() == life.expected(change for part in done for change in part)
        if chance.random() < 0.25:
            to = chance.randrange(len(done))
            rewind = life.sink.rewind
            rewind.go_back(life.run, to, cast(Any, None))
            assert life.rows() == life.expected(change for part in done[: to + 1] for change in part)
            if chance.random() < 0.3:
                rewind.undo(life.run, to, cast(Any, None))
            else:
                taken = [change for part in done[to + 1 :] for change in part]
                left = [*cut(taken, [chance.randrange(9)]), *left]
                done = done[: to + 1]
    assert life.database.left_over() == []


def prove(database: Database, home: Path, examples: int) -> None:
    """Show for so many orders and cuts that one feed gives one table."""

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    @given(
        feed=feeds(),
        kind=st.sampled_from(list(KINDS)),
        order=st.randoms(use_true_random=False),
        places=st.lists(st.integers(0, 99), max_size=5),
    )
    def check(feed: list[Change], kind: str, order: random.Random, places: list[int]) -> None:
        whole = life(database, home, kind)
        whole.begin()(whole.frame(feed), 0)
        assert whole.rows() == whole.expected(feed)
        shuffled = order.sample(feed, len(feed))
        other = life(database, home, kind)
        apply_through_faults(other, list(cut(shuffled, places)), order)
        assert other.rows() == whole.rows()
        if other.change_options.scd_type == 1:
            assert other.hidden() == whole.hidden()

    check()


def test_any_order_cut_crash_repeat_and_rewind_gives_the_same_table(database: Database, tmp_path: Path) -> None:
    prove(database, tmp_path, 15)


@pytest.mark.long
def test_a_thousand_orders_and_cuts_give_the_same_table(database: Database, tmp_path: Path) -> None:
    prove(database, tmp_path, 1_000)
