"""Many rounds of one proof: the first in `make test`, the others in `make test-long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rounds(cases: Iterable[Any], *, first: int = 1) -> list[Any]:
    """Return the cases for `parametrize`; those after the first ones are marked `long`."""
    return [case if at < first else as_long(case) for at, case in enumerate(cases)]


def only_usual(cases: Iterable[Any], *usual: Any) -> list[Any]:
    """Return the cases for `parametrize`; those that are not among the usual ones are marked `long`."""
    listed = list(cases)
    assert all(case in listed for case in usual), f"{usual} are not all among {listed}"
    return [case if case in usual else as_long(case) for case in listed]


def as_long(case: Any) -> Any:
    """Return one case, marked `long`; a tuple is one value for each argument."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
