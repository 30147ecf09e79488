"""Which target a project is seen from, and its settings: of Spark, of the state store, and how it is watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from headrace.declare.variables import NO_HOME, expand_home
from headrace.errors import NOWHERE, Where, nearest
from headrace.loader.document import DocumentEntry, DocumentReading
from headrace.model import Target
from headrace.model.operations import HOOK_EVENTS, LOG_FORMATS, LOOPBACK, Hook, Log, Metrics, Operations, Telemetry
from headrace.model.project import DURABILITIES
from headrace.model.spark_settings import fault as setting_fault
from headrace.model.state_store import OPTIONS, PROVIDER_KEY, PROVIDERS
from headrace.redaction import remember_settings
from headrace.spark.jvm.preconditions import master_fault
from headrace.units import is_host, size_bytes, some_time

OPERATION_KEYS = ("metrics", "hooks", "log", "telemetry", "exit_on_failure")
METRICS_KEYS = ("port", "address", "token")
HOOK_KEYS = ("on", "webhook", "command", "timeout")
LOG_KEYS = ("format", "max_size", "keep")
TELEMETRY_KEYS = ("otlp", "openlineage")
_METRICS = "write metrics: {port: 9108}, and for another address: {port: 9108, address: 0.0.0.0, token: ${TOKEN}}"
_HOOK = "write for example hooks: [{on: [failure, recovery], webhook: ${ALERT_URL}}], or command: [./alert.sh]"
_LOG = "write for example log: {format: json, max_size: 10m, keep: 5}"
DURABILITY = "checkpoint_durability"
KEYS = (
    "master",
    "storage",
    "worker_packages",
    "shared_paths",
    "spark",
    "state_store",
    DURABILITY,
    *OPERATION_KEYS,
    "vars",
)
CHOICE = "HEADRACE_TARGET"
# Of every target, so that they stand at the top of the file alone.
OF_THE_PROJECT = ("name", "modules", "sources", "tables", "views", "queries", "targets")
Given = dict[str, tuple[str, Where]]


def choose(top: dict[str, DocumentEntry], reading: DocumentReading, asked: str | None, document: Where) -> Target:
    """The target that is asked for, by argument or by HEADRACE_TARGET; else `dev`, else the first.

    Its `vars` become known to `reading`, so that everything read afterwards may use them. Only the chosen target's
    texts are filled in, for another's variables need not be set here.
    """
    declared = reading.mapping(top.get("targets"), "targets", example="dev: {master: local[2]}")
    above = {key: f"write {key} at the top of headrace.yml, outside of targets" for key in OF_THE_PROJECT}
    entries = {
        name: reading.mapping(entry, f"target '{name}'", KEYS, elsewhere=above) for name, entry in declared.items()
    }
    usual = "dev" if "dev" in entries else next(iter(entries), "dev")
    wanted = asked if asked is not None else reading.variables.get(CHOICE) or usual
    if wanted not in entries and (entries or wanted != "dev"):
        by = "" if asked is not None else f", which {CHOICE} asks for"
        where = top["targets"].where if "targets" in top else document
        reading.fault("HR091", f"there is no target '{wanted}'{by}", nearest(wanted, entries or ["dev"]), where)
    keys = entries.get(wanted, {})
    whose = f"target '{wanted}'"
    reading.variables.vars_of = wanted if wanted in entries else ""
    with reading.lacking():
        reading.variables.vars = reading.texts(keys.get("vars"), f"{whose}, vars")
        spark = {
            **_settings(top.get("spark"), "spark", reading),
            **_settings(keys.get("spark"), f"{whose}, spark", reading),
        }
        operated = operations(top, keys, reading)
    master = reading.text(keys.get("master"), f"{whose}, master,")
    if master is not None and (wrong := master_fault(master)) is not None:
        reading.fault("HR125", f"{whose}: '{master}' {wrong[0]}", wrong[1], keys["master"].where)
    path = partial(reading.text, may_be_number=False)
    storage = path(keys.get("storage"), f"{whose}, storage,") or path(top.get("storage"), "storage")
    if storage and _in_home(storage, "storage", (keys.get("storage") or top["storage"]).where, reading) is None:
        storage = None
    shared = reading.many(keys.get("shared_paths"), f"{whose}, shared_paths", may_be_number=False)
    lines = {key: entry.where for key, entry in ({**top, **keys}).items() if key in KEYS}
    for entry in (top.get("spark"), keys.get("spark")):
        if entry is not None and isinstance(entry.value, dict):
            lines |= {key: value.where for key, value in entry.value.items()}
    return Target(
        name=wanted,
        master=master,
        storage=storage or Target.storage,
        worker_packages=path(keys.get("worker_packages"), f"{whose}, worker_packages,"),
        shared_paths=tuple(text for text, _ in shared),
        spark=MappingProxyType(spark),
        state_store=MappingProxyType(
            state_store(top.get("state_store"), keys.get("state_store"), whose, spark, reading)
        ),
        checkpoint_durability=reading.choose(
            keys.get(DURABILITY) or top.get(DURABILITY), DURABILITY, DURABILITIES, f"{DURABILITY} is"
        ),
        operations=operated,
        lacking=tuple(reading.variables.lacking),
        where=declared[wanted].where if wanted in declared else document,
        lines=lines,
    )


def _in_home(text: str, label: str, where: Where, reading: DocumentReading) -> Path | None:
    """A local path with its `~` filled in; None, with a finding, where that is not a home of this machine."""
    try:
        return expand_home(text)
    except ValueError as error:
        reading.fault("HR104", f"{label}: {error}", NO_HOME, where)
        return None


def _settings(entry: DocumentEntry | None, whose: str, reading: DocumentReading) -> dict[str, str]:
    """Settings of Spark, each judged where it stands."""
    values = reading.texts(entry, whose)
    for key, value in values.items():
        if (wrong := setting_fault(key, value)) is not None:
            where = entry.value[key].where if entry is not None and isinstance(entry.value, dict) else NOWHERE
            reading.fault("HR125", f"{whose}: {key} {wrong[0]}", wrong[1], where)
    return values


def state_store(
    project: DocumentEntry | None,
    target: DocumentEntry | None,
    whose: str,
    spark: Iterable[str],
    reading: DocumentReading,
) -> dict[str, str]:
    """Spark's settings for the options of the project and, over them, of the target; what is wrong goes to `reading`.

    `spark`: the keys that are also set as plain settings of Spark.
    """
    given = {**_read(project, "state_store", reading), **_read(target, f"{whose}, state_store", reading)}
    settings = {OPTIONS[name].spark_key: value for name, (value, _) in given.items()}
    plain = {key.lower() for key in spark}
    for name, (_, where) in given.items():
        switch = OPTIONS[name].needs
        if settings.get(PROVIDER_KEY) == PROVIDERS["hdfs"] and OPTIONS[name].is_of_rocksdb:
            message = f"state_store: {name} is an option of RocksDB, and the provider is hdfs"
            reading.fault("HR286", message, "remove it, or write provider: rocksdb", where)
        if switch is not None and given.get(switch, ("false", where))[0] != "true":
            message = f"state_store: {name} has no effect without {switch}"
            reading.fault("HR286", message, f"add {switch}: true, or remove it", where)
        if OPTIONS[name].spark_key.lower() in plain:
            message = f"state_store: {name} and spark: {OPTIONS[name].spark_key} set the same"
            reading.fault("HR286", message, "keep one of the two", where)
    return settings


def _read(entry: DocumentEntry | None, whose: str, reading: DocumentReading) -> Given:
    given: Given = {}
    for name, option in reading.mapping(entry, whose, tuple(OPTIONS)).items():
        text = reading.text(option, f"{whose}: {name}")
        if text is None:
            continue
        value = OPTIONS[name].read(text)
        if value is None:
            message = f"{whose}: {name} is {text!r}, and it takes {OPTIONS[name].takes}"
            reading.fault(
                "HR285", message, f"write one; without the option it is {OPTIONS[name].default}", option.where
            )
        else:
            given[name] = (value, option.where)
    return given


def operations(
    top: Mapping[str, DocumentEntry], keys: Mapping[str, DocumentEntry], reading: DocumentReading
) -> Operations:
    """What the target says, or else the top of the file."""
    entries = {key: keys.get(key) or top.get(key) for key in OPERATION_KEYS}
    return Operations(
        metrics=_metrics(entries["metrics"], reading),
        hooks=tuple(_hooks(entries["hooks"], reading)),
        log=_log(entries["log"], reading),
        telemetry=_telemetry(entries["telemetry"], reading),
        exit_on_failure=_switch(entries["exit_on_failure"], "exit_on_failure", "write exit_on_failure: true", reading),
    )


def _metrics(entry: DocumentEntry | None, reading: DocumentReading) -> Metrics | None:
    if entry is None or entry.value is None:
        return None
    keys = reading.mapping(entry, "metrics", METRICS_KEYS, example="port: 9108")
    texts = {key: reading.text(keys.get(key), f"metrics, {key},") for key in METRICS_KEYS}
    port = _number(texts["port"], "metrics, port", 0, 65_535, reading, keys.get("port") or entry, _METRICS)
    remember_settings({"token": texts["token"] or ""})
    settings = Metrics(port=port or 0, address=texts["address"] or LOOPBACK[0], token=texts["token"] or "")
    if not is_host(settings.address):
        message = f"metrics, address is '{settings.address}', which is neither an IP address nor the name of a host"
        reading.fault("HR104", message, _METRICS, keys["address"].where)
    elif settings.address not in LOOPBACK and not settings.token:
        message = f"metrics at {settings.address} can be read by others than this machine, and no token is set"
        reading.fault("HR104", message, "add token: ${METRICS_TOKEN}, or leave address out", keys["address"].where)
    return settings if port is not None else None


def _hooks(entry: DocumentEntry | None, reading: DocumentReading) -> list[Hook]:
    if entry is None or entry.value is None:
        return []
    items = entry.value if isinstance(entry.value, list) else [entry]
    return [hook for hook in (_hook(item, reading) for item in items) if hook is not None]


def _hook(entry: DocumentEntry, reading: DocumentReading) -> Hook | None:
    keys = reading.mapping(entry, "a hook", HOOK_KEYS, example="webhook: URL")
    url = reading.text(keys.get("webhook"), "hooks, webhook,") or ""
    words = reading.many(keys.get("command"), "hooks, command,")
    command = tuple(text for text, _ in words)
    if command and "/" in command[0]:
        program = _in_home(command[0], "hooks, command", keys["command"].where, reading) or Path(command[0])
        command = (str(reading.variables.root / program), *command[1:])
    events = [text for text, _ in reading.many(keys["on"], "hooks, on,")] if "on" in keys else list(HOOK_EVENTS)
    if not events:
        reading.fault("HR873", "a hook has no event, so that it is never called", _HOOK, keys["on"].where)
    for event in events:
        if event not in HOOK_EVENTS:
            reading.fault("HR873", f"a hook has no event '{event}'", nearest(event, HOOK_EVENTS), keys["on"].where)
    if bool(url) == bool(command) and isinstance(entry.value, dict):
        message = "a hook has both a webhook and a command" if url else "a hook has neither a webhook nor a command"
        reading.fault("HR873", message, _HOOK, entry.where)
        return None
    if url and (wrong := _url_fault(url)):
        reading.fault("HR873", f"a webhook {wrong}", _HOOK, keys["webhook"].where)
        return None
    remember_settings({"token": url})
    timeout = reading.parse(keys.get("timeout"), "hooks, timeout", some_time, "write for example 10 seconds")
    on = tuple(event for event in HOOK_EVENTS if event in events)
    return Hook(on=on, webhook=url, command=command, timeout=timeout or Hook.timeout, where=entry.where)


def _url_fault(url: str) -> str:
    """What is wrong with a webhook's URL, which may hold a secret; empty where nothing is."""
    if not url.startswith(("http://", "https://")):
        return "is not a URL that begins with http:// or https://"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is a URL whose host or port cannot be read"
    if not is_host(parts.hostname or ""):
        return "is a URL that names no host"
    return "is a URL with a space in it" if " " in url else ""


