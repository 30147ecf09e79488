"""The Python way to declare a project: sources, sinks, views, tables, queries and triggers."""

from headrace.declare.assembly import Assembly
from headrace.declare.connectors import sink, source
from headrace.declare.declarations import (
    DECLARED,
    Declared,
    DeclaredCounter,
    DeclaredQuery,
    DeclaredSink,
    DeclaredSource,
    DeclaredTable,
    DeclaredView,
)
from headrace.declare.decorators import (
    TIMED,
    available_now,
    broadcast,
    continuous,
    counter,
    every,
    once,
    parse_trigger,
    query,
    real_time,
    table,
    view,
)
from headrace.declare.faults import collecting
from headrace.declare.own_query import project_of, set_starter
from headrace.declare.variables import Variables

__all__ = [
    "DECLARED",
    "TIMED",
    "Assembly",
    "Declared",
    "DeclaredCounter",
    "DeclaredQuery",
    "DeclaredSink",
    "DeclaredSource",
    "DeclaredTable",
    "DeclaredView",
    "Variables",
    "available_now",
    "broadcast",
    "collecting",
    "continuous",
    "counter",
    "every",
    "once",
    "parse_trigger",
    "project_of",
    "query",
    "real_time",
    "set_starter",
    "sink",
    "source",
    "table",
    "view",
]
