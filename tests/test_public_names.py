"""The public names of the package, pinned: a change here is a change for users."""

from __future__ import annotations

import inspect
import re

import pytest

import headrace
from scripts.reference import REFERENCE

pytestmark = pytest.mark.plain

NAMES = [
    "Finding",
    "HeadraceError",
    "Project",
    "abandon_rebuild",
    "adopt",
    "apply",
    "available_now",
    "broadcast",
    "check",
    "continuous",
    "counter",
    "discard_rebuild",
    "discard_reset",
    "discard_rewind",
    "events",
    "every",
    "follow",
    "inspect_checkpoint",
    "inspect_offsets",
    "inspect_watermark",
    "late",
    "load",
    "once",
    "pause",
    "plan",
    "plan_adoption",
    "plan_reset",
    "plan_rewind",
    "query",
    "real_time",
    "rebuild",
    "rebuild_status",
    "repartition",
    "reset",
    "restart",
    "resume",
    "rewind",
    "roll_back_rebuild",
    "run",
    "save_plan",
    "show_state",
    "sink",
    "source",
    "start",
    "start_all",
    "status",
    "stop",
    "table",
    "undo_reset",
    "undo_rewind",
    "verify",
    "view",
]


def test_the_public_names_are_these() -> None:
    assert headrace.__all__ == NAMES


@pytest.mark.parametrize("name", headrace.__all__)
def test_a_public_name_has_a_docstring_and_a_heading(name: str) -> None:
    assert inspect.getdoc(getattr(headrace, name))
    page = (REFERENCE / "python-api.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {name}$", page, re.MULTILINE)
