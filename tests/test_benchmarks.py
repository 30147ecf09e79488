"""The results of the benchmarks that are kept in the repository are complete and agree with their own runs."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

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
def test_the_other_side_is_plain_pyspark(script: Path) -> None:
    code = script.read_text()
    compile(code, str(script), "exec")
    assert "from pyspark.sql import" in code
    assert "headrace" not in code
