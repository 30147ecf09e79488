"""Mobile-app events that depend on a seed alone: out of order, some late, some twice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Literal, NamedTuple

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
        """The event as one JSON line, without the line's end."""
        time = self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({"phone_id": self.phone_id, "time": time, "action": self.action})


def events(seed: int, count: int, *, first: int = 0) -> Iterator[PhoneEvent]:
    """The `count` events from number `first` on, in the order in which they arrive; the same for the same seed."""
    number, end = first, first + count
    while number < end:
        block, offset = divmod(number, BLOCK)
        for event in _block(seed, block)[offset : offset + end - number]:
            yield event
            number += 1


def _block(seed: int, block: int) -> list[PhoneEvent]:
    """The events of one block; each block has random numbers of its own, so that any of them can be made alone."""
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
