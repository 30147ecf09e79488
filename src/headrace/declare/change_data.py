"""The options of change data, as `@hr.cdc` or a file of YAML gives them, judged one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any

from headrace.declare.declarations import Fault
from headrace.declare.option_values import OptionValueError, read_option
from headrace.errors import Where, nearest
from headrace.model.change_data import ChangeData
from headrace.units import some_time

CDC_KEYS = tuple(option.name for option in fields(ChangeData))
# The options that name columns.
NAMING = ("keys", "sequence_by", *(option for option in CDC_KEYS if option.endswith("_list")))
_PAIRS = (
    ("column_list", "except_column_list"),
    ("track_history_column_list", "track_history_except_column_list"),
)
DELETE_WHEN_FIX = "write for example delete_when: closed"
# Several columns as Lakeflow has them, and the name of each.
_STRUCT, _NAMES = re.compile(r"(?is)\s*struct\s*\((.*)\)\s*"), re.compile(r"`([^`]+)`|([^`,\s][^`,]*)")
_OF_HISTORY = ("track_history_column_list", "track_history_except_column_list", "start_column", "end_column")


def read_change_data(
    given: Mapping[str, Any],
    whose: str,
    where: Where,
    fault: Fault,
    lines: Mapping[str, Where] = MappingProxyType({}),
) -> ChangeData | None:
    """Return the options that are given; None where one of them is wrong, each of which is a fault.

    Args:
        given: The options by their names; those that are None are left out.
        whose: What messages call the query.
        where: Where the query is declared.
        fault: Takes each fault.
        lines: Where single options stand, if that is known.
    """
    values: dict[str, Any] = {}
    is_sound = True

    def report(code: str, what: str, fix: str, option: str = "") -> None:
        nonlocal is_sound
        is_sound = False
        fault(code, f"{whose}, cdc: {what}", fix, lines.get(option, where))

    for option, value in given.items():
        if option not in CDC_KEYS:
            report("HR103", f"there is no option '{option}'", nearest(option, CDC_KEYS), option)
            continue
        if value is None:
            continue
        try:
            values[option] = some_time(str(value)) if option == "keep_deletes" else _read(option, value)
        except OptionValueError as error:
            report("HR113", f"option '{option}' takes {error}", error.fix, option)
        except ValueError as error:
            report("HR104", f"{option}: {error}", "write for example 7 days", option)
    if not values.get("keys"):
        if "keys" not in given or given["keys"] is None or "keys" in values:
            report("HR112", "the columns that identify a row are not named", "write keys: [id]", "keys")
        return None
    for one, other in _PAIRS:
        if values.get(one) is not None and values.get(other) is not None:
            report("HR113", f"{one} and {other} are both given", "give one of the two", other)
    if is_sound and values.get("stored_as_scd_type", 1) == 1:
        for option in (name for name in _OF_HISTORY if name in values):
            fix = "set stored_as_scd_type to 2, or leave the option out"
            report("HR113", f"{option} has no meaning without a history", fix, option)
    for twice in sorted({name for name in values["keys"] if values["keys"].count(name) > 1}):
        report("HR113", f"keys names '{twice}' twice", "name each column once", "keys")
    return ChangeData(**values) if is_sound else None


def condition(given: Any) -> str:
    """Return a condition as one line.

    Raises:
        ValueError: It is no text, or an empty one.
    """
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"{given!r} is no condition")
    return " ".join(given.split())


def _read(option: str, value: Any) -> Any:
    if option == "stored_as_scd_type":
        text = str(value).strip()
        if isinstance(value, bool) or text not in ("1", "2"):
            takes = "1, which keeps the newest row of each key, or 2, which keeps its history"
            raise OptionValueError(takes, "write 1 or 2; Headrace has no other type")
        return int(text)
    if option == "sequence_by" and isinstance(value, str) and (inside := _STRUCT.fullmatch(value)):
        value = [quoted or name.strip() for quoted, name in _NAMES.findall(inside[1])]
    if option in NAMING:
        value = [value] if isinstance(value, str) else value
    return read_option(ChangeData, option, value)


def required_options() -> list[str]:
    """Return the options that must be given."""
    return [option.name for option in fields(ChangeData) if option.default is MISSING]
