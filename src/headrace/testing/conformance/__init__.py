"""The suites that prove the facts of a source or a sink by real streams; a connector's tests subclass them.

    pytest_plugins = ["headrace.testing.plugin"]  # the fixture `spark`

    class TestTickets(SourceConformance):
        def make(self, home): return Tickets(path=str(home))
        def feed(self, home, step): write_some_tickets(home, step)

What a connector does not claim must not work either: a claim that is missing fails as well as one that is false.
"""

from headrace.testing.conformance.sink import SinkConformance
from headrace.testing.conformance.source import SourceConformance
from headrace.testing.conformance.triggers import (
    NAME,
    PATIENCE,
    Rows,
    SinkTriggers,
    SourceTriggers,
    Word,
    drain,
    drain_live,
    forget_commit,
    prefix_of,
)

__all__ = [
    "NAME",
    "PATIENCE",
    "Rows",
    "SinkConformance",
    "SinkTriggers",
    "SourceConformance",
    "SourceTriggers",
    "Word",
    "drain",
    "drain_live",
    "forget_commit",
    "prefix_of",
]
