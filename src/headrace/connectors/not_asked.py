"""What a check says of a sink that could not be asked, and of columns that a result lacks or has twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import Finding, HeadraceError, nearest


def findings_of(error: HeadraceError) -> Iterator[Finding]:
    """The findings of `error`; that a system does not answer is a warning: another day it may."""
    for finding in error.findings:
        yield not_asked(finding.what, finding.fix) if finding.passes else finding


def not_asked(why: str, fix: str) -> Finding:
    """The warning that a sink could not be asked."""
    fault = f"the sink could not be asked whether it takes the result: {why}"
    return Finding(code="HR469", what=fault, fix=fix or "leave it out: --no-connect")


def twice(names: Sequence[str]) -> Iterator[str]:
    """What is wrong with columns whose names differ only by case, or not at all."""
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other is not name:
            yield (
                f"it has two columns '{name}'"
                if other == name
                else f"columns '{other}' and '{name}' differ by case only"
            )


def missing_columns(option: str, names: Sequence[str], columns: Sequence[str], query: str) -> Iterator[Finding]:
    """That an option names columns which the result does not have."""
    missing = [name for name in names if name not in columns]
    if missing:
        fault = f"{option} names {', '.join(missing)}, which the result of query '{query}' does not have"
        yield Finding(code="HR404", what=fault, fix=nearest(missing[0], columns))


def partition_findings(partition_by: Sequence[str], columns: Sequence[str], query: str) -> Iterator[Finding]:
    """What keeps files from being written below directories by these columns."""
    yield from missing_columns("partition_by", partition_by, columns, query)
    if partition_by and set(partition_by) >= set(columns):
        fault = f"partition_by names every column of the result of query '{query}'"
        yield Finding(code="HR404", what=fault, fix="leave at least one column to be written into the files")
