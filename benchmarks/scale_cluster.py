"""One project on local[1], local[2] and clusters of one and of two workers; each batch on all of them, turn by turn."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.events import Events, events
from benchmarks.figures import Figure, Side, Unit
from benchmarks.headline import compare
from benchmarks.scale_drivers import Batch, Driver, cluster, driver
from benchmarks.scale_rows import Groups, tiny_files
from services import PostgresServer
from services.process import new_home

SIDES = ("local[1]", "cluster of 1", "local[2]", "cluster of 2")
EVENTS, GROUP_ROWS = 5_000_000, 2_000_000
FEW_EVENTS, FEW_GROUP_ROWS = 50_000, 20_000
# Tiny batches of one turn, of which the middle one counts.
TINY = 5
COST, GROWTH = 1.15, round(1 / 1.7, 4)

PROJECT = """name: scale
sources:
  events:
    files:
      {{path: landing/headline, format: json, schema: "phone_id STRING, time TIMESTAMP, action STRING"}}
    watermark: {{column: time, delay: 10 minutes}}
  numbers:
    files: {{path: landing/groups, format: parquet, schema: "time TIMESTAMP, number BIGINT"}}
    watermark: {{column: time, delay: 10 minutes}}
  few:
    files: {{path: landing/tiny, format: parquet, schema: "value BIGINT", max_files_per_trigger: 1}}
queries:
  headline:
    select: >
      SELECT action, window.start AS hour, count
      FROM (SELECT action, window(time, '1 hour') AS window, count(*) AS count
            FROM events GROUP BY action, window(time, '1 hour'))
    mode: update
    trigger: {{every: 1 second}}
    sink: {{sqlite: {{path: headline.db, table: counts, key: [action, hour]}}}}
  groups:
    select: >
      SELECT window.start AS hour, number, count(*) AS count
      FROM numbers GROUP BY window(time, '1 hour'), number
    mode: update
    trigger: {{every: 1 second}}
    sink: {{postgres: {{url: "{database}", table: groups, key: [hour, number]}}}}
  tiny:
    select: SELECT value % 100 AS key, count(*) AS count FROM few GROUP BY value % 100
    mode: update
    trigger: {{every: 500 milliseconds}}
    sink: {{sqlite: {{path: tiny.db, table: counts, key: [key]}}}}
targets:
  dev:
    master: "{master}"
    spark:
      # Each side has the same two state partitions.
      spark.sql.shuffle.partitions: "2"
      # A batch without rows would come while the next side is measured.
      spark.sql.streaming.noDataMicroBatches.enabled: "false"
{more}"""
ON_CLUSTER = """      spark.cores.max: "{workers}"
      spark.executor.cores: "1"
      spark.executor.memory: 1g
"""
SHARED = "driver, executors and the database share the machine's two cores"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is landed for one turn of a query, and what it is called; with targets, or only to be seen."""

    query: str
    name: str
    turns: Sequence[Sequence[Path]]
    has_targets: bool = True


def measure(*, runs: int, quick: bool) -> list[Figure]:
    given = events(FEW_EVENTS if quick else EVENTS, files=runs + 1)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        groups = Groups.make(scratch / "rows", FEW_GROUP_ROWS if quick else GROUP_ROWS, files=runs + 1)
        few = tiny_files(scratch / "few", (runs + 1) * TINY)
        jobs = [
            Job(
                query="headline",
                name=f"{sum(given.counts.values()):,} events into SQLite",
                turns=[[path] for path in sorted(given.directory.iterdir())],
            ),
            Job(
                query="groups",
                name=f"{groups.groups:,} groups into PostgreSQL",
                turns=[[path] for path in groups.files],
            ),
            Job(
                query="tiny",
                name="a tiny batch into SQLite",
                turns=[few[first : first + TINY] for first in range(0, len(few), TINY)],
                has_targets=False,
            ),
        ]
        sides = _sides(stack, scratch)
        turns = [_turns(job, sides) for job in jobs]
        for side, running in sides.items():
            _compare(side, running, given, groups)
    return [figure for job, took in zip(jobs, turns, strict=True) for figure in _figures(job, took)]


