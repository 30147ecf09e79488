"""Where the transactions of a sink write, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Target:
    """A topic and its ledger topic.

    topic: None: each row names its own. settings: of Kafka's C client. options: of Spark's connector.
    """

    servers: str
    topic: str | None
    ledger_topic: str
    value: Literal["raw", "json"]
    key: tuple[str, ...]
    retry_seconds: float
    settings: Mapping[str, Any]
    options: Mapping[str, str]
