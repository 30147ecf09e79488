"""When a query makes its next batch, as users write it."""

from __future__ import annotations

import sys

from headrace.declare import place
from headrace.declare.faults import report
from headrace.errors import Finding, nearest
from headrace.model import AvailableNow, Default, Duration, Every, Once, Trigger

available_now = AvailableNow()
once = Once()

WORDS: dict[str, Trigger] = {"default": Default(), "available-now": available_now, "once": once}


def every(interval: str) -> Trigger:
    """A batch at a fixed interval: `every("5 seconds")`."""
    where = place.of_frame(sys._getframe(1))
    try:
        return Every(Duration.parse(interval))
    except (ValueError, AttributeError) as fault:
        what = str(fault) if isinstance(fault, ValueError) else "the interval of a trigger is not a text"
        report(Finding(code="HR118", what=what, fix="write every('5 seconds')", where=where))
        return Default()


def parse_trigger(text: str) -> Trigger:
    """The trigger that `text` names or whose interval it is; raises ValueError, with a sentence, when it is none."""
    word = text.strip().lower().replace("_", "-").replace(" ", "-")
    if word in WORDS:
        return WORDS[word]
    if not any(character.isdigit() for character in text):
        raise ValueError(f"there is no trigger '{text}'; {nearest(word, WORDS)}")
    return Every(Duration.parse(text.strip().removeprefix("every ")))
