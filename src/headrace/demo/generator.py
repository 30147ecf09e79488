"""Let events land as files, at a steady rate: `python -m headrace.demo.generator DIRECTORY`."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headrace.demo.events import BLOCK, events
from headrace.storage.durable import replacing

_NAME = re.compile(r"events-(\d{6,})\.json")


def write_file(directory: Path, number: int, *, seed: int, rows: int = BLOCK) -> Counter[str]:
    """Write file `number` and count its events by kind.

    It appears whole or not at all: Spark leaves out names that begin with a dot, and a rename is atomic.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"events-{number:06d}.json"
    kinds: Counter[str] = Counter()
    with replacing(path) as file:
        for event in events(seed, rows, first=number * rows):
            kinds[event.kind] += 1
            file.write(event.as_json() + "\n")
    return kinds


def next_number(directory: Path) -> int:
    """The number of the file to write next: one after the last that has landed."""
    names = (_NAME.fullmatch(path.name) for path in directory.glob("events-*.json"))
    return max((int(name.group(1)) for name in names if name), default=-1) + 1


def generate(
    directory: Path,
    *,
    seed: int,
    rows_per_second: float,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Counter[str]]:
    """Write files for `seconds`, resuming where an earlier generator stopped; yield what each file holds.

    What is written depends on the seed and the numbers of the files alone; the rate only says when.
    """
    first = next_number(directory)
    interval = BLOCK / rows_per_second
    started = clock()
    for count in range(max(1, round(seconds / interval))):
        sleep(max(0.0, started + count * interval - clock()))
        yield write_file(directory, first + count, seed=seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate, telling on stdout what has landed, a JSON line for each file; end when the reader is gone."""
    parser = argparse.ArgumentParser(prog="python -m headrace.demo.generator", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rows-per-second", type=float, default=4000)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args(arguments)
    files = generate(given.directory, seed=given.seed, rows_per_second=given.rows_per_second, seconds=given.seconds)
    try:
        for kinds in files:
            print(json.dumps({"event": "landed", "rows": sum(kinds.values()), **kinds}), flush=True)
    except (KeyboardInterrupt, BrokenPipeError):
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
