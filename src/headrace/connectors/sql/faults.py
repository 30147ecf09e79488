"""What the errors of a database mean, by its own codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# What to do about a row that a database refuses.
REFUSED_FIX = (
    "let the query give no such row, or change the table so that it takes it; or set on_bad_row to quarantine, and "
    "such rows are quarantined"
)
# What to do where no start can succeed before a person has acted.
BATCH_FIX = "remove the cause that the database names, then start again"
START_FIX = "start the server, or correct the url; then start again"


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The codes of each kind of error; what a code is, `Dialect.has_code` says.

    sentences: codes, with the finding's code, its sentence behind the database's name, and what to do; the first that
    fits counts, and `{text}` stands for the database's own words. passing: the same batch may succeed after a while.
    refusals: the database refuses a row. lock_wait: it gave up waiting for the lock of another session, which it may
    end by itself. no_parent: a row refers to one that is missing, which another query may write. contended: another
    transaction was in the way: a lock, a deadlock, or a table that was made at the same time. part_lost: a table is
    missing or damaged. out_of_time: a statement was ended after its seconds.
    """

    sentences: Sequence[tuple[Any, str, str, str]]
    passing: tuple[Any, ...]
    refusals: tuple[Any, ...]
    lock_wait: tuple[Any, ...]
    no_parent: tuple[Any, ...]
    contended: tuple[Any, ...]
    part_lost: tuple[Any, ...]
    out_of_time: tuple[Any, ...]
