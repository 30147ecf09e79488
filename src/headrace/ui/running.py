"""What the running application of a project answers to the dashboard: its health and its metrics."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any

from headrace.contract import QueryState
from headrace.control.client import applications
from headrace.model import Project
from headrace.units import ip_address

SECONDS = 10.0


class NoMetrics(Exception):
    """Metrics that cannot be had; its text says why."""


def application_health(project: Project) -> dict[str, Any]:
    """Whether an application of the project runs, answers, and no query of it is down."""
    there, silent = applications(project.local_storage)
    plain: Mapping[str, Any] = {query: state for application in there for query, state in application.queries.items()}
    states = {query: QueryState.from_dict(state) for query, state in plain.items()}
    return {
        "ok": bool(states) and not silent and not any(state.is_down for state in states.values()),
        "processes": [*(application.pid for application in there), *silent],
        "queries": {name: states[name].state if name in states else "not running" for name in project.queries},
    }


def scrape_metrics(project: Project) -> str:
    """Return the metrics of the project's application, from where its target lets it serve them.

    Raises:
        NoMetrics: The target names no port, or nothing answers there.
    """
    settings = project.target.operations.metrics
    if settings is None or not settings.port:
        raise NoMetrics("the project serves no metrics at a port that headrace.yml names: metrics: {port: ...}")
    address = ip_address(settings.address)
    host = settings.address
    if address is not None and address.is_unspecified:
        host = "::1" if address.version == 6 else "127.0.0.1"
    connection = http.client.HTTPConnection(host, settings.port, timeout=SECONDS)
    try:
        headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else {}
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise NoMetrics(f"no application serves metrics at {host}:{settings.port}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NoMetrics(f"{host}:{settings.port} answers {answer.status}: {text[:200].strip()}")
    return text
