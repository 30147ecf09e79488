"""Options that several connectors have: Spark's names for them, and their faults."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.contract import OptionError
from headrace.units import spark_milliseconds


def spark_options(connector: object, *options: str) -> dict[str, str]:
    """Return those options that have a value, by Spark's names: `num_partitions` as `numPartitions`."""
    texts = {}
    for option in options:
        value = getattr(connector, option)
        if value is not None:
            name = re.sub("_(.)", lambda part: part[1].upper(), option)
            texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def not_above_zero(connector: object, *options: str) -> Iterator[OptionError]:
    """Refuse each option whose value is a number below 1."""
    for option in options:
        value = getattr(connector, option)
        if isinstance(value, int) and value <= 0:
            yield OptionError(what=f"{option} is {value}", fix=f"give {option} a number above 0")


def no_length(option: str, text: str | None, example: str, *, least_ms: float = 0) -> Iterator[OptionError]:
    """Refuse an option whose value is not a length of time to Spark, or is shorter than `least_ms`."""
    milliseconds = least_ms if text is None else spark_milliseconds(text)
    if milliseconds is None or milliseconds < least_ms:
        yield OptionError(what=f"{option} '{text}' is not a length of time", fix=f"write for example {example}")


def no_pattern(option: str, text: str | None, example: str) -> Iterator[OptionError]:
    """Refuse an option whose value is not a regular expression."""
    try:
        re.compile(text or "")
    except re.error as error:
        yield OptionError(what=f"{option} is not a pattern: {error}", fix=f"write a regular expression, as {example}")


def silent_loss(fails: bool, lost: str) -> Iterator[OptionError]:
    """Warn of what it means that `fail_on_data_loss` is false."""
    if not fails:
        yield OptionError(
            code="HR337",
            what=f"fail_on_data_loss is false: {lost} that go before they are read are missed silently",
            fix="leave it true, unless the result may miss rows",
            severity="warning",
        )
