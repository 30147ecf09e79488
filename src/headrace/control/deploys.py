"""What a deploy is asked to do, what it does to each query, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias

from headrace.errors import Finding, PlainData

Action: TypeAlias = Literal["keep", "start", "restart", "stop"]


@dataclass(frozen=True, kw_only=True)
class DeployRequest(PlainData):
    """A deploy as it is asked for.

    dry_run: plan it alone. accept_forward: accept changes that affect only new rows. restart: let the application begin
    again if a change needs that. target: the asker's.
    variables: those that the project names, as the asker has them, by digests with `salt`: no value passes the socket.
    """

    dry_run: bool = False
    accept_forward: bool = False
    restart: bool = False
    target: str = ""
    salt: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def other_variables(self, values: Mapping[str, str]) -> Iterator[str]:
        """Yield the names of the variables that have another value for the asker than in `values`."""
        yield from (
            name
            for name, digest in sorted(self.variables.items())
            if digest != (digest_value(self.salt, values[name]) if name in values else "")
        )


def digest_value(salt: str, value: str) -> str:
    """Return a digest of a variable's value, which another salt changes."""
    return hashlib.sha256(f"{salt}\n{value}".encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class DeployStep(PlainData):
    """What a deploy does to one query.

    Attributes:
        action: `keep` leaves the query running; `restart` stops it after its batch and starts it with the new code.
        verdict: The verdict on its edit, as in a plan; empty for a query that is removed.
        from_batch: The first batch of the new code.
        changes: What has changed, a clause each.
        findings: Why the query is refused, or why the new code did not start.
        outcome: The outcome; empty as long as nothing was done.
    """

    query: str
    action: Action
    verdict: str = ""
    from_batch: int = 0
    changes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    outcome: str = ""


@dataclass(frozen=True, kw_only=True)
class DeployResult(PlainData):
    """What a deploy does, or did, to each query of a running application.

    Attributes:
        steps: A step for each query, in the order of the project.
        findings: Why nothing was done, apart from the findings of single queries.
        pid: The process of the application.
        carried_out: Whether the steps were carried out.
        needs_restart: Whether the application must start again to take the change.
        reasons: Why the application starts again; empty if it does not.
    """

    derived: ClassVar[tuple[str, ...]] = ("done",)
    steps: tuple[DeployStep, ...] = ()
    findings: tuple[Finding, ...] = ()
    pid: int = 0
    carried_out: bool = False
    needs_restart: bool = False
    reasons: tuple[str, ...] = ()

    def after_new_start(self, result: DeployResult) -> DeployResult:
        """Return what was planned, with what came of it as the new start reports it."""
        came = {step.query: step for step in result.steps}
        steps = (
            replace(step, outcome=now.outcome, findings=now.findings) if (now := came.get(step.query)) else step
            for step in self.steps
        )
        return replace(self, steps=tuple(steps), findings=result.findings, carried_out=True)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """All findings: of the project, and of single queries."""
        return (*self.findings, *(finding for step in self.steps for finding in step.findings))

    @property
    def done(self) -> bool:
        """Whether nothing was refused and all new code has started."""
        return not self.errors
