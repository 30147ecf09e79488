"""What a check of a project came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.check.capacity import HeldState
from headrace.check.guarantee import Guarantee
from headrace.check.state_bounds import StateBound
from headrace.errors import Finding


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Every finding, each query's guarantee, what each of its operators keeps, and what they held when it last ran."""

    findings: tuple[Finding, ...]
    guarantees: Mapping[str, Guarantee]
    states: Mapping[str, tuple[StateBound, ...]] = field(default_factory=dict)
    held: Mapping[str, HeldState] = field(default_factory=dict)

    def only(self, codes: Sequence[str]) -> CheckResult:
        """The result with the findings alone whose code begins with one of `codes`; all, if there are none."""
        kept = tuple(each for each in self.findings if not codes or each.code.startswith(tuple(codes)))
        return replace(self, findings=kept)

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
            "states": {name: [each.as_dict() for each in bounds] for name, bounds in self.states.items()},
            "held": {name: each.as_dict() for name, each in self.held.items()},
        }
