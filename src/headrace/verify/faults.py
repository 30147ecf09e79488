"""What kept a query from being verified, as findings of that query alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import Finding, HeadraceError, SinkError
from headrace.model import Query
from headrace.spark.failures import python_error
from headrace.spark.foreach_batch import compute_all
from headrace.spark.messages import is_from_spark, sentence_of

if TYPE_CHECKING:
    from headrace.contract import Snapshot


@contextmanager
def blamed_on_the_sink(query: Query, snapshot: Snapshot | None = None) -> Iterator[None]:
    """Raise SinkError for a failure inside when the rows of `snapshot` cannot be read; without one, for any failure."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        cause: Exception | None = error
        if snapshot is not None:
            cause = _reading(snapshot)
        if cause is None:
            raise
        raise SinkError(_unreadable(query, cause)) from error


def findings_of(query: Query, error: Exception) -> tuple[Finding, ...]:
    """Why the verdict on `query` stays open after `error`."""
    if isinstance(error, HeadraceError):
        return error.findings
    text = str(error)
    kind = "" if is_from_spark(error) else f"{type(error).__name__}: "
    return (
        Finding(
            code="HR713",
            what=f"the batch query of '{query.name}' failed: {python_error(text) or kind + sentence_of(error)}",
            fix="correct what the message names; the result itself was not changed",
            where=query.where,
        ),
    )


def _reading(snapshot: Snapshot) -> Exception | None:
    """What comes of reading all rows of the sink, and nothing else."""
    for frame in (snapshot.rows, snapshot.rejected):
        if frame is None:
            continue
        try:
            compute_all(frame)
        except Exception as error:
            return error
    return None


def _unreadable(query: Query, error: Exception) -> Finding:
    return Finding(
        code="HR714",
        what=f"the sink of query '{query.name}' cannot be read: {sentence_of(error)}",
        fix="restore what is damaged there, or reset the query (headrace reset QUERY)",
        where=query.where,
    )
