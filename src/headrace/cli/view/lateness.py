"""Late rows in tables: how many in which batch, and each with how late it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from headrace.cli.output import counted
from headrace.cli.view.formatting import instant, number

if TYPE_CHECKING:
    from headrace.verify import Lateness, Replayed


def change(replay: Replayed) -> str:
    """What bringing late rows back has done."""
    if not replay.late:
        return "no late row is missing in the result"
    written = f"{counted(replay.written, 'row')} of the result written"
    deleted = f", {number(replay.deleted)} deleted" if replay.deleted else ""
    return f"{counted(replay.late, 'late row')} brought back: {written}{deleted}"


def files(found: Lateness) -> str:
    """Where the exported rows lie."""
    places = sorted({str(file.parent) for file in found.exported})
    return f"the rows are in {counted(len(found.exported), 'file')} in {', '.join(places)}"


def batch_table(found: Lateness) -> Table:
    """The counts of each operator and batch."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("batch", "dropped by", "watermark", "rows"):
        table.add_column(column, justify="right" if column in ("batch", "rows") else "left", no_wrap=True)
    for each in found.batches:
        table.add_row(number(each.batch), each.operator, instant(each.watermark), number(each.rows))
    return table


def row_table(found: Lateness) -> Table:
    """The first rows, each with its event time and how far behind the watermark it was."""
    title = f"the first {len(found.rows)} of {number(found.count)} late rows"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("batch", "event time", "behind the watermark", "row"):
        table.add_column(column, justify="right" if column == "batch" else "left", overflow="fold")
    for each in found.rows:
        table.add_row(number(each.batch), instant(each.time), str(each.behind), _cells(each.row))
    return table


def _cells(row: Mapping[str, Any]) -> Text:
    return Text(", ".join(f"{name}={_value(value)}" for name, value in row.items()))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({' to '.join(map(_value, value.values()))})"
    return str(value)
