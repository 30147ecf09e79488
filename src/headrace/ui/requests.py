"""What is taken from a request: numbers within bounds and JSON objects; else why it cannot be answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

BODY_BYTES = 20_000


class WrongRequest(ValueError):
    """A request that cannot be answered as it is; its text says why."""


class UnknownQuery(WrongRequest):
    """A request for a query that the project does not have."""


async def json_body(request: Request) -> Mapping[str, Any]:
    """The JSON object that was sent."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise WrongRequest(f"more than {BODY_BYTES} bytes were sent")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WrongRequest("a JSON object is sent")
    return found


def whole_number(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number of the address, `default` without it; raises WrongRequest."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise WrongRequest(f"{name} is a whole number from {least} to {most}")
    return int(text)
