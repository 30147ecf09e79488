"""How this process was called, so that it can execute the same command again."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import click

from headrace.children import end_with_parent, start_child
from headrace.control.new_start import NewStart, NewStartAnswer
from headrace.errors import HeadraceError


@dataclass
class CommandLine:
    """The command of this process.

    interpreter: what stands before the words of Headrace. environ, directory: as they were at the start. former: what
    the start before has left. answer: of a new start, to who has ordered it. following: what the next start gets.
    """

    interpreter: Sequence[str]
    words: Sequence[str]
    environ: Mapping[str, str]
    directory: str
    former: NewStart | None
    answer: NewStartAnswer | None
    following: NewStart | None = None

    @classmethod
    def of_process(cls) -> CommandLine:
        """Return the command line of this process, which must not have changed its environment yet."""
        former, words = NewStart.take(os.environ), sys.argv[1:]
        if former is not None:
            _reap_children()
        environ = dict(os.environ)
        end_with_parent()
        return cls(
            interpreter=(sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(words)]),
            words=words,
            environ=environ,
            directory=os.getcwd(),
            former=former,
            answer=None if former is None else NewStartAnswer(former.connection),
        )

    @classmethod
    def current(cls) -> CommandLine | None:
        """Return the command line of the running command; None where Python code calls the command."""
        return click.get_current_context().find_object(cls)

    def start_process(self, *words: str) -> subprocess.Popen[str]:
        """Start another command of Headrace, as this one was started."""
        return start_child(
            [*self.interpreter, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ,
            cwd=self.directory,
        )

    def end(self) -> None:
        """Answer who has ordered this start, and execute the command again if that was ordered.

        Raises:
            HeadraceError: It cannot be executed.
        """
        if self.answer is not None:
            self.answer.answer()
        if self.following is not None:
            self._execute_again(self.following)

    def _execute_again(self, following: NewStart) -> NoReturn:
        from headrace.runner.stop import end_jvm

        end_jvm()
        atexit._run_exitfuncs()  # Python calls none of them before another program is executed.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        try:
            os.chdir(self.directory)
            os.set_inheritable(following.connection, True)
            os.execve(self.interpreter[0], [*self.interpreter, *self.words], following.environ(self.environ))
        except OSError as error:
            NewStartAnswer(following.connection).fail((fault := _not_executed(self.interpreter[0], error)).findings)
            raise fault from error


def _not_executed(program: str, error: OSError) -> HeadraceError:
    problem = f"the application has stopped, and cannot begin again: {program}: {error.strerror or error}"
    return HeadraceError(code="HR854", what=problem, fix="install Headrace again, and start it: headrace run")


def _reap_children() -> None:
    """Wait in threads for the processes that the start before has left: a dead one would stay until this one ends."""

    from headrace.spark.jvm.gateway import descendants

    def reap(pid: int) -> None:
        with suppress(OSError):
            os.waitpid(pid, 0)

    for pid in descendants(os.getpid()):
        threading.Thread(target=reap, args=(pid,), daemon=True).start()
