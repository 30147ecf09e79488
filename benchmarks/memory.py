"""What a driver holds: the resident memory of its Python and its JVM, and the JVM's heap after a collection."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.spark.jvm.gateway import descendants

_LIVE = re.compile(r"^Total\s+\d+\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """In MB, of a driver at one moment."""

    python: float
    jvm: float
    heap: float

    @classmethod
    def of(cls, driver: int) -> Memory:
        """Of the process of a driver, after a full collection of its JVM."""
        java = jvm_of(driver)
        heap = _heap_after_collection(java)
        return cls(python=_resident(driver), jvm=_resident(java), heap=heap)


def jvm_of(driver: int) -> int:
    """The JVM that a driver has started."""
    return next(pid for pid in descendants(driver) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


def cpu_seconds(driver: int) -> float:
    """What a driver and all that come from it have used of the cores so far."""
    ticks = 0
    for pid in (driver, *descendants(driver)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / 100


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return round(int(found[1]) / 1024, 1)


def _heap_after_collection(java: int) -> float:
    # It collects, and counts what is left at that moment: what is allocated meanwhile does not count.
    found = _LIVE.search(_jcmd(java, "GC.class_histogram"))
    assert found
    return round(int(found[1]) / 2**20, 1)


def _jcmd(java: int, order: str) -> str:
    return subprocess.run(["jcmd", str(java), order], capture_output=True, text=True, check=True, timeout=120).stdout
