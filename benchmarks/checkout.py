"""This checkout against another one, an earlier commit for example: the headline job, a tiny batch, the database sinks.

`OTHER=DIR make bench NAME=checkout` names the other: a clone with its own `.venv`, set up by `make setup` in it. Both
run the same project files by their own `headrace`, turn by turn, and each turn begins with the other of the two.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import headline, micro_batch
from benchmarks.events import events
from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_of, seconds
from benchmarks.sinks_places import PLACES, Place, open_place
from benchmarks.sinks_rows import KEY, Rows

TITLE = "this checkout against another: headline, a tiny batch, the database sinks"
RUNS = 7
ROWS, FEW_ROWS = 1_000_000, 20_000
# Slower than this counts as slower.
TARGET = 1.03
_PREPARED = "the same project and input; each turn begins with the other side"

_PROJECT = """name: rows
sources:
  rows:
    files:
      path: {landing}
      format: parquet
      schema: "device STRING, begins TIMESTAMP, ends TIMESTAMP, total BIGINT"
      max_files_per_trigger: 2
queries:
  counts:
    select: SELECT device, begins, ends, total FROM rows
    mode: {mode}
    trigger: available-now
    sink: {{{sink}: {{{place}, table: counts{key}}}}}
targets:
  dev: {{master: "local[2]"}}
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    pair = Pair.with_other(runs)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        return [
            *_headline(pair, scratch, quick),
            *_tiny(pair, scratch, quick),
            *sinks(Pair.with_other(min(runs, 3)), scratch, FEW_ROWS if quick else ROWS, stack),
        ]


class Pair:
    """This checkout and the other one, turn by turn; the first turn warms the disk cache and does not count."""

    def __init__(self, other: tuple[str, ...], runs: int) -> None:
        self.commands, self.runs = {"ours": HEADRACE, "theirs": other}, runs

    @classmethod
    def with_other(cls, runs: int) -> Pair:
        """With the checkout that OTHER names."""
        other = Path(os.environ.get("OTHER", "")) / ".venv" / "bin" / "headrace"
        if not other.exists():
            raise SystemExit("OTHER names no checkout that is set up; run `make setup` in it and give its directory")
        return cls((str(other),), runs)

    def run(self, one: Callable[[tuple[str, ...]], dict[str, float]], unit: str) -> Iterator[Figure]:
        """The figures of what `one` measures with each side's command."""
        took: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
        for turn in range(self.runs + 1):
            for side in sorted(took, reverse=turn % 2 == 1):
                measured = one(self.commands[side])
                if turn:
                    took[side].append(measured)
        for name in took["ours"][0]:
            ours, theirs = (Side.of([run[name] for run in took[side]]) for side in ("ours", "theirs"))
            figure = Figure(
                name=name,
                ours=ours,
                theirs=theirs,
                against="the other checkout",
                unit=unit,  # type: ignore[arg-type]
                target=TARGET,
                note=_PREPARED,
            )
            print(figure, flush=True)
            yield figure


def _headline(pair: Pair, scratch: Path, quick: bool) -> Iterator[Figure]:
    few = headline.FEW_EVENTS, headline.FEW_FILES
    given = events(few[0], files=few[1]) if quick else events(headline.EVENTS, files=headline.FILES)

    def one(command: tuple[str, ...]) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=scratch) as home:
            place = Path(home)
            (place / "headrace.yml").write_text(headline.project(given, ""), encoding="utf-8")
            took = seconds([*command, "run"], cwd=place)
            headline.compare("a checkout", place / "result.db", given.counts)
        return {"headline job": took}

    yield from pair.run(one, "s")


def _tiny(pair: Pair, scratch: Path, quick: bool) -> Iterator[Figure]:
    span = micro_batch.Span(3, 6) if quick else micro_batch.Span(10, 40)
    yield from pair.run(lambda command: {"a tiny batch": micro_batch.ours(span, command)}, "ms")


def sinks(pair: Pair, scratch: Path, count: int, stack: ExitStack, *, upserts: bool = True) -> Iterator[Figure]:
    rows = Rows.make(scratch / "rows", count)
    landing = scratch / "landing"
    landing.mkdir()
    for turn in range(2):
        for file in sorted(rows.shuffled.glob("*.parquet")):
            copy = landing / f"{turn}-{file.name}"
            shutil.copyfile(file, copy)
            # The first two files are the first batch.
            os.utime(copy, (1_700_000_000 + turn, 1_700_000_000 + turn))
    for name in PLACES:
        place = stack.enter_context(open_place(name, scratch))

        def one(command: tuple[str, ...], place: Place = place) -> dict[str, float]:
            (append, _) = _batches(command, place, landing, scratch, mode="append")
            place.require(2 * count)
            pairs = "" if upserts else f", {pair.runs} pairs"
            figures = {f"{place.title}: append of {count:,} rows{pairs}": append}
            if upserts:
                new, existing = _batches(command, place, landing, scratch, mode="update")
                place.require(count)
                figures[f"{place.title}: upsert of {count:,} new rows"] = new
                figures[f"{place.title}: upsert of {count:,} existing rows"] = existing
            return figures

        yield from pair.run(one, "s")


def _batches(command: tuple[str, ...], place: Place, landing: Path, scratch: Path, *, mode: str) -> list[float]:
    """The seconds of the two batches of one run into an empty place."""
    place.clear()
    place.settle()
    with tempfile.TemporaryDirectory(dir=scratch) as home:
        where = {"sqlite": f"path: {place.url}"}.get(place.name, f'url: "{place.url}"')
        key = f", key: [{', '.join(KEY)}]" if mode == "update" else ""
        sink = {"mariadb": "mysql"}.get(place.name, place.name)
        text = _PROJECT.format(landing=landing, mode=mode, sink=sink, place=where, key=key)
        (Path(home) / "headrace.yml").write_text(text, encoding="utf-8")
        lines = map(json.loads, lines_of([*command, "run", "--json"], cwd=Path(home)))
        return [line["duration_ms"] / 1000 for line in lines if "duration_ms" in line]
