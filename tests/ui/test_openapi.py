"""The JSON API is what its OpenAPI says, whatever it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from headrace.model import Project
from headrace.ui.app import application
from headrace.ui.server import Address
from tests.ui import made

pytestmark = pytest.mark.plain
TOKEN = "a-token-that-is-long-enough"
ODD = st.one_of(
    st.text(max_size=12),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["", "0", "-1", "1e3", "٣", "rows>1", "late>", "\x00", "'", "%", "9" * 400]),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    found = made.project(tmp_path_factory.mktemp("p"))
    made.fill(found, 250)
    return found


@pytest.fixture(scope="module")
def ask(project: Project) -> TestClient:
    app = application(project, hosts=Address().hosts(), token=TOKEN)
    return TestClient(app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture(scope="module")
def document(ask: TestClient) -> dict[str, Any]:
    return dict(ask.get("/api/openapi.json").json())


def test_every_address_of_the_api_is_in_the_document(document: dict[str, Any]) -> None:
    text = (Path(application.__code__.co_filename)).read_text()
    routed = {part.split('"')[0] for part in text.split('Route("')[1:]}
    told = {path for path in routed if path.startswith("/api/")} - {"/api/live", "/api/openapi.json"}
    assert told == set(document["paths"])


def right(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    if schema.get("type") == "integer":
        return st.integers(schema["minimum"], schema["maximum"]).map(str)
    return st.sampled_from(["counts", "copied", "rows>10 late>0", "42"])


@st.composite
def asked(draw: st.DrawFn, document: dict[str, Any]) -> tuple[str, str, str, dict[str, str], Any]:
    path = draw(st.sampled_from(sorted(document["paths"])))
    method = draw(st.sampled_from(sorted(document["paths"][path])))
    operation = document["paths"][path][method]
    name, query = "counts", dict[str, str]()
    for each in operation["parameters"]:
        value = draw(st.one_of(right(each["schema"]), ODD))
        if each["in"] == "path":
            name = draw(st.sampled_from(["counts", "copied", "none", value]))
        elif draw(st.booleans()):
            query[each["name"]] = value
    body = draw(st.one_of(st.dictionaries(st.sampled_from(["query", "sql"]), st.one_of(ODD, st.none())), st.lists(ODD)))
    return method, path, name, query, body


def test_what_it_answers_is_what_the_document_says(ask: TestClient, document: dict[str, Any]) -> None:
    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(asked(document))
    def fuzz(one: tuple[str, str, str, dict[str, str], Any]) -> None:
        method, path, name, query, body = one
        from urllib.parse import quote

        url = path.replace("{name}", quote(name, safe="") or "none")
        sent = {"content": json.dumps(body)} if method == "post" else {}
        # A verify or a question that is right would reach for the system behind; that is shown elsewhere.
        if path.endswith(("/rows", "/ledger")) and name in ("counts", "copied"):
            return
        answer = ask.request(method, url, params=query, follow_redirects=False, **sent)
        answers = document["paths"][path][method]["responses"]
        assert str(answer.status_code) in answers, (answer.status_code, answer.text)
        schema = answers[str(answer.status_code)]["content"]["application/json"]["schema"]
        Draft202012Validator(schema).validate(answer.json())

    fuzz()
