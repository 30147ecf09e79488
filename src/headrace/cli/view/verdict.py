"""A verdict in words and figures, and the rows that differ as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.view.figures import number, took

if TYPE_CHECKING:
    from headrace.verify import Verdict


def sentence(verdict: Verdict) -> str:
    """What was found, as one sentence that begins with the promise and whether it holds."""
    upto = "" if verdict.batch is None else f" up to batch {verdict.batch}"
    same = f"the result equals the batch query over everything taken{upto}"
    late = f"{number(verdict.rows_late)} rows that came later than the watermark"
    found = {
        "equal": f"holds: {same}",
        "pending": f"holds: {same}, with {number(verdict.rows_pending)} rows pending until the watermark passes them",
        "late": f"holds: {same}, but for {late}",
        "wrong": f"is broken: the result differs from the batch query over everything taken{upto}",
        "undecided": "is undecided: the result could not be compared with the batch query",
    }
    return f"{verdict.query}: prefix integrity: {found[verdict.state]}"


def figures(verdict: Verdict) -> str:
    """Counts, time and speed."""
    rate = verdict.rows_read / verdict.seconds if verdict.seconds else None
    return ", ".join(
        [
            f"{number(verdict.rows_read)} rows read",
            f"{number(verdict.rows_expected)} rows expected",
            f"{number(verdict.rows_actual)} rows found",
            f"{number(verdict.rows_pending)} pending",
            f"{number(verdict.rows_late)} late",
            took(verdict.seconds * 1000),
            f"{number(rate)} rows/s",
        ]
    )
