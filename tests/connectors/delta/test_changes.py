"""Change data in a Delta table, as delta-rs reads it: it equals the table of PostgreSQL, whatever happens."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import deltalake
import pytest

import headrace as hr
from headrace.connectors.delta.sink import DeltaSink
from headrace.contract import CHANGE_COLUMN, ChangeCounts, change_type
from headrace.errors import CheckpointError, Fenced, SinkError
from tests.connectors.sql.changed import COLUMNS, FEED, Change, ChangeLife, Killed, Row, change_options, cut
from tests.connectors.sql.databases import Database
from tests.connectors.sql.test_change_data import COUNTED, FULL, GAP, GAPS
from tests.rounds import rounds
from tests.runner.test_change_data import BATCHES, SOURCE, land_changes, project, run, verdict

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

    def remembered_rows(self) -> list[Row]:
        return [
            tuple(row.values())
            for row in deltalake.DeltaTable(f"{self.path}/_headrace_deletes").to_pyarrow_table().to_pylist()
        ]

    def hidden_rows(self) -> list[Row]:
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
        assert life.rows() == life.expected_rows(change for part in done for change in part)
        if not has_rewound and len(done) > 1 and chance.random() < 0.6:
            has_rewound = True
            to = chance.randrange(len(done) - 1)
            life.sink.rewind.go_back(life.run, to, lambda: life.spark)
            taken = [change for part in done[to + 1 :] for change in part]
            done = done[: to + 1]
            assert life.rows() == life.expected_rows(change for part in done for change in part)
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
    assert (other.rows(), other.hidden_rows()) == (whole.rows(), whole.hidden_rows())
    whole.sink.reset.archive(whole.run, cast(Any, None))
    whole.sink.reset.discard(whole.run, cast(Any, None))


@pytest.mark.long
def test_a_batch_says_what_it_did_and_a_delete_is_remembered(spark: Any, tmp_path: Path) -> None:
    counted = life(spark, tmp_path)
    for batch, (changes, _) in enumerate(COUNTED.values()):
        counted.resume(batch)(counted.frame(changes), batch)
    expected = {name: counts for name, (_, counts) in COUNTED.items()}
    # MERGE does not report it.
    expected["a delete that is older than the row"] = ChangeCounts()
    assert dict(zip(COUNTED, counted.counts, strict=True)) == expected
    # A batch that is in the table already changes nothing.
    before = deltalake.DeltaTable(counted.path).version()
    writer = counted.resume(batch)
    writer(counted.frame(changes), batch)
    # Its start took the next epoch.
    assert deltalake.DeltaTable(counted.path).version() == before + 1
    # Another reader, and VACUUM, see the result alone.
    spark.sql(f"VACUUM delta.`{counted.path}`")
    assert counted.rows() == counted.expected_rows(change for changes, _ in COUNTED.values() for change in changes)
    shutil.rmtree(Path(counted.path) / "_headrace_deletes")
    with pytest.raises(CheckpointError, match="HR410: directory '_headrace_deletes'"):
        counted.resume(batch + 1)(counted.frame([Change("upsert", 99, 99, 1)]), batch + 1)


def test_an_older_driver_writes_neither_the_result_nor_the_deletes(spark: Any, tmp_path: Path) -> None:
    fenced = life(spark, tmp_path)
    older, deletes = fenced.resume(0), fenced.frame([Change("delete", 9, 9, 1)])
    store: Any = older.store
    # It is paused after it has looked at the ledger.
    store.begin(deletes, 0)
    seen = store.standing(0)
    store.standing = lambda batch: seen
    fenced.resume(0)(fenced.frame([Change("upsert", 1, 0, 1), Change("upsert", 1, 1, 2)]), 0)
    with pytest.raises(Fenced):
        older(deletes, 0)
    assert (fenced.rows(), fenced.remembered_rows()) == ([(1, None, None), (2, None, None)], [])


@pytest.mark.parametrize(("batches", "ends"), rounds(GAPS.values()), ids=list(GAPS))
def test_a_value_that_no_change_has_sent_ends_the_batch(
    spark: Any, tmp_path: Path, batches: list[list[Change]], ends: int
) -> None:
    ordered = life(spark, tmp_path, refuses_gaps=True)
    for batch, changes in enumerate(batches[:ends]):
        ordered.resume(batch)(ordered.frame(changes), batch)
    writer = ordered.resume(ends)
    before = ordered.rows()
    with pytest.raises(SinkError, match=r"HR297: .*the row id=1 leaves out large values"):
        writer(ordered.frame(batches[ends]), ends)
    assert ordered.rows() == before


def test_values_that_earlier_changes_have_sent_stay_and_a_change_without_a_key_ends_its_batch(
    spark: Any, tmp_path: Path
) -> None:
    ordered = life(spark, tmp_path, refuses_gaps=True)
    ordered.resume(0)(ordered.frame([FULL]), 0)
    ordered.resume(1)(ordered.frame([GAP]), 1)
    assert ordered.rows() == [(1, "y", "large")]
    with pytest.raises(SinkError, match=r"HR408: .*1 changes have no key \(id\)"):
        ordered.resume(2)(ordered.frame([Change("upsert", 9, 9, None, "x"), Change("truncate", 0, 10)]), 2)


PROJECT = SOURCE.replace("sqlite: {path: out.db, table: customers}", "delta: {path: lake}")


@pytest.mark.capability("CDC-09")
def test_a_copy_in_delta_is_verified_rewound_and_rebuilt(spark: Any, tmp_path: Path) -> None:
    root = project(tmp_path / "shop", BATCHES[:2], text=PROJECT)

    def rows() -> list[Row]:
        table = deltalake.DeltaTable(str(root / "lake")).to_pyarrow_table(columns=["id", "name", "city"])
        return sorted(tuple(row.values()) for row in table.to_pylist())

    assert run(root, spark) == []
    assert rows() == [(1, "Ada", "Lyon"), (3, "Cy", "Bonn")]
    change = hr.rewind(hr.load(root), "copy", to_batch=0, spark=spark)
    change.apply()
    assert rows() == [(2, "Bob", "Rome")]
    # One batch takes the file that comes again and the third one.
    config = root / "headrace.yml"
    config.write_text(config.read_text().replace("max_files_per_trigger: 1", "max_files_per_trigger: 3"))
    land_changes(root, 2, BATCHES[2])
    assert run(root, spark) == []
    assert (rows(), verdict(root, spark)) == ([(1, "Ada", "Lyon"), (3, "Cy", "Bonn")], "equal")
    spark.sql(f"UPDATE delta.`{root / 'lake'}` SET city = 'Rome' WHERE id = 1")
    assert verdict(root, spark) == "mismatch"
    hr.rebuild(hr.load(root), "copy", spark=spark).apply()
    assert (rows(), verdict(root, spark)) == ([(1, "Ada", "Lyon"), (3, "Cy", "Bonn")], "equal")
    # The former table comes back as it was, wrong row and all.
    assert hr.rebuild(hr.load(root), "copy", spark=spark).undo().done == "rolled-back"
    assert rows() == [(1, "Ada", "Rome"), (3, "Cy", "Bonn")]
