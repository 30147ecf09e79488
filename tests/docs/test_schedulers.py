"""The examples of Airflow and Dagster, each run by the scheduler itself, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(1800)]

PAGE = ROOT / "docs" / "how-to" / "schedule-and-backfill.md"


def example(word: str, project: Path) -> str:
    """The block of the page that imports `word`, for a project elsewhere."""
    (block,) = [block for block in blocks() if block.page == PAGE and f"import {word}" in block.text]
    assert "/srv/phones" in block.text
    return block.text.replace("/srv/phones", str(project))


def environment_with(tmp_path: Path, *packages: str) -> Path:
    """The programs of an environment that has the packages and nothing of ours."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    programs = tmp_path / "env" / "bin"
    subprocess.run([str(programs / "pip"), "install", "--quiet", *packages], check=True)
    return programs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "headrace", "init", str(tmp_path / "phones")], check=True)
    return tmp_path / "phones"


def variables(**more: str) -> dict[str, str]:
    """The environment of the process, in which `headrace` is found."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **more}


def is_proved(project: Path) -> bool:
    command = [sys.executable, "-m", "headrace", "verify", "-C", str(project)]
    return "correct: equal to the batch query" in subprocess.run(command, capture_output=True, text=True).stdout


def test_dagster_runs_the_job(project: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path, "dagster")
    (tmp_path / "phones_job.py").write_text(example("Definitions", project))
    (tmp_path / "home").mkdir()
    command = [str(programs / "dagster"), "job", "execute", "-f", str(tmp_path / "phones_job.py"), "-j", "phones"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables(DAGSTER_HOME=str(tmp_path / "home")), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "RUN_SUCCESS" in done.stderr + done.stdout
    assert is_proved(project)


def test_airflow_runs_the_tasks(project: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path, "apache-airflow", "apache-airflow-providers-standard")
    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    (home / "dags" / "phones.py").write_text(example("DAG", project))
    env = variables(AIRFLOW_HOME=str(home), AIRFLOW__CORE__LOAD_EXAMPLES="False")
    for command in (["db", "migrate"], ["dags", "test", "phones"]):
        done = subprocess.run([str(programs / "airflow"), *command], capture_output=True, text=True, env=env, cwd=home)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "correct: equal to the batch query" in done.stdout + done.stderr
    assert is_proved(project)
