"""Broadcasts and counters that are asked for where they are of no use."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import Finding
from headrace.model import Continuous, Project, RealTime, SqlTransform


def shared_variables(project: Project) -> Iterator[Finding]:
    """What asks for a broadcast or a counter and cannot have it."""
    values = {name: "broadcast" for name, table in project.tables.items() if table.broadcast}
    values |= dict.fromkeys(project.counters, "counter")
    bodies = [(f"{table.word} '{name}'", table.transform) for name, table in project.tables.items()]
    bodies += [(f"view '{name}'", view.transform) for name, view in project.views.items()]
    bodies += [(f"query '{name}'", query.transform) for name, query in project.queries.items()]
    for whose, transform in bodies:
        for name in transform.inputs:
            if name in values and isinstance(transform, SqlTransform):
                yield Finding(
                    code="HR800",
                    what=f"the SELECT of {whose} reads '{name}', which is a {values[name]} and has no rows",
                    fix="write the SELECT as a Python function that asks for it, or make it a table",
                    where=transform.where,
                )
    for table in project.tables.values():
        for name in table.transform.inputs:
            if name in project.counters:
                yield Finding(
                    code="HR803",
                    what=f"{table.word} '{table.name}' asks for the counter '{name}', and is computed outside batches",
                    fix="count in the function of a query or of a view",
                    where=table.where,
                )
    for query in project.queries.values():
        counters = project.counters_of(query)
        if counters and isinstance(query.trigger, (Continuous, RealTime)):
            yield Finding(
                code="HR804",
                what=f"query '{query.name}' asks for the counter '{counters[0].name}' and has the trigger "
                f"{query.trigger}, whose tasks report nothing before the query ends",
                fix="use the trigger every('1 second'), or leave the counter out",
                where=query.where,
            )
