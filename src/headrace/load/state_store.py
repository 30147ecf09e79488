"""The section `state_store` of headrace.yml: options of the state store become settings of Spark."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import Where
from headrace.load.document import Entry, Reading
from headrace.model.state_store import OPTIONS, PROVIDER_KEY, PROVIDERS

Given = dict[str, tuple[str, Where]]


def state_store(
    project: Entry | None, target: Entry | None, whose: str, spark: Iterable[str], reading: Reading
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


def _read(entry: Entry | None, whose: str, reading: Reading) -> Given:
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


def _only_rocksdb(given: Given, reading: Reading) -> None:
    for name, (_, where) in given.items():
        if OPTIONS[name].is_of_rocksdb:
            what = f"state_store: {name} is an option of RocksDB, and the provider is hdfs"
            reading.fault("HR286", what, "remove it, or write provider: rocksdb", where)


def _without_effect(given: Given, reading: Reading) -> None:
    for name, (_, where) in given.items():
        switch = OPTIONS[name].needs
        if switch is not None and given.get(switch, ("false", where))[0] != "true":
            what = f"state_store: {name} has no effect without {switch}"
            reading.fault("HR286", what, f"add {switch}: true, or remove it", where)
