"""A call into the JVM that is cut off takes its connection with it.

py4j has one connection for each thread. When Ctrl-C, a signal's handler or a time-out raises while Python waits for an
answer, py4j keeps the connection, though the JVM works on the call and answers it later. The thread's next call waits
behind it, without an end where the first has none: `query.stop()` in the `finally` of a `query.awaitTermination()`.
With the connection closed, the next call gets one of its own. It can go when py4j closes such connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def give_up() -> None:
    """Let py4j close such connections, for every gateway of this process; a second call changes nothing."""
    from py4j.clientserver import ClientServerConnection

    if ClientServerConnection.send_command.__module__ != __name__:
        ClientServerConnection.send_command = _closing(ClientServerConnection.send_command)


def _closing(send: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    def sent(self: Any, command: str) -> str:
        try:
            return send(self, command)
        except Exception:  # py4j's own errors, which it looks after itself
            raise
        except BaseException:
            self.close()
            raise

    return sent
