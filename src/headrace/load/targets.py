"""Which target a project is seen from, and its settings."""

from __future__ import annotations

from types import MappingProxyType

from headrace.errors import NOWHERE, Where, nearest
from headrace.load import operations
from headrace.load.document import Entry, Reading
from headrace.load.state_store import state_store
from headrace.model import Target
from headrace.model.project import DURABILITIES, Durability
from headrace.model.spark_settings import fault as setting_fault
from headrace.spark.master_url import master_fault

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


def choose(top: dict[str, Entry], reading: Reading, asked: str | None, document: Where) -> Target:
    """The target that is asked for, by argument or by HEADRACE_TARGET; else `dev`, else the first.

    Its `vars` become known to `reading`, so that everything read afterwards may use them. Only the chosen target's
    texts are filled in, for another's variables need not be set here.
    """
    declared = reading.mapping(top.get("targets"), "targets", example="dev: {master: local[2]}")
    entries = {name: reading.mapping(entry, f"target '{name}'", KEYS) for name, entry in declared.items()}
    wanted = (
        asked
        if asked is not None
        else reading.variables.get(CHOICE) or ("dev" if "dev" in entries else next(iter(entries), "dev"))
    )
    if wanted not in entries and (entries or wanted != "dev"):
        by = "" if asked is not None else f", which {CHOICE} asks for"
        where = top["targets"].where if "targets" in top else document
        reading.fault("HR108", f"there is no target '{wanted}'{by}", nearest(wanted, entries or ["dev"]), where)
    keys = entries.get(wanted, {})
    whose = f"target '{wanted}'"
    reading.variables.vars_of = wanted if wanted in entries else ""
    reading.variables.vars = reading.texts(keys.get("vars"), f"{whose}, vars")
    base = Target()
    spark = {
        **_settings(top.get("spark"), "spark", reading),
        **_settings(keys.get("spark"), f"{whose}, spark", reading),
    }
    master = reading.text(keys.get("master"), f"{whose}, master,")
    if master is not None and (wrong := master_fault(master)) is not None:
        reading.fault("HR125", f"{whose}: '{master}' {wrong[0]}", wrong[1], keys["master"].where)
    storage = reading.text(keys.get("storage"), f"{whose}, storage,") or reading.text(top.get("storage"), "storage")
    return Target(
        name=wanted,
        master=master,
        storage=storage or base.storage,
        worker_packages=reading.text(keys.get("worker_packages"), f"{whose}, worker_packages,"),
        shared_paths=tuple(text for text, _ in _shared(keys, whose, reading)),
        spark=MappingProxyType(spark),
        state_store=MappingProxyType(
            state_store(top.get("state_store"), keys.get("state_store"), whose, spark, reading)
        ),
        checkpoint_durability=_durability(keys.get(DURABILITY) or top.get(DURABILITY), reading),
        operations=operations.operations(top, keys, reading),
        where=declared[wanted].where if wanted in declared else document,
    )


def _shared(keys: dict[str, Entry], whose: str, reading: Reading) -> list[tuple[str, Where]]:
    return reading.many(keys["shared_paths"], f"{whose}, shared_paths") if "shared_paths" in keys else []


def _settings(entry: Entry | None, whose: str, reading: Reading) -> dict[str, str]:
    """Settings of Spark, each judged where it stands."""
    values = reading.texts(entry, whose)
    for key, value in values.items():
        if (wrong := setting_fault(key, value)) is not None:
            where = entry.value[key].where if entry is not None and isinstance(entry.value, dict) else NOWHERE
            reading.fault("HR125", f"{whose}: {key} {wrong[0]}", wrong[1], where)
    return values


def _durability(entry: Entry | None, reading: Reading) -> Durability:
    text = reading.text(entry, DURABILITY)
    for known in DURABILITIES:
        if text == known:
            return known
    if entry is not None and text:
        reading.fault("HR420", f"{DURABILITY} is '{text}'", nearest(text, DURABILITIES), entry.where)
    return Target().checkpoint_durability
