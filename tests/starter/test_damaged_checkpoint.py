"""A start over a damaged checkpoint gives the exact result, or is refused with one finding; never anything else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.api import load, run
from headrace.errors import Finding
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from tests.registered import layout_in
from tests.rounds import rounds
from tests.runner.projects import land, rows, write_project
from tests.runner.test_run import FRUIT, TOTALS, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BEFORE, AFTER = {"apple": 4, "pear": 2}, {"apple": 4, "pear": 2, "fig": 7}
Damage = Callable[[Path], object]


def files(home: Path, name: str) -> list[Path]:
    """One file by its name; that of a state has an id behind its version where the format is the second."""
    candidates = [home / name] if (home / name).parent.exists() else []
    return list(home.glob(re.sub(r"(\d)\.changelog", r"\1[._]*changelog", name))) or candidates


def remove(*names: str) -> Damage:
    return lambda home: [file.unlink() for name in names for file in files(home, name)]


def write(name: str, content: bytes) -> Damage:
    return lambda home: [file.write_bytes(content) for file in files(home, name)]


def both(*damages: Damage) -> Damage:
    return lambda home: [damage(home) for damage in damages]


KILLED = remove("checkpoint/commits/1", "checkpoint/commits/.1.crc")
# By name: the damage, and the finding that refuses the start; None: the start gives the exact result.
DAMAGES: dict[str, tuple[Damage, str | None]] = {
    "nothing, killed in a batch": (KILLED, None),
    "archive lost, killed in a batch": (both(KILLED, remove("archive.jsonl")), None),
    "archive damaged, killed in a batch": (both(KILLED, write("archive.jsonl", b"\xff\n{}\n")), None),
    "offsets before, which the archive has": (remove("checkpoint/offsets/0"), None),
    "schema of the state": (remove("checkpoint/state/0/0/_metadata/schema"), None),
    "checksums": (
        both(
            write("checkpoint/offsets/.1.crc", b""),
            write("checkpoint/sources/events/.1.crc", b"garbage"),
            remove("checkpoint/state/0/0/.2.changelog.crc"),
        ),
        None,
    ),
    # What the sink's ledger keeps is made again from it.
    "offsets before, which the archive has not": (remove("checkpoint/offsets/0", "archive.jsonl"), None),
    "changelog": (write("checkpoint/state/0/0/2.changelog", b""), None),
    "changelog of both partitions": (
        both(remove("checkpoint/state/0/0/2.changelog"), write("checkpoint/state/0/1/2.changelog", b"")), None
    ),
    "older changelog": (remove("checkpoint/state/0/0/1.changelog"), None),
    "operator": (remove("checkpoint/state/0/_metadata/metadata"), "HR516"),
    "all state": (lambda home: shutil.rmtree(home / "checkpoint" / "state"), "HR527"),
    "source log": (remove("checkpoint/sources/events/1"), None),
    "manifest": (write("manifest.jsonl", b"\xff"), "HR584"),
}  # fmt: skip


# What each of these shows, others show in `make test`: test_power_cut loses logs and states as well.
FURTHER = (
    *("archive lost, killed in a batch", "offsets before, which the archive has", "schema of the state", "checksums"),
    *("changelog of both partitions", "older changelog"),
)


@pytest.mark.usefixtures("checkpoint_format")
@pytest.mark.parametrize("further", rounds([False, True]), ids=["usual", "further"])
def test_a_start_is_exact_or_refused(tmp_path: Path, spark: SparkSession, further: bool) -> None:
    root, whole = write_project(tmp_path / "p", TOTALS, batches=FRUIT), tmp_path / "whole"
    assert run(load(root), spark=spark).exit_code == 0
    land(root, 2, [{"name": "fig", "amount": 7}])
    root.rename(whole)
    outcomes = {}
    tried = {name: damage for name, damage in DAMAGES.items() if (name in FURTHER) is further}
    for name, (damage, _) in tried.items():
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(whole, root)
        damage(layout_in(root / ".headrace", "totals").home)
        outcomes[name] = outcome(root, spark)
    assert outcomes == {name: (code, BEFORE if code else AFTER) for name, (_, code) in tried.items()}


@pytest.mark.parametrize("damage", rounds([remove("metadata"), write("metadata", b"{")]), ids=["lost", "cut off"])
def test_the_advice_for_a_lost_id_names_it_and_leads_to_the_exact_result(
    tmp_path: Path, spark: SparkSession, damage: Damage
) -> None:
    root = write_project(tmp_path / "p", TOTALS, batches=FRUIT)
    assert run(load(root), spark=spark).exit_code == 0
    land(root, 2, [{"name": "fig", "amount": 7}])
    file = layout_in(root / ".headrace", "totals").checkpoint / "metadata"
    (file.parent / ".metadata.crc").unlink()
    damage(file.parent)
    (refused,) = run(load(root), spark=spark).outcomes
    assert refused.finding is not None
    assert refused.finding.code == "HR503"
    assert inspect_checkpoint(load(root), load(root).queries["totals"]).findings[0].fix == refused.finding.fix
    [advised] = re.findall(r"write (\S+) into it", refused.finding.fix)
    file.write_text(advised)
    assert outcome(root, spark) == (None, AFTER)


JOIN = """
others = hr.source.files("landing", format="json", schema="name STRING, amount INT")


