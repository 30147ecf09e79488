"""`source` and `sink`: one function for each installed connector, named as its entry point."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from headrace import registry
from headrace.declare.assembly import unknown_connector, unknown_options
from headrace.declare.declarations import DeclaredSink, DeclaredSource, former_names
from headrace.declare.faults import is_collecting, of_frame, report
from headrace.errors import Finding, Where
from headrace.model import Duration, Watermark

if TYPE_CHECKING:
    from headrace.declare import signatures


class _Sources:
    """Declares sources: `source.files("landing", format="json", schema="...", watermark=("time", "2 hours"))`."""

    def __getattr__(self, kind: str) -> Any:
        _refuse_private(kind)

        def declare(
            *arguments: Any,
            watermark: tuple[str, str] | None = None,
            name: str | None = None,
            renamed_from: str | Sequence[str] = (),
            **options: Any,
        ) -> DeclaredSource:
            frame = sys._getframe(1)
            where = of_frame(frame)
            if name is not None and not isinstance(name, str):
                report(
                    Finding(code="HR117", what=f"the name {name!r} is no text", fix="write it in quotes", where=where)
                )
                name = str(name)
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

        return declare

    def __dir__(self) -> list[str]:
        return list(registry.known("source"))


class _Sinks:
    """Declares sinks: `sink.sqlite("out.db", table="counts", key=["action"])`."""

    def __getattr__(self, kind: str) -> Any:
        _refuse_private(kind)

        def declare(*arguments: Any, **options: Any) -> DeclaredSink:
            frame: FrameType = sys._getframe(1)
            where = of_frame(frame)
            _judge("sink", kind, options, where)
            return DeclaredSink(kind=kind, arguments=arguments, options=options, where=where)

        return declare

    def __dir__(self) -> list[str]:
        return list(registry.known("sink"))


# What each connector takes is known at run time from its fields; type checkers and editors read it in a stub.
source = cast("signatures.Sources", _Sources())
sink = cast("signatures.Sinks", _Sinks())


def _refuse_private(kind: str) -> None:
    if kind.startswith("_"):
        raise AttributeError(kind)


def _judge(
    what: registry.ConnectorKind,
    kind: str,
    options: Mapping[str, Any],
    where: Where,
) -> None:
    """Refuse misspelt names at once in a script or notebook; while a project is loaded, all is judged together."""
    if is_collecting():
        return
    if (unknown := unknown_connector(what, kind, where)) is not None:
        report(unknown)
    for finding in unknown_options(what, kind, options, where, {}):
        report(finding)


def _watermark(given: Any, where: Where) -> Watermark | None:
    if given is None or isinstance(given, Watermark):
        return given
    fix = 'write watermark=("time", "2 hours"): the event-time column and the delay'
    if not (isinstance(given, (tuple, list)) and len(given) == 2 and all(isinstance(part, str) for part in given)):
        report(Finding(code="HR104", what="a watermark is a pair of texts", fix=fix, where=where))
        return None
    column, delay = given
    try:
        return Watermark(column=column, delay=Duration.parse(delay))
    except ValueError as error:
        report(Finding(code="HR104", what=f"the watermark's delay: {error}", fix=fix, where=where))
        return None
