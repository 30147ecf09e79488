"""Every directory below examples/: its README's commands are typed, and what they print is what stands in expected/."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.cli import main
from tests import in_session

from .terminal import EXAMPLES, Terminal, commands, variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A distribution is not a project: test_connectors_of_others.
HOMES = sorted(home for home in EXAMPLES.iterdir() if home.is_dir() and not (home / "pyproject.toml").exists())
NAMES = [home.name for home in HOMES]
SERVERS = {"KAFKA": "kafka", "POSTGRES_URL": "postgres_url", "MYSQL_URL": "mariadb_url"}
SHOWN = {"rdd-tour": ("RDD-01", "RDD-02", "RDD-03", "RDD-04", "RDD-05", "RDD-06", "RDD-11")}
RESULTS = shutil.ignore_patterns(".headrace", "result.db*", "out", "__pycache__")
# Another run of each kind of sink; of the others in `make test-long`.
RUN_AGAIN = ("foreach-batch", "kafka-json", "partitioned-files", "streaming-tables", "word-count")
# In `make test-long`: their sources and sinks are those of others, and tests/guide has the operators of their queries.
FURTHER = (
    *("ad-clicks", "chained-windows", "deduplication", "exactly-once-database", "late-data", "mobile-monitoring"),
    *("outer-join", "rate-load-test", "session-windows", "transform-with-state", "user-sessions", "windowed-counts"),
)
FORMS = {(True, False): "YAML and SQL.", (False, True): "Python.", (True, True): "YAML, SQL and Python."}

# What the guide itself prints or draws, typed from there; every other figure below examples/*/expected was worked out
# by hand from the data. Its pictures of windows leave out the one from 11:55, and its picture in update mode has one
# cat too many in the window of 12:05, which the cat of 12:15 is not in.
OF_THE_GUIDE = {
    "word-count/expected/batch-0.txt": ["apache 1", "spark 1"],
    "word-count/expected/batch-1.txt": ["apache 2", "hadoop 1", "spark 1"],
    "windowed-counts/expected/at-12-10.txt": [
        *("12:00 cat 2", "12:00 dog 3", "12:00 owl 1"),
        *("12:05 cat 1", "12:05 owl 1"),
    ],
    "windowed-counts/expected/at-12-15.txt": [
        *("12:00 cat 2", "12:00 dog 4", "12:00 owl 1"),
        *("12:05 cat 1", "12:05 owl 2"),
        "12:10 owl 1",
    ],
    "late-data/expected/counts.txt": [
        *("12:00 cat 1", "12:00 dog 2", "12:00 owl 1"),
        *("12:05 cat 1", "12:05 dog 3", "12:05 owl 2"),
        *("12:10 cat 1", "12:10 dog 1", "12:10 owl 2"),
        *("12:15 cat 1", "12:15 owl 2"),
        "12:20 owl 1",
    ],
    "late-data/expected/final_counts.txt": ["12:00 cat 1", "12:00 dog 2", "12:00 owl 1"],
}


def tier(home: Path) -> list[pytest.MarkDecorator]:
    needed = variables(home) & set(SERVERS)
    kafka = [pytest.mark.connectors] if "KAFKA" in needed else []
    shown = [pytest.mark.capability(*SHOWN[home.name])] if home.name in SHOWN else []
    further = [pytest.mark.long] if home.name in FURTHER else []
    return [*shown, *further, *([pytest.mark.services, *kafka] if needed else [pytest.mark.spark])]


def open_terminal(
    home: Path, place: Path, spark: SparkSession, request: Any, monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """A terminal in a copy of the example, with the servers that it needs."""
    kafka = None
    for variable in sorted(variables(home) & set(SERVERS)):
        server = request.getfixturevalue(SERVERS[variable])
        monkeypatch.setenv(variable, getattr(server, "url", server))
        kafka = server if variable == "KAFKA" else kafka
    shutil.copytree(home, place, ignore=RESULTS)
    for table in spark.sql("SHOW TABLES").collect():  # An earlier test of the example may have made them.
        if not table.isTemporary:
            spark.sql(f"DROP TABLE IF EXISTS `{table.tableName}`")
    return Terminal(root=place, spark=spark, kafka=kafka)


@pytest.mark.parametrize(
    ("home", "is_run_again"),
    [
        *(pytest.param(home, home.name in RUN_AGAIN, id=home.name, marks=tier(home)) for home in HOMES),
        *(
            pytest.param(home, True, id=f"{home.name}, run again", marks=[*tier(home), pytest.mark.long])
            for home in HOMES
            if home.name not in {*RUN_AGAIN, "rate-load-test"}  # Which makes rows at each run.
        ),
    ],
)
def test_the_commands_of_the_readme_print_what_is_expected_and_another_run_changes_nothing(
    home: Path,
    is_run_again: bool,
    tmp_path: Path,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(home, tmp_path / home.name, spark, request, monkeypatch)
    typed = commands(home / "README.md")
    looks = {command.text: (home / command.expected).read_text() for command in typed if command.expected}
    terminal.enough = lambda: {text: terminal.type(text) for text in looks} == looks
    for number, command in enumerate(typed):
        output = terminal.type(command.text)
        if command.expected:
            assert output == (home / command.expected).read_text(), f"command {number}: {command.text}"
    if is_run_again:
        terminal.type("headrace run")
        assert {text: terminal.type(text) for text in looks} == looks
    # Now that the commands have made the topics. A check of the tour computes all of its tables once more.
    if is_run_again or home.name not in SHOWN:
        assert_is_sound(home, hr.load(terminal.root), spark)


def assert_is_sound(home: Path, project: hr.Project, spark: SparkSession) -> None:
    """The check finds no fault, and the guarantee that the README names."""
    result = hr.check(project, spark=spark)
    assert [str(finding) for finding in result.errors] == []
    assert all(finding.fix for finding in result.findings if finding.severity != "note")
    readme = (home / "README.md").read_text()
    assert {guarantee.level for guarantee in result.guarantees.values()} == {guarantee_of(readme)}
    assert all(guarantee.proven for guarantee in result.guarantees.values())


def guarantee_of(readme: str) -> str:
    matches = re.findall(r"\bGuarantee: (exactly once|at least once|none)\b", readme)
    assert len(matches) == 1, "a README says once what is guaranteed"
    return str(matches[0])


@pytest.mark.plain
@pytest.mark.parametrize("home", HOMES, ids=NAMES)
def test_an_example_is_small_and_complete(home: Path) -> None:
    readme = (home / "README.md").read_text(encoding="utf-8")
    lines = readme.splitlines()
    assert len(lines) <= 15
    assert lines[0].startswith("# ")
    assert re.search(r"^Guide: \"", readme, re.MULTILINE), "the README names no section of the guide"
    assert re.search(r"^Next: ", readme, re.MULTILINE), "the README names nothing to try next"
    assert guarantee_of(readme)
    typed = commands(home / "README.md")
    assert "headrace run" in [command.text for command in typed]
    expected = {str(file.relative_to(home)) for file in (home / "expected").iterdir()}
    assert expected
    assert expected == {command.expected for command in typed if command.expected}
    assert sum(file.stat().st_size for file in home.rglob("landing/**/*") if file.is_file()) < 10_000
    sql = any(home.rglob("queries/*.sql")) or "select:" in (home / "headrace.yml").read_text()
    assert FORMS[sql, any(home.glob("*.py"))] in readme


@pytest.mark.plain
@pytest.mark.parametrize("file", OF_THE_GUIDE)
def test_the_figures_of_the_guide_are_expected(file: str) -> None:
    lines = [line.replace("|", " ") for line in (EXAMPLES / file).read_text().splitlines()]
    assert [line for line in lines if not line.startswith("11:55")] == OF_THE_GUIDE[file]


@pytest.mark.spark
def test_an_example_runs_from_the_command_line(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "word-count"
    shutil.copytree(EXAMPLES / "word-count", root, ignore=RESULTS)
    in_session.lend(spark, monkeypatch)
    monkeypatch.chdir(root)
    assert main(["run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "word_counts: finished after 1 batch with 1 row"
    look = next(command.text for command in commands(root / "README.md") if command.expected)
    assert Terminal(root=root, spark=spark).type(look) == (root / "expected/batch-0.txt").read_text()
