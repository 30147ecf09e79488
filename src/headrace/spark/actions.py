"""Methods that ask a stream for an answer at once, each with what to use instead.

Source: Structured Streaming guide, "Unsupported Operations".
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

_SINK = "return the DataFrame and read the query's sink; the memory sink holds the result as a table of the session"
_NOTHING = "leave it out: each batch is read once, and a view that several queries ask for is computed by each"

INSTEAD = {
    "count": "use groupBy().count(), which is a stream of the running count",
    "foreach": "return the DataFrame and give the query a foreach sink, which takes the function",
    "foreachPartition": "return the DataFrame and give the query a foreach sink, which takes the function",
    "show": "return the DataFrame and give the query the console sink",
    **dict.fromkeys(("collect", "take", "head", "first", "tail", "toLocalIterator", "isEmpty"), _SINK),
    **dict.fromkeys(("toPandas", "toArrow"), f"{_SINK}; pandas code over the rows goes into mapInPandas"),
    **dict.fromkeys(("write", "writeTo"), "return the DataFrame and give the query a sink"),
    **dict.fromkeys(("cache", "persist", "checkpoint", "localCheckpoint"), _NOTHING),
    "rdd": "use DataFrame functions, or mapInPandas for code of your own",
}
ANY = "return the DataFrame: inside a query nothing may be counted, shown or collected"


def called(error: BaseException) -> str | None:
    """The method of Spark that the user's code called when `error` was raised, if it is one of INSTEAD."""
    for frame in traceback.extract_tb(error.__traceback__):
        if "pyspark" in PurePath(frame.filename).parts:
            return frame.name if frame.name in INSTEAD else None
    return None
