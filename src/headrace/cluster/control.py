"""A cluster started, looked at and stopped; a start brings back what has died."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from headrace.cluster import daemons
from headrace.cluster.daemons import Cluster, Daemon, forget, read, write
from headrace.errors import PlatformError

PORT, WEB_PORT = 7077, 8080
START_SECONDS = 60.0
_ANSWER_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class MasterState:
    """A master, by its own page. state: ALIVE, STANDBY, RECOVERING, or `dead` where it does not answer."""

    url: str
    web: str
    state: str


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """A worker, by the page of the leading master; `unknown` without one."""

    name: str
    web: str
    state: str
    cores: int
    cores_used: int
    memory_mb: int
    memory_used_mb: int


@dataclass(frozen=True, kw_only=True)
class ApplicationState:
    """An application that the cluster runs, such as a driver of Headrace."""

    id: str
    name: str
    state: str
    cores: int


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """How a cluster stands. processes: the numbers of those that live, by their names; dead: those that do not."""

    url: str
    masters: tuple[MasterState, ...]
    workers: tuple[WorkerState, ...]
    applications: tuple[ApplicationState, ...]
    processes: dict[str, int]
    dead: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether a master leads, and all that was started lives."""
        return not self.dead and any(master.state == "ALIVE" for master in self.masters)


def start(
    home: Path,
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    masters: int = 1,
    host: str = "127.0.0.1",
    port: int = PORT,
    web_port: int = WEB_PORT,
) -> Cluster:
    """Start a cluster, or what is dead of the one that there is, and wait until its workers have come.

    port, web_port: of the first master, 0 for any that is free; the next ones have the next ones. With more than one
    master, a ZooKeeper chooses the leader. Raises PlatformError.
    """
    cluster = read(home)
    if cluster is None:
        cluster = _new_cluster(
            workers=workers, cores=cores, memory=memory, masters=masters, host=host, port=port, web_port=web_port
        )
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(home, cluster)
    for make in _missing_daemons(home, cluster):
        cluster = cluster.with_daemon(make(cluster))
        write(home, cluster)  # After each, so that none is forgotten by a start that is broken off.
    _wait(home, cluster)
    return cluster


def stop(home: Path) -> tuple[str, ...]:
    """End the cluster's processes, workers first; the names of those that lived. The logs stay."""
    cluster = read(home)
    if cluster is None:
        return ()
    living = tuple(daemon.name for daemon in cluster.daemons if daemon.is_alive)
    for kind in ("worker", "master", "zookeeper"):
        daemons.end(daemon for daemon in cluster.daemons if daemon.name.startswith(kind))
    forget(home)
    return living


def status(home: Path) -> ClusterState:
    """Return the state of the cluster by its masters' pages. Raises PlatformError if none was started."""
    cluster = require(home)
    pages = [(port, web, _page(cluster.host, web)) for port, web in cluster.masters]
    living = {daemon.name: daemon.pid for daemon in cluster.daemons if daemon.is_alive}
    leader = next((page for _, _, page in pages if page and page.get("status") == "ALIVE"), None)
    return ClusterState(
        url=cluster.url,
        masters=tuple(
            MasterState(
                url=f"spark://{cluster.host}:{port}",
                web=f"http://{cluster.host}:{web}",
                state=str(page["status"]) if page else "dead",
            )
            for port, web, page in pages
        ),
        workers=tuple(map(_worker, (leader or {}).get("workers", []))),
        applications=tuple(
            ApplicationState(
                id=application["id"], name=application["name"], state=application["state"], cores=application["cores"]
            )
            for application in (leader or {}).get("activeapps", [])
        ),
        processes=living,
        dead=tuple(daemon.name for daemon in cluster.daemons if daemon.name not in living),
    )


def require(home: Path) -> Cluster:
    """Return the cluster of a directory; raises PlatformError where none was started."""
    cluster = read(home)
    if cluster is None:
        problem = f"no cluster was started in {home}"
        raise PlatformError(code="HR822", what=problem, fix="start one: headrace cluster start")
    return cluster


def _new_cluster(
    *, workers: int, cores: int, memory: str, masters: int, host: str, port: int, web_port: int
) -> Cluster:
    if not re.fullmatch(r"\d+[mgMG]", memory):
        problem = f"the memory of a worker is '{memory}'"
        raise PlatformError(code="HR090", what=problem, fix="write a number with its unit: 1g, 2048m")
    places = []
    for number in range(masters):
        pair = []
        for first in (port, web_port):
            wanted = first + number if first else daemons.free_port(host)
            if first and daemons.is_taken(host, wanted):
                problem = f"port {wanted} of {host} is taken, so that no master can be started there"
                fix = "name another: --port 0 --web-port 0 takes any that are free"
                raise PlatformError(code="HR892", what=problem, fix=fix)
            pair.append(wanted)
        places.append((pair[0], pair[1]))
    return Cluster(
        host=host,
        masters=tuple(places),
        zookeeper=daemons.free_port("127.0.0.1") if masters > 1 else None,
        workers=workers,
        cores=cores,
        memory=memory,
        secret=secrets.token_hex(24),
    )


def _missing_daemons(home: Path, started: Cluster) -> Iterator[Callable[[Cluster], Daemon]]:
    """Yield what starts each process that does not live, in the order in which they need each other."""
    if started.zookeeper is not None and started.daemon("zookeeper") is None:
        port = started.zookeeper

        def keeper(_: Cluster) -> Daemon:
            made = daemons.zookeeper(home, port)
            _wait_until(lambda: daemons.is_taken("127.0.0.1", port) or not made.is_alive)
            return made

        yield keeper
    for number in range(len(started.masters)):
        if started.daemon(f"master-{number + 1}") is None:
            yield lambda cluster, number=number: daemons.master(home, cluster, number)  # type: ignore[misc]
    for number in range(started.workers):
        if started.daemon(f"worker-{number + 1}") is None:
            yield lambda cluster, number=number: daemons.worker(home, cluster, number)  # type: ignore[misc]


def _wait(home: Path, cluster: Cluster) -> None:
    """Wait until a master leads and has as many workers as there are; raises PlatformError."""

    def is_ready() -> bool:
        state = status(home)
        alive = [worker for worker in state.workers if worker.state == "ALIVE"]
        return bool(state.dead) or (len(alive) >= cluster.workers and state.is_whole)

    ready = _wait_until(is_ready)
    dead = status(home).dead
    if dead or not ready:
        which = f"{', '.join(dead)} ended" if dead else f"not all came within {START_SECONDS:.0f} s"
        name = dead[0] if dead else "worker-1"
        problem = f"the cluster is not whole: {which}; what it printed is in {daemons.log_file(home, name)}"
        raise PlatformError(code="HR821", what=problem, fix="correct what it says there, and start again")


def _wait_until(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + START_SECONDS
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.1)
    return met


def _page(host: str, web: int) -> dict[str, Any] | None:
    """Return the JSON of a master's page; None if it does not answer."""
    try:
        with urlopen(f"http://{host}:{web}/json/", timeout=_ANSWER_SECONDS) as answer:
            page = json.load(answer)
    except (URLError, OSError, ValueError):
        return None
    return page if isinstance(page, dict) else None


def _worker(facts: dict[str, Any]) -> WorkerState:
    return WorkerState(
        name=str(facts["id"]),
        web=str(facts["webuiaddress"]),
        state=str(facts["state"]),
        cores=int(facts["cores"]),
        cores_used=int(facts["coresused"]),
        memory_mb=int(facts["memory"]),
        memory_used_mb=int(facts["memoryused"]),
    )
