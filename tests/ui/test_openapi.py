"""The JSON API is what its OpenAPI says, whatever it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection
from starlette.testclient import TestClient

from headrace.model import Project
from headrace.ui.answers import EVENTS_MOST, PAGE_MOST, POINTS_MOST
from headrace.ui.app import application, openapi
from headrace.ui.looks import ROWS_MOST
from headrace.ui.server import ServedAddress
from tests.ui import made

pytestmark = pytest.mark.plain
TOKEN = "a-token-that-is-long-enough"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = made.project(tmp_path_factory.mktemp("p"))
    made.fill(project, 250)
    return project


@pytest.fixture(scope="module")
def api(project: Project) -> Any:
    app = application(project, hosts=ServedAddress().hosts(), token=TOKEN)
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HEADERS)
    names: Iterator[str] = iter(())

    @schema.hook
    def map_path_parameters(context: Any, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Every second query is one that there is; the sinks of these are no part of this test."""
        nonlocal names
        if not given or context.operation.path.endswith(("/rows", "/ledger")):
            return given
        name = next(names, None)
        if name is None:
            names = iter(("counts", given["name"], "copied", given["name"]))
            name = next(names)
        return {**given, "name": name}

    return schema


def test_every_address_of_the_api_is_in_the_document(project: Project) -> None:
    app = application(project, hosts=ServedAddress().hosts(), token=TOKEN)
    document = TestClient(app, base_url="http://127.0.0.1", headers=HEADERS).get("/api/openapi.json").json()
    text = (Path(application.__code__.co_filename)).read_text()
    routed = {part.split('"')[0] for part in text.split('Route("')[1:]}
    paths = {path for path in routed if path.startswith("/api/")} - {"/api/live", "/api/openapi.json"}
    assert paths == set(document["paths"])


@pytest.mark.parametrize(
    ("path", "parameter", "most"),
    [
        ("/api/queries/{name}/batches", "limit", PAGE_MOST),
        ("/api/queries/{name}/series", "points", POINTS_MOST),
        ("/api/queries/{name}/rows", "limit", ROWS_MOST),
        ("/api/events", "count", EVENTS_MOST),
    ],
)
def test_the_document_names_the_limits_that_hold(path: str, parameter: str, most: int) -> None:
    maxima = {
        parameter["name"]: parameter["schema"].get("maximum")
        for parameter in openapi()["paths"][path]["get"]["parameters"]
    }
    assert maxima[parameter] == most


def test_what_it_answers_is_what_the_document_says(api: Any) -> None:
    for operation in (result.ok() for result in api.get_all_operations()):
        for mode in GenerationMode:
            fuzz(operation.as_strategy(generation_mode=mode))


def fuzz(cases: SearchStrategy[schemathesis.Case[Any]]) -> None:
    @settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(cases)
    def ask(case: schemathesis.Case[Any]) -> None:
        # A parameter that is not known is passed over, as by most servers; wrong values are shown in test_api.py.
        # No application of the project runs: its health and its metrics answer 503.
        away = [not_a_server_error] if case.operation.path in ("/api/health", "/api/metrics") else []
        case.call_and_validate(headers=HEADERS, excluded_checks=[negative_data_rejection, *away])

    ask()
