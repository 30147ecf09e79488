"""Where the schemas of state lie is named as Spark names it, wherever the checkpoint was and comes to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.checkpoint.relocation import rewrite_text, state_url
from headrace.storage.remote import RemotePath

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(
    ("written", "old", "new", "expected"),
    [
        ("file:/a b/g1", "/a b/g1", "/c d/g2", "file:/c d/g2"),
        ("file:///a/g1", "/a/g1", "/c/g2", "file:///c/g2"),
        ("file:/a%20b/g1", "/a b/g1", "/c/g2", "file:/c/g2"),
        ("hdfs://name:9000/a b/g1", "hdfs://name:9000/a b/g1", "hdfs://name:9000/c/g2", "hdfs://name:9000/c/g2"),
        ("file:/a/g1", "/a/g1", "s3a://lake/g1", "s3a://lake/g1"),
        ("s3a://lake/g1", "s3a://lake/g1", "/a/g1", "file:/a/g1"),
        ('file:/a "b"/g1', '/a "b"/g1', "/c\\d/g2", "file:/c\\d/g2"),
        ("file:/other/a/g1", "/a/g1", "/c/g2", "file:/other/a/g1"),
        ("file:/a/g10", "/a/g1", "/c/g2", "file:/a/g10"),
        ("file:/a/b/g1", "/a", "/a/b", "file:/a/b/g1"),
        ("s3a://lake/g1", "/g1", "/c/g2", "s3a://lake/g1"),
    ],
)
def test_a_description_of_state_names_the_new_place(
    tmp_path: Path, written: str, old: str, new: str, expected: str
) -> None:
    file = tmp_path / "0"
    file.write_text(json.dumps({"paths": [f"{written}/checkpoint/state/0/_stateSchema/default/0_id"]}))
    rewrite_text(file, old, new)
    assert json.loads(file.read_text()) == {"paths": [f"{expected}/checkpoint/state/0/_stateSchema/default/0_id"]}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Path('/a "b"/g1'), 'file:/a "b"/g1'),
        (RemotePath("hdfs://name:9000/a b"), "hdfs://name:9000/a b"),
        (RemotePath("s3a://lake/g1"), "s3a://lake/g1"),
    ],
)
def test_a_directory_is_named_as_spark_names_it(place: Path, expected: str) -> None:
    assert json.loads(f'"{state_url(place)}"') == expected
