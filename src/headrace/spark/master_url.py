"""Where Spark's master is, as far as a mistake in its address can be seen without a JVM."""

from __future__ import annotations

import re

_HOST = r"(\[[0-9A-Fa-f:]+\]|[^\s:/,\[\]]+)"
_MASTERS = (
    r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?",
    rf"spark://{_HOST}:\d+(,{_HOST}:\d+)*",
    r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]",
    r"yarn",
    r"k8s://.+",
)
MASTER_FIX = "write local[*], local[2], spark://host:7077, yarn or k8s://..."


def master_fault(master: str) -> tuple[str, str] | None:
    """What is wrong with a master, and what to write."""
    if master.startswith("sc://"):
        return "is an address of Spark Connect, which cannot run Headrace's sinks", MASTER_FIX
    if any(re.fullmatch(form, master) for form in _MASTERS):
        return None
    return "is no master of Spark", MASTER_FIX


def master_hosts(master: str) -> list[tuple[str, int]]:
    """The hosts and ports of a standalone cluster's masters; none for another kind."""
    if not master.startswith("spark://"):
        return []
    pairs = (each.rpartition(":") for each in master.removeprefix("spark://").split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]
