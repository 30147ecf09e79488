"""What can be wrong with the history file, as findings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import CheckpointError, Finding, HeadraceError, PlatformError, Where, reason
from headrace.observe.history.schema import VERSION


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into one finding."""
    where = Where(file=str(path))
    try:
        yield
    except (HeadraceError, sqlite3.ProgrammingError):
        raise
    except sqlite3.OperationalError as error:
        finding = Finding(
            code="HR533",
            where=where,
            what=f"the history cannot be reached or written: {error}",
            fix="free space in the storage directory, give the right to write there, or end what locks the file",
        )
        raise PlatformError(finding) from error
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
        finding = Finding(
            code="HR531",
            where=where,
            what=f"the history is damaged: {reason(error)}",
            fix="move the file and those with -wal and -shm beside it away; the next run begins a new one",
        )
        raise CheckpointError(finding) from error
    except OSError as error:
        finding = Finding(
            code="HR533",
            where=where,
            what=f"the history cannot be reached or written: {error.strerror or error}",
            fix="give the user that runs the query the right to write the storage directory",
        )
        raise PlatformError(finding) from error


def nothing_yet(path: Path) -> CheckpointError:
    """There is no file to read."""
    return CheckpointError(
        Finding(
            code="HR534",
            where=Where(file=str(path)),
            what="there is no history yet, as nothing was run with this storage directory",
            fix="start a query with `headrace run`, or name the right target with --target",
        )
    )


def newer(path: Path, found: int) -> CheckpointError:
    """The file was written by a later Headrace."""
    return CheckpointError(
        Finding(
            code="HR532",
            where=Where(file=str(path)),
            what=f"the history is of version {found}, and this Headrace knows versions up to {VERSION}",
            fix="upgrade Headrace, or move the file away; the next run begins a new one",
        )
    )
