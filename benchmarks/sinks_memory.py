"""One batch into one place, in a process of its own; prints the peak of the process's memory in megabytes."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from benchmarks.sinks_other_ways import batches
from benchmarks.sinks_places import place_at
from headrace.testing.spark_session import local_session


def main(name: str, url: str, rows: str, number: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        spark = local_session(Path(scratch))
        frame = spark.read.parquet(rows).limit(int(number)) if int(number) < 10_000 else spark.read.parquet(rows)
        next(batches(place_at(name, url, Path(scratch)), frame, "update"))
        # Not getrusage, whose peak begins with that of the process that this one was forked from.
        print(int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
