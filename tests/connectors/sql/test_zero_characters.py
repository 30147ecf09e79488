"""A zero character that PostgreSQL does not take differs from a text that looks like its escape."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType

from headrace.connectors.sql.limits import Limit, split_invalid
from headrace.connectors.sql.types import ResultColumn

pytestmark = pytest.mark.plain

TEXTS = ["\0", "a\0", "\\u0000", "\\\0", "\\\\u0000", "\\\\\0", "u0000", "\\", "a\\u00000", '"\0"', '"\\u0000']


@pytest.mark.parametrize("kind", ["text", "json"])
def test_only_a_text_with_a_zero_character_is_refused(kind: Any) -> None:
    column = ResultColumn("v", kind, StringType())
    written = TEXTS if kind == "text" else [json.dumps({"a": [text]}) for text in TEXTS]
    good, bad = split_invalid(pa.table({"v": written}), [column], {"v": Limit(no_zero=True)})
    assert good.column("v").to_pylist() == [
        text for text, given in zip(written, TEXTS, strict=True) if "\0" not in given
    ]
    assert len(bad) == sum("\0" in text for text in TEXTS)
