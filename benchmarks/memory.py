"""What a driver holds: the resident memory of its Python and its JVM, and the JVM's heap after a collection."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.spark.jvm.gateway import descendants

_CLASS = re.compile(r"^ *\d+: +(\d+) +(\d+) +(\S+)", re.MULTILINE)


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
        heap = sum(held for _, held in classes_of(driver).values())
        return cls(python=_resident(driver), jvm=_resident(java), heap=round(heap / 2**20, 1))


def classes_of(driver: int) -> dict[str, tuple[int, int]]:
    """The objects and bytes of each class in a driver's JVM after a full collection.

    It collects, and counts what is left at that moment: what is allocated meanwhile does not count.
    """
    counted: dict[str, tuple[int, int]] = {}
    for objects, held, name in _CLASS.findall(_jcmd(jvm_of(driver), "GC.class_histogram")):
        before = counted.get(name, (0, 0))  # Two loaders may have a class of one name.
        counted[name] = (before[0] + int(objects), before[1] + int(held))
    return counted


def jvm_of(driver: int) -> int:
    """The JVM that a driver has started."""
    return next(pid for pid in descendants(driver) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


def cpu_seconds(driver: int) -> float:
    """What a driver and all that come from it have used of the cores so far.

    What one has used that ended is in the figures of its parent.
    """
    ticks = _ticks(driver)
    for pid in descendants(driver):
        with suppress(FileNotFoundError, ProcessLookupError):
            ticks += _ticks(pid)
    return ticks / 100


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _resident(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return round(int(match[1]) / 1024, 1)


def _jcmd(java: int, order: str) -> str:
    return subprocess.run(["jcmd", str(java), order], capture_output=True, text=True, check=True, timeout=120).stdout
