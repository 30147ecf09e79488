"""`python -m benchmarks NAME [--quick] [--runs N]`: run one benchmark and write its result; without NAME, list them."""

from __future__ import annotations

import argparse
from importlib import import_module

from benchmarks.figures import Skipped, write

NAMES = (
    "cli",
    "session",
    "micro_batch",
    "headline",
    "sinks",
    "model",
    "verify",
    "fairness",
    "durability",
    "checkout",
    "checkout_appends",
    "rewind",
    "change_data",
    "change_data_memory",
    "change_data_stream",
    "change_data_flink",
    "operate",
    "deploys",
    "lifetime",
    "scale",
    "kafka_sink",
    "kit",
    "against_flink",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES)
    parser.add_argument("--quick", action="store_true", help="small and few, to see that it works")
    parser.add_argument("--runs", type=int, help="how many times each side runs")
    asked = parser.parse_args()
    if asked.name is None:
        for name in NAMES:
            print(f"{name:12} {import_module(f'benchmarks.{name}').TITLE}")
        return 0
    benchmark = import_module(f"benchmarks.{asked.name}")
    try:
        figures = benchmark.measure(runs=asked.runs or (1 if asked.quick else benchmark.RUNS), quick=asked.quick)
    except Skipped as reason:
        print(f"{asked.name} is skipped: {reason}")
        return 0
    for figure in figures:
        print(figure)
    # A benchmark whose options may leave something out says whether they do.
    trial = asked.quick or getattr(benchmark, "is_trial", lambda: False)()
    print(write(asked.name, benchmark.TITLE, figures, quick=trial))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
