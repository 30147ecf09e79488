"""What the driver of a batch of changes holds at most, against an upsert of as many rows; each batch is a process.

`python -m benchmarks.change_data_memory MASTER KIND URL ROWS` writes one batch and prints the peaks of the driver's
Python process and of its JVM in megabytes. On a local master this JVM also runs the tasks; on a cluster an executor
does.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from benchmarks.change_data import CHANGES, KEYS, TABLE, feed
from benchmarks.figures import Figure, Side
from benchmarks.memory import jvm_of
from benchmarks.processes import lines_of
from headrace.connectors.sql.postgres.sink import Postgres
from headrace.contract import ChangeOptions, SinkContext
from services import PostgresServer
from services.process import new_home

TITLE = "change data: the memory of the driver, by many changes and by many versions of one key"
RUNS = 3
VERSIONS = 1_000_000
UPSERT = "upsert"
_PROCESSES = {
    "local[2]": ("the driver's Python", "the driver's JVM, which runs the tasks too"),
    "local-cluster[1,2,1024]": ("the driver's Python, on a cluster", "the driver's JVM, on a cluster"),
}
_WORDS = {1: "the newest row of each", 2: "all intervals of each"}


def measure(*, runs: int, quick: bool) -> list[Figure]:
    feeds = {"changes": (CHANGES, KEYS), "versions": (VERSIONS, 1)}
    if quick:
        feeds = {"changes": (40_000, 10_000), "versions": (40_000, 1)}
    figures = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        server = PostgresServer(new_home("postgres"))
        stack.callback(server.remove)
        server.create()
        _make_feeds(scratch, feeds)
        databases = itertools.count()
        for (name, (count, keys)), master in itertools.product(feeds.items(), _PROCESSES):
            words = _WORDS if keys == 1 else {1: _WORDS[1]}
            peaks: dict[str, list[tuple[float, float]]] = {kind: [] for kind in (UPSERT, *map(str, words))}
            for _, (kind, values) in itertools.product(range(runs), peaks.items()):
                url = server.create_database(f"{name}_{next(databases)}")
                values.append(_peaks(master, kind, url, scratch / name))
            figures += [
                Figure(
                    name=f"{process}: {count:,} changes of {keys:,} key{'s' * (keys > 1)}, {words[kind]}",
                    ours=Side.of([pair[at] for pair in peaks[str(kind)]]),
                    theirs=Side.of([pair[at] for pair in peaks[UPSERT]]),
                    against="an upsert of as many new rows",
                    unit="MB",
                    target=None if quick else 1.2,
                    note="the peak of the process; most of that of a JVM is its heap",
                )
                for at, process in enumerate(_PROCESSES[master])
                for kind in words
            ]
    return figures


def _make_feeds(scratch: Path, feeds: dict[str, tuple[int, int]]) -> None:
    from headrace.spark.jvm.session import start

    spark = start(master="local[2]", purpose="stream", name="benchmark", overrides={})
    for name, (count, keys) in feeds.items():
        feed(spark, scratch / name, count, keys)
    spark.stop()


def _peaks(master: str, kind: str, url: str, rows: Path) -> tuple[float, float]:
    lines = lines_of([sys.executable, "-m", "benchmarks.change_data_memory", master, kind, url, rows])
    python, jvm = map(float, lines[-1].split())
    return python, jvm


def main(master: str, kind: str, url: str, rows: str) -> int:
    from headrace.spark.jvm.session import start

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as scratch:
        spark = start(master=master, purpose="stream", name="benchmark", overrides={})
        frame = spark.read.parquet(rows)
        if kind == UPSERT:
            # Each row has a key of its own, in any order.
            frame = frame.selectExpr("xxhash64(__change.sequence) AS id", "name", "city", "points")
            sink: Any = Postgres(url=url, table=TABLE, key=("id",))
        else:
            options = ChangeOptions(keys=("id",), sequence_type="BIGINT", scd_type=cast(Any, int(kind)))
            sink = Postgres(url=url, table=TABLE).changes.bind(options)
        context = SinkContext(query="bench", generation=1, mode="update", checkpoint=Path(scratch) / "checkpoint")
        sink.open(frame, context)(frame, 0)
        print(_peak(os.getpid()), _peak(jvm_of(os.getpid())))
        spark.stop()
    return 0


def _peak(process: int) -> float:
    """Not getrusage, whose peak begins with that of the process that this one was forked from."""
    peak = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[0]
    return round(int(peak) / 1024, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
