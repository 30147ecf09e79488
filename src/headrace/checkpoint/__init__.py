"""Spark's checkpoint directory as Python values, without a JVM."""

from headrace.checkpoint.archive import Archive as Archive
from headrace.checkpoint.archive import ArchivedBatch as ArchivedBatch
from headrace.checkpoint.directory import Checkpoint as Checkpoint
from headrace.checkpoint.directory import CommitEntry as CommitEntry
from headrace.checkpoint.directory import OffsetEntry as OffsetEntry
from headrace.checkpoint.directory import StateOperator as StateOperator
from headrace.checkpoint.identity import PlannedBatch as PlannedBatch
from headrace.checkpoint.identity import chain_digest as chain_digest
from headrace.checkpoint.identity import planned_batch as planned_batch
from headrace.checkpoint.sources import BatchWatermarks as BatchWatermarks
from headrace.checkpoint.sources import committed_prefix as committed_prefix
from headrace.checkpoint.sources import planned_offsets as planned_offsets
from headrace.checkpoint.sources import planned_prefix as planned_prefix
from headrace.checkpoint.sources import watermarks as watermarks
