"""How a running application is watched from outside: its metrics, hooks and logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from headrace.errors import NOWHERE, Where
from headrace.units import Duration

LOOPBACK = ("127.0.0.1", "::1", "localhost")
HookEvent: TypeAlias = Literal["failure", "waiting", "recovery", "verdict"]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
LogFormat: TypeAlias = Literal["text", "json"]
_TEN_SECONDS = Duration.parse("10 seconds")
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Where Prometheus reads the metrics; `token` is what it has to show, and needed anywhere but on loopback."""

    port: int
    address: str = LOOPBACK[0]
    token: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Hook:
    """Who gets events: a URL by POST, or a command on its standard input, whose path is one of the project."""

    on: tuple[HookEvent, ...] = HOOK_EVENTS
    webhook: str = field(default="", repr=False)
    command: tuple[str, ...] = ()
    timeout: Duration = _TEN_SECONDS
    where: Where = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Log:
    """The log of a run, one line an event, in a file of the storage; a new one begins at `max_bytes`, `keep` stay."""

    format: LogFormat = "text"
    max_bytes: int = 10_000_000
    keep: int = 5


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """What is sent on request; addresses are set by the standard variables of OpenTelemetry and OpenLineage."""

    otlp: bool = False
    openlineage: bool = False


@dataclass(frozen=True, kw_only=True)
class Operations:
    """All of it. exit_on_failure: a query that fails ends the application, which a supervisor starts again."""

    metrics: Metrics | None = None
    hooks: tuple[Hook, ...] = ()
    log: Log | None = None
    telemetry: Telemetry = field(default_factory=Telemetry)
    exit_on_failure: bool = False
