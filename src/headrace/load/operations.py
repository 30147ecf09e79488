"""How the application is watched, and when it ends: `metrics`, `hooks`, `log`, `telemetry` and `exit_on_failure`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import NOWHERE, nearest
from headrace.load.document import DocumentEntry, DocumentReading
from headrace.model.operations import HOOK_EVENTS, LOG_FORMATS, LOOPBACK, Hook, Log, Metrics, Operations, Telemetry
from headrace.redaction import remember_settings
from headrace.units import Duration, is_host, size_bytes

KEYS = ("metrics", "hooks", "log", "telemetry", "exit_on_failure")
METRICS_KEYS = ("port", "address", "token")
HOOK_KEYS = ("on", "webhook", "command", "timeout")
LOG_KEYS = ("format", "max_size", "keep")
TELEMETRY_KEYS = ("otlp", "openlineage")
_METRICS = "write metrics: {port: 9108}, and for another address: {port: 9108, address: 0.0.0.0, token: ${TOKEN}}"
_HOOK = "write for example hooks: [{on: [failure, recovery], webhook: ${ALERT_URL}}], or command: [./alert.sh]"
_LOG = "write for example log: {format: json, max_size: 10m, keep: 5}"


def operations(
    top: Mapping[str, DocumentEntry], keys: Mapping[str, DocumentEntry], reading: DocumentReading
) -> Operations:
    """What the target says, or else the top of the file."""
    found = {key: keys.get(key) or top.get(key) for key in KEYS}
    return Operations(
        metrics=_metrics(found["metrics"], reading),
        hooks=tuple(_hooks(found["hooks"], reading)),
        log=_log(found["log"], reading),
        telemetry=_telemetry(found["telemetry"], reading),
        exit_on_failure=_exit_on_failure(found["exit_on_failure"], reading),
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
        what = f"metrics, address is '{settings.address}', which is neither an IP address nor the name of a host"
        reading.fault("HR104", what, _METRICS, keys["address"].where)
    elif settings.address not in LOOPBACK and not settings.token:
        what = f"metrics at {settings.address} can be read by others than this machine, and no token is set"
        reading.fault("HR104", what, "add token: ${METRICS_TOKEN}, or leave address out", keys["address"].where)
    return settings if port is not None else None


def _hooks(entry: DocumentEntry | None, reading: DocumentReading) -> list[Hook]:
    if entry is None or entry.value is None:
        return []
    items = entry.value if isinstance(entry.value, list) else [entry]
    return [hook for hook in (_hook(item, reading) for item in items) if hook is not None]


def _hook(entry: DocumentEntry, reading: DocumentReading) -> Hook | None:
    keys = reading.mapping(entry, "a hook", HOOK_KEYS, example="webhook: URL")
    url = reading.text(keys.get("webhook"), "hooks, webhook,") or ""
    words = reading.many(keys["command"], "hooks, command,") if "command" in keys else []
    command = tuple(text for text, _ in words)
    if command and "/" in command[0]:
        command = (str(reading.variables.root / Path(command[0]).expanduser()), *command[1:])
    events = [text for text, _ in reading.many(keys["on"], "hooks, on,")] if "on" in keys else list(HOOK_EVENTS)
    if not events:
        reading.fault("HR873", "a hook has no event, so that it is never called", _HOOK, keys["on"].where)
    for event in events:
        if event not in HOOK_EVENTS:
            reading.fault("HR873", f"a hook has no event '{event}'", nearest(event, HOOK_EVENTS), keys["on"].where)
    if bool(url) == bool(command) and isinstance(entry.value, dict):
        what = "a hook has both a webhook and a command" if url else "a hook has neither a webhook nor a command"
        reading.fault("HR873", what, _HOOK, entry.where)
        return None
    if url and (wrong := _url_fault(url)):
        reading.fault("HR873", f"a webhook {wrong}", _HOOK, keys["webhook"].where)
        return None
    remember_settings({"token": url})
    timeout = Hook.timeout
    text = reading.text(keys.get("timeout"), "hooks, timeout,")
    if text is not None:
        try:
            timeout = Duration.parse(text)
            if not timeout.seconds:
                raise ValueError(f"'{text}' is no time at all")
        except ValueError as error:
            reading.fault("HR104", f"hooks, timeout: {error}", "write for example 10 seconds", keys["timeout"].where)
    on = tuple(event for event in HOOK_EVENTS if event in events)
    return Hook(on=on, webhook=url, command=command, timeout=timeout, where=entry.where)


def _url_fault(url: str) -> str:
    """What is wrong with a webhook's URL, which may hold a secret; empty where nothing is."""
    if not url.startswith(("http://", "https://")):
        return "is no URL that begins with http:// or https://"
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
    texts: dict[str, Any] = {key: reading.text(keys.get(key), f"log, {key},") for key in LOG_KEYS}
    base = Log()
    form = texts["format"] or base.format
    if form not in LOG_FORMATS:
        reading.fault("HR104", f"log has no format '{form}'", nearest(form, LOG_FORMATS), keys["format"].where)
    size = size_bytes(texts["max_size"]) if texts["max_size"] else base.max_bytes
    if size is None or size < 10_000:
        reading.fault(
            "HR104", f"log, max_size: '{texts['max_size']}' is no size from 10k", _LOG, keys["max_size"].where
        )
    keep: int | None = base.keep
    if texts["keep"] is not None:
        keep = _number(texts["keep"], "log, keep", 1, 1000, reading, keys["keep"], _LOG)
    return Log(format="json" if form == "json" else "text", max_bytes=size or base.max_bytes, keep=keep or base.keep)


def _telemetry(entry: DocumentEntry | None, reading: DocumentReading) -> Telemetry:
    if entry is None or entry.value is None:
        return Telemetry()
    keys = reading.mapping(entry, "telemetry", TELEMETRY_KEYS, example="otlp: true")
    found = {}
    for key in TELEMETRY_KEYS:
        text = reading.text(keys.get(key), f"telemetry, {key},") or "false"
        if text not in ("true", "false"):
            fix = "write true or false; addresses are set by the variables OTEL_EXPORTER_OTLP_* and OPENLINEAGE_*"
            reading.fault("HR104", f"telemetry, {key} is '{text}', and takes true or false", fix, keys[key].where)
        found[key] = text == "true"
    return Telemetry(**found)


def _exit_on_failure(entry: DocumentEntry | None, reading: DocumentReading) -> bool:
    text = reading.text(entry, "exit_on_failure") or "false"
    if text not in ("true", "false"):
        what, fix = f"exit_on_failure is '{text}', and takes true or false", "write exit_on_failure: true"
        reading.fault("HR104", what, fix, entry.where if entry else NOWHERE)
    return text == "true"


def _number(
    text: str | None, what: str, least: int, most: int, reading: DocumentReading, at: DocumentEntry, fix: str
) -> int | None:
    if text is not None and text.isdecimal() and text.isascii() and least <= int(text) <= most:
        return int(text)
    said = "is missing" if text is None else f"is '{text}', and takes a whole number from {least} to {most}"
    reading.fault("HR104", f"{what} {said}", fix, at.where)
    return None
