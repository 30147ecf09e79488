"""The socket source: the guide's quick example, and what it says of servers that are not there or go away."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.api import check, load, run
from headrace.connectors.socket.source import Socket
from headrace.contract import BatchRecord, Observer
from headrace.errors import Finding, SourceError
from headrace.model import AvailableNow, Default
from headrace.runner.stop import StopRequest
from headrace.testing.conformance import NAME, drain_live
from tests.connectors.socket.lines import LineServer
from tests.runner.projects import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNTS = """
import headrace as hr
from pyspark.sql import functions as F

lines = hr.source.socket(host="127.0.0.1", port=PORT)


@hr.query(sink=SINK, mode="complete")
def counts(lines):
    words = lines.select(F.explode(F.split("value", " ")).alias("word"))
    return words.groupBy("word").count()
"""


@pytest.fixture
def server() -> Iterator[LineServer]:
    made = LineServer()
    yield made
    made.close()


def project(root: Path, port: int, sink: str = "hr.sink.console()") -> Path:
    root.mkdir()
    (root / "pipeline.py").write_text(COUNTS.replace("PORT", str(port)).replace("SINK", sink))
    return root


def tables(lines: Iterator[str]) -> Iterator[dict[str, int]]:
    """The tables that the console sink prints, each as soon as it is whole: a rule, the names, a rule, rows, a rule."""
    table: list[str] = []
    for line in lines:
        if re.fullmatch(r"\+[-+]+\+\s*", line) or (table and line.startswith("|")):
            table.append(line)
            if len([line for line in table if line.startswith("+")]) == 3:
                cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table[3:-1]]
                yield {word: int(count) for word, count in cells}
                table = []


@pytest.mark.capability("MODEL-02")
@pytest.mark.capability("SRC-SOCKET-01")
def test_the_quick_example_prints_the_counts_of_the_words_so_far(tmp_path: Path, server: LineServer) -> None:
    root = project(tmp_path / "p", server.port)
    command = [sys.executable, "-m", "headrace", "run", "-C", str(root)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert running.stdout is not None
        printed = tables(iter(running.stdout.readline, ""))
        assert next(printed) == {}
        server.send("apache spark")
        assert next(printed) == {"apache": 1, "spark": 1}
        server.send("apache", "hadoop")
        last = next(printed)
        # The two lines may come in two batches.
        assert (next(printed) if "hadoop" not in last else last) == {"apache": 2, "spark": 1, "hadoop": 1}
    finally:
        running.terminate()
        running.communicate()


@pytest.mark.capability("SRC-SOCKET-01")
def test_it_cannot_be_replayed_and_says_so(tmp_path: Path, server: LineServer, spark: SparkSession) -> None:
    root = project(tmp_path / "p", server.port, 'hr.sink.sqlite("out.db", table="counts")')
    result = check(load(root), spark=False)
    assert result.findings == ()
    assert result.guarantees["counts"].level == "none"
    assert "the source 'lines' cannot be read again" in result.guarantees["counts"].sentence
    watching = Watching(server, closes=False)
    ended = run(load(root), spark=spark, reporter=watching, stop=watching.stop)
    assert [end.state for end in ended.outcomes] == ["stopped"]
    assert rows(root / "out.db", "SELECT * FROM counts") == [("first", 1)]
    (again,) = run(load(root), spark=spark).outcomes
    assert again.finding is not None
    assert (again.state, again.finding.code) == ("failed", "HR320")
    assert "has run before" in again.finding.what


class Watching(Observer):
    """Sends a line once the query has made its first batch, and stops the run once rows or the closing are reported."""

    def __init__(self, server: LineServer, *, closes: bool) -> None:
        self.server = server
        self.closes = closes
        self.stop = StopRequest()
        self.notes: list[Finding] = []
        self.sent = False

    def progressed(self, record: BatchRecord) -> None:
        if not self.sent:
            self.sent = True
            self.server.send("first")
        elif record.rows and self.closes:
            self.server.hang_up()
        elif record.rows:
            self.stop.ask()

    def note(self, finding: Finding) -> None:
        self.notes.append(finding)
        if finding.code == "HR319":
            self.stop.ask()


def test_a_server_that_hangs_up_is_reported_once_while_the_query_runs(
    tmp_path: Path, server: LineServer, spark: SparkSession
) -> None:
    watching = Watching(server, closes=True)
    result = run(load(project(tmp_path / "p", server.port)), spark=spark, reporter=watching, stop=watching.stop)
    assert [end.state for end in result.outcomes] == ["stopped"]
    (closed,) = [note for note in watching.notes if note.code == "HR319"]
    assert closed.severity == "warning"
    assert f"source 'lines': 127.0.0.1:{server.port} has closed the connection" in closed.what
    assert closed.where.line is not None


def test_a_start_without_a_server_is_refused_before_it(tmp_path: Path, server: LineServer, spark: SparkSession) -> None:
    server.close()
    loaded = load(project(tmp_path / "p", server.port, 'hr.sink.console(), restart="never"'))
    (end,) = run(loaded, spark=spark).outcomes
    assert end.finding is not None
    assert (end.state, end.finding.code, end.batches) == ("failed", "HR331", 0)
    assert end.finding.what == f"no server can be reached at 127.0.0.1:{server.port}: Connection refused"
    assert "HR331" in [finding.code for finding in check(loaded, spark=spark).findings]
    with pytest.raises(SourceError, match=r"nowhere\.invalid"):
        Socket(host="nowhere.invalid", port=1).stream(spark, NAME)


def test_the_look_for_a_server_takes_no_connection(server: LineServer, spark: SparkSession) -> None:
    for _ in range(3):
        Socket(host="127.0.0.1", port=server.port).stream(spark, NAME)
    assert server.clients == []


@pytest.mark.parametrize("trigger", ["hr.available_now", "hr.once"])
def test_a_trigger_that_ends_by_itself_is_refused(tmp_path: Path, server: LineServer, trigger: str) -> None:
    root = project(tmp_path / "p", server.port, f"hr.sink.console(), trigger={trigger}")
    assert "HR320" in [finding.code for finding in check(load(root), spark=False).errors]


def test_a_trigger_given_at_the_start_is_judged_too(tmp_path: Path, server: LineServer, spark: SparkSession) -> None:
    loaded = load(project(tmp_path / "p", server.port))
    assert loaded.queries["counts"].trigger == Default()
    (end,) = run(loaded, spark=spark, trigger=AvailableNow()).outcomes
    assert end.finding is not None
    assert end.finding.code == "HR320"


@pytest.mark.capability("SRC-SOCKET-01")
def test_a_line_is_a_row_with_its_time_if_asked(tmp_path: Path, server: LineServer, spark: SparkSession) -> None:
    source = Socket(host="127.0.0.1", port=server.port, include_timestamp=True)
    frame = source.stream(spark, NAME)
    assert frame.dtypes == [("value", "string"), ("timestamp", "timestamp")]
    given = drain_live(frame, tmp_path / "checkpoint", lambda: server.send("größer", ""))
    values: list[Any] = [row for batch in given.values() for row in batch]
    assert values[0][0] in ("", "größer")
    assert all(at is not None for _, at in values)


@pytest.mark.parametrize(
    ("source", "says"),
    [(Socket(host="", port=1), "host is empty"), (Socket(host="h", port=70000), "port is 70000")],
    ids=["host", "port"],
)
def test_faults_of_the_options_are_reported(source: Socket, says: str) -> None:
    assert [(problem.code, problem.what) for problem in source.problems()] == [("HR113", says)]
