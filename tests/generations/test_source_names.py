"""A source is renamed by one record: Spark's name of it, its first one, stays in all that was written under it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.checkpoint import Archive, Checkpoint, committed_prefix
from headrace.checkpoint.sources import SourceIds, SourceNames, write_sources
from headrace.errors import NOWHERE, CheckpointError
from headrace.generations.facts import read_source_names
from headrace.generations.log import QueryLayout
from headrace.model import Project, Query
from headrace.starter.rename import list_source_renames
from tests.registered import layout_in

pytestmark = pytest.mark.plain
QUERY = cast(Query, SimpleNamespace(name="q"))


def project_with(**former: tuple[str, ...]) -> Project:
    """A project with sources of these names, each with the names that it had before."""
    sources = [SimpleNamespace(name=name, renamed_from=names, where=NOWHERE) for name, names in former.items()]
    return cast(Project, SimpleNamespace(sources_of=lambda _: sources))


@pytest.fixture
def layout(tmp_path: Path) -> QueryLayout:
    layout = layout_in(tmp_path, "q")
    layout.home.mkdir(parents=True, exist_ok=True)
    return layout


def started(layout: QueryLayout, **former: tuple[str, ...]) -> Mapping[str, str]:
    """What the record says after a start with these sources."""
    names = read_source_names(project_with(**former), QUERY, layout)
    write_sources(layout.source_names, names, {})
    assert read_source_names(project_with(**former), QUERY, layout) == names
    return cast(Mapping[str, str], json.loads(layout.source_names.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("starts", "names"),
    [
        pytest.param([{"a": (), "b": ()}], {"a": "a", "b": "b"}, id="a first start"),
        pytest.param([{"a": ()}, {"new": ("a",)}], {"new": "a"}, id="renamed"),
        pytest.param([{"a": ()}, {"new": ("a",)}, {"new": ()}], {"new": "a"}, id="and the key is removed"),
        pytest.param([{"a": ()}, {"b": ("a",)}, {"c": ("b", "a")}], {"c": "a"}, id="renamed twice"),
        pytest.param([{"a": ()}, {"c": ("b", "a")}], {"c": "a"}, id="two releases at once"),
        pytest.param([{"a": ()}, {"b": ("a",)}, {"a": ("b",)}], {"a": "a"}, id="and back"),
        pytest.param([{"a": ()}, {"b": ("a",)}, {"b": (), "a": ()}], {"b": "a", "a": "a_2"}, id="its name used again"),
        pytest.param(
            [{"a": ()}, {"b": ("a",)}, {"b": (), "a": ()}, {"b": (), "c": ("a",)}, {"b": (), "c": (), "a": ()}],
            {"b": "a", "c": "a_2", "a": "a_3"},
            id="and once more",
        ),
        pytest.param([{"a": ()}, {"b": ("a",)}, {"a": ()}], {"b": "a", "a": "a_2"}, id="back without the key"),
        pytest.param([{"a": (), "b": ()}, {"a": ()}, {"a": (), "b": ()}], {"a": "a", "b": "b"}, id="away and back"),
    ],
)
def test_a_source_keeps_its_first_name_in_spark(
    layout: QueryLayout, starts: list[dict[str, tuple[str, ...]]], names: dict[str, str]
) -> None:
    for former in starts[:-1]:
        started(layout, **former)
    assert started(layout, **starts[-1]) == names


def test_a_source_that_continues_two_is_refused(layout: QueryLayout) -> None:
    started(layout, a=(), b=())
    with pytest.raises(CheckpointError, match=r"HR549.*'c' is renamed from 'a' and from 'b'"):
        read_source_names(project_with(c=("a", "b")), QUERY, layout)


def test_a_start_says_what_it_renames_once(layout: QueryLayout) -> None:
    project = project_with(new=("old",))
    assert list(list_source_renames(project, QUERY, layout)) == []
    started(layout, old=())
    [finding] = list_source_renames(project, QUERY, layout)
    assert (finding.code, "'old' of query 'q' is renamed to 'new'" in finding.what) == ("HR559", True)
    started(layout, new=("old",))
    assert list(list_source_renames(project, QUERY, layout)) == []


@pytest.mark.parametrize("text", ["", "[", '["old"]', "7"])
def test_a_damaged_record_is_reported_and_not_taken_for_none(layout: QueryLayout, text: str) -> None:
    layout.source_names.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match="HR584"):
        read_source_names(project_with(a=()), QUERY, layout)


def test_a_checkpoint_without_a_record_has_the_names_that_are_in_it(layout: QueryLayout) -> None:
    write_checkpoint(layout.checkpoint)
    assert started(layout, new=("old",), other=()) == {"new": "old", "other": "other"}


def test_what_was_written_under_the_first_name_is_found_under_that_of_now(layout: QueryLayout) -> None:
    write_checkpoint(layout.checkpoint)
    SourceIds(layout.home).write({"old": {"topic": "its id"}})
    names = read_source_names(project_with(new=("old",), other=()), QUERY, layout)
    archive, checkpoint = Archive(layout.archive), Checkpoint(layout.checkpoint)
    archive.catch_up(checkpoint)
    for gone in range(2):  # Spark purges them; the archive has them.
        (layout.checkpoint / "offsets" / str(gone)).unlink()
    prefixes = committed_prefix(checkpoint, archive, names, 2)
    assert sorted(prefixes) == ["new", "new__2", "other"]
    for name, first in (("new", "old"), ("new__2", "old__2"), ("other", "other")):
        assert [json.loads(batch.end or "")["logOffset"] for batch in prefixes[name].batches] == [0, 1, 2]
        assert [json.loads(line)["path"] for [line] in prefixes[name].log.values()] == [
            f"file:///in/{first}/{batch}.json" for batch in range(3)
        ]
    assert (prefixes["new__2"].ids(), prefixes["other"].ids()) == ({"topic": "its id"}, {})
    assert [names.now(names.in_spark(use)) for use in ("new", "new__2", "gone")] == ["new", "new__2", "gone"]


def test_a_further_name_is_no_use_of_the_first() -> None:
    names = SourceNames({"b": "a", "a": "a_2"}, ("b", "a"))
    assert [names.in_spark(use) for use in ("a", "a__2", "b__2")] == ["a_2", "a_2__2", "a__2"]
    assert [names.now(use) for use in ("a", "a_2", "a__2", "a_2__2")] == ["b", "a", "b__2", "a__2"]


def write_checkpoint(root: Path) -> None:
    """Three batches of two file sources, one of which is read in two places."""
    facts: dict[str, Any] = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}
    for folder in ("offsets", "commits", *(f"sources/{name}" for name in ("old", "old__2", "other"))):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"the-id"}')
    for batch in range(3):
        for name in ("old", "old__2", "other"):
            line = json.dumps({"path": f"file:///in/{name}/{batch}.json", "timestamp": 1, "batchId": batch})
            (root / "sources" / name / str(batch)).write_text(f"v1\n{line}")
        offset = f'{{"logOffset":{batch}}}'
        lines = ["v2", json.dumps(facts), *(f"{name}:{offset}" for name in ("old", "old__2", "other"))]
        (root / "offsets" / str(batch)).write_text("\n".join(lines))
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
