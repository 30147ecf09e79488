"""What a check of a project came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.check.guarantee import Guarantee
from headrace.errors import Finding


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Every finding, and each query's guarantee."""

    findings: tuple[Finding, ...]
    guarantees: Mapping[str, Guarantee]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the project from running."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def exit_code(self) -> int:
        """1 when there is an error, else 0."""
        return 1 if self.errors else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data, for `--json`."""
        return {
            "findings": [finding.as_dict() for finding in self.findings],
            "guarantees": {name: each.as_dict() for name, each in self.guarantees.items()},
        }
