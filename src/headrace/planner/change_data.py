"""How a query's rows change the table of its sink: as data, and two forms of it compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.checks.change_data import sequence_types
from headrace.generations.manifest import QueryForm
from headrace.model import Project, Query
from headrace.planner.difference import Kind, PlanDifference, text_of

_REBUILT = "what is stored was kept by the former one, and no change that is to come puts it right"
_FROM_NOW_ON = "changes that come from now on follow the new one, and what is stored the former one"
# What the edit of an option means, in the order in which options are shown; the page "Change data" shows the table.
EDITS: dict[str, tuple[Kind, str]] = {
    "keys": ("rebuild", "rows that are there are found by the former key"),
    "sequence_by": ("rebuild", "the sequences that are stored cannot be compared with those that come"),
    "sequence type": ("rebuild", "the sequences that are stored cannot be compared with those that come"),
    "stored_as_scd_type": ("rebuild", "the table has other columns, and the changes before are not in it"),
    "start_column": ("rebuild", "the table has the column under its former name"),
    "end_column": ("rebuild", "the table has the column under its former name"),
    "apply_as_deletes": ("forward", _FROM_NOW_ON),
    "apply_as_truncates": ("forward", _FROM_NOW_ON),
    "tracked columns": ("forward", _FROM_NOW_ON),
    "ignore_null_updates": ("forward", _FROM_NOW_ON),
    "delete_when": ("forward", "rows that come from now on follow the new one, and what is stored the former one"),
    "keep_deletes": ("safe", "deletes are remembered for another time from now on"),
}
_OF_HISTORY = ("start_column", "end_column", "tracked columns")


def change_facts(project: Project, query: Query) -> dict[str, Any]:
    """Return how the rows of `query` are applied as changes, or when one is deleted; empty where neither is so."""
    cdc = query.cdc
    if cdc is None:
        return {} if query.delete_when is None else {"delete_when": query.delete_when}
    facts: dict[str, Any] = {
        "keys": list(cdc.keys),
        "sequence type": ", ".join(sequence_types(project, query, cdc)),
        "stored_as_scd_type": cdc.stored_as_scd_type,
        "ignore_null_updates": cdc.ignore_null_updates,
        "keep_deletes": cdc.keep_deletes.seconds,
    }
    if cdc.sequence_by:
        facts["sequence_by"] = ", ".join(cdc.sequence_by)
    for option in ("apply_as_deletes", "apply_as_truncates"):
        if (given := getattr(cdc, option)) is not None:
            facts[option] = " ".join(given.split())
    if cdc.stored_as_scd_type == 2:
        tracked, untracked = cdc.track_history_column_list, cdc.track_history_except_column_list
        facts["start_column"], facts["end_column"] = cdc.start_column, cdc.end_column
        facts["tracked columns"] = sorted(tracked) if tracked is not None else "all"
        if untracked:
            facts["tracked columns"] = f"all but {', '.join(sorted(untracked))}"
    return facts


def compare_changes(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    """Yield what differs in how changes are applied."""
    old, new = before.changes, now.changes
    if ("keys" in old) != ("keys" in new):
        yield PlanDifference(
            verdict="rebuild",
            about="cdc",
            part="what the rows are",
            before="changes of a table" if "keys" in old else "rows of the result",
            now="changes of a table" if "keys" in new else "rows of the result",
            why=_REBUILT,
        )
        return
    is_other_type = old.get("stored_as_scd_type") != new.get("stored_as_scd_type")
    for option, (verdict, why) in EDITS.items():
        if old.get(option) == new.get(option):
            continue
        if is_other_type and option in _OF_HISTORY:
            continue  # Those without a history have none.
        yield PlanDifference(
            verdict=verdict,
            about=option if option == "delete_when" else f"cdc {option}",
            part=option if option == "delete_when" else f"cdc, {option}",
            before=text_of(old.get(option)),
            now=text_of(new.get(option)),
            why=why,
        )
