"""Rounds of batches, until the rebuilt generation has taken what its sources hold."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.contract import Observer
from headrace.errors import CheckFailed, Finding
from headrace.model import Project, Query
from headrace.run.supervise import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A round that was shorter is followed by a last one as short, once the query that runs beside is stopped.
SHORT_SECONDS = 20.0
_CHANGED = ("HR535", "HR536", "HR537", "HR545")


def catch_up(shadow: Project, query: Query, spark: SparkSession, reporter: Observer | None) -> bool:
    """Run the rebuilt generation until a round is short or finds nothing; False: the user has stopped it.

    Raises CheckFailed with what ended it otherwise; given again, it continues.
    """
    while True:
        begun = time.monotonic()
        (outcome,) = run(shadow, [query.name], spark=spark, reporter=reporter).outcomes
        if outcome.state == "stopped":
            return False
        if outcome.finding is not None:
            raise CheckFailed(_ended(query, outcome.finding))
        if not outcome.rows or time.monotonic() - begun < SHORT_SECONDS:
            return True


def _ended(query: Query, cause: Finding) -> Finding:
    """Why the rebuild has ended, with what to do about it."""
    again = f"headrace rebuild {query.name}"
    if cause.code in _CHANGED:
        fix = f"the query was changed since the rebuild began; start it again: {again} --abandon, and then {again}"
    else:
        fix = f"{cause.fix}; then give the command again, which continues; or give it up: {again} --abandon"
    what = f"the rebuild of query '{query.name}' has ended ({cause.code}), and the query itself runs on: {cause.what}"
    return replace(cause, code="HR573", severity="error", what=what, fix=fix)
