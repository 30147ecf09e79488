"""Which failed tests are tried again alone, and what then comes of the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import once_more

pytestmark = pytest.mark.plain

TESTS = """
import os, pytest

@pytest.mark.spark
def test_that_passes_alone(): pass

@pytest.mark.spark
def test_that_fails_again(): assert False

@pytest.mark.plain
def test_without_a_process(): pass
"""


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        pytest.param(["test_that_passes_alone"], 0, id="unstable"),
        pytest.param(["test_that_passes_alone", "test_that_fails_again"], 1, id="one fails again"),
        pytest.param(["test_without_a_process"], 1, id="plain"),
        pytest.param(["test_that_passes_alone", "test_a_second", "test_a_third"], 1, id="too many"),
        pytest.param([], 1, id="the run failed without a failed test"),
    ],
)
def test_a_run_passes_if_its_few_failed_tests_pass_alone(
    failed: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  plain\n  spark\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "lastfailed").write_text(json.dumps({f"test_some.py::{name}": True for name in failed}))
    monkeypatch.setattr(once_more, "ROOT", tmp_path)
    monkeypatch.setattr(once_more, "FAILED", tmp_path / "lastfailed")
    assert once_more.main() == code
    assert ("Unstable" in capfd.readouterr().out) == (code == 0)
