"""What a check says of a sink that could not be asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.errors import Finding, HeadraceError


def findings_of(error: HeadraceError) -> Iterator[Finding]:
    """The findings of `error`; that a system does not answer is a warning: another day it may."""
    for finding in error.findings:
        yield not_asked(finding.what, finding.fix) if finding.passes else finding


def not_asked(why: str, fix: str) -> Finding:
    """The warning that a sink could not be asked."""
    what = f"the sink could not be asked whether it takes the result: {why}"
    return Finding(code="HR469", what=what, fix=fix or "leave it out: --no-connect")


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
