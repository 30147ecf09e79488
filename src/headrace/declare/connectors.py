"""`source` and `sink`: one function for each installed connector, named as its entry point."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from headrace import registry
from headrace.declare.assembly import unknown_connector, unknown_options
from headrace.declare.declarations import DeclaredSink, DeclaredSource, former_names
from headrace.declare.faults import check_name, fault, is_collecting, report, where_of_frame
from headrace.errors import Where
from headrace.model import Duration, Watermark

if TYPE_CHECKING:
    from headrace.declare import signatures


class _Connectors:
    """Each attribute is `declare` for the connector of that name."""

    def __init__(self, group: registry.ConnectorKind, declare: Callable[..., Any]) -> None:
        self._what, self._declare, self.__doc__ = group, declare, declare.__doc__

    def __getattr__(self, kind: str) -> Any:
        if kind.startswith("_"):
            raise AttributeError(kind)
        return partial(self._declare, kind)

    def __dir__(self) -> list[str]:
        return list(registry.list_names(self._what))


def _declare_source(
    kind: str,
    /,
    *arguments: Any,
    watermark: tuple[str, str] | None = None,
    name: str | None = None,
    renamed_from: str | Sequence[str] = (),
    **options: Any,
) -> DeclaredSource:
    """Declare a source: `source.files("landing", format="json", schema="...", watermark=("time", "2 hours"))`.

    Args:
        kind: The connector's name.
        arguments: The connector's first option, without its name.
        watermark: The event-time column and how late its rows may come.
        name: The source's name; by default that of the variable that holds it.
        renamed_from: The name that it had before, or several, the newest first.
        options: The connector's options.

    Raises:
        ProjectError: An argument is wrong. While a project is loaded, its faults are reported together.
    """
    where = where_of_frame(sys._getframe(1))
    name = check_name(name, where)
    _judge("source", kind, options, where)
    return DeclaredSource(
        kind=kind,
        arguments=arguments,
        options=options,
        watermark=_watermark(watermark, where),
        name=name,
        renamed_from=former_names(renamed_from, f"the source '{kind}'", where),
        where=where,
    )


def _declare_sink(kind: str, /, *arguments: Any, **options: Any) -> DeclaredSink:
    """Declare a sink: `sink.sqlite("out.db", table="counts", key=["action"])`.

    Args:
        kind: The connector's name.
        arguments: The connector's first option, without its name.
        options: The connector's options.

    Raises:
        ProjectError: An option does not exist. While a project is loaded, its faults are reported together.
    """
    where = where_of_frame(sys._getframe(1))
    _judge("sink", kind, options, where)
    return DeclaredSink(kind=kind, arguments=arguments, options=options, where=where)


# What each connector takes is known at run time from its fields; type checkers and editors read it in a stub.
source = cast("signatures.Sources", _Connectors("source", _declare_source))
sink = cast("signatures.Sinks", _Connectors("sink", _declare_sink))


def _judge(group: registry.ConnectorKind, kind: str, options: Mapping[str, Any], where: Where) -> None:
    """Refuse unknown names at once in a script or notebook; while a project is loaded, all is judged together."""
    if is_collecting():
        return
    unknown = unknown_connector(group, kind, where)
    for finding in unknown_options(group, kind, options, where, {}) if unknown is None else [unknown]:
        report(finding)


def _watermark(given: Any, where: Where) -> Watermark | None:
    if given is None or isinstance(given, Watermark):
        return given
    fix = 'write watermark=("time", "2 hours"): the event-time column and the delay'
    if not (isinstance(given, (tuple, list)) and len(given) == 2 and all(isinstance(part, str) for part in given)):
        fault("HR104", "a watermark is a pair of texts", fix, where)
        return None
    column, delay = given
    try:
        return Watermark(column=column, delay=Duration.parse(delay))
    except ValueError as error:
        fault("HR104", f"the watermark's delay: {error}", fix, where)
        return None
