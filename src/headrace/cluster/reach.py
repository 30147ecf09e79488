"""Whether a cluster's workers see the storage, asked before a query starts: they write its state."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import Finding, PlatformError
from headrace.spark.literal_path import literal
from headrace.spark.messages import is_from_spark
from headrace.storage.durable import replace_file
from headrace.storage.faults import writing_to
from headrace.storage.location import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REASON = re.compile(r"(?:\w+\.)+(\w*(?:Exception|Error)): ?(.+)")


def require_storage(spark: SparkSession, storage: Path) -> None:
    """Raise PlatformError where a worker cannot read what the driver has written into the storage."""
    # Hadoop reads no files whose names begin with a dot.
    probe = storage / f"{uuid.uuid4().hex[:12]}.headrace"
    # One for each core at first, so that no executor is left out, and as many again for those that were busy.
    tasks = 2 * spark.sparkContext.defaultParallelism
    with writing_to(storage):
        storage.mkdir(parents=True, exist_ok=True)
        replace_file(probe, "\n" * tasks)
    place = str(probe) if is_remote(storage) else f"file:{probe.absolute()}"
    try:
        # Hadoop takes a list of paths, of which a comma in braces begins no new one.
        spark.sparkContext.textFile(literal(place).replace(",", "{\\,}"), tasks).count()
    except Exception as error:
        if not is_from_spark(error):
            raise
        reasons = _REASON.findall(str(error))
        reason = f"{reasons[-1][1].strip()} ({reasons[-1][0]})" if reasons else type(error).__name__
        what = f"workers of the cluster cannot read {storage}, where the driver keeps its storage: {reason}"
        fix = "name a storage that every machine reaches, as hdfs:// or s3a://; or mount the directory there too"
        raise PlatformError(Finding(code="HR859", what=what, fix=fix)) from None
    finally:
        probe.unlink(missing_ok=True)