def _sides(stack: ExitStack, scratch: Path) -> dict[str, Driver]:
    """The project started on each side, its own database in one server."""
    server = PostgresServer(new_home("postgres"))
    stack.callback(server.remove)
    server.create()
    drivers = {}
    for number, side in enumerate(SIDES):
        place = scratch / f"side-{number}"
        master, more, home = side, "", None
        if side.startswith("cluster"):
            workers = int(side.split()[-1])
            home = scratch / f"cluster-{workers}"
            master, more = stack.enter_context(cluster(home, workers)), ON_CLUSTER.format(workers=workers)
        database = server.create_database(f"side_{number}")
        place.mkdir()
        text = PROJECT.format(database=database, master=master, more=more)
        (place / "headrace.yml").write_text(text, encoding="utf-8")
        (place / "database").write_text(database)
        drivers[side] = stack.enter_context(driver(place, home, landings=("headline", "groups", "tiny")))
    return drivers


def _turns(job: Job, sides: dict[str, Driver]) -> dict[str, list[Batch]]:
    """What each side took for each turn but the first, which warms up."""
    by_side: dict[str, list[Batch]] = {side: [] for side in sides}
    for number, files in enumerate(job.turns):
        # What runs second finds a warmer machine, or a busier one.
        for side in sorted(sides, reverse=number % 2 == 1):
            batches = [sides[side].batch(job.query, path) for path in files]
            if number:
                by_side[side].append(_middle(batches))
    return by_side


def _middle(batches: Sequence[Batch]) -> Batch:
    """The medians of what some batches took."""
    return Batch(*(statistics.median(values) for values in zip(*batches, strict=True)))


def _figures(job: Job, took: dict[str, list[Batch]]) -> list[Figure]:
    unit: Unit = "ms" if job.query == "tiny" else "s"

    def side(name: str, value: Callable[[Batch], float]) -> Side:
        return Side.of([value(batch) * (1000 if unit == "ms" else 1) for batch in took[name]])

    def figure(title: str, ours: str, theirs: str, target: float | None) -> Figure:
        return Figure(
            name=f"{job.name}: {title}",
            ours=side(ours, lambda batch: batch.seconds),
            theirs=side(theirs, lambda batch: batch.seconds),
            against=theirs,
            unit=unit,
            target=target if job.has_targets else None,
            note=f"triggerExecution of one batch of {len(took[ours]) + 1}; {SHARED}",
        )

    def cpu(cores: int) -> Figure:
        ours, theirs = f"cluster of {cores}", f"local[{cores}]"
        driver = statistics.median(batch.driver_cpu for batch in took[ours])
        executors = statistics.median(batch.executors_cpu for batch in took[ours])
        return Figure(
            name=f"{job.name}: CPU time, a {ours}",
            ours=side(ours, lambda batch: batch.driver_cpu + batch.executors_cpu),
            theirs=side(theirs, lambda batch: batch.driver_cpu),
            against=theirs,
            unit=unit,
            note=f"of the cluster's, in seconds, {driver:.2f} in the driver and {executors:.2f} in workers and "
            "executors; with compilation and collection, without the database's server",
        )

    return [
        figure("a cluster of 1 worker", "cluster of 1", "local[1]", COST),
        figure("a cluster of 2 workers", "cluster of 2", "local[2]", COST),
        figure("2 workers instead of 1", "cluster of 2", "cluster of 1", GROWTH),
        figure("2 cores of one process instead of 1", "local[2]", "local[1]", None),
        cpu(1),
        cpu(2),
    ]


def _compare(side: str, running: Driver, given: Events, groups: Groups) -> None:
    """Raise if a side's results are not the expected ones."""
    compare(side, running.place / "headline.db", given.counts)
    with psycopg.connect((running.place / "database").read_text()) as connection:
        row = connection.execute("SELECT count(*), sum(count) FROM groups").fetchone()
    if row is None or (row[0], int(row[1])) != (groups.groups, groups.rows):
        raise RuntimeError(f"'{side}' holds {row} groups and rows instead of {groups.groups} and {groups.rows}")
