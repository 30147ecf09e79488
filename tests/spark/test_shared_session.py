"""The session that tests share is created again when one of them has broken it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


# Both sessions that it costs are the tests' own.
@pytest.mark.long
def test_a_session_whose_scratch_files_a_test_has_removed_is_made_again(
    spark: SparkSession, sessions: Sessions
) -> None:
    assert sessions.with_connectors(()) is spark
    _, *scratch = sessions.scratch
    for place in scratch:
        shutil.rmtree(place)
    again = sessions.with_connectors(())
    assert again is not spark
    assert again.range(10).repartition(3).count() == 10
