"""The store of what was run: runs, batches, verdicts; read by status and the pages, never by Spark."""

from headrace.history.status import QueryState, QueryStatus, RunState
from headrace.history.store import History

__all__ = ["History", "QueryState", "QueryStatus", "RunState"]
