"""The kept results of the benchmarks are complete and agree with their own runs; the options and answers of one."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from collections import Counter
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import against_flink, clicks, flink
from benchmarks.__main__ import main
from benchmarks.figures import Figure

pytestmark = pytest.mark.plain

HOME = Path(__file__).parents[1] / "benchmarks"
UNITS = get_args(get_type_hints(Figure)["unit"])
KEPT = sorted(path for path in (HOME / "results").glob("*.json") if not path.name.endswith(".quick.json"))


@pytest.fixture(params=KEPT, ids=[path.stem for path in KEPT])
def result(request: pytest.FixtureRequest) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(request.param.read_text())
    assert content["benchmark"] == request.param.stem
    return content


def test_a_kept_result_is_of_a_full_run_and_says_what_was_measured_on(result: dict[str, Any]) -> None:
    assert result["quick"] is False
    assert result["cores"] >= 1
    assert result["figures"]
    assert set(result["versions"]) == {"python", "java", "pyspark", "headrace"}
    assert all(result["versions"].values())
    # Results that were measured before results said so have none.
    assert re.fullmatch("[0-9a-f]{12}|none", result.get("commit", "none"))


def test_each_figure_follows_from_its_runs(result: dict[str, Any]) -> None:
    for figure in result["figures"]:
        ours, theirs = figure["ours"], figure["theirs"]
        for side in (ours, theirs):
            assert len(side["runs"]) == figure["runs"] >= 3, figure["name"]
            assert (side["min"], side["max"]) == (min(side["runs"]), max(side["runs"])), figure["name"]
            assert side["median"] == pytest.approx(statistics.median(side["runs"]), abs=1e-3), figure["name"]
        pairs = [a / b for a, b in zip(ours["runs"], theirs["runs"], strict=True)]
        assert figure["ratio"] == pytest.approx(statistics.median(pairs), rel=1e-2, abs=1e-4), figure["name"]
        of_medians = pytest.approx(ours["median"] / theirs["median"], rel=1e-2, abs=1e-4)
        assert figure["ratio_of_medians"] == of_medians, figure["name"]


def test_each_figure_says_whether_its_target_is_met(result: dict[str, Any]) -> None:
    for figure in result["figures"]:
        measured = figure["ratio"] if figure["target_of"] == "ratio" else figure["ours"]["median"]
        assert figure["met"] is (None if figure["target"] is None else measured <= figure["target"]), figure["name"]
        assert figure["against"], figure["name"]
        assert figure["unit"] in UNITS, figure["name"]


@pytest.mark.parametrize("script", sorted((HOME / "baselines").glob("*.py")), ids=lambda path: path.stem)
def test_the_other_side_is_plain_pyspark_or_pyflink(script: Path) -> None:
    code = script.read_text()
    compile(code, str(script), "exec")
    assert ("from pyflink.table import" if script.stem.startswith("flink_") else "from pyspark.sql import") in code
    assert "headrace" not in code


class TestAgainstFlink:
    @pytest.fixture(autouse=True)
    def nothing_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("JOB", "PAIRS", "EVENTS"):
            monkeypatch.delenv(name, raising=False)

    def test_all_jobs_in_full_are_no_trial(self) -> None:
        options = against_flink.Options.from_environment()
        assert options.jobs == against_flink.NAMES
        assert (options.pairs, options.events, options.trial) == (None, None, False)

    @pytest.mark.parametrize(
        ("name", "value"), [("JOB", "headline"), ("JOB", "groups,rows"), ("PAIRS", "1"), ("EVENTS", "100000")]
    )
    def test_a_part_of_them_is_a_trial(self, name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, value)
        assert against_flink.Options.from_environment().trial
        assert against_flink.is_trial()

    @pytest.mark.parametrize(
        ("name", "value", "sentence"),
        [
            ("JOB", "headlin", "JOB names no job by headlin; there are headline, groups, rows"),
            ("PAIRS", "0", "PAIRS=0 is not a whole number above 0"),
            ("EVENTS", "many", "EVENTS=many is not a whole number above 0"),
        ],
    )
    def test_an_option_that_means_nothing_is_refused(
        self, name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit, match=sentence):
            against_flink.Options.from_environment()

    def test_it_is_skipped_with_a_sentence_where_flink_cannot_be_installed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def pip(command: list[str], **_: Any) -> None:
            raise subprocess.CalledProcessError(1, command, stderr="...\nERROR: No matching distribution found\n")

        monkeypatch.setattr(flink.cds, "cache", lambda: tmp_path / "cds")
        monkeypatch.setattr(flink.subprocess, "run", pip)
        monkeypatch.setattr("sys.argv", ["benchmarks", "against_flink"])
        assert main() == 0
        assert capsys.readouterr().out == (
            "against_flink is skipped: PyFlink 2.3.0 cannot be installed: ERROR: No matching distribution found\n"
        )

    def test_the_script_of_flink_has_each_job(self) -> None:
        script = (HOME / "baselines" / "flink_jobs.py").read_text()
        assert all(f'"{name}": (' in script for name, job in against_flink.JOBS.items() if job.select)

    @pytest.mark.parametrize(
        ("rows", "problem"),
        [
            ([(1, 0.3), (2, 5.0)], None),
            ([(2, 5.0), (1, 0.1 + 0.2)], None),
            ([(1, 0.3)], "1 rows, 2 are expected"),
            ([(1, 0.3), (3, 5.0)], "column 'id'"),
            ([(1, 0.3), (2, 5.1)], "column 'total'"),
        ],
        ids=["equal", "another order and rounding", "a row less", "another key", "another value"],
    )
    def test_a_result_that_is_not_the_expected_one_ends_the_benchmark(
        self, rows: list[tuple[int, float]], problem: str | None
    ) -> None:
        expected = _table([(1, 0.3), (2, 5.0)])
        with nullcontext() if problem is None else pytest.raises(RuntimeError, match=problem):
            against_flink.compare("a side", _table(rows), expected, ("id",))


def _table(rows: list[tuple[int, float]]) -> pa.Table:
    return pa.table({"id": [number for number, _ in rows], "total": [total for _, total in rows]})


def test_clicks_are_read_back_from_their_files_and_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicks.cds, "cache", lambda: tmp_path / "cds")
    made = clicks.clicks(500, files=2)
    answers = {path.stem: pq.read_table(path) for path in made.answers.iterdir()}
    rows = [json.loads(line) for path in sorted(made.landing.iterdir()) for line in path.read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(500))
    assert len(list(made.closed.iterdir())) == 3
    assert sum(answers["groups"]["count"].to_pylist()) == 500
    views = Counter(
        (instant // 2 * 2 - 2 * back, row["page"])
        for row in rows
        for instant in [int(datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp())]
        for back in range(5)
    )
    best: dict[int, tuple[int, str]] = {}
    for (begins, page), count in views.items():
        best[begins] = max(best.get(begins, (0, "")), (count, page))
    windows = zip(*(answers["sliding"][name].to_pylist() for name in ("begins", "count", "page")), strict=True)
    assert {
        int(begins.replace(tzinfo=timezone.utc).timestamp()): (count, page) for begins, count, page in windows
    } == best
