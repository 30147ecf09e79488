"""The JSON Schema of headrace.yml takes every project of this repository, and no misspelt key."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from headrace import registry
from headrace.cli import main
from headrace.loader import document, targets
from headrace.loader.project import KEYS
from headrace.loader.schema import schema
from headrace.loader.yaml_queries import QUERY_KEYS
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.plain

PROJECTS = sorted([*(ROOT / "examples").glob("*/headrace.yml"), ROOT / "tests/upgrade/project/headrace.yml"])
MANUAL = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    made = schema()
    Draft7Validator.check_schema(made)
    return Draft7Validator(made)


def tree(text: str) -> Any:
    """A project's text as an editor has it."""
    return json.loads(json.dumps(document.read(text, "headrace.yml")[0].plain()))


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: file.parent.name)
def test_it_takes_every_example(file: Path, validator: Draft7Validator) -> None:
    assert [error.message for error in validator.iter_errors(tree(file.read_text(encoding="utf-8")))] == []


def test_it_takes_the_example_of_the_manual(validator: Draft7Validator) -> None:
    example = MANUAL.partition("file=headrace.yml\n")[2].partition("```")[0]
    assert [error.message for error in validator.iter_errors(tree(example))] == []


@pytest.mark.parametrize("options", [[], ["--sql"]], ids=["python", "sql"])
def test_init_writes_it_where_the_first_line_points(
    options: list[str], tmp_path: Path, validator: Draft7Validator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "phones"), *options]) == 0
    text = (tmp_path / "phones/headrace.yml").read_text(encoding="utf-8")
    points = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((tmp_path / "phones" / points).read_text(encoding="utf-8")) == validator.schema
    assert [error.message for error in validator.iter_errors(tree(text))] == []
    capsys.readouterr()
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == validator.schema


def whole() -> dict[str, Any]:
    return tree(
        """
        name: shop
        modules: orders.py
        sources:
          clicks:
            kafka: {bootstrap_servers: "${BROKERS}", subscribe: [clicks], min_partitions: "${PARTITIONS:-4}"}
            watermark: [time, 10 minutes]
          ticks: {rate: 5}
        tables:
          pages: {sql: pages.sql, refresh: {every: 10 minutes}}
        views:
          named: SELECT * FROM clicks
        queries:
          counts:
            select: SELECT 1
            mode: update
            trigger: {every: 5 seconds}
            sink: {sqlite: {path: r.db, table: counts, key: [id]}}
          shown: {sql: shown.sql, trigger: available-now, sink: console}
        state_store: {provider: rocksdb}
        targets:
          dev:
          prod: {master: "local[2]", spark: {spark.sql.shuffle.partitions: 8}, vars: {BROKERS: b}}
        """
    )


def test_it_takes_every_form_of_a_value(validator: Draft7Validator) -> None:
    assert [error.message for error in validator.iter_errors(whole())] == []


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key at the top": lambda top: top.update(querys={}),
    "a kind of source": lambda top: top["sources"].update(a={"file": {"path": "x"}}),
    "an option of a source": lambda top: top["sources"]["clicks"]["kafka"].update(topics="clicks"),
    "a value of an option": lambda top: top["sources"]["clicks"]["kafka"].update(value="xml"),
    "a second kind": lambda top: top["sources"]["clicks"].update(rate=5),
    "a key of a watermark": lambda top: top["sources"]["clicks"].update(watermark={"column": "time", "late": "2 h"}),
    "no kind": lambda top: top["sources"].update(a={"watermark": ["time", "1 hour"]}),
    "a key of a table": lambda top: top["tables"]["pages"].update(refreshed="1 hour"),
    "a key of a query": lambda top: top["queries"]["counts"].update(output_mode="update"),
    "no sink": lambda top: top["queries"]["counts"].pop("sink"),
    "two SELECTs": lambda top: top["queries"]["counts"].update(sql="counts.sql"),
    "an output mode": lambda top: top["queries"]["counts"].update(mode="upsert"),
    "a trigger": lambda top: top["queries"]["counts"].update(trigger={"each": "5 seconds"}),
    "a kind of sink": lambda top: top["queries"]["shown"].update(sink="consol"),
    "an option of a sink": lambda top: top["queries"]["counts"]["sink"]["sqlite"].update(keys=["id"]),
    "a missing option": lambda top: top["queries"]["counts"]["sink"]["sqlite"].pop("table"),
    "an option of the state store": lambda top: top["state_store"].update(engine="rocksdb"),
    "a key of a target": lambda top: top["targets"]["prod"].update(sparks={}),
    "a durability": lambda top: top.update(checkpoint_durability="always"),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
def test_it_refuses(spoil: Callable[[dict[str, Any]], Any], validator: Draft7Validator) -> None:
    top = whole()
    spoil(top)
    assert not validator.is_valid(top)


def test_it_has_every_key_that_is_read(validator: Draft7Validator) -> None:
    top = validator.schema["properties"]
    assert set(top) == set(KEYS)
    assert set(top["targets"]["additionalProperties"]["properties"]) == set(targets.KEYS)
    assert set(top["queries"]["additionalProperties"]["properties"]) == set(QUERY_KEYS)


def test_connectors_of_other_distributions_are_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme.py").write_text(
        "from dataclasses import dataclass\n\nfrom headrace.contract import Sink\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Acme(Sink):\n"
        '    """A sink.\n\n    shelf: where it lies.\n    """\n\n    shelf: str\n    boxes: int = 3\n'
    )
    (tmp_path / "acme-1.0.dist-info").mkdir()
    (tmp_path / "acme-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (tmp_path / "acme-1.0.dist-info/entry_points.txt").write_text(
        "[headrace.sinks]\nacme = acme:Acme\nlost = no_such_package:Lost\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_entries", registry._entries.__wrapped__)
    made = Draft7Validator(schema())
    for sink, valid in (({"acme": {"shelf": "a"}}, 1), ({"acme": {"shelv": "a"}}, 0), ({"lost": {"any": 1}}, 1)):
        assert made.is_valid({"queries": {"q": {"select": "SELECT 1", "sink": sink}}}) == bool(valid), sink
    assert '"where it lies."' in json.dumps(made.schema)
    sys.modules.pop("acme")
