"""The systemd unit of a project, the application's messages to systemd, and the files for Prometheus and Grafana."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from string import Template

from headrace.contract import BatchRecord, BatchWork, Observer
from headrace.control.board import Board
from headrace.errors import FINAL_EXIT_CODES, Finding, HeadraceError
from headrace.export.serving import url_address
from headrace.model import Project
from headrace.model.operations import Metrics
from headrace.units import Duration

# Of metrics that are not declared, but asked for by `headrace run --metrics`.
PORT = 9108
MONITORING = ("alerts.yml", "dashboard.json")
STOP_TIMEOUT = Duration.parse("5 minutes")
# Until Spark is there, whose jars may have to be fetched first; and without a sign of work.
START_TIMEOUT, WATCHDOG = Duration.parse("15 minutes"), Duration.parse("30 minutes")
# Of the machine's memory: at the end of it the kernel would end some process of the machine. A checkpoint, RocksDB and
# a shuffle have many files open; the usual limit is 1024.
MEMORY, OPEN_FILES = "90%", 65_536
# Starts that fail come less and less often, as far as systemd can do that: from its version 254 on. What it is to start
# again may be away for hours, so their number has no limit.
BACKOFF = ("RestartSec=10", "RestartSteps=8", "RestartMaxDelaySec=300")
NO_BACKOFF = ("RestartSec=60",)
# What systemd takes as a user: useradd(8)'s names, and those of directories in networks.
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,254}\$?|[0-9]{1,10}")
_LONGEST = 100
SYSTEMD_WITH_BACKOFF = 254


def unit(
    project: Project,
    *,
    user: str | None = None,
    stop_timeout: Duration = STOP_TIMEOUT,
    watchdog: Duration = WATCHDOG,
    memory: str = MEMORY,
    systemd: int | None = None,
) -> str:
    """Return the text of the unit.

    Raises HeadraceError if it would run as root or as a user who cannot write, or if a unit cannot hold a value.

    user: whom it runs as; None: whom the project's directory belongs to. watchdog: it is started again after so long
    without a batch, a task of one, or a start. memory: what it may use, as systemd writes it. systemd: its version, if
    that is known.
    """
    owner = _owner(project.root) if user is None else user
    if not _USER.fullmatch(owner):
        fix = "name one that this machine has: --user NAME"
        raise HeadraceError(code="HR877", what=f"the user {owner!r} is not a valid name of a user", fix=fix)
    if _is_root(owner):
        raise HeadraceError(
            code="HR877",
            what=f"the service would run as root, to whom {project.root} belongs",
            fix="name an unprivileged user who may write into the storage directory: --user NAME",
        )
    if refused := _place_refusal(owner, project):
        raise HeadraceError(refused)
    name = unit_name(project)
    java = os.environ.get("JAVA_HOME")
    root, called = str(project.root.resolve()), command()
    _require_plain(f"the name of the project {project.name!r}", project.name)
    _require_plain(f"the directory {root!r}", root, ends=True)
    _require_plain(f"JAVA_HOME, {java!r},", java or "")
    _require_plain(f"the path of Headrace {called[0]!r}", called[0], but="\"'\\")
    environment = [f"HEADRACE_TARGET={project.target.name}", *([f"JAVA_HOME={java}"] if java else [])]
    template = resources.files("headrace.export").joinpath("headrace.service").read_text(encoding="utf-8")
    return Template(template).substitute(
        project=_text(project.name),
        start_seconds=f"{START_TIMEOUT.seconds:.0f}",
        watchdog_seconds=f"{watchdog.seconds:.0f}",
        memory=memory,
        open_files=OPEN_FILES,
        user=owner,
        root=_text(root),
        environment="\n".join(f"Environment={_quote(pair)}" for pair in environment),
        name=name,
        command=" ".join(map(_quote, (*called, "run"))),
        stop_seconds=f"{stop_timeout.seconds:.0f}",
        restarts="\n".join(BACKOFF if systemd is not None and systemd >= SYSTEMD_WITH_BACKOFF else NO_BACKOFF),
        final_exit_codes=" ".join(map(str, FINAL_EXIT_CODES)),
    )


def _require_plain(what: str, value: str, *, ends: bool = False, but: str = "") -> None:
    """Refuse a value that systemd would read as something else, however it is quoted.

    ends: it stands unquoted to the end of its line. but: further characters that systemd refuses there.
    """
    is_text = not any("\ud800" <= character <= "\udfff" for character in value)
    is_line = not re.search(r"[\x00-\x1f\x7f]", value) and not (ends and re.search(r"^\s|[\s\\]$", value))
    if not (is_text and is_line) or any(character in value for character in but):
        wrong = "bytes that are no UTF-8" if not is_text else "characters that a unit of systemd cannot hold"
        fix = "take line breaks, control characters, quotes and backslashes out of it"
        raise HeadraceError(code="HR877", what=f"{what} has {wrong}", fix=fix)


def _is_root(user: str) -> bool:
    """Whether the name, or the number, is that of the user 0."""
    if user.isdecimal():
        return not int(user)
    try:
        return pwd.getpwnam(user).pw_uid == 0
    except KeyError:
        return user == "root"


def _place_refusal(user: str, project: Project) -> Finding | None:
    """Return why `user`, if this machine knows them, cannot run the project, by the rights of its directories."""
    # An unknown user, or a directory that cannot be read, is not judged.
    with suppress(KeyError, OSError):
        account = pwd.getpwnam(user)
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
        root = project.root.resolve()
        for place, verb, bits in ((root, "read", 0o5), (root / project.local_storage, "write into", 0o7)):
            while not place.exists():
                place = place.parent
            for directory, needed in ((place, bits), *((parent, 0o1) for parent in place.parents)):
                if not _has_rights(account.pw_uid, groups, directory, needed):
                    return Finding(
                        code="HR877",
                        what=f"the user {user} may not {verb} {place}, for the rights of {directory}",
                        fix=f"name another user, or give them the right: chown -R {user} {place}",
                    )
    return None


def _has_rights(uid: int, groups: list[int], directory: Path, needed: int) -> bool:
    """Whether the mode of a directory gives all the bits of `needed`; an access list may give more, and is not read."""
    with suppress(OSError):
        if hasattr(os, "getxattr") and os.getxattr(directory, "system.posix_acl_access"):
            return True
    status = directory.stat()
    shift = 6 if status.st_uid == uid else 3 if status.st_gid in groups else 0
    return (stat.S_IMODE(status.st_mode) >> shift) & needed == needed


class Notifier(Observer):
    """Reports to systemd, which has started this process, that the queries are started and make progress.

    The watchdog is fed by a batch, a task of one, a query without work, and a start. Where nothing has moved for as
    long as the unit's WatchdogSec, or the supervisor hangs, systemd ends the process and starts it again.
    Source: sd_notify(3), a datagram to the socket that NOTIFY_SOCKET names; a full one is skipped.
    """

    def __init__(
        self,
        board: Board,
        environ: MutableMapping[str, str] = os.environ,
        *,
        begins_again: Callable[[], bool] = lambda: False,
    ) -> None:
        self._begins_again = begins_again
        # Spark's JVM and its workers must not write to it.
        self._address = environ.pop("NOTIFY_SOCKET", "")
        microseconds = environ.pop("WATCHDOG_USEC", "")
        self._board = board
        self._is_watched = bool(microseconds)
        self._every = min(max(int(microseconds or "0") / 4e6, 0.05), 10.0) if microseconds else 1.0
        self._work: dict[str, tuple[int, ...]] = {}
        self._seen: object = None
        self._done = threading.Event()
        if self._address:
            threading.Thread(target=self._watch, name="systemd", daemon=True).start()

    def working(self, query: str, work: BatchWork) -> None:
        self._work[query] = (work.tasks_done, work.tasks, work.rows)

    def progressed(self, record: BatchRecord) -> None:
        self._work[record.query] = (record.batch,)

    def close(self) -> None:
        """Report that the application ends, for which systemd gives it time, or that its process begins it again."""
        self._done.set()
        again = f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
        self._send(again if self._begins_again() else "STOPPING=1")

    def _watch(self) -> None:
        is_ready_sent = False
        while not self._done.wait(self._every):
            states = self._board.states()
            due_at = dict(self._board.due_at)
            # While nothing is to move but the supervisor: all wait for a start or their next trigger, or are paused.
            rests = not any(state.is_started for state in states.values()) or any(
                state.state in ("starting", "restarting") for state in states.values()
            )
            rests = rests or any(due > time.monotonic() for due in due_at.values())
            seen = (states, due_at, dict(self._work), self._board.beat_at if rests else None)
            if states and not is_ready_sent:
                is_ready_sent = self._send(f"READY=1\nSTATUS={len(states)} queries")
            if self._is_watched and (seen != self._seen or not states):
                self._seen = seen
                self._send("WATCHDOG=1")

    def _send(self, text: str) -> bool:
        if not self._address:
            return False
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(text.encode(), "\0" + self._address[1:] if self._address.startswith("@") else self._address)
            return True
        return False


def systemd_version() -> int | None:
    """Return the version of this machine's systemd; None where there is none."""
    try:
        output = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    match = re.match(r"systemd (\d+)", output)
    return int(match[1]) if match else None


