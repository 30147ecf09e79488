"""What Spark and its Python workers say during a run, brought into its log with the query and the batch."""

from __future__ import annotations

import re
from contextlib import suppress

from headrace.checkpoint import Checkpoint
from headrace.contract import Observer, QueryStart
from headrace.errors import HeadraceError
from headrace.observe.log import RunLog
from headrace.spark.jvm.stderr_filter import Said
from headrace.storage.location import is_remote

# A query's own thread, and what Spark's scheduler says of a query's tasks in threads that serve all of them.
_THREAD = re.compile(r"stream execution thread for (?P<query>\S+) \[id = ")
_SCHEDULER = re.compile(r"\[queryId = (?P<id>[^\]]*)\] (?:\[batchId = (?P<batch>\d+)\] )?")


class SparkLines(Observer):
    """Takes lines in the thread that reads them, and knows from the run where each query has its checkpoint."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._checkpoints: dict[str, Checkpoint] = {}

    def started(self, start: QueryStart) -> None:
        # Who reads these lines must not wait for a store beyond this machine.
        if not is_remote(start.checkpoint):
            self._checkpoints[start.query] = Checkpoint(start.checkpoint)

    def take(self, said: Said) -> None:
        """Write one line."""
        if not said.message.strip():
            return
        query, batch, message = said.query, said.batch, said.message
        if found := _SCHEDULER.match(message):
            query, batch = self._with_id(found["id"]) or query, int(found["batch"]) if found["batch"] else batch
            message = message[found.end() :]
        if query is None and said.thread and (found := _THREAD.search(said.thread)):
            query = found["query"]
        if query is not None and batch is None:
            batch = self._planned(query)
        if said.logger:
            message = f"{said.logger}: {message}"
        self._log.write(said.level, message, query=query, batch=batch)

    def _planned(self, query: str) -> int | None:
        """The newest batch that Spark has begun: what it says now is of that one, for it makes one at a time."""
        checkpoint = self._checkpoints.get(query)
        with suppress(HeadraceError, OSError):
            return None if checkpoint is None else checkpoint.last_batch
        return None

    def _with_id(self, query_id: str) -> str | None:
        for query, checkpoint in list(self._checkpoints.items()):
            with suppress(HeadraceError, OSError):
                if checkpoint.id == query_id:
                    return query
        return None
