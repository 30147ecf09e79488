"""Only some rows of a result compared: those of a key, or those that later batches have touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import HeadraceError
from headrace.verifier.proof import verify
from headrace.verifier.scope import RowScope
from headrace.verifier.verdict import Verdict
from tests.verifier.kit import scene
from tests.verifier.test_corruptions import EVENTS, sums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_only_the_rows_that_are_asked_for_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    many = [[*rows, *[(rows[0][0], "a", 1.0)] * 12] for rows in EVENTS[:4]]
    made = scene(spark, tmp_path, [*many, EVENTS[4]], sums, mode="update", key=("who",))

    def verdict(*keys: dict[str, str], since: int | None = None, part: tuple[int, int] | None = None) -> Verdict:
        return verify(made.project, "q", spark=spark, scope=RowScope(keys=keys, since=since, part=part))

    made.table.edit("UPDATE record SET json = replace(json, '\"n\": ', '\"n\": 1') WHERE json LIKE '%\"a\"%'")
    assert verdict({"who": "b"}).state == "equal"
    both = verdict({"who": "a"}, {"who": "b", "n": "3"})
    assert (both.rows_expected, both.different, both.scope) == (2, 1, "who=a or who=b,n=3")
    parts = [verdict(part=(number, 3)) for number in (1, 2, 3)]
    assert sorted(part.different for part in parts) == [0, 0, 1]
    assert sum(part.rows_expected for part in parts) == verdict().rows_expected > max(p.rows_expected for p in parts)
    assert [part.scope for part in parts] == ["part 1 of 3", "part 2 of 3", "part 3 of 3"]
    # The last batch has rows of d and e alone, the one before also one of a.
    late, before = verdict(since=3), verdict(since=2)
    assert (late.state, late.rows_expected, before.different, before.rows_expected) == ("equal", 2, 1, 4)
    # Of more rows than are shown, those of the newest batch are.
    assert [row.batch for row in before.differences[0].fed_by or ()] == [3] * 5

    for number in (0, 4):
        with pytest.raises(HeadraceError, match=rf"HR090.*no part {number} of 3"):
            verdict(part=(number, 3))
    for wrong, why in (({"whom": "a"}, "did you mean 'who'"), ({"n": "many"}, "is not a value of column 'n'")):
        (finding,) = verdict(wrong).findings
        assert (finding.code, why in str(finding)) == ("HR716", True), finding
