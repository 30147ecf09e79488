"""Paths of which Spark takes no character for a pattern."""

from __future__ import annotations

import re

# What Hadoop's file patterns give a meaning. Source: org.apache.hadoop.fs.GlobPattern.
_MEANINGFUL = re.compile(r"([\\{}\[\]*?])")


def literal(path: str) -> str:
    """`path` as a reader of Spark has to be given it to read that very path."""
    return _MEANINGFUL.sub(r"\\\1", path)
