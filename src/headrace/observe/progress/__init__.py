"""What Spark reports of each batch, as records, and what they say about a query's health."""

from headrace.contract.batch_record import BatchRecord, OperatorProgress, SourceProgress
from headrace.observe.progress.health import health

__all__ = ["BatchRecord", "OperatorProgress", "SourceProgress", "health"]
