"""Running applications found by their sockets, and asked: what another terminal does to them."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.control.board import OrderAnswer, QueryVerb, who
from headrace.control.deploys import DeployRequest, DeployResult, digest_value
from headrace.control.server import ALREADY_STOPPING, clear, is_own, sockets
from headrace.errors import Finding, HeadraceError
from headrace.generations.driver_lock import birth
from headrace.generations.register import read_register
from headrace.model import Project

# A process that is gone refuses at once; one on a machine that is overloaded may take this long to answer.
HELLO_SECONDS = 30.0
_POLL_SECONDS = 0.05
# What a process may take to end its session and itself after the last query.
EXIT_SECONDS = 60.0


class NotRunning(HeadraceError):
    """No application that could take the order runs."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class RunningApplication:
    """A running application: its process, its socket, and how its queries stood when it was asked.

    owns: whether its process ends with it.
    """

    pid: int
    birth: str
    path: Path
    project: str
    owns: bool
    queries: Mapping[str, Mapping[str, Any]]

    @property
    def alive(self) -> bool:
        return birth(self.pid) == self.birth

    def order(self, verb: QueryVerb, query: str) -> OrderAnswer:
        """Have an order carried out, however long that takes."""
        return self._order({"do": verb, "query": query, "by": who()})

    def deploy(self, request: DeployRequest) -> DeployResult:
        """Have a changed project brought to its queries, however long that takes."""
        answers = self._ask({"do": "deploy", "by": who(), **request.as_dict()})
        answer = self._next(answers)
        planned = answer.deploy or DeployResult(pid=self.pid)
        if answer.begins_again and not request.dry_run:
            answer = self._next(answers)
            planned = planned.after_new_start(answer.deploy or planned)
        return planned if answer.finding is None else replace(planned, findings=(answer.finding,))

    def _order(self, request: Mapping[str, Any]) -> OrderAnswer:
        return self._next(self._ask(request))

    def _next(self, answers: Iterator[dict[str, Any]]) -> OrderAnswer:
        plain = next(answers, None)
        return OrderAnswer(finding=_gone(self.pid)) if plain is None else OrderAnswer.from_dict(plain)

    def stop(self, *, now: bool = False, notify: Callable[[str], None] | None = None) -> OrderAnswer:
        """Stop it as SIGTERM does, and wait until it is gone; one that is stopping already is waited for alone.

        notify: gets a sentence as soon as it is known that it is stopping already.
        """
        for answer in self._ask({"do": "stop", "now": now, "by": who()}):
            if answer["said"] == ALREADY_STOPPING and notify is not None and not now:
                notify(f"{f'process {self.pid}' if self.owns else 'the application'} is already stopping")
        until = time.monotonic() + EXIT_SECONDS
        while self.owns and self.alive:
            if time.monotonic() > until:
                problem = f"process {self.pid} has not ended {EXIT_SECONDS:.0f} seconds after its queries"
                return OrderAnswer(finding=Finding(code="HR853", what=problem, fix=f"end it: kill -9 {self.pid}"))
            time.sleep(_POLL_SECONDS)
        return OrderAnswer(said=f"process {self.pid} has ended" if self.owns else "the application has stopped")

    def follow(self) -> Iterator[dict[str, Any]]:
        """Yield every event from now on, until the application ends."""
        yield from self._ask({"do": "follow"})

    def _ask(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            connection = _connect(self.path)
        except OSError:
            return
        with connection, suppress(ConnectionError):
            yield from _lines(connection, request)


class RunningApplications:
    """The applications that run out of one storage; each method looks for them when it is called.

    What is done to one query is done in the application that runs it, which raises HeadraceError (HR850) if none does.
    """

    def __init__(self, storage: Path, project: Project | None = None) -> None:
        self._storage, self._project = storage, project

    def stop(
        self, query: str | None = None, *, now: bool = False, notify: Callable[[str], None] | None = None
    ) -> list[OrderAnswer]:
        """Stop a query or whole applications, and wait for their end.

        Args:
            query: The query; without it, all applications stop.
            now: Whether to break off running batches, which the next start makes again; for whole applications only.
            notify: A function that gets a sentence for each application that is stopping already.

        Returns:
            The answer of each application.

        Raises:
            HeadraceError: No application runs the query, or none runs (HR850).
        """
        if query is not None:
            return [application.order("stop", query) for application in find_running(self._storage, query)]
        there, silent = _require_applications(self._storage)
        stopped = [application.stop(now=now, notify=notify) for application in there]
        return [*stopped, *(OrderAnswer(finding=_no_answer(pid)) for pid in silent)]

    def pause(self, query: str) -> OrderAnswer:
        """Stop a query after its running batch until it is resumed; the application that runs it continues."""
        return find_running(self._storage, query)[0].order("pause", query)

    def resume(self, query: str) -> OrderAnswer:
        """Start a paused query from its checkpoint in the application that keeps it, with all checks of a start."""
        return find_running(self._storage, query)[0].order("resume", query)

    def restart(self, query: str) -> OrderAnswer:
        """Stop a query after its running batch and start it again as it was loaded: no change is read."""
        return find_running(self._storage, query)[0].order("restart", query)

    def deploy(
        self, *, dry_run: bool = False, accept_forward: bool = False, restart: bool = False
    ) -> list[DeployResult]:
        """Bring the project's files, as they are now, to each application; queries that have not changed run on.

        If one application refuses it, or cannot take it, no query stops, and the results say why.

        Args:
            dry_run: Whether to say only what a deploy would do.
            accept_forward: Whether to accept changes that affect only new rows.
            restart: Whether an application may stop after its batches and begin again, if a change needs that. It must
                run by the command line.

        Returns:
            What was done in each application.

        Raises:
            HeadraceError: None runs (HR850).
        """
        there, silent = _require_applications(self._storage)
        results = [DeployResult(findings=(_no_answer(pid),), pid=pid) for pid in silent]
        planned = _deploy_request(self._project, dry_run=True, accept_forward=accept_forward, restart=restart)
        if dry_run or results or len(there) > 1:
            results += [application.deploy(planned) for application in there]
            if dry_run or not all(result.done for result in results):
                return results
        request = replace(planned, dry_run=False)
        return [application.deploy(request) for application in there]

    def follow(self) -> Iterator[dict[str, Any]]:
        """Yield every event of the application that was started last, until it ends."""
        yield from find_running(self._storage)[-1].follow()


def _deploy_request(project: Project | None, **asked: bool) -> DeployRequest:
    """Return what is asked of an application, with digests of the variables as they are in this process."""
    salt, loaded = secrets.token_hex(8), None if project is None else project.loaded
    values = {} if loaded is None else loaded.variables
    return DeployRequest(
        **asked,
        target="" if project is None else project.target.name,
        salt=salt,
        variables={name: digest_value(salt, value) for name, value in values.items()},
    )


def _require_applications(storage: Path) -> tuple[list[RunningApplication], list[int]]:
    """Find them as `applications` does; raise NotRunning where none answers."""
    there, silent = applications(storage)
    if not there and silent:
        raise NotRunning(_no_answer(silent[0]))
    if not there:
        problem = f"no application runs out of {storage}" + _lock_holder(storage)
        raise NotRunning(code="HR850", what=problem, fix="start one: headrace run")
    return there, silent


def applications(storage: Path) -> tuple[list[RunningApplication], list[int]]:
    """Find the applications of a storage directory that answer, and the processes that live and do not answer.

    It waits `HELLO_SECONDS` for each silent one, and removes what dead processes have left.
    """
    answering: list[RunningApplication] = []
    silent: list[int] = []
    for pid, path in sockets(storage):
        try:
            with _connect(path) as connection:
                connection.settimeout(HELLO_SECONDS)
                for facts in _lines(connection, {"do": "hello"}):
                    if facts["birth"] == birth(int(facts["pid"])) and is_own(connection):
                        answering.append(RunningApplication(path=path, **facts))
                    break
        except (ConnectionRefusedError, FileNotFoundError):
            clear(storage, pid)
        except (TimeoutError, BlockingIOError):
            silent.append(pid)
        except OSError:
            continue
    return answering, silent


def find_running(storage: Path, query: str | None = None) -> list[RunningApplication]:
    """Find the newest application that runs `query`, or all; raise NotRunning where there is none."""
    there, silent = _require_applications(storage)
    if query is None:
        return there
    having = [application for application in there if query in application.queries]
    if not having and silent:
        raise NotRunning(_no_answer(silent[0]))
    if not having:
        names = sorted({name for application in there for name in application.queries})
        problem = f"process {there[0].pid} does not run query '{query}'; it has {', '.join(names) or 'none'}"
        raise NotRunning(code="HR850", what=problem, fix=f"start it in a process of its own: headrace run {query}")
    return having[-1:]


def _lock_holder(storage: Path) -> str:
    """Return which process holds a query's lock all the same: of another machine, or without a socket."""
    names: dict[str, str] = {}
    with suppress(HeadraceError):
        register = read_register(storage)
        names = {} if register is None else {entry.directory: name for name, entry in register.queries.items()}
    for file in sorted(storage.glob("queries/*/driver.lock")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            holder = json.loads(file.read_text(encoding="utf-8"))
            here = holder["host"] == socket.gethostname()
            if here and (birth(int(holder["pid"])) is None or holder.get("birth") not in (None, birth(holder["pid"]))):
                continue
            place = "" if here else f" on {holder['host']}"
            why = "it has no socket" if here else "orders do not reach another machine"
            query = names.get(file.parent.name, file.parent.name)
            return f"; process {holder['pid']}{place} runs query '{query}', and {why}"
    return ""


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(HELLO_SECONDS)
    until = time.monotonic() + HELLO_SECONDS
    try:
        while True:
            try:
                connection.connect(str(path))
                break
            except BlockingIOError:
                # Others connect at the same moment: the kernel says so at once, in place of waiting.
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL_SECONDS)
        if path.stat().st_uid not in (os.getuid(), 0) and os.getuid() != 0:
            raise PermissionError("the socket belongs to another user")
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def _lines(connection: socket.socket, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    connection.sendall(json.dumps(request).encode() + b"\n")
    with closing(connection.makefile("r", encoding="utf-8")) as answers:
        for line in answers:
            yield json.loads(line)


def _gone(pid: int) -> Finding:
    return Finding(
        code="HR851",
        what=f"process {pid} has ended before it answered",
        fix="see how it ended: headrace status",
    )


def _no_answer(pid: int) -> Finding:
    return Finding(
        code="HR853",
        what=f"process {pid} has not answered within {HELLO_SECONDS:.0f} seconds",
        fix=f"see whether it hangs; to end it: kill -9 {pid}",
    )
