"""Examine the machine, and what a project reads and writes, before anything is run."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from headrace.checks.result import size_text
from headrace.errors import NOWHERE, Finding, HeadraceError, PlainData, Where, reason
from headrace.model import Project

LEAST_MEMORY, LEAST_DISK = 2 << 30, 1 << 30
MOST_SKEW_SECONDS = 2.0
DASHBOARD_PORT, SPARK_PORT = 8470, 4040
# What a user does not install for itself.
_BUNDLES = {"all", "dev"}


@dataclass(frozen=True, kw_only=True)
class Examined(PlainData):
    """One line: what was examined, what was seen, and what is wrong with it."""

    name: str
    state: Literal["ok", "note", "warning", "error"]
    seen: str
    fix: str = ""
    code: str = ""

    @classmethod
    def of(cls, name: str, finding: Finding) -> Examined:
        """Return a finding as a line."""
        return cls(name=name, state=finding.severity, seen=finding.what, fix=finding.fix, code=finding.code)


def examine(project: Project | None = None, *, connect: bool = True) -> Iterator[Examined]:
    """Examine this machine and, with a project, its declarations, its sources and its sinks.

    Args:
        project: The project; its storage is the directory that is examined.
        connect: Whether to start Spark and ask sources and sinks, by the checks of `headrace check`.

    Yields:
        A line for each part, as soon as it is known.
    """
    place = _existing(project.local_storage if project else Path())
    examinations: tuple[tuple[str, Callable[[], str]], ...] = (
        ("python", _examine_python),
        ("spark", _examine_spark),
        ("java", _examine_java),
        ("memory", _examine_memory),
        ("disk", lambda: _examine_disk(place)),
        ("host", _examine_host),
        ("ports", _examine_ports),
        ("clock", lambda: _examine_clock(place)),
        ("file system", lambda: _examine_file_system(place)),
    )
    for name, look in examinations:
        yield from _lines(name, look)
    yield from _examine_jars(project)
    yield from _examine_extras()
    if project is not None:
        yield from _examine_project(project, connect=connect)


def _lines(name: str, look: Callable[[], str]) -> Iterator[Examined]:
    try:
        yield Examined(name=name, state="ok", seen=look())
    except HeadraceError as error:
        yield from (Examined.of(name, finding) for finding in error.findings)


def _existing(place: Path) -> Path:
    """Return the directory, or the nearest one above it that exists."""
    return next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.is_dir())


def _fault(code: str, problem: str, fix: str) -> HeadraceError:
    return HeadraceError(code=code, what=problem, fix=fix)


def _examine_python() -> str:
    return f"{platform.python_version()} ({sys.executable}), {platform.platform(terse=True)}"


def _examine_spark() -> str:
    from headrace.spark.jvm.preconditions import require_version

    require_version(version("pyspark"))
    return version("pyspark")


def _examine_java() -> str:
    from headrace.spark.jvm.preconditions import require_java

    java = require_java()
    return f"{java.version} ({java.home})"


def _examine_memory() -> str:
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):
        free = total  # Where the system does not say it, as on macOS.
    seen = f"{size_text(free)} of {size_text(total)} are free"
    if free < LEAST_MEMORY:
        fix = "end other programs, or set spark.driver.memory to less than what is free"
        raise _fault("HR013", f"only {seen}; a driver takes {size_text(LEAST_MEMORY)}", fix)
    return seen


def _examine_disk(place: Path) -> str:
    for folder in (place, Path(tempfile.gettempdir())):
        usage = shutil.disk_usage(folder)
        if usage.free < LEAST_DISK:
            seen = f"only {size_text(usage.free)} are free in {folder}"
            raise _fault("HR013", seen, "make room, or name another storage (TMPDIR for Spark's own files)")
    return f"{size_text(shutil.disk_usage(place).free)} are free in {place}"


def _examine_host() -> str:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
        with closing(socket.socket()) as probe:
            probe.bind((address, 0))
    except OSError as error:
        problem = f"this machine's name '{name}' leads to no address of its own: {reason(error)}"
        raise _fault("HR013", problem, f"add '127.0.0.1 {name}' to /etc/hosts, or set SPARK_LOCAL_IP") from error
    return f"{name} ({address})"


def _examine_ports() -> str:
    taken = [port for port in (DASHBOARD_PORT, SPARK_PORT) if not _is_free(port)]
    if DASHBOARD_PORT in taken:
        problem = f"port {DASHBOARD_PORT}, of the dashboard, is taken"
        raise _fault("HR013", problem, "end the program that has it, or give another one: headrace ui --port 0")
    own = " (Spark's own page takes the next free one)" if taken else ""
    return f"{DASHBOARD_PORT} is free, {SPARK_PORT} is {'taken' if taken else 'free'}{own}"


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _examine_clock(place: Path) -> str:
    with _scratch(place) as folder:
        file = Path(folder, "clock")
        file.touch()
        # A file server stamps files by its own clock.
        skew = abs(file.stat().st_mtime - time.time())
    if skew > MOST_SKEW_SECONDS:
        problem = f"the clock of the file system at {place} differs from this machine's by {skew:.0f} s"
        raise _fault("HR013", problem, "let both machines follow a time server (chrony, systemd-timesyncd)")
    return f"{time.strftime('%Y-%m-%d %H:%M:%S %z')} ({time.tzname[0]}); queries reckon in their session's zone, UTC"


def _examine_file_system(place: Path) -> str:
    with _scratch(place) as folder:
        file, other = Path(folder, "file"), Path(folder, "other")
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("write and fsync a file", lambda: _write(file)),
            ("rename a file over another", lambda: _replace(file, other)),
            ("make a hard link, once", lambda: _link_once(other, file)),
            ("lock a file", lambda: _lock(file)),
        )
        for verb, step in steps:
            try:
                step()
            except OSError as error:
                problem = f"the file system at {place} cannot {verb}: {reason(error)}"
                raise _fault("HR014", problem, "keep the storage on a local disk, on hdfs:// or on s3a://") from error
    return f"rename, fsync, hard links and locks work at {place}"


def _scratch(place: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix=".headrace-doctor-", dir=place)
    except OSError as error:
        problem = f"nothing can be written into {place}: {reason(error)}"
        raise _fault(
            "HR014", problem, "give the user that runs Headrace the right to, or name another storage"
        ) from error


def _write(file: Path) -> None:
    with file.open("wb") as opened:
        opened.write(b"headrace")
        opened.flush()
        os.fsync(opened.fileno())


def _replace(file: Path, other: Path) -> None:
    other.touch()
    os.replace(file, other)


def _link_once(file: Path, link: Path) -> None:
    os.link(file, link)
    try:
        os.link(file, link)
    except FileExistsError:
        return
    raise OSError("a second link took the place of the first")


def _lock(file: Path) -> None:
    """Two descriptors of one file stand for two processes."""
    with file.open("r+b") as one, file.open("r+b") as other:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
    raise OSError("two have the lock at once")


def _examine_jars(project: Project | None) -> Iterator[Examined]:
    from headrace.spark.jvm.jars import find, known_connectors

    root = project.root if project else None
    here: list[str] = []
    away: list[str] = []
    for name, connector in known_connectors().items():
        try:
            (away if find(connector, root) is None else here).append(name)
        except HeadraceError as error:
            yield from (Examined.of("jars", finding) for finding in error.findings)
    seen = f"here, with their sums: {', '.join(here) or 'none'}"
    fix = "fetched when they are needed; without a network: headrace jars fetch DIR" if away else ""
    yield Examined(
        name="jars",
        state="note" if away else "ok",
        seen=seen + (f"; not here: {', '.join(away)}" if away else ""),
        fix=fix,
    )


def _examine_extras() -> Iterator[Examined]:
    """Compare what each extra asks for with what is installed."""
    own = distribution("headrace")
    extras = sorted(set(own.metadata.get_all("Provides-Extra") or ()) - _BUNDLES)
    missing = {extra: names for extra in extras if (names := _missing(own, extra))}
    here = ", ".join(extra for extra in extras if extra not in missing) or "none"
    if not missing:
        yield Examined(name="extras", state="ok", seen=here)
        return
    lacking = "; ".join(f"{extra} lacks {', '.join(names)}" for extra, names in missing.items())
    fix = f"where you need them: pip install 'headrace[{','.join(missing)}]'"
    yield Examined(name="extras", state="note", seen=f"{here}; {lacking}", fix=fix)


def _missing(own: Distribution, extra: str) -> list[str]:
    """Return the packages of an extra that are not installed, or in a version that it does not take."""
    missing = []
    for requirement in map(Requirement, own.requires or ()):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            is_here = requirement.specifier.contains(version(requirement.name), prereleases=True)
        except PackageNotFoundError:
            is_here = False
        if not is_here:
            missing.append(requirement.name)
    return missing


def _examine_project(project: Project, *, connect: bool) -> Iterator[Examined]:
    """Ask what `headrace check` asks, and give each finding to the part that it is about."""
    from headrace import api

    try:
        result = api.check(project, spark=None if connect else False, connect=connect)
    except HeadraceError as error:  # As without Java: the lines of the other parts are there.
        yield from (Examined.of("project", finding) for finding in error.findings)
        return
    parts: list[tuple[str, Where, str]] = [
        *((f"source {name}", source.where, source.kind) for name, source in project.sources.items()),
        *((f"query {name}", query.where, f"into {query.sink_kind}") for name, query in project.queries.items()),
    ]
    # What does not answer may do so when the project runs, so that `check` only warns.
    rest = [finding.with_severity("error") if finding.passes else finding for finding in result.findings]
    for name, where, kind in parts:
        own = [finding for finding in rest if finding.where == where != NOWHERE]
        rest = [finding for finding in rest if finding not in own]
        yield from (Examined.of(name, finding) for finding in own)
        if not own:
            yield Examined(name=name, state="ok", seen=f"{kind}: {'answers' if connect else 'not asked'}")
    yield from (Examined.of("project", finding) for finding in rest)
