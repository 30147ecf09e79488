"""Each of Spark's settings that the pages on clusters name is one that this Spark knows, under that very name."""

from __future__ import annotations

import re
import struct
from functools import cache
from importlib.resources import files
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.docs.blocks import ROOT

pytestmark = pytest.mark.plain

PAGES = ("how-to/size-a-query.md", "how-to/run-on-kubernetes-or-yarn.md", "explanation/scale.md")
KEY = re.compile(r"\bspark\.[a-z][\w.]*\w")
# Where Spark declares its settings.
DECLARED = {
    "core": ("org/apache/spark/internal/config/", "org/apache/spark/network/"),
    "catalyst": ("org/apache/spark/sql/internal/SQLConf$.class",),
    "sql": ("org/apache/spark/sql/execution/streaming/state/RocksDBConf",),
    "kubernetes": ("org/apache/spark/deploy/k8s/",),
    "yarn": ("org/apache/spark/deploy/yarn/config/",),
}
ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."
# Names that begin many: of hadoop's own settings, and of volumes.
PREFIXES = ("spark.hadoop.", "spark.kubernetes.executor.volumes")


@cache
def texts() -> frozenset[str]:
    """The texts in the classes that declare settings."""
    words: set[str] = set()
    for jar, places in DECLARED.items():
        (path,) = Path(str(files("pyspark"))).glob(f"jars/spark-{jar}_2*.jar")
        with ZipFile(path) as archive:
            for name in archive.namelist():
                if name.startswith(places) and name.endswith(".class"):
                    words |= constants(archive.read(name))
    return frozenset(words)


def constants(code: bytes) -> set[str]:
    """The texts in a class's pool of constants."""
    sizes = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
    (count,), at, number, strings = struct.unpack(">H", code[8:10]), 10, 1, set()
    while number < count:
        tag = code[at]
        if tag == 1:
            (length,) = struct.unpack(">H", code[at + 1 : at + 3])
            strings.add(code[at + 3 : at + 3 + length].decode("utf-8", "replace"))
            at += 3 + length
        else:
            at += 1 + sizes[tag]
            number += tag in (5, 6)  # These two take two places.
        number += 1
    return strings


def is_known(key: str) -> bool:
    return (
        key.startswith(PREFIXES) or key in texts() or (key.startswith(ROCKSDB) and key.removeprefix(ROCKSDB) in texts())
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_settings_of_spark_that_a_page_names_exist(page: str) -> None:
    keys = set(KEY.findall((ROOT / "docs" / page).read_text(encoding="utf-8")))
    assert keys, "a page that names no setting needs no test"
    assert sorted(key for key in keys if not is_known(key)) == []


def test_a_misspelt_setting_would_be_found() -> None:
    assert is_known(f"{ROCKSDB}boundedMemoryUsage")
    assert not is_known(f"{ROCKSDB}boundedMemory")
    assert not is_known("spark.sql.streaming.minBatchesToKeep")
