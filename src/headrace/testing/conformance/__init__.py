"""The suites that prove the facts of a source or a sink by real streams; a connector's tests subclass them.

    pytest_plugins = ["headrace.testing.plugin"]  # the fixture `spark`

    class TestTickets(SourceConformance):
        def make(self, home): return Tickets(path=str(home))
        def feed(self, home, step): write_some_tickets(home, step)

What a connector does not claim must not work either: a claim that is missing fails as well as one that is false.
"""

from headrace.testing.conformance.sink import SinkConformance as SinkConformance
from headrace.testing.conformance.source import SourceConformance as SourceConformance
from headrace.testing.conformance.triggers import NAME as NAME
from headrace.testing.conformance.triggers import PATIENCE as PATIENCE
from headrace.testing.conformance.triggers import Rows as Rows
from headrace.testing.conformance.triggers import SinkTriggers as SinkTriggers
from headrace.testing.conformance.triggers import SourceTriggers as SourceTriggers
from headrace.testing.conformance.triggers import Word as Word
from headrace.testing.conformance.triggers import drain as drain
from headrace.testing.conformance.triggers import drain_live as drain_live
from headrace.testing.conformance.triggers import forget_commit as forget_commit
from headrace.testing.conformance.triggers import prefix_of as prefix_of
