"""Whether a batch failed because a Python worker of Spark died, which is worth another attempt."""

from __future__ import annotations

import re

# What Spark says when a worker died, as by the kernel's out-of-memory killer.
_NAMED = re.compile(
    r"Python worker exited unexpectedly|PYTHON_WORKER_EXITED_UNEXPECTEDLY|Python worker failed to connect back"
)
# Or its connection alone tells: an end of the stream or of the socket that Spark's reader of the worker met. A damaged
# file of the state or a zipped input ends in the same exceptions, met by other readers; the first line of Spark's own
# in the trace says which. Trying those again would only delay what no attempt can fix.
_CONNECTION = re.compile(
    r"java\.(?:io\.EOFException|net\.SocketException)[^\n]*\n"
    r"(?:\s+at (?!org\.apache\.spark\.)[^\n]*\n)*"
    r"\s+at org\.apache\.spark\.(?:api\.python|sql\.execution\.python)\."
)


def worker_died(text: str) -> bool:
    """Whether the text of Spark's exception tells of a worker's death."""
    if "FAILED_READ_FILE" in text:
        return False
    return _NAMED.search(text) is not None or _CONNECTION.search(text) is not None
