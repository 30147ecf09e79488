"""Each kind of fault of the soak once, where the database matters with each; `make soak` runs hundreds of rounds.

In `make test`, test_kill kills drivers, test_distribution those who compute, and tests/connectors/sql the servers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from services import KINDS

from .soak import Soak, soaking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

# That a driver of SQLite dies at each boundary, and that a second one fences off the first, test_kill shows; that one
# is fenced off in each database, tests/connectors/exactly_once/test_two_drivers.py.
FAULTS = {
    "sqlite": [Soak.worker_dies, Soak.round],
    "postgres": [Soak.worker_dies, Soak.driver_dies_at_a_boundary, Soak.server_dies],
    "mariadb": [Soak.driver_dies_at_a_boundary, Soak.server_dies],
}


@pytest.mark.capability("SINK-SQL-01")
@pytest.mark.capability("REC-01")
@pytest.mark.long
@pytest.mark.parametrize("kind", FAULTS)
def test_whatever_dies_both_tables_are_exact(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    if kind in KINDS and (sentence := KINDS[kind].missing()):
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)
    with soaking(kind, tmp_path / "project", seed=7, spark=spark) as soak:
        for fault in FAULTS[kind]:
            soak.land()
            outcome = fault(soak)
            assert fault is not Soak.worker_dies or not outcome.startswith("0 "), outcome
            soak.check()
        soak.finish()
