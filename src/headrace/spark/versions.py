"""The versions of PySpark that Headrace runs on; its package metadata names the same range."""

from __future__ import annotations

import re

from headrace.errors import Finding, PlatformError

# From the first, up to and without the second: each in between was run with all canaries of Spark's private parts.
FIRST, BEYOND = (4, 2), (4, 4)


def require_version(version: str) -> None:
    """Raise PlatformError for a version of Spark that Headrace was not tried with."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if FIRST <= numbers < BEYOND:
        return
    first, beyond = (".".join(map(str, each)) for each in (FIRST, BEYOND))
    raise PlatformError(
        Finding(
            code="HR446",
            what=f"this is Spark {version}, and Headrace runs on {first} and newer ones before {beyond}",
            fix=f"pip install 'pyspark>={first},<{beyond}'",
        )
    )
