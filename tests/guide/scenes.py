"""The guide's examples as small projects: their data lands file by file, and the result is looked at after each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from headrace.api import check, load, run
from headrace.contract import BatchRecord, Observer
from headrace.errors import Finding
from headrace.model import Default
from headrace.starter.request import Request
from headrace.starter.start import start_query
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = "2024-01-01"
HEAD = "import headrace as hr\nfrom pyspark.sql import functions as F\n"
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The sink after one batch. written: how many rows the batch brought; watermark: in force in it, as `12:04`."""

    table: list[tuple[Any, ...]]
    written: int
    watermark: str | None


@dataclass(kw_only=True)
class Played(Observer):
    """What one run did: the sink after each batch, and the batches as the product reports them."""

    triggers: list[Trigger] = field(default_factory=list)
    batches: list[BatchRecord] = field(default_factory=list)
    exit_code: int = 0

    def progressed(self, record: BatchRecord) -> None:
        self.batches.append(record)

    @property
    def state_rows(self) -> int | None:
        """How many rows of state are left at the end."""
        return self.batches[-1].state_rows


def source(name: str, schema: str, *, watermark: str = "") -> str:
    """The declaration of a source whose files lie in the directory of its name."""
    late = f", watermark={watermark}" if watermark else ""
    return f'{name} = hr.source.files("{name}", format="json", max_files_per_trigger=1, schema="{schema}"{late})\n'


def query(result: str, *, inputs: str, mode: str = "append", key: Sequence[str] = (), name: str = "q") -> str:
    """The declaration of a query that returns the expression `result` into the table of its name in out.db."""
    keyed = f", key={list(key)}" if key else ""
    return (
        f'\n@hr.query(sink=hr.sink.sqlite("out.db", table="{name}"{keyed}), mode="{mode}", trigger=hr.available_now)\n'
        f"def {name}({inputs}):\n    return ({result})\n"
    )


def project(root: Path, *parts: str, spark: Mapping[str, str] | None = None) -> Path:
    """A project of one Python file, made of `parts`, with settings of Spark."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "headrace.yml").write_text(json.dumps({"name": "guide", "spark": dict(spark or {})}))
    (root / "pipeline.py").write_text(HEAD + "".join(map(dedent, parts)))
    return root


def land(root: Path, name: str, *files: Rows) -> None:
    """Let files land for the source `name`, each a second after the one before: Spark takes the oldest first."""
    folder = root / name
    folder.mkdir(exist_ok=True)
    begin = len(list(folder.iterdir()))
    for number, records in enumerate(files, start=begin):
        path = folder / f"{number:04d}.json"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(path, (1_700_000_000 + number,) * 2)


def at(time: str) -> str:
    """The instant of `12:04` or `12:04:30` on the day of the examples."""
    return f"{DAY}T{time}Z" if time.count(":") == 2 else f"{DAY}T{time}:00Z"


def events(column: str, *pairs: tuple[str, str]) -> list[dict[str, str]]:
    """Records of `time` and one more column."""
    return [{"time": at(time), column: value} for time, value in pairs]


def play(root: Path, spark: SparkSession, select: str, *, name: str = "q") -> Played:
    """Run the project to the end of what has landed; `select` is asked after each batch of the query `name`."""
    played = Played()
    look = partial(_look, played, root, select, name)
    played.exit_code = run(load(root), [name], spark=spark, reporter=played, reached=look).exit_code
    assert played.exit_code == 0
    return played


def play_each(
    root: Path, spark: SparkSession, select: str, source: str, files: Iterable[Rows], *, name: str = "q"
) -> Iterator[list[Trigger]]:
    """Let files land one by one in one life of the query `name`, and wait for the batches of each, which are given."""
    declared, played = load(root), Played()
    land(root, source)
    query, look = replace(declared.query(name), trigger=Default()), partial(_look, played, root, select, name)
    running = start_query(Request(project=declared, query=query, spark=spark, reached=look))
    try:
        for file in files:
            land(root, source, file)
            before = len(played.triggers)
            running.handle.processAllAvailable()
            yield played.triggers[before:]
    finally:
        running.handle.stop()
        running.clean_up()


def _look(played: Played, root: Path, select: str, name: str, boundary: str, batch: int) -> None:
    if boundary == "after-transaction":
        ledger = f"SELECT row_count, watermark FROM _headrace_ledger WHERE query = '{name}' AND batch = {batch}"
        ((written, watermark),) = rows(root / "out.db", ledger)
        played.triggers.append(
            Trigger(
                table=rows(root / "out.db", select),
                written=written,
                watermark=None if watermark is None else watermark[11:16],
            )
        )


def refusal_of(root: Path, spark: SparkSession) -> Finding:
    """The one error for which the project is refused, by `check` and, before anything is started, by `run`."""
    (error,) = check(load(root), spark=spark).errors
    (outcome,) = run(load(root), spark=spark).outcomes
    assert outcome.finding == error
    assert not list((root / ".headrace").rglob("offsets"))
    assert not (root / "out.db").exists()
    assert error.fix
    assert "\n" not in error.what
    return error
