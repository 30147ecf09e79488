"""A terminal in which the commands of an example's README are typed: Spark's part runs in the tier's own session."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import headrace as hr
from headrace.cli.run import run as run_command
from headrace.cli.verify import verify as verify_command
from headrace.generations.log import QueryLayout
from headrace.runner.stop import StopRequest
from tests.registered import layout_in

from ..connectors.sql.databases import Database
from ..servers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
PREPARING = ("pip", "export")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One line of a README that is to be typed, and the file that says what it prints."""

    text: str
    expected: str


def commands(readme: Path) -> list[Command]:
    """The indented lines of a README, without their comments."""
    commands = []
    for line in readme.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            text, _, comment = line.strip().partition("  # ")
            commands.append(Command(text=text.strip(), expected=comment if comment.startswith("expected/") else ""))
    return commands


@dataclass(kw_only=True)
class Terminal:
    """Types commands in `root`. `enough` is true once a query without an end has done what is asked of it."""

    root: Path
    spark: SparkSession
    kafka: Topics | None = None
    enough: Callable[[], bool] = lambda: True

    def type(self, text: str) -> str:
        """Do what the command does, and return what it prints; fail where it would."""
        program, *words = shlex.split(text)
        if program in PREPARING:
            return ""
        if program == "headrace":
            return {"run": self._run, "check": self._check, "verify": self._verify}[words[0]](words[1:])
        if program == "sqlite3":
            return self._sqlite(words)
        if program == "psql":
            return self._psql(words)
        if program.startswith("kafka-"):
            return self._kafka(program, words)
        done = subprocess.run(["bash", "-c", text], cwd=self.root, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    # --------------------------------------------------------------------------------------------------- headrace

    def _run(self, words: list[str]) -> str:
        """Options of the command line are not for examples: the triggers stand in the projects."""
        given = run_command.make_context("run", list(words)).params
        queries = given.pop("queries")
        assert [name for name, value in given.items() if value not in (None, False, Path("."))] == []
        project = hr.load(self.root)
        stop = StopRequest()
        names = list(queries) or list(project.queries)
        endless = [name for name in names if not project.queries[name].trigger.ends]
        with self._stopping(stop, [layout_in(project.storage, name) for name in endless]):
            result = hr.run(project, names, spark=self.spark, stop=stop)
        assert [str(outcome.finding) for outcome in result.outcomes if outcome.finding] == []
        return ""

    @contextmanager
    def _stopping(self, stop: StopRequest, layouts: list[QueryLayout]) -> Iterator[None]:
        """Ask to stop, as Ctrl-C would, two commits after it was enough."""
        if not layouts:
            yield
            return
        over = threading.Event()

        def commits() -> list[int]:
            return [len(list(layout.checkpoint.glob("commits/[0-9]*"))) for layout in layouts]

        def watch() -> None:
            ends = time.monotonic() + 60
            before: list[int] | None = None
            while not over.is_set() and time.monotonic() < ends:
                if before is None and self.enough():
                    before = commits()
                if before is not None and all(now >= then + 2 for then, now in zip(before, commits(), strict=True)):
                    break
                over.wait(0.1)
            stop.ask()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _check(self, words: list[str]) -> str:
        assert words == []
        assert hr.check(hr.load(self.root), spark=self.spark).exit_code == 0
        return ""

    def _verify(self, words: list[str]) -> str:
        for name in verify_command.make_context("verify", list(words)).params["queries"]:
            verdict = hr.verify(hr.load(self.root), name, spark=self.spark)
            assert verdict.exit_code == 0, verdict.sentence
        return ""

    # ------------------------------------------------------------------------------------------------- the results

    def _statements(self, words: list[str]) -> list[str]:
        """What a database is asked: a word, or the file after `<`."""
        text = (self.root / words[-1]).read_text() if words[-2] == "<" else words[-1]
        return [statement for statement in text.split(";") if statement.strip()]

    def _sqlite(self, words: list[str]) -> str:
        with closing(sqlite3.connect(f"file:{self.root / words[0]}?mode=ro", uri=True)) as database:
            return "".join(
                map(_lines, (database.execute(statement).fetchall() for statement in self._statements(words)))
            )

    def _psql(self, words: list[str]) -> str:
        database = Database("postgres", os.environ[words[0].removeprefix("$")])
        return "".join(_lines(database.query(statement)) for statement in self._statements(words))

    def _kafka(self, program: str, words: list[str]) -> str:
        assert self.kafka is not None
        topic = words[words.index("--topic") + 1]
        if program == "kafka-topics.sh":
            self.kafka.server.create_topic(topic)
            return ""
        if program == "kafka-console-producer.sh":
            for line in (self.root / words[-1]).read_text().splitlines():
                key, _, value = line.rpartition("\t")
                self.kafka.send(topic, value, key=key if "parse.key=true" in words else None)
            return ""
        return "".join(f"{value}\n" for _, value in self.kafka.read(topic))


def _lines(rows: list[tuple[object, ...]]) -> str:
    """The rows as the databases' own programs print them."""
    return "".join("|".join("" if value is None else str(value) for value in row) + "\n" for row in rows)


def variables(home: Path) -> set[str]:
    """The environment variables that a project asks for."""
    files = [file for file in home.rglob("*") if file.suffix in (".yml", ".py")]
    return {name for file in files for name in re.findall(r"\$\{(\w+)", file.read_text(encoding="utf-8"))}
