"""Spark's checkpoint directory as Python values, without a JVM."""

from headrace.checkpoint.archive import Archive, ArchivedBatch
from headrace.checkpoint.directory import Checkpoint
from headrace.checkpoint.entries import CommitEntry, OffsetEntry, StateOperator
from headrace.checkpoint.identity import PlannedBatch, chained, planned_batch
from headrace.checkpoint.prefix import BatchWatermarks, committed_prefix, planned, planned_prefix, watermarks

__all__ = [
    "Archive",
    "ArchivedBatch",
    "BatchWatermarks",
    "Checkpoint",
    "CommitEntry",
    "OffsetEntry",
    "PlannedBatch",
    "StateOperator",
    "chained",
    "committed_prefix",
    "planned",
    "planned_batch",
    "planned_prefix",
    "watermarks",
]
