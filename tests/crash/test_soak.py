"""A few rounds of the soak for each database; `make soak` runs a hundred."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services import KINDS

from .soak import soaking

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

ROUNDS = 5


@pytest.mark.capability("SINK-SQL-01")
@pytest.mark.capability("REC-01")
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_whatever_dies_both_tables_are_exact(kind: str, tmp_path: Path) -> None:
    if kind in KINDS and (sentence := KINDS[kind].missing()):
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    with soaking(kind, tmp_path / "project", seed=7) as soak:
        for fault in (soak.driver_dies_at_a_boundary, soak.two_drivers, soak.worker_dies):
            soak.land()
            fault()
            soak.check()
        if soak.server is not None:
            soak.land()
            soak.server_dies()
            soak.check()
        for _ in range(ROUNDS - 4):
            soak.round()
        soak.finish()
