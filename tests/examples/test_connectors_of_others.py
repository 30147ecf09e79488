"""Connectors of other distributions: those of the page about writing one, and DuckDB's, which is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import WITHOUT_CODE_GENERATION
from tests.docs.blocks import ROOT, blocks
from tests.rounds import rounds
from tests.servers import unavailable

pytestmark = pytest.mark.spark

DISTRIBUTION = ROOT / "examples" / "connector-duckdb"
PAGE = ROOT / "docs" / "how-to" / "write-a-connector.md"
MOST_LINES = 200
PROJECT = """
name: shop
sources:
  orders:
    duckdb: {path: shop.duckdb, table: orders, order_by: id}
queries:
  items:
    select: "SELECT item, count(*) AS sold, sum(price) AS money FROM orders GROUP BY item"
    mode: update
    trigger: available-now
    sink: {duckdb: {path: result.duckdb, table: items, key: [item]}}
"""

TWO_RUNS_AND_A_PROOF = """
from pathlib import Path

import duckdb

import headrace as hr


def test_a_project_finds_them_by_name_and_its_result_is_proved(spark):
    root = Path(__file__).parent / "shop"
    for rows in ("(1, 'tea', 2.5), (2, 'jam', 4.0)", "(3, 'tea', 2.5)"):
        with duckdb.connect(str(root / "shop.duckdb")) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id BIGINT, item VARCHAR, price DOUBLE)")
            connection.execute(f"INSERT INTO orders VALUES {rows}")
        result = hr.run(hr.load(root), spark=spark)
        assert result.exit_code == 0, [str(each.finding) for each in result.outcomes]
    verdict = hr.verify(hr.load(root), "items", spark=spark)
    assert (verdict.state, verdict.batch) == ("equal", 1), verdict
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that has the distribution."""
    if find_spec("duckdb") is None:
        unavailable("duckdb is not installed: pip install duckdb")
    place = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(place), str(DISTRIBUTION)], check=True)
    # The processes are as short-lived as the tests' own sessions.
    shutil.copy(ROOT / "tests" / "worker_daemon.py", place)
    options = " ".join(WITHOUT_CODE_GENERATION).replace("tests.worker_daemon", "worker_daemon")
    return {**os.environ, "PYTHONPATH": str(place), "PYSPARK_SUBMIT_ARGS": options}


CONTEXTS = """
from pyspark import SparkContext

started = []
before = SparkContext.__init__


def counted(self, *given, **named):
    started.append(self)
    before(self, *given, **named)


SparkContext.__init__ = counted


def pytest_unconfigure():
    print("contexts:", len(started), "still there:", SparkContext._active_spark_context)
"""


# The tests of the page's connectors and of the example's, and how many pass at least.
TESTS = {
    "some of each": (
        [
            "test_connectors.py::TestTicks::test_a_batch_without_commit_comes_again_with_the_same_rows",
            "test_connectors.py::TestPages::test_a_batch_that_comes_again_changes_nothing",
            "test_conformance.py::TestDuckDb::test_a_batch_that_comes_again_changes_nothing",
            "test_conformance.py::TestDuckDb::test_an_older_driver_writes_nothing_more",
            "test_conformance.py::TestDuckDbTable::test_the_committed_prefix_reads_as_the_stream_gave_it",
            "test_conformance.py::TestDuckDbTable::test_the_same_rows_are_a_table",
        ],
        10,
    ),
    "all": (["test_connectors.py", "test_conformance.py"], 37),
}


@pytest.fixture(scope="module", params=rounds(TESTS))
def tested(
    request: pytest.FixtureRequest, installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, int]:
    """Where one process has run the tests of both, as their own distributions would, and a project; and its output.

    With it, how many tests pass at least.
    """
    place = tmp_path_factory.mktemp("tested")
    for block in blocks():
        if block.page == PAGE and (name := block.word("file")):
            (place / name).write_text(block.text, encoding="utf-8")
    (place / "contexts.py").write_text(CONTEXTS, encoding="utf-8")
    (place / "shop").mkdir()
    (place / "shop" / "headrace.yml").write_text(PROJECT, encoding="utf-8")
    (place / "test_project.py").write_text(TWO_RUNS_AND_A_PROOF, encoding="utf-8")
    chosen, least = TESTS[request.param]
    shutil.copy(DISTRIBUTION / "tests" / "test_conformance.py", place)
    tests = [place / name for name in (*chosen, "test_project.py")]
    plain = [
        *("-c", os.devnull, "--rootdir", place, "--import-mode=importlib"),
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "contexts"),
    ]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-rp", *plain, *tests],
        env={**installed, "PYTHONPATH": f"{installed['PYTHONPATH']}{os.pathsep}{place}"},
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    return place, result.stdout, least


@pytest.mark.timeout(600)
@pytest.mark.capability("RDD-10")
def test_the_suite_proves_the_example_and_the_page(tested: tuple[Path, str, int]) -> None:
    _, output, least = tested
    passed = re.search(r"^(\d+) passed(?:, \d+ warnings?)? in", output, re.MULTILINE)
    assert passed is not None, "something was left out: " + output[-500:]
    assert int(passed[1]) >= least
    assert "contexts: 1 still there: None" in output, "one context for all tests, stopped at their end"


@pytest.mark.timeout(600)
def test_a_project_finds_them_by_name_and_its_result_is_proved(tested: tuple[Path, str, int]) -> None:
    import duckdb

    place, output, _ = tested
    assert "::test_a_project_finds_them_by_name_and_its_result_is_proved" in output
    with duckdb.connect(str(place / "shop" / "result.duckdb"), read_only=True) as connection:
        rows = connection.execute("FROM items ORDER BY item").fetchall()
    assert rows == [("jam", 1, 4.0), ("tea", 2, 5.0)]


@pytest.mark.plain
def test_the_distribution_stays_small() -> None:
    files = sorted((DISTRIBUTION / "src").rglob("*.py"))
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= MOST_LINES


@pytest.mark.plain
def test_jars_and_failures_are_the_connectors_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The class of the page that declares both."""
    for block in blocks():
        if block.page == PAGE and block.word("file") in ("ticks.py", "weather.py"):
            (tmp_path / str(block.word("file"))).write_text(block.text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    from headrace.errors import NOWHERE
    from headrace.frames.project_session import jars_of
    from headrace.model import NamedSource, Project
    from headrace.spark.messages.failures import finding_of_message

    weather = import_module("weather").Weather(each=1)
    project = Project(
        name="p", root=tmp_path, sources={"now": NamedSource(name="now", kind="weather", connector=weather)}, queries={}
    )
    (jars,) = jars_of(project)
    assert (jars.name, jars.settings) == ("weather", {"spark.sql.extensions": "org.example.WeatherExtension"})
    message = "org.apache.spark.SparkException: Job aborted\nCaused by: org.example.StationGoneException: K2\n\tat x"
    finding = finding_of_message(message, subject="query 'q'", where=NOWHERE, connectors=(weather,))
    assert (finding.code, finding.what) == ("WEATHER-1", "query 'q': the station K2 has been closed")
    assert finding_of_message(message, subject="query 'q'", where=NOWHERE).code == "HR601"
