"""Hadoop's local file system without a process for each file that it makes.

Where Hadoop finds no native library, and Spark brings none, it starts `chmod` for each file that it makes, and for the
checksum of each: some milliseconds a time, many times in a tiny batch. The library hadoop-bare-naked-local-fs asks Java
instead. It is used where its jar is here, in sessions that run on this machine alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import Finding, PlatformError
from headrace.spark import jars

LIBRARY = "local-files"
SETTING = "spark.hadoop.fs.file.impl"
FILE_SYSTEM = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
# The driver's file system is asked for before `spark.jars` are there.
CLASS_PATH = "spark.driver.extraClassPath"


def jar() -> Path | None:
    """The library's jar, if it is here."""
    found = jars.find(jars.known()[LIBRARY])
    return found[0] if found and not re.search(r"[\s:]", str(found[0])) else None


def settings(own: Mapping[str, str]) -> dict[str, str]:
    """What a local session needs for it, with its `own` settings; nothing without the jar, or with another choice."""
    if jar() is None or SETTING in own:
        return {}
    return {SETTING: FILE_SYSTEM, **on_class_path(own)}


def on_class_path(own: Mapping[str, str]) -> dict[str, str]:
    """The library first on the driver's class path, where a CDS archive has it; it is not used by that alone."""
    file, further = jar(), own.get(CLASS_PATH)
    return {} if file is None else {CLASS_PATH: f"{file}:{further}" if further else str(file)}


def ensure() -> None:
    """Fetch the jar if it is not here; where it is not to be had, one sentence goes to stderr."""
    if jars.find(jars.known()[LIBRARY]) is not None:
        return
    try:
        jars.install(jars.known()[LIBRARY], jars.cache())
    except PlatformError as error:
        what = f"each file of a checkpoint takes some milliseconds longer: {error.findings[0].what}"
        print(Finding(code="HR003", what=what), file=sys.stderr)
