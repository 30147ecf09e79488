"""What Spark reports of each batch, as records, and what they say about a query's health."""

from headrace.progress.health import health
from headrace.progress.record import BatchRecord, OperatorProgress, SourceProgress

__all__ = ["BatchRecord", "OperatorProgress", "SourceProgress", "health"]
