"""A terminal with a program in it, and what the program has shown there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread

from tests.waiting import PATIENCE_SECONDS, until

CTRL_C = "\x03"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SHOW, _HIDE = b"\x1b[?25h", b"\x1b[?25l"


class Terminal:
    """A program with a terminal of its own, whose Ctrl-C reaches the program and all that it has started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 160,
        stdout: int | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._screen, keyboard = pty.openpty()
        fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._read = b""
        lines = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
        self.process = subprocess.Popen(
            command,
            stdin=keyboard,
            stdout=keyboard if stdout is None else stdout,
            stderr=keyboard,
            env={**environ, **lines},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(keyboard)
        self._reader = Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        with suppress(OSError):  # The terminal ends with its last process.
            while some := os.read(self._screen, 65_536):
                self._read += some

    @property
    def text(self) -> str:
        """Everything that it has shown, also what was drawn over."""
        return _CONTROL.sub("", self._read.decode("utf-8", "replace"))

    @property
    def has_cursor(self) -> bool:
        """Whether the cursor is shown."""
        return self._read.rfind(_SHOW) >= self._read.rfind(_HIDE)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def await_text(self, text: str) -> None:
        """Wait until the program shows a text, which it must do before it ends."""

        def is_shown() -> bool:
            if text in self.text:
                return True
            assert self.process.poll() is None, self.text
            return False

        until(f"text {text!r}", is_shown)

    def end(self) -> str:
        """What was shown until the end of the program, and of all that it has left in the terminal."""
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert not self._reader.is_alive(), f"a process is left: {self.text}"
        return self.text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


def _take_terminal() -> None:
    """Make standard input the terminal of this process, and let Ctrl-C end it, as in a shell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
