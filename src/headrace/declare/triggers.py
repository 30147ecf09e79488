"""When a query makes its next batch, as users write it."""

from __future__ import annotations

import sys

from headrace.declare import location as place
from headrace.declare.faults import report
from headrace.errors import Finding, nearest
from headrace.model import AvailableNow, Continuous, Default, Duration, Every, Once, RealTime, Trigger

available_now = AvailableNow()
once = Once()

WORDS: dict[str, Trigger] = {"default": Default(), "available-now": available_now, "once": once}


# Those that take a length of time, by the word before it.
TIMED: dict[str, type[Every] | type[Continuous] | type[RealTime]] = {
    "every": Every,
    "continuous": Continuous,
    "real_time": RealTime,
}


def every(interval: str) -> Trigger:
    """A batch at a fixed interval: `every("5 seconds")`."""
    return _timed("every", interval)


def continuous(checkpoint: str) -> Trigger:
    """No batches, but rows one by one, with a checkpoint at this interval: `continuous("1 second")`."""
    return _timed("continuous", checkpoint)


def real_time(batch: str) -> Trigger:
    """Rows one by one, in batches of this length, at least 5 seconds: `real_time("5 minutes")`."""
    return _timed("real_time", batch)


def _timed(word: str, interval: str) -> Trigger:
    where = place.of_frame(sys._getframe(2))
    try:
        return TIMED[word](Duration.parse(interval))
    except (ValueError, AttributeError) as error:
        what = str(error) if isinstance(error, ValueError) else "the interval of a trigger is not a text"
        report(Finding(code="HR118", what=what, fix=f"write {word}('5 seconds')", where=where))
        return Default()


def parse_trigger(text: str) -> Trigger:
    """The trigger that `text` names or whose interval it is; raises ValueError, with a sentence, when it is none."""
    word = text.strip().lower().replace("_", "-").replace(" ", "-")
    if word in WORDS:
        return WORDS[word]
    first, _, rest = text.strip().partition(" ")
    if first.lower() in TIMED and not any(character.isdigit() for character in rest):
        raise ValueError(f"'{rest.strip()}' is no length of time")
    if not any(character.isdigit() for character in text):
        near = nearest(word, WORDS)
        raise ValueError(f"there is no trigger '{text}'" + (f"; {near}" if near.startswith("did you mean") else ""))
    if (kind := TIMED.get(first.lower().replace("-", "_"))) is not None:
        return kind(Duration.parse(rest))
    return Every(Duration.parse(text))
