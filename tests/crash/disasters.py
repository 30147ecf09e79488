"""Faults of the soak other than deaths: two copies of one storage, a network that fails, and a damaged checkpoint."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.crash.drivers import Driver, KillAt

if TYPE_CHECKING:
    from tests.crash.soak import Soak

LONGEST_RUN_SECONDS = 240
# The logs of a checkpoint in which damage shows: those that Spark writes in each batch.
NEWEST = 2


def copies(soak: Soak) -> str:
    """A storage and a copy of it plan one batch over different files; one of the two continues, the other is refused.

    The copy is made before the batch is planned, as a backup is. The first driver dies on one side of its transaction.
    """
    copy = soak.root / ".copy"
    if not soak.storage.exists():
        assert soak.run() == 0, soak.end_of_log()
    shutil.copytree(soak.storage, copy)
    query = soak.chance.choice(["action_counts", "every_event"])
    moment = soak.chance.choice(["before-transaction", "after-transaction"])
    kill = KillAt(moment, len(soak.batches(query)))  # type: ignore[arg-type]
    first = Driver(soak.root, kill=kill).wait(LONGEST_RUN_SECONDS)
    soak.land()
    soak.land()
    with soak.configure(storage=copy.name, files=3):
        second = soak.run()
    again = soak.run()
    assert 0 in (second, again), f"neither storage continues: {soak.end_of_log()}"
    if again:
        shutil.rmtree(soak.storage)
        copy.rename(soak.storage)
    else:
        shutil.rmtree(copy)
    return f"two copies, the first died {kill}: {first}, the copy: {second}, the first again: {again}"


def network(soak: Soak) -> str:
    """Something happens on the way to the database while a driver runs."""
    proxy = soak.proxy
    assert proxy is not None
    faults: dict[str, Callable[[], None]] = {
        "connections cut": proxy.cut,
        "connections half-open": proxy.stall_open,
        "answer of a COMMIT lost": proxy.swallow_commit_answer,
        "answer of a COMMIT lost, half-open": lambda: proxy.swallow_commit_answer(then="stall"),
        "COMMIT lost": proxy.swallow_commit,
        "COMMIT lost, half-open": lambda: proxy.swallow_commit(then="stall"),
        "slow": lambda: proxy.delay(0.05),
    }
    name = soak.chance.choice(sorted(faults))
    timer = threading.Timer(soak.chance.uniform(2.0, 9.0), faults[name])
    driver = Driver(soak.root)
    timer.start()
    try:
        code = driver.wait(LONGEST_RUN_SECONDS)
    finally:
        timer.cancel()
        timer.join(LONGEST_RUN_SECONDS)
        proxy.serve()
    return f"network ({name}): {code}{soak.last_finding()}"


def damage(soak: Soak) -> str:
    """A file of a checkpoint is damaged; the next start is exact, or is refused and exact once the file is back."""
    Driver(soak.root).kill_after(soak.chance.uniform(6.0, 11.0))
    soak.check()
    backup = soak.root / ".backup"
    shutil.copytree(soak.storage, backup)
    files = sorted(_newest(soak.storage))
    if not files:
        shutil.rmtree(backup)
        return "nothing to damage yet"
    file = soak.chance.choice(files)
    damage_done = _damage(file, soak.chance)
    code = soak.run()
    if code:
        shutil.rmtree(soak.storage)
        backup.rename(soak.storage)
        again = soak.run()
        assert again == 0, f"with the file back: {again}; {soak.end_of_log()}"
    else:
        shutil.rmtree(backup)
    return f"{file.relative_to(soak.storage)} {damage_done}: {code}{soak.last_finding() if code else ''}"


def _newest(storage: Path) -> Iterator[Path]:
    """The newest files of each log and state directory of each checkpoint."""
    for checkpoint in storage.glob("queries/*/g*/checkpoint"):
        for folder in (path for path in (checkpoint, *checkpoint.rglob("*")) if path.is_dir()):
            files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
            yield from sorted(files, key=lambda path: path.stat().st_mtime_ns)[-NEWEST:]


def _damage(file: Path, chance: Random) -> str:
    """Damage `file` as power cuts and people do; returns how."""
    how = chance.choice(["removed", "emptied", "cut off", "overwritten"])
    content = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    if how == "removed":
        file.unlink()
    else:
        wrong = {"emptied": b"", "cut off": content[: len(content) // 2], "overwritten": bytes(len(content))}
        file.write_bytes(wrong[how])
    time.sleep(0.01)
    return how
