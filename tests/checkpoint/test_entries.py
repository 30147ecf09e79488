"""An offsets file is read back as it was written, whatever the names and offsets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.checkpoint import CommitEntry, OffsetEntry
from headrace.errors import CheckpointError, Finding

pytestmark = pytest.mark.plain
FILE = Path("checkpoint/offsets/3")
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
times = st.integers(min_value=0, max_value=2**53)
texts = st.text(st.characters(exclude_categories=("Cs",)))
offsets = (
    st.none()
    | st.integers(0).map(str)
    | st.dictionaries(texts, st.integers() | texts).map(lambda value: json.dumps(value, ensure_ascii=False))
)
entries = st.builds(
    OffsetEntry,
    batch=st.just(3),
    watermark_ms=times,
    timestamp_ms=times,
    conf=st.dictionaries(texts, texts, max_size=4),
    offsets=st.dictionaries(names, offsets, min_size=1, max_size=4),
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a machine under load
@given(entries)
def test_what_is_formatted_is_parsed_back(entry: OffsetEntry) -> None:
    assert OffsetEntry.parse(3, entry.format(), FILE) == entry


def outcome(
    parse: Callable[[int, str, Path], OffsetEntry | CommitEntry], text: str
) -> OffsetEntry | CommitEntry | Finding:
    try:
        return parse(3, text, FILE)
    except CheckpointError as error:
        return error.findings[0]


@given(entries, st.data())
def test_a_cut_off_entry_is_refused_or_keeps_its_watermark(entry: OffsetEntry, data: st.DataObject) -> None:
    text = entry.format()
    read = outcome(OffsetEntry.parse, text[: data.draw(st.integers(0, len(text) - 1))])
    if isinstance(read, OffsetEntry):
        assert (read.watermark_ms, read.conf) == (entry.watermark_ms, entry.conf)
    else:
        assert read.code == "HR503"


@given(st.text())
@pytest.mark.parametrize("parse", [OffsetEntry.parse, CommitEntry.parse], ids=["offsets", "commits"])
def test_any_text_is_an_entry_or_a_finding(
    parse: Callable[[int, str, Path], OffsetEntry | CommitEntry], text: str
) -> None:
    read = outcome(parse, text)
    assert read.where.file == str(FILE) if isinstance(read, Finding) else read.batch == 3


def test_the_first_format_counts_its_sources_and_marks_the_silent_ones() -> None:
    entry = OffsetEntry.parse(3, 'v1\n{"batchWatermarkMs":7}\n{"logOffset":4}\n-\n12', FILE)
    assert entry.offsets == {"0": '{"logOffset":4}', "1": None, "2": "12"}
    assert (entry.watermark_ms, entry.timestamp_ms, entry.conf) == (7, 0, {})


def test_a_name_ends_at_the_first_colon() -> None:
    assert OffsetEntry.parse(3, 'v2\n\nevents:{"a":1}', FILE).offsets == {"events": '{"a":1}'}


FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("kind", ["named", "numbered"])
def test_what_spark_wrote_is_formatted_as_it_was(kind: str) -> None:
    files = [file for file in FIXTURES.glob(f"{kind}/**/offsets/*") if file.name.isdigit()]
    assert files
    for file in files:
        text = file.read_text()
        assert OffsetEntry.parse(int(file.name), text, file).format() == text


def test_what_continuous_processing_wrote_is_formatted_as_it_was() -> None:
    text = 'v1\n\n{"0":7}\n-'
    entry = OffsetEntry.parse(3, text, FILE)
    assert (entry.is_continuous, entry.version, entry.format()) == (True, 1, text)
