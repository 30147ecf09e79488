"""Findings about a sink that could not be asked, and about columns that a result lacks or has twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import Finding, HeadraceError, nearest


def findings_of(error: HeadraceError) -> Iterator[Finding]:
    """Yield the findings of `error`; that a system does not answer becomes a warning, as it may answer later."""
    for finding in error.findings:
        yield warn_of_silent_sink(finding.what, finding.fix) if finding.passes else finding


def warn_of_silent_sink(why: str, fix: str) -> Finding:
    """Warn that a sink could not be asked."""
    fault = f"the sink could not be asked whether it takes the result: {why}"
    return Finding(code="HR469", what=fault, fix=fix or "leave it out: --no-connect")


def find_same_names(names: Sequence[str]) -> Iterator[str]:
    """Find columns whose names differ only by case, or not at all."""
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other is not name:
            yield (
                f"it has two columns '{name}'"
                if other == name
                else f"columns '{other}' and '{name}' differ by case only"
            )


def same_names(names: Sequence[str], query: str) -> Iterator[Finding]:
    """Refuse columns of a result whose names differ only by case, or not at all."""
    for fault in find_same_names(names):
        problem = f"the result of query '{query}': {fault}"
        yield Finding(code="HR404", what=problem, fix="rename one of the two in the query's last select")


def missing_columns(option: str, names: Sequence[str], columns: Sequence[str], query: str) -> Iterator[Finding]:
    """Refuse an option that names columns which the result does not have."""
    missing = [name for name in names if name not in columns]
    if missing:
        fault = f"{option} names {', '.join(missing)}, which the result of query '{query}' does not have"
        yield Finding(code="HR404", what=fault, fix=nearest(missing[0], columns))


def partition_findings(partition_by: Sequence[str], columns: Sequence[str], query: str) -> Iterator[Finding]:
    """Find what keeps files from being written below directories by these columns."""
    yield from missing_columns("partition_by", partition_by, columns, query)
    if partition_by and set(partition_by) >= set(columns):
        fault = f"partition_by names every column of the result of query '{query}'"
        yield Finding(code="HR404", what=fault, fix="leave at least one column to be written into the files")
