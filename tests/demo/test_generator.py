"""The generator: whole files under final names alone, at a rate, resumable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from headrace.demo.generator import BLOCK, events, generate, next_number, write_file

pytestmark = pytest.mark.plain


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def landed_files(directory: Path) -> list[str]:
    files = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    return [line for path in files for line in path.read_text().splitlines()]


def test_a_file_holds_its_share_of_the_events_and_no_hidden_file_stays(tmp_path: Path) -> None:
    kinds = write_file(tmp_path, 2, seed=7)
    assert [path.name for path in tmp_path.iterdir()] == ["events-000002.json"]
    assert landed_files(tmp_path) == [event.as_json() for event in events(7, BLOCK, first=2 * BLOCK)]
    assert sum(kinds.values()) == BLOCK


def test_a_half_written_file_of_a_killed_generator_is_written_again(tmp_path: Path) -> None:
    (tmp_path / ".events-000000.json.tmp").write_text('{"phone_id": "pho')
    assert next_number(tmp_path) == 0
    write_file(tmp_path, 0, seed=7)
    assert landed_files(tmp_path) == [event.as_json() for event in events(7, BLOCK)]


def test_files_land_at_the_rate_asked_for(tmp_path: Path) -> None:
    time = FakeTime()
    moments = []
    for _ in generate(tmp_path, seed=7, rows_per_second=4000, seconds=2, clock=time.clock, sleep=time.sleep):
        moments.append(time.now - 100.0)
    assert moments == pytest.approx([0.25 * number for number in range(8)])


def test_two_generators_one_after_the_other_write_what_one_would_have_written(tmp_path: Path) -> None:
    for seconds in (1, 0.5):
        time = FakeTime()
        list(generate(tmp_path, seed=7, rows_per_second=4000, seconds=seconds, clock=time.clock, sleep=time.sleep))
    assert landed_files(tmp_path) == [event.as_json() for event in events(7, 6 * BLOCK)]


def test_as_a_process_it_prints_what_has_landed(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "headrace.demo.generator",
            str(tmp_path),
            "--seconds",
            "0.5",
            "--rows-per-second",
            "8000",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(line["rows"] for line in lines) == len(landed_files(tmp_path)) == 4 * BLOCK
    kinds = Counter(event.kind for event in events(7, 4 * BLOCK))
    assert kinds["twice"] > 0
    assert sum(line["twice"] for line in lines) == kinds["twice"]
