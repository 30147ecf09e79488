"""The store of what was run: runs, batches, verdicts; read by status and the pages, never by Spark."""

from headrace.history.status import Event, QueryStatus
from headrace.history.store import History

__all__ = ["Event", "History", "QueryStatus"]
