"""A project is read again: by what, with which variables, and without a trace where it came to nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.api import load
from headrace.loader.modules import remember_modules

pytestmark = pytest.mark.plain

PIPELINE = """
import headrace as hr
import helper_of_rates

events = hr.source.rate()

@hr.query(sink=hr.sink.console())
def shown(events):
    return events.limit(helper_of_rates.VALUE)
"""


def modules() -> dict[str, int]:
    return {name: id(module) for name, module in sys.modules.items() if "helper_of_rates" in name or "project_" in name}


def test_modules_are_put_back_after_a_load_that_came_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "helper_of_rates.py").write_text("VALUE = 1\n")
    load(tmp_path)
    before, put_back = modules(), remember_modules()
    (tmp_path / "helper_of_rates.py").write_text("VALUE = 22\n")
    load(tmp_path)
    assert sys.modules["helper_of_rates"].VALUE == 22
    put_back()
    assert (modules(), sys.modules["helper_of_rates"].VALUE) == (before, 1)
    load(tmp_path)
    assert sys.modules["helper_of_rates"].VALUE == 22


def test_a_project_knows_the_variables_that_it_names_and_how_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATE_OF_EVENTS", "5")
    monkeypatch.setenv("NOT_ASKED_FOR", "6")
    code = PIPELINE.replace("import helper_of_rates", "import os").replace("helper_of_rates.VALUE", "1")
    code = code.replace("hr.source.rate()", "hr.source.rate(rows_per_second='${RATE_OF_EVENTS}')")
    code += 'LIMIT = os.environ.get("LIMIT_OF_ROWS")\n'
    (tmp_path / "pipeline.py").write_text(code)
    monkeypatch.setenv("LIMIT_OF_ROWS", "7")
    monkeypatch.chdir(tmp_path)
    loaded = load().loaded
    assert loaded is not None
    assert loaded.variables == {"RATE_OF_EVENTS": "5", "LIMIT_OF_ROWS": "7"}
    monkeypatch.chdir("/")
    monkeypatch.setenv("RATE_OF_EVENTS", "8")
    again = loaded.again()
    assert (again.root, list(again.queries)) == (tmp_path, ["shown"])
    assert again.loaded is not None
    assert again.loaded.variables["RATE_OF_EVENTS"] == "8"
