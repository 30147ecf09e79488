"""Late rows written out as their sources gave them: one file of JSON lines for each source and batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.contract import path_options
from headrace.errors import CheckFailed, Finding, PlatformError
from headrace.model import Project, Query
from headrace.storage.durable import replacing
from headrace.verify.late_and_open import LateInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def directory(project: Project, query: Query, to: str | os.PathLike[str]) -> Path:
    """The directory that rows of `query` may be written to; made if it is not there.

    Raises CheckFailed where a source of the query would take them for new rows, PlatformError if it cannot be made.
    """
    found = Path(to).resolve()
    for source in project.sources_of(query):
        if any(found.is_relative_to(place) for place in _places(source.connector)):
            raise CheckFailed(
                Finding(
                    code="HR695",
                    what=f"source '{source.name}' of query '{query.name}' reads '{found}', and would read its late "
                    "rows again",
                    fix="name another directory",
                    where=source.where,
                )
            )
    try:
        found.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(found, error) from error
    return found


def written(late: Iterable[LateInput], home: Path, query: str, generation: int) -> Iterator[Path]:
    """Write each late row once, however many operators dropped it; yields every file that holds rows of them.

    What a committed batch dropped never changes, so a file that is there already is whole and stays. Others appear
    under their names only when they are whole.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    frames = [dropped.rows.select("batch", "origin.source", "origin.number", "origin.line") for dropped in late]
    if not frames:
        return
    rows: DataFrame = reduce(DataFrame.union, frames).groupBy("source", "batch", "number").agg(F.first("line"))
    ordered = rows.orderBy("source", "batch", "number").toLocalIterator(prefetchPartitions=True)
    try:
        for (source, batch), lines in groupby(ordered, key=lambda row: (row["source"], row["batch"])):
            file = home / source / f"{query}-g{generation}-{batch:06d}.json"
            if not file.exists():
                file.parent.mkdir(exist_ok=True)
                with replacing(file) as out:
                    out.writelines(f"{row[3]}\n" for row in lines)
            yield file
    except OSError as error:
        raise _unwritable(home, error) from error


def _places(connector: object) -> Iterator[Path]:
    """The directories that a connector names in its options."""
    for option in path_options(connector):
        value = getattr(connector, option)
        if isinstance(value, str) and "://" not in value:
            # Of a pattern, the part that every match begins with.
            parts = Path(value).parts
            plain = next((at for at, part in enumerate(parts) if set(part) & set("*?[{")), len(parts))
            yield Path(*parts[:plain]).resolve()


def _unwritable(home: Path, error: OSError) -> PlatformError:
    what = f"late rows cannot be written to '{home}': {error.strerror or error}"
    return PlatformError(Finding(code="HR694", what=what, fix="name a directory that can be written"))