def _log(entry: DocumentEntry | None, reading: DocumentReading) -> Log | None:
    if entry is None or entry.value is None:
        return None
    keys = reading.mapping(entry, "log", LOG_KEYS, example="format: json")
    form = reading.choose(keys.get("format"), "log, format,", LOG_FORMATS, "log has no format")
    texts = {key: reading.text(keys.get(key), f"log, {key},") for key in ("max_size", "keep")}
    base = Log()
    size = size_bytes(texts["max_size"]) if texts["max_size"] else base.max_bytes
    if size is None or size < 10_000:
        reading.fault(
            "HR104", f"log, max_size: '{texts['max_size']}' is not a size from 10k", _LOG, keys["max_size"].where
        )
    keep: int | None = base.keep
    if texts["keep"] is not None:
        keep = _number(texts["keep"], "log, keep", 1, 1000, reading, keys["keep"], _LOG)
    return Log(format=form, max_bytes=size or base.max_bytes, keep=keep or base.keep)


def _telemetry(entry: DocumentEntry | None, reading: DocumentReading) -> Telemetry:
    keys = reading.mapping(entry, "telemetry", TELEMETRY_KEYS, example="otlp: true")
    fix = "write true or false; addresses are set by the variables OTEL_EXPORTER_OTLP_* and OPENLINEAGE_*"
    return Telemetry(**{key: _switch(keys.get(key), f"telemetry, {key}", fix, reading) for key in TELEMETRY_KEYS})


def _switch(entry: DocumentEntry | None, label: str, fix: str, reading: DocumentReading) -> bool:
    text = reading.text(entry, label) or "false"
    if text not in ("true", "false"):
        reading.fault("HR104", f"{label} is '{text}', and takes true or false", fix, entry.where if entry else NOWHERE)
    return text == "true"


def _number(
    text: str | None, label: str, least: int, most: int, reading: DocumentReading, at: DocumentEntry, fix: str
) -> int | None:
    if text is not None and text.isdecimal() and text.isascii() and least <= int(text) <= most:
        return int(text)
    problem = "is missing" if text is None else f"is '{text}', and takes a whole number from {least} to {most}"
    reading.fault("HR104", f"{label} {problem}", fix, at.where)
    return None
