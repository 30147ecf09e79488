"""Change data in a Delta table, as delta-rs reads it: it equals the table of PostgreSQL, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import deltalake
import pytest

from headrace.connectors.delta.sink import DeltaSink
from headrace.contract import CHANGE_COLUMN, change_type
from tests.connectors.sql.changed import COLUMNS, FEED, Change, ChangeLife, Killed, Row, change_options, cut
from tests.connectors.sql.databases import Database
from tests.rounds import rounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.connectors.exactly_once import BatchWriter

pytestmark = [pytest.mark.services, pytest.mark.connectors]
SCHEMA = f"id BIGINT, city STRING, note STRING, {CHANGE_COLUMN} {change_type('BIGINT')}"


@dataclass
class DeltaLife(ChangeLife):
    """A life whose table is one of Delta Lake."""

    @property
    def path(self) -> str:
        return str(self.home / "table")

    @property
    def sink(self) -> Any:
        return DeltaSink(path=self.path).changes.bind(self.change_options)

    def frame(self, rows: Sequence[Change], *, partitions: int = 0) -> DataFrame:
        values = [
            (
                change.id,
                change.city,
                change.note,
                (change.operation, change.sequence, (change.partition, change.offset), list(change.lacks), None),
            )
            for change in rows
        ]
        return self.spark.createDataFrame(values, SCHEMA)

    def begin(self, *, staged: bool = False) -> BatchWriter[Any]:
        return cast("BatchWriter[Any]", self.sink.open(self.frame([]), self.run))

    def _read(self, *names: str) -> list[Row]:
        rows = deltalake.DeltaTable(self.path).to_pyarrow_table(columns=list(names)).to_pylist()
        return [tuple(row[name] for name in names) for row in rows]

    def rows(self) -> list[Row]:
        return sorted(self._read(*COLUMNS), key=repr)

    def remembered(self) -> list[Row]:
        return [
            tuple(row.values())
            for row in deltalake.DeltaTable(f"{self.path}/_headrace_deletes").to_pyarrow_table().to_pylist()
        ]

    def hidden(self) -> list[Row]:
        return self.sorted_orders(self._read("id", "__ORDER", "__OLDER"))


def life(spark: Any, home: Path, **options: Any) -> DeltaLife:
    return DeltaLife(spark, home, cast(Any, None), change_options=change_options(**options))


def die(writer: BatchWriter[Any], *, after: bool) -> None:
    """Let the driver die between the commits of a batch, or after the second one."""
    store: Any = writer.store
    merge = store._merge

    def killed(*given: Any) -> None:
        if after:
            merge(*given)
        raise Killed

    store._merge = killed


def apply_through_faults(life: DeltaLife, batches: Sequence[list[Change]], chance: random.Random) -> None:
    """Offer each batch until it is in: by drivers that die in it, and once more after a rewind."""
    done: list[list[Change]] = []
    left = list(batches)
    has_rewound = False
    while left:
        batch, frame = len(done), life.frame(left[0])
        if chance.random() < 0.5:
            doomed = life.resume(batch)
            die(doomed, after=chance.random() < 0.5)
            with suppress(Killed):
                doomed(frame, batch)
        life.resume(batch)(frame, batch)
        done.append(left.pop(0))
        assert life.rows() == life.expected(change for part in done for change in part)
        if not has_rewound and len(done) > 1 and chance.random() < 0.6:
            has_rewound = True
            to = chance.randrange(len(done) - 1)
            life.sink.rewind.go_back(life.run, to, lambda: life.spark)
            taken = [change for part in done[to + 1 :] for change in part]
            done = done[: to + 1]
            assert life.rows() == life.expected(change for part in done for change in part)
            left = [*cut(chance.sample(taken, len(taken)), [chance.randrange(9)]), *left]


@pytest.mark.capability("CDC-09")
@pytest.mark.parametrize("seed", rounds(range(8)))
@pytest.mark.parametrize("database", ["postgres"])
def test_any_order_cut_crash_and_rewind_gives_the_table_of_postgres(
    spark: Any, database: str, postgres_url: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    options = {"ignore_null_updates": seed % 3 == 2}
    name = f"{database}_{seed}_{tmp_path.name}"[:40]
    whole = ChangeLife(spark, tmp_path / "whole", Database("postgres", postgres_url), query=name)
    whole.options, whole.change_options = {"table": name}, change_options(**options)
    whole.begin()(whole.frame(FEED), 0)
    other = life(spark, tmp_path / "delta", **options)
    apply_through_faults(other, list(cut(chance.sample(FEED, len(FEED)), [4, 7])), chance)
    assert (other.rows(), other.hidden()) == (whole.rows(), whole.hidden())
    whole.sink.reset.archive(whole.run, cast(Any, None))
    whole.sink.reset.discard(whole.run, cast(Any, None))
