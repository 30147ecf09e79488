"""Which failures of a query pass by themselves, and when it is started again after one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import Finding
from headrace.model import Query
from headrace.model.restart import Restart
from headrace.storage.hdfs_messages import PASSING

# Something outside does not answer, or was taken away: the same batch, or the same start, can succeed later.
TRANSIENT = frozenset(
    {
        "HR126",
        "HR318",
        "HR331",
        "HR351",
        "HR405",
        "HR411",
        "HR421",
        "HR441",
        "HR451",
        "HR541",
        "HR607",
        "HR825",
        "HR831",
    }
)
# Failures of functions of the user's, of Spark's start and of fetching its jars, and those that nobody knows: what
# passes among them is told by its words.
UNKNOWN = frozenset({"HR012", "HR127", "HR323", "HR417", "HR561", "HR601"})
_PASSING = re.compile(
    r"time[d]?[ -]?out|connection (?:was |is )?(?:refused|reset|aborted|closed|lost|timed out)|broken pipe|"
    r"could ?n[o']t connect|(?:no route|unknown|unreachable) host|network is unreachable|name resolution|"
    r"temporar(?:y|ily)|try again|too many (?:requests|connections)|service unavailable|bad gateway|slow ?down|"
    r"end of file exception between|failed to respond|"
    r"\b(?:429|502|503|504)\b|(?:Connection|Timeout|ConnectTimeout|ReadTimeout|ConnectionReset|ConnectionRefused)"
    r"(?:Error|Exception)|" + "|".join(map(re.escape, PASSING)),
    re.IGNORECASE,
)


def is_transient(finding: Finding) -> bool:
    """Whether a start can succeed although nobody has corrected anything."""
    known = finding.code.startswith("HR") and finding.code not in UNKNOWN
    return finding.code in TRANSIENT if known else has_passing_words(finding)


def has_passing_words(finding: Finding) -> bool:
    """Whether it speaks of what passes by itself, as a connection that was refused."""
    return bool(_PASSING.search(finding.what))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The next restart: its number since the last quiet time, of how many, and the seconds until then."""

    number: int
    limit: int
    seconds: float


class Restarts:
    """Counts the restarts of the queries of one application."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        self.total: dict[str, int] = {}

    def next(self, query: Query, finding: Finding, *, ends: bool, ran_seconds: float) -> Attempt | None:
        """The next restart after a failure; None where that one is final.

        ends: its trigger comes to an end, so that it is started again only where that is declared. ran_seconds: since
        its last start.
        """
        policy = query.restart or Restart(limit=0 if ends else Restart.limit)
        before = 0 if ran_seconds >= policy.quiet.seconds else self._counted.get(query.name, 0)
        if not is_transient(finding) or before >= policy.limit:
            return None
        self._counted[query.name] = number = before + 1
        self.total[query.name] = self.total.get(query.name, 0) + 1
        return Attempt(number=number, limit=policy.limit, seconds=policy.pause_before(number))

    def forget(self, query: str) -> None:
        """Count anew, as after somebody has started it again."""
        self._counted.pop(query, None)
