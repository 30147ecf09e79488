"""This checkout against another one in many pairs of the one figure that is a single cold batch: appends to databases.

`OTHER=DIR make bench NAME=checkout_appends`, as for `checkout`, whose three pairs cannot show 3 % here.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import checkout
from benchmarks.figures import Figure

TITLE = "this checkout against another in more pairs: appends to the databases"
RUNS = 7


def measure(*, runs: int, quick: bool) -> list[Figure]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        count = checkout.FEW_ROWS if quick else checkout.ROWS
        return list(checkout.sinks(checkout.Pair.with_other(runs), scratch, count, stack, upserts=False))
