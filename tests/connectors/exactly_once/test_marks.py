"""A storage is compared with the newest change that the sink has seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.connectors.exactly_once.marks import is_applied
from headrace.contract import Mark, SinkContext
from headrace.errors import CheckpointError, LeaseLost
from headrace.generations.log import LogRecord, append, read_log

pytestmark = pytest.mark.plain


def context(mark: Mark) -> SinkContext:
    return SinkContext(query="q", generation=1, mode="append", checkpoint=Path("c"), mark=mark)


KEPT = Mark(number=3, token="three", of=3, way="there")
OURS, OTHERS = {"2": "two", "3": "three"}, {"2": "two", "3": "another"}


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (Mark(number=3, token="three", of=3, way="there"), True),
        (Mark(number=4, token="four", of=3, way="there", tokens=OURS), True),
        (Mark(number=4, token="four", of=3, way="back", tokens=OURS), False),
        (Mark(number=5, token="five", of=5, way="there", tokens=OURS), False),
        (Mark(number=5, token="five", of=3, way="start", tokens=OURS), False),
        (Mark(number=4, token="four", of=4, way="there", tokens={}), False),
    ],
    ids=["made", "resumed", "undone", "another change", "a start", "a log without tokens"],
)
def test_a_change_is_applied_once(mark: Mark, expected: bool) -> None:
    assert is_applied(context(mark), KEPT) is expected


@pytest.mark.parametrize("way", ["start", "there", "back", "discard"])
@pytest.mark.parametrize("number", [3, 4])
def test_a_storage_that_counts_on_from_a_copy_is_refused_whatever_its_number(number: int, way: str) -> None:
    mark = Mark(number=number, token="ours", of=3, way=way, tokens=OTHERS)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=f"has seen change 3, and the newest one in this storage is {number}"):
        is_applied(context(mark), KEPT)


def test_a_storage_behind_the_sink_is_refused_and_a_change_behind_it_has_lost_its_lease() -> None:
    with pytest.raises(CheckpointError, match="HR410"):
        is_applied(context(Mark(number=2, token="two")), KEPT)
    with pytest.raises(LeaseLost, match="HR526"):
        is_applied(context(Mark(number=2, token="two", of=2, way="there")), KEPT)


def test_each_record_of_a_log_knows_the_tokens_of_those_before_it(tmp_path: Path) -> None:
    first = append(tmp_path, "q", LogRecord())
    second = append(tmp_path, "q", first)
    append(tmp_path, "q", second)
    record = read_log(tmp_path)
    assert record is not None
    assert record.tokens == {"1": first.token, "2": second.token}
    assert [record.mark("start").token_of(number) for number in (1, 2, 3, 4)] == [
        first.token, second.token, record.token, None
    ]  # fmt: skip
