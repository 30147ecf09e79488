"""Events of a mobile app, which depend on a seed alone, and a generator that lets them land as files.

`python -m headrace.demo.generator DIRECTORY`; some events are out of order, some late, some twice.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal, NamedTuple

from headrace.storage.durable import replacing

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECONDS_APART = 3
BLOCK = 1000
PHONES = 500
ACTIONS = {"open": 30, "close": 25, "tap": 30, "search": 10, "buy": 5}

MINUTES_OUT_OF_ORDER = 5
HOURS_LATE = (3, 12)
SHARE_LATE = 0.01
SHARE_TWICE = 0.01

Kind = Literal["usual", "late", "twice"]


class PhoneEvent(NamedTuple):
    """One action on one phone; `time` is when it happened there, `kind` is not part of what is written."""

    phone_id: str
    time: datetime
    action: str
    kind: Kind = "usual"

    def as_json(self) -> str:
        """Return the event as one JSON line, without the line's end."""
        time = self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({"phone_id": self.phone_id, "time": time, "action": self.action})


def events(seed: int, count: int, *, first: int = 0) -> Iterator[PhoneEvent]:
    """Yield `count` events from number `first` on, in their order of arrival; the same for the same seed."""
    number, end = first, first + count
    while number < end:
        block, offset = divmod(number, BLOCK)
        for event in _block(seed, block)[offset : offset + end - number]:
            yield event
            number += 1


def _block(seed: int, block: int) -> list[PhoneEvent]:
    """Return the events of one block; each has its own random numbers, so that it can be made alone."""
    chance = random.Random(f"{seed}:{block}")
    actions, weights = list(ACTIONS), list(ACTIONS.values())
    made: list[PhoneEvent] = []
    for number in range(block * BLOCK, (block + 1) * BLOCK):
        passed = number * SECONDS_APART
        fate = chance.random()
        if fate < SHARE_TWICE and made:
            made.append(chance.choice(made)._replace(kind="twice"))
            continue
        if late := fate < SHARE_TWICE + SHARE_LATE and passed >= HOURS_LATE[1] * 3600:
            behind = chance.uniform(*HOURS_LATE) * 3600
        else:
            behind = min(chance.expovariate(1 / 20), MINUTES_OUT_OF_ORDER * 60, passed)
        made.append(
            PhoneEvent(
                phone_id=f"phone-{chance.randrange(PHONES):04d}",
                time=FIRST + timedelta(milliseconds=round((passed - behind) * 1000)),
                action=chance.choices(actions, weights)[0],
                kind="late" if late else "usual",
            )
        )
    return made


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
    """Return the number of the file to write next: one after the last that has landed."""
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
    """Generate files, and print a JSON line for each; end when the reader closes stdout."""
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