@hr.query(sink=hr.sink.sqlite("out.db", table="pairs"), mode="append", trigger=hr.available_now)
def pairs(events, others):
    return events.join(others.withColumnRenamed("amount", "other"), "name")
"""


def test_a_join_of_streams_whose_state_is_lost_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    root = write_project(tmp_path / "p", JOIN, batches=FRUIT[:1])
    assert run(load(root), spark=spark).exit_code == 0
    shutil.rmtree(layout_in(root / ".headrace", "pairs").home / "checkpoint/state")
    (refused,) = run(load(root), spark=spark).outcomes
    assert refused.finding is not None
    assert refused.finding.code == "HR527"


WITHOUT_LEDGER = """
import json
from pathlib import Path


def keep(frame, batch):
    found = {row["name"]: row["amount"] for row in frame.collect()}
    Path(__file__).with_name(f"batch-{batch}.json").write_text(json.dumps(found))


@hr.query(sink=hr.sink.foreach_batch(keep, idempotent=True), mode="update", trigger=hr.available_now)
def totals(events):
    return events.groupBy("name").agg(F.sum("amount").alias("amount"))
"""


@pytest.mark.usefixtures("checkpoint_format")
def test_the_fix_for_a_lost_newest_state_leads_to_the_exact_result(tmp_path: Path, spark: SparkSession) -> None:
    """No ledger can bring it back, so the user makes the last batch come again."""
    root = write_project(tmp_path / "p", WITHOUT_LEDGER, batches=FRUIT)
    assert run(load(root), spark=spark).exit_code == 0
    land(root, 2, [{"name": "fig", "amount": 7}])
    checkpoint = layout_in(root / ".headrace", "totals").home / "checkpoint"
    for partition in ("0", "1"):
        write(f"state/0/{partition}/2.changelog", b"")(checkpoint)
    (refused,) = run(load(root), spark=spark).outcomes
    assert refused.finding is not None
    assert refused.finding.code == "HR516"
    assert refused.finding.fix.startswith("delete commits/1 and commits/.1.crc")
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    assert run(load(root), spark=spark).exit_code == 0
    totals: dict[str, int] = {}
    for batch in range(3):
        totals |= json.loads((root / f"batch-{batch}.json").read_text())
    assert totals == AFTER


def outcome(root: Path, spark: SparkSession) -> tuple[str | None, dict[str, int]]:
    """What refused the start, and what the table holds."""
    recorder = Recorder()
    (end,) = run(load(root), spark=spark, reporter=recorder).outcomes
    errors = {finding.code for finding in recorder.all(Finding) if finding.severity == "error"}
    assert errors <= {end.finding.code if end.finding is not None else None}
    totals = dict(rows(root / "out.db", "SELECT name, amount FROM totals"))
    return None if end.finding is None else end.finding.code, totals
