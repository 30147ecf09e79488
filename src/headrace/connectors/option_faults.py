"""Faults of options that several connectors have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.contract import OptionError


def not_above_zero(connector: object, *options: str) -> Iterator[OptionError]:
    """That an option whose value is a number has one below 1."""
    for option in options:
        value = getattr(connector, option)
        if isinstance(value, int) and value <= 0:
            yield OptionError(what=f"{option} is {value}", fix=f"give {option} a number above 0")


def no_pattern(option: str, text: str | None, example: str) -> Iterator[OptionError]:
    """That the value of an option is no regular expression."""
    try:
        re.compile(text or "")
    except re.error as error:
        yield OptionError(what=f"{option} is no pattern: {error}", fix=f"write a regular expression, as {example}")


def silent_loss(fails: bool, lost: str) -> Iterator[OptionError]:
    """What it means that `fail_on_data_loss` is false."""
    if not fails:
        yield OptionError(
            code="HR337",
            what=f"fail_on_data_loss is false: {lost} that go before they are read are missed silently",
            fix="leave it true, unless the result may miss rows",
            severity="warning",
        )