def unit_name(project: Project) -> str:
    """Return what the unit is called: the project's name, and the target where it is not `dev`."""
    name, target = (
        re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:_LONGEST] for name in (project.name, project.target.name)
    )
    return f"headrace-{name or 'project'}" + ("" if project.target.name == "dev" else f"-{target}")


def command() -> list[str]:
    """Return how this Headrace is called, by its absolute path."""
    installed = Path(sys.executable).parent / "headrace"
    program = str(installed) if installed.is_file() else shutil.which("headrace")
    return [program] if program else [sys.executable, "-m", "headrace"]


def write_monitoring(directory: Path, project: Project) -> list[Path]:
    """Write the alert rules, the dashboard and a scrape configuration for the project into `directory`.

    Raises HeadraceError where each start of the project serves its metrics on another port.
    """
    scrape = _scrape(project)
    directory.mkdir(parents=True, exist_ok=True)
    kept = resources.files("headrace.export") / "monitoring"
    texts = {name: kept.joinpath(name).read_text(encoding="utf-8") for name in MONITORING}
    for name, text in {**texts, "prometheus.yml": scrape}.items():
        (directory / name).write_text(text, encoding="utf-8")
    return [directory / name for name in (*MONITORING, "prometheus.yml")]


def _scrape(project: Project) -> str:
    served = project.target.operations.metrics or Metrics(port=PORT)
    if not served.port:
        raise HeadraceError(
            code="HR877",
            what="metrics: {port: 0} takes another port at each start, at which Prometheus would not find them",
            fix=f"name one that stays: metrics: {{port: {PORT}}}",
        )
    token = "    authorization: {credentials_file: token}\n" if served.token else ""
    return (
        "global: {scrape_interval: 15s}\n"
        "rule_files: [alerts.yml]\n"
        "scrape_configs:\n"
        "  - job_name: headrace\n"
        f"{token}"
        f"    static_configs: [{{targets: ['{url_address(served.address, served.port)}']}}]\n"
    )


def _owner(directory: Path) -> str:
    user = directory.stat().st_uid
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _text(value: str) -> str:
    """`value` without what systemd fills in."""
    return value.replace("%", "%%")


def _quote(value: str) -> str:
    """Quote a word of a line of words. Source: systemd.syntax(7), systemd.service(5)."""
    plain = _text(value)
    if re.fullmatch(r"[A-Za-z0-9./_:@%+=-]+", plain):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
