"""A server process: started as an ordinary user, waited for, stopped or killed."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.spark.jvm.maven import known_sums, read_sums

# Below the ports of outgoing connections: one of those could take the port of a server that is stopped for a moment.
PORTS = range(20000, 32000)
START_SECONDS = 60.0
STOP_SECONDS = 30.0
FINISH_SECONDS = 120.0
# How long a statement of the administrator may take.
STATEMENT_SECONDS = 60
PROC = Path("/proc")
MEMORY = Path("/dev/shm")


# What the servers' logs say of a port that somebody else has got first.
_TAKEN = re.compile(r"(?i)address already in use|EADDRINUSE|BindException")
_GIVEN: set[int] = set()


class ServerFault(Exception):
    """A server did not start or stop; the message holds the end of its log."""


class PortTaken(ServerFault):
    """A server did not start, because somebody else listens on its port, or uses it for a connection of theirs."""


@dataclass(frozen=True)
class User:
    """The account that servers run under; neither PostgreSQL nor MariaDB runs as root."""

    name: str
    uid: int
    gid: int

    def arguments(self) -> dict[str, object]:
        """What Popen needs to run as this user: nothing, if it is the user that we are."""
        return {} if self.uid == os.getuid() else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def owns(self, path: Path) -> Path:
        """Give `path` to the user."""
        if self.uid != os.getuid():
            os.chown(path, self.uid, self.gid)
        return path


def ordinary_user(*preferred: str) -> User:
    """This user, or for root the first of the `preferred` accounts that there is, else the one without rights."""
    if os.getuid() != 0:
        return own_user()
    for name in (*preferred, "nobody"):
        with contextlib.suppress(KeyError):
            return _user(pwd.getpwnam(name))
    raise ServerFault("there is no ordinary account to run a server under")


def own_user() -> User:
    """The account that we are, for servers that do not mind root."""
    return _user(pwd.getpwuid(os.getuid()))


def _user(entry: pwd.struct_passwd) -> User:
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def free_port() -> int:
    """A free port of loopback; this process does not give it a second time.

    Another process can still take it before its server does: `Server.create` then asks for other ones.
    """
    for port in random.sample(PORTS, 100):
        if port in _GIVEN:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _GIVEN.add(port)
            return port
    raise ServerFault(f"no free port found from {PORTS.start} to {PORTS.stop - 1}")


def jar_sums() -> dict[str, str]:
    """The SHA-256 sums of the jars that only tests fetch, and of the package's own."""
    return {**known_sums(), **read_sums((Path(__file__).parent / "jars.sha256").read_text())}


def new_home(name: str, place: str | None = None) -> Path:
    """A new directory that every account may pass through, below `place` or that of temporary files."""
    home = Path(tempfile.mkdtemp(prefix=f"headrace-{name}-", dir=place))
    home.chmod(0o755)
    return home


def is_in_memory(home: Path) -> bool:
    """Whether what a server writes takes memory: its logs are to stay small then."""
    return MEMORY in home.parents


def write_private(path: Path, text: str) -> Path:
    """Write a file that its owner alone may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return path


def program(name: str, *directories: str) -> str | None:
    """The path of a program on the search path, or in the newest of `directories` (patterns below /) that has it."""
    if path := shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])):
        return path
    places = [
        place
        for pattern in directories
        for place in sorted(Path("/").glob(pattern.lstrip("/")), key=_version, reverse=True)
    ]
    return next((str(place / name) for place in places if (place / name).exists()), None)


def _version(place: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(place))]


def finish(command: Sequence[str], user: User, home: Path) -> None:
    """Run `command` as `user` to its end; raises ServerFault with its output, or if it takes too long."""
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=FINISH_SECONDS,
            **user.arguments(),
        )
    except subprocess.TimeoutExpired:
        raise ServerFault(f"{command[0]} did not end within {FINISH_SECONDS:.0f} s") from None
    if done.returncode:
        raise ServerFault(f"{command[0]} failed: {done.stdout}{done.stderr}")


def launch(command: Sequence[str], user: User, home: Path, log: Path) -> int:
    """Start `command` in a session of its own, so that it outlives this process; returns its process id."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **user.arguments(),  # type: ignore[call-overload]
        )
    (home / "pid").write_text(str(process.pid))
    return int(process.pid)


def await_answer(answers: Callable[[], bool], pid: int, log: Path, begin: int = 0) -> None:
    """Wait until a server answers, whose log of this start begins at byte `begin`.

    Raises PortTaken when it ends for a port that is in use, ServerFault when it ends for anything else or takes too
    long.
    """
    ends = time.monotonic() + START_SECONDS
    while not answers():
        if not is_alive(pid) or time.monotonic() > ends:
            raise fault(log, begin)
        time.sleep(0.05)


def size(log: Path) -> int:
    """The bytes of a log that may not be there yet."""
    return log.stat().st_size if log.exists() else 0


def fault(log: Path, begin: int) -> ServerFault:
    """Why a server did not start, by what its log says from byte `begin` on."""
    text = log.read_bytes()[begin:].decode(errors="replace")
    tail = "\n".join(text.splitlines()[-20:])
    kind = PortTaken if _TAKEN.search(text) else ServerFault
    return kind(f"the server did not start; its log ends with:\n{tail}")


def running(home: Path) -> int | None:
    """The process id of the server that was launched in `home`, if it still runs.

    The number in the pid file may by now be another process's: ours has the directory in its command line.
    """
    try:
        pid = int((home / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if is_alive(pid) and f"{home}/" in _ps("command", pid) else None


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was our child is taken leave of."""
    try:
        # The first thread of a JVM may be a zombie while others still hold its ports: its parent gets its end last.
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not _ps("stat", pid).startswith("Z")


def stop(pid: int, sign: signal.Signals) -> None:
    """Ask a server to stop and wait for its end; kill it and its children when it does not."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)
    ends = time.monotonic() + STOP_SECONDS
    while is_alive(pid):
        if time.monotonic() > ends:
            kill(pid)
            return
        time.sleep(0.02)


def kill(pid: int) -> None:
    """SIGKILL to a server and its children, as a power cut would end them; raises ServerFault if one stays."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # It starts no further child while we look for them.
    members = [pid, *_children(pid)]
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    ends = time.monotonic() + STOP_SECONDS
    while left := [member for member in members if is_alive(member)]:
        if time.monotonic() > ends:
            raise ServerFault(f"processes {left} outlive SIGKILL")
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    if not (PROC / "self").exists():
        return [int(line) for line in _output("pgrep", "-P", str(pid)).split()]
    children = []
    for place in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if (place / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                children.append(int(place.name))
    return children


def _ps(column: str, pid: int) -> str:
    """The `stat` or the `command` of a process, empty if there is none; small Linux images have no `ps`."""
    if not (PROC / "self").exists():
        return _output("ps", "-ww", "-o", f"{column}=", "-p", str(pid)).strip()
    try:
        if column == "command":
            return (PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
