"""Which target a project is seen from, and its settings, those of the state store among them."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from headrace.errors import NOWHERE, Where, nearest
from headrace.load import operations
from headrace.load.document import DocumentEntry, DocumentReading
from headrace.model import Target
from headrace.model.project import DURABILITIES, Durability
from headrace.model.spark_settings import fault as setting_fault
from headrace.model.state_store import OPTIONS, PROVIDER_KEY, PROVIDERS
from headrace.spark.jvm.preconditions import master_fault

DURABILITY = "checkpoint_durability"
KEYS = (
    "master",
    "storage",
    "worker_packages",
    "shared_paths",
    "spark",
    "state_store",
    DURABILITY,
    *operations.KEYS,
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
    wanted = (
        asked
        if asked is not None
        else reading.variables.get(CHOICE) or ("dev" if "dev" in entries else next(iter(entries), "dev"))
    )
    if wanted not in entries and (entries or wanted != "dev"):
        by = "" if asked is not None else f", which {CHOICE} asks for"
        where = top["targets"].where if "targets" in top else document
        reading.fault("HR091", f"there is no target '{wanted}'{by}", nearest(wanted, entries or ["dev"]), where)
    keys = entries.get(wanted, {})
    whose = f"target '{wanted}'"
    reading.variables.vars_of = wanted if wanted in entries else ""
    base = Target()
    with reading.lacking():
        reading.variables.vars = reading.texts(keys.get("vars"), f"{whose}, vars")
        spark = {
            **_settings(top.get("spark"), "spark", reading),
            **_settings(keys.get("spark"), f"{whose}, spark", reading),
        }
        operated = operations.operations(top, keys, reading)
    master = reading.text(keys.get("master"), f"{whose}, master,")
    if master is not None and (wrong := master_fault(master)) is not None:
        reading.fault("HR125", f"{whose}: '{master}' {wrong[0]}", wrong[1], keys["master"].where)
    storage = _path(keys, "storage", f"{whose}, storage,", reading) or _path(top, "storage", "storage", reading)
    lines = {key: entry.where for key, entry in ({**top, **keys}).items() if key in KEYS}
    for entry in (top.get("spark"), keys.get("spark")):
        if entry is not None and isinstance(entry.value, dict):
            lines |= {key: each.where for key, each in entry.value.items()}
    return Target(
        name=wanted,
        master=master,
        storage=storage or base.storage,
        worker_packages=_path(keys, "worker_packages", f"{whose}, worker_packages,", reading),
        shared_paths=tuple(text for text, _ in _shared(keys, whose, reading)),
        spark=MappingProxyType(spark),
        state_store=MappingProxyType(
            state_store(top.get("state_store"), keys.get("state_store"), whose, spark, reading)
        ),
        checkpoint_durability=_durability(keys.get(DURABILITY) or top.get(DURABILITY), reading),
        operations=operated,
        lacking=tuple(reading.variables.lacking),
        where=declared[wanted].where if wanted in declared else document,
        lines=lines,
    )


def _path(keys: dict[str, DocumentEntry], key: str, what: str, reading: DocumentReading) -> str | None:
    return reading.text(keys.get(key), what, may_be_number=False)


def _shared(keys: dict[str, DocumentEntry], whose: str, reading: DocumentReading) -> list[tuple[str, Where]]:
    entry = keys.get("shared_paths")
    return [] if entry is None else reading.many(entry, f"{whose}, shared_paths", may_be_number=False)


def _settings(entry: DocumentEntry | None, whose: str, reading: DocumentReading) -> dict[str, str]:
    """Settings of Spark, each judged where it stands."""
    values = reading.texts(entry, whose)
    for key, value in values.items():
        if (wrong := setting_fault(key, value)) is not None:
            where = entry.value[key].where if entry is not None and isinstance(entry.value, dict) else NOWHERE
            reading.fault("HR125", f"{whose}: {key} {wrong[0]}", wrong[1], where)
    return values


def _durability(entry: DocumentEntry | None, reading: DocumentReading) -> Durability:
    text = reading.text(entry, DURABILITY)
    for known in DURABILITIES:
        if text == known:
            return known
    if entry is not None and text:
        reading.fault("HR104", f"{DURABILITY} is '{text}'", nearest(text, DURABILITIES), entry.where)
    return Target().checkpoint_durability


def state_store(
    project: DocumentEntry | None,
    target: DocumentEntry | None,
    whose: str,
    spark: Iterable[str],
    reading: DocumentReading,
) -> dict[str, str]:
    """Spark's settings for the options of the project and, over them, of the target; what is wrong goes to `reading`.

    `spark`: the keys that are set beside it as plain settings of Spark.
    """
    given = {**_read(project, "state_store", reading), **_read(target, f"{whose}, state_store", reading)}
    settings = {OPTIONS[name].spark_key: value for name, (value, _) in given.items()}
    if settings.get(PROVIDER_KEY) == PROVIDERS["hdfs"]:
        _only_rocksdb(given, reading)
    _without_effect(given, reading)
    plain = {key.lower() for key in spark}
    for name, (_, where) in given.items():
        if OPTIONS[name].spark_key.lower() in plain:
            what = f"state_store: {name} and spark: {OPTIONS[name].spark_key} set the same"
            reading.fault("HR286", what, "keep one of the two", where)
    return settings


def _read(entry: DocumentEntry | None, whose: str, reading: DocumentReading) -> Given:
    given: Given = {}
    for name, each in reading.mapping(entry, whose, tuple(OPTIONS)).items():
        text = reading.text(each, f"{whose}: {name}")
        if text is None:
            continue
        value = OPTIONS[name].read(text)
        if value is None:
            what = f"{whose}: {name} is {text!r}, and it takes {OPTIONS[name].takes}"
            reading.fault("HR285", what, f"write one; without the option it is {OPTIONS[name].default}", each.where)
        else:
            given[name] = (value, each.where)
    return given


def _only_rocksdb(given: Given, reading: DocumentReading) -> None:
    for name, (_, where) in given.items():
        if OPTIONS[name].is_of_rocksdb:
            what = f"state_store: {name} is an option of RocksDB, and the provider is hdfs"
            reading.fault("HR286", what, "remove it, or write provider: rocksdb", where)


def _without_effect(given: Given, reading: DocumentReading) -> None:
    for name, (_, where) in given.items():
        switch = OPTIONS[name].needs
        if switch is not None and given.get(switch, ("false", where))[0] != "true":
            what = f"state_store: {name} has no effect without {switch}"
            reading.fault("HR286", what, f"add {switch}: true, or remove it", where)
