"""A checkpoint handed from one way of execution to another: batches, continuous processing, async progress tracking.

Source: MicroBatchExecution (OffsetMap) and ContinuousExecution (OffsetSeq) of Spark 4.2, each of which cannot read the
other's offsets; and the guide's "Asynchronous Progress Tracking", whose gaps batches alone do not start over.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.entries import OffsetEntry
from headrace.checkpoint.logs import numbered

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


def move(checkpoint: Checkpoint, names: Sequence[str], *, continuous: bool) -> None:
    """Bring the offsets of the last two batches into the form that the next execution reads; `names`: of the sources.

    What is planned and not committed is taken back, as continuous processing does itself: it comes again. A checkpoint
    that is in the right form, or new, stays as it is.
    """
    last = checkpoint.last_committed
    files = numbered(checkpoint.root / "offsets")
    if last is None or last not in files or _is_continuous(files[last]) is continuous:
        return
    for number, file in files.items():
        if number > last:
            _remove(file)
        elif number >= last - 1 and (entry := checkpoint.offset(number)) is not None:
            _write(file, _as_continuous(entry, names) if continuous else _as_batch(entry, names))


def settle(checkpoint: Checkpoint) -> None:
    """Close the gap that async progress tracking leaves before the newest batch, for a start without it.

    The batch before the newest one then ends where the last batch ended that is known to be done; so what came after
    that comes again. It is what the guide's procedure leads to, without two more batches.
    """
    files = numbered(checkpoint.root / "offsets")
    newest, committed = max(files, default=None), checkpoint.last_committed
    if not newest or committed is None or newest - 1 in files:
        return
    done = [number for number in files if number <= committed and (number < newest or newest == committed)]
    if done:
        text = files[max(done)].read_text(encoding="utf-8")
        _write(files[newest].with_name(str(newest - 1)), text)


def _is_continuous(file: Path) -> bool:
    """Continuous processing writes no facts about the batch."""
    return file.read_text(encoding="utf-8").startswith("v1\n\n")


def _as_continuous(entry: OffsetEntry, names: Sequence[str]) -> str:
    offsets = [entry.offsets.get(name) or "-" for name in names]
    return "\n".join(["v1", "", *offsets])


def _as_batch(entry: OffsetEntry, names: Sequence[str]) -> str:
    offsets = dict(zip(names, entry.offsets.values(), strict=True))
    return replace(entry, offsets=offsets, conf={EVOLUTION: "true"}).format()


def _write(file: Path, text: str) -> None:
    """Replace `file` at once; its checksum, which would be that of the old text, goes first."""
    draft = file.with_name(f".{file.name}.headrace")
    draft.write_text(text, encoding="utf-8")
    _checksum(file).unlink(missing_ok=True)
    os.replace(draft, file)


def _remove(file: Path) -> None:
    _checksum(file).unlink(missing_ok=True)
    file.unlink()


def _checksum(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")
