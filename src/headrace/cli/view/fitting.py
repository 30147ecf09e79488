"""A table of queries that fits its terminal: in columns, with what has no room there below, or stacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from headrace.cli.output import counted
from headrace.cli.view.formatting import NOTHING
from headrace.contract.observer import Level

STYLES: Mapping[Level, str] = {"good": "green", "warning": "yellow", "bad": "bold red", "idle": ""}
NUMBERS = ("batch", "rows in", "rows/s", "duration", "state rows", "cache hits", "restarts")
# Narrower terminals get no columns at all.
LEAST_WIDTH = 60
GAP = "  "


class Fitting:
    """Rows of a query's name, its state, and figures, the most important first.

    The figures that do not fit beside the others stand below them, each with its name where it is known, and so does
    what is said of a query besides. No figure is ever cut off. Where there is only room for `most_lines`, named figures
    are left out first, and then the last queries, which are counted.
    """

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self.rows: list[tuple[str, ...]] = []
        self.most_lines: int | None = None
        self._besides: dict[int, str] = {}
        self._styles: list[str] = []

    def add(self, *cells: str, besides: str = "", level: Level = "idle") -> None:
        """Add a query: its name, its state, which is as good as `level` says, its figures."""
        self._styles.append(STYLES[level])
        if besides:
            self._besides[len(self.rows)] = besides
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        head, blocks = self._in_columns(width) if width >= LEAST_WIDTH else self._stacked(width)
        yield from head
        room = None if self.most_lines is None else max(1, self.most_lines - len(head))
        if room is not None and sum(map(len, blocks)) > room:
            blocks = [block[:1] for block in blocks]
        shown = blocks if room is None or len(blocks) <= room else blocks[: room - 1]
        for block in shown:
            yield from block
        if len(shown) < len(blocks):
            yield Text(f"and {counted(len(blocks) - len(shown), 'query')} more", style="dim")

    def _in_columns(self, width: int) -> tuple[list[Text], list[list[Text]]]:
        """The heads of the columns, and the lines of each query."""
        sizes = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        fitting = 2
        while fitting < len(sizes) and sum(sizes[: fitting + 1]) + len(GAP) * fitting <= width:
            fitting += 1
        head = Text(GAP.join(map(_padded, self.columns[:fitting], self.columns, sizes)).rstrip(), style="bold")
        blocks = []
        for number, row in enumerate(self.rows):
            name, state, *figures = map(_padded, row[:fitting], self.columns, sizes)
            line = Text(f"{name}{GAP}").append(state, self._styles[number]).append(GAP.join(["", *figures]))
            blocks.append([line, *self._below(number, fitting, width)])
        return [head], blocks

    def _stacked(self, width: int) -> tuple[list[Text], list[list[Text]]]:
        return [], [
            [Text(f"{name}{GAP}").append(state, self._styles[number]), *self._below(number, 2, width)]
            for number, (name, state, *_) in enumerate(self.rows)
        ]

    def _below(self, number: int, shown: int, width: int) -> Iterator[Text]:
        """What else is known of a query, as much in a line as there is room for."""
        for line in wrap(self._besides.get(number, ""), width, initial_indent=GAP, subsequent_indent=2 * GAP):
            yield Text(line, style="cyan")
        known = zip(self.columns[shown:], self.rows[number][shown:], strict=True)
        line = ""
        for pair in (f"{column} {figure}" for column, figure in known if figure != NOTHING):
            if line and len(f"{GAP}{line}, {pair},") > width:
                yield Text(f"{GAP}{line},", style="dim")
                line = pair
            else:
                line = f"{line}, {pair}" if line else pair
        if line:
            yield Text(f"{GAP}{line}", style="dim")


def _padded(cell: str, column: str, size: int) -> str:
    return cell.rjust(size) if column in NUMBERS else cell.ljust(size)
