"""What the JSON API takes and answers, as OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

Schema = Mapping[str, Any]
_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_WHOLE: Schema = {"type": "integer"}
_YES: Schema = {"type": "boolean"}
_ANY_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _ANY_OBJECT}
_NUMBERS: Schema = {"type": "array", "items": {"type": ["number", "null"]}}
_ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": _TEXT}}
_ABOUT: Mapping[str, Schema] = {"name": _TEXT, "target": _TEXT, "version": _TEXT}
_LARGEST = 2**53

_PLAIN: Schema = {"type": ["string", "number", "boolean", "null"]}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


_ROWS = _object(
    columns={"type": "array", "items": _TEXT},
    rows={"type": "array", "items": {"type": "array", "items": _PLAIN}},
)
_VERIFYING = _object(
    query=_TEXT_OR_NULL, state={"enum": ["idle", "running", "ended", "failed"]}, said=_TEXT, rows=_OBJECTS
)
_NAME = {"name": "name", "in": "path", "required": True, "schema": _TEXT}


def _whole(name: str, least: int, most: int) -> Schema:
    return {"name": name, "in": "query", "schema": {"type": "integer", "minimum": least, "maximum": most}}


def _get(summary: str, answer: Schema, parameters: Sequence[Schema] = (), more: Sequence[int] = ()) -> Schema:
    return {"get": _operation(summary, answer, parameters, more)}


def _operation(
    summary: str, answer: Schema, parameters: Sequence[Schema], more: Sequence[int], status: int = 200
) -> Schema:
    answers = {status: answer, **dict.fromkeys((400, 401, 404, 421, 429, 503, *more), _ERROR)}
    return {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            str(code): {
                "description": "the answer" if code == status else "why there is none",
                "content": {"application/json": {"schema": schema}},
            }
            for code, schema in answers.items()
        },
    }


def _post(summary: str, answer: Schema, properties: Sequence[str], more: Sequence[int], status: int = 200) -> Schema:
    body = _object(**dict.fromkeys(properties, _TEXT))
    content = {"application/json": {"schema": body}}
    operation = _operation(summary, answer, (), more, status)
    return {**operation, "requestBody": {"required": True, "content": content}}


def openapi(pages: Mapping[str, int]) -> dict[str, Any]:
    """The document; `pages`: the greatest number of things that one answer holds, by its parameter."""
    generation = _whole("generation", 1, _LARGEST)
    search = {"name": "search", "in": "query", "schema": _TEXT}
    of_query = {"name": "query", "in": "query", "schema": _TEXT}
    batches = [
        _NAME,
        _whole("limit", 1, pages["limit"]),
        _whole("before", 0, _LARGEST),
        search,
        generation,
    ]
    series = [_NAME, _whole("points", 10, pages["points"]), _whole("seconds", 0, _LARGEST), generation]
    ledger = [_NAME, _whole("first", 0, _LARGEST), _whole("last", 0, _LARGEST), generation]
    counted = {"rows": _WHOLE, "batches": _WHOLE}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace dashboard", "version": version("headrace")},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": {
            "/api/project": _get(
                "The graph, and how each query stands",
                _object(**_ABOUT, graph=_object(nodes=_OBJECTS, edges=_OBJECTS), queries=_ANY_OBJECT),
            ),
            "/api/queries/{name}": _get(
                "One query: definition, plan, state, runs and verdicts",
                _object(
                    **_ABOUT,
                    definition=_ANY_OBJECT,
                    queries=_ANY_OBJECT,
                    runs=_OBJECTS,
                    verdicts=_OBJECTS,
                    plan=_TEXT_OR_NULL,
                    answers_sql=_YES,
                ),
                [_NAME],
            ),
            "/api/queries/{name}/batches": _get(
                "A page of batches, the newest first",
                _object(batches=_OBJECTS, before={"type": ["integer", "null"]}),
                batches,
            ),
            "/api/queries/{name}/series": _get(
                "Columns for charts", _object(at=_NUMBERS, rows=_NUMBERS, late=_NUMBERS, phases=_ANY_OBJECT), series
            ),
            "/api/queries/{name}/late": _get(
                "Late rows: how many, how late, of which windows",
                _object(**counted, histogram=_OBJECTS, windows=_OBJECTS),
                [_NAME, generation],
            ),
            "/api/queries/{name}/ledger": _get(
                "The lines of the sink's ledger, of a page's number of batches at most",
                _object(lines=_ANY_OBJECT, readable=_YES),
                ledger,
            ),
            "/api/queries/{name}/rows": _get(
                "The newest rows of the result", _ROWS, [_NAME, _whole("limit", 1, pages["rows"])]
            ),
            "/api/queries/{name}/versions": _get(
                "What changed: the versions of code, settings and plan that ran, the newest first",
                _object(versions=_OBJECTS),
                [_NAME],
            ),
            "/api/events": _get(
                "The newest events", _object(events=_OBJECTS), [_whole("count", 1, pages["count"]), of_query]
            ),
            "/api/ask": {"post": _post("An answer of the result's database", _ROWS, ("query", "sql"), [403])},
            "/api/verify": {
                **_get("How the verify that was started here stands", _VERIFYING),
                "post": _post("Start a verify", _VERIFYING, ("query",), [403, 409], 202),
            },
            "/api/late": {
                **_get("How the search for late rows that was started here stands, and its rows", _VERIFYING),
                "post": _post("Start to read late rows", _VERIFYING, ("query",), [403, 409], 202),
            },
        },
    }
