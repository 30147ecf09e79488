"""The JSON Schema of headrace.yml: the keys of the file and the options of every connector that is installed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from inspect import getdoc
from typing import Any

from headrace import registry
from headrace.contract import OUTPUT_MODES
from headrace.contract.change_data import SCD_TYPES
from headrace.declare.change_data import CDC_KEYS, NAMING, required_options
from headrace.declare.decorators import TIMED
from headrace.declare.option_values import option_schema
from headrace.errors import HeadraceError
from headrace.loader import targets
from headrace.loader.project import KEYS
from headrace.loader.yaml_queries import QUERY_KEYS, SOURCE_KEYS, SQL_KEYS, TABLE_KEYS, WATERMARK_KEYS
from headrace.model.change_data import ChangeData
from headrace.model.operations import HOOK_EVENTS, LOG_FORMATS
from headrace.model.project import DURABILITIES, ON_CHANGE
from headrace.model.state_store import OPTIONS, Choice
from headrace.model.trigger import NEVER, RESTART_KEYS

Schema = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"
# A variable may stand in place of any value, and is filled in when the project is loaded.
_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}
_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_FLAG: Schema = {"type": ["string", "boolean"]}
_NOTHING: Schema = {"type": "null"}
_NAMES: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_DOCS: Mapping[str, str] = {
    "name": "The project's name; that of the directory without it.",
    "modules": "The Python files that declare something, relative to the project.",
    "sources": "Unbounded inputs by name.",
    "tables": "Bounded inputs by name, each a SELECT.",
    "views": "Named transformations by name, each a SELECT.",
    "queries": "Queries by name: a SELECT, a sink, a mode and a trigger.",
    "targets": "Named sets of settings; the one that --target or HEADRACE_TARGET names is used, else dev.",
    "spark": "Settings of Spark.",
    "state_store": "Options of the state store.",
    "storage": "The directory of checkpoints and history, relative to the project.",
    "checkpoint_durability": "What a checkpoint survives by itself: process, its end; power_loss, the machine's too.",
    "metrics": "Where Prometheus reads the metrics of a running application.",
    "port": "The port on which they are served.",
    "address": "The address on which they are served; loopback without it.",
    "token": "What a reader has to show as a bearer token; needed for any address but loopback.",
    "hooks": "Webhooks and commands that get failures, recoveries and verdicts.",
    "on": "The events that it gets; all without it.",
    "webhook": "A URL that gets each event by POST, as JSON.",
    "command": "A command that gets each event on its standard input, as JSON.",
    "timeout": "How long one event may take.",
    "log": "The log of a running application.",
    "exit_on_failure": "Whether a query that fails ends the application, which a supervisor then starts again.",
    "telemetry": "What is sent on request; addresses are set by the variables OTEL_* and OPENLINEAGE_*.",
    "otlp": "Whether metrics and traces are sent to an OpenTelemetry collector.",
    "openlineage": "Whether the datasets that queries read and write are reported to OpenLineage.",
    "format": "text, or json: one object a line.",
    "max_size": "The size at which a new file begins, as 10m.",
    "keep": "How many old files stay.",
    "master": "Spark's master, as local[4] or spark://host:7077.",
    "vars": "Variables for the texts of this file.",
    "sql": "The path of a file with the SELECT.",
    "select": "The SELECT.",
    "description": "What it is for.",
    "refresh": "How often the table is recomputed while a query that reads it runs.",
    "sink": "Where the result is written.",
    "late": "Where the rows are written that it drops as late.",
    "mode": "Spark's output mode.",
    "trigger": "When a batch starts.",
    "on_change": "What a change does that only rows from then on follow: the start is refused, or goes forward.",
    "renamed_from": "The name that it had before, or several, the newest first: what is kept under it stays in use.",
    "state_budget": "The memory that its state may take before the application warns of it, as 2g.",
    "delete_when": "A condition over the result's columns: in update mode, a row that meets it is deleted by its key.",
    "restart": "When the application starts it again after a failure that passes by itself.",
    "limit": "After so many restarts the next failure is final.",
    "pause": "The time before the first restart, as 1 second; it doubles with each.",
    "longest_pause": "The longest time before a restart.",
    "quiet": "How long it has to run without failing until restarts are counted from zero again.",
    "watermark": "How late a row may come by the time in one of its columns.",
    "column": "The column with the event time.",
    "delay": "How late a row may come, as 2 hours.",
    "cdc": "How its rows, which are changes, change the table of the sink.",
}


def schema() -> Schema:
    """The JSON Schema of headrace.yml with the connectors that are installed here."""
    made = {
        "name": _TEXT,
        "modules": _NAMES,
        "sources": _by_name(_source()),
        "tables": _by_name(_select(TABLE_KEYS)),
        "views": _by_name(_select(SQL_KEYS)),
        "queries": _by_name(_query()),
        "targets": _by_name(_object(targets.KEYS, _settings())),
        **_settings(),
    }
    top = _object(KEYS, made)
    return {"$schema": DIALECT, "title": "headrace.yml", **top}


def _settings() -> dict[str, Schema]:
    """What stands at the top of the file and in a target."""
    return {
        "master": _TEXT,
        "storage": {"type": "string"},
        "worker_packages": {"type": "string"},
        "shared_paths": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "spark": _by_name(_TEXT),
        "state_store": _state_store(),
        targets.DURABILITY: _one_of(DURABILITIES),
        **_operations(),
        "vars": _by_name(_TEXT),
    }


def _operations() -> dict[str, Schema]:
    events = _or_variable(_one_of(HOOK_EVENTS))
    made: dict[str, Schema] = {
        "on": {"anyOf": [events, {"type": "array", "items": events}]},
        "webhook": {"type": "string"},
        "command": _NAMES,
        "timeout": _TEXT,
    }
    hook = {**_object(targets.HOOK_KEYS, made), **_exactly_one(("webhook", "command"))}
    log = {"format": _or_variable(_one_of(LOG_FORMATS)), "max_size": _TEXT, "keep": _TEXT}
    return {
        "metrics": {**_texts_of(targets.METRICS_KEYS), "required": ["port"]},
        "hooks": {"anyOf": [hook, {"type": "array", "items": hook}]},
        "log": _object(targets.LOG_KEYS, log),
        "exit_on_failure": _FLAG,
        "telemetry": _texts_of(targets.TELEMETRY_KEYS, _FLAG),
    }


def _state_store() -> Schema:
    made: dict[str, Schema] = {}
    for name, option in OPTIONS.items():
        words = option.takes.words if isinstance(option.takes, Choice) else ()
        switch = set(words) == {"true", "false"}
        value = {"type": "boolean"} if switch else _one_of(words) if words else {"type": "number"}
        made[name] = {**_or_variable(value), "description": f"{option.meaning}; {option.default} without it"}
    return _object(tuple(OPTIONS), made)


def _select(keys: tuple[str, ...]) -> Schema:
    """A SELECT as a text, or with `keys`, one of which holds the text or the path of its file."""
    refresh = {"anyOf": [_TEXT, _object(("every",), {"every": _TEXT})]}
    made = {**dict.fromkeys(SQL_KEYS, _TEXT), "refresh": refresh}
    return {"anyOf": [{"type": "string"}, {**_object(keys, made), **_exactly_one(("sql", "select"))}]}


def _query() -> Schema:
    timed = {**_texts_of(TIMED), "minProperties": 1, "maxProperties": 1}
    made = {
        **dict.fromkeys(SQL_KEYS, _TEXT),
        "sink": _sink(),
        "late": _sink(),
        "mode": _or_variable(_one_of(OUTPUT_MODES)),
        "trigger": {"anyOf": [{"type": "string"}, timed]},
        "on_change": _or_variable(_one_of(ON_CHANGE)),
        "renamed_from": _NAMES,
        "state_budget": _TEXT,
        "delete_when": _TEXT,
        "restart": {"anyOf": [_one_of([NEVER]), _texts_of(RESTART_KEYS)]},
        "cdc": _change_data(),
    }
    return {**_object(QUERY_KEYS, made), "required": ["sink"], **_exactly_one(("sql", "select"))}


def _change_data() -> Schema:
    docs = option_docs(ChangeData)
    special = {"stored_as_scd_type": _or_variable({"enum": list(SCD_TYPES)}), "ignore_null_updates": _FLAG}
    made = {
        option: {
            **special.get(option, _NAMES if option in NAMING else _TEXT),
            **_with_description(docs.get(option)),
        }
        for option in CDC_KEYS
    }
    return {**_object(CDC_KEYS, made), "required": required_options()}


def _source() -> Schema:
    kinds = registry.list_names("source")
    watermark = {**_texts_of(WATERMARK_KEYS), "required": list(WATERMARK_KEYS)}
    pair = {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2}
    made = {**_connectors("source"), "watermark": {"anyOf": [watermark, pair]}, "renamed_from": _NAMES}
    return {**_object((*kinds, *SOURCE_KEYS), made), **_exactly_one(kinds)}


def _sink() -> Schema:
    kinds = registry.list_names("sink")
    return {"anyOf": [_one_of(kinds), {**_object(kinds, _connectors("sink")), **_exactly_one(kinds)}]}


def _connectors(kind: registry.ConnectorKind) -> dict[str, Schema]:
    return {name: _connector(kind, name) for name in registry.list_names(kind)}


def _connector(kind: registry.ConnectorKind, name: str) -> Schema:
    """The options of a connector: keys and values, or one value in place of the first of them."""
    try:
        cls = registry.connector(kind, name)
    except HeadraceError:
        return {"description": f"This {kind} needs an extra that is not installed."}
    docs = option_docs(cls)
    names = registry.option_names(kind, name)
    made = {
        option: {**_or_variable(_texts(option_schema(cls, option))), **_with_description(docs.get(option))}
        for option in names
    }
    options: Schema = _object(names, made)
    if required := registry.required_options(cls):
        options["required"] = required
    first = [made[names[0]]] if names and not set(required) - {names[0]} else []
    nothing = [] if required else [_NOTHING]
    return {"anyOf": [options, *first, *nothing], **_with_description(docs.get(""))}


def option_docs(cls: type) -> dict[str, str]:
    """What a connector's docstring says of itself, under an empty name, and of its options."""
    docs: dict[str, str] = {"": (getdoc(cls) or "").partition("\n\n")[0]}
    for names, meaning in re.findall(r"^(\w+(?:, \w+)*): (.+(?:\n +.+)*)", getdoc(cls) or "", re.MULTILINE):
        docs |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return docs


def _texts(value: Schema) -> Schema:
    """Spark's own options are texts, and take numbers and switches as well."""
    if value.get("additionalProperties") == {"type": "string"}:
        return {**value, "additionalProperties": _TEXT}
    return value


def _object(keys: Iterable[str], made: Mapping[str, Schema]) -> Schema:
    """A mapping with these keys and no others."""
    properties = {
        key: {**made[key], **({} if "description" in made[key] else _with_description(_DOCS.get(key)))} for key in keys
    }
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _texts_of(keys: Collection[str], value: Schema = _TEXT) -> Schema:
    return _object(keys, dict.fromkeys(keys, value))


def _by_name(value: Schema) -> Schema:
    return {"type": ["object", "null"], "additionalProperties": value}


def _one_of(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def _exactly_one(keys: Iterable[str]) -> Schema:
    return {"oneOf": [{"required": [key]} for key in keys]}


def _or_variable(value: Schema) -> Schema:
    return {"anyOf": [value, _VARIABLE]} if value else {}


def _with_description(text: str | None) -> Schema:
    return {"description": " ".join(text.split())} if text else {}
