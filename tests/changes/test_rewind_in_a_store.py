"""A query goes back to an earlier batch in a bucket, where nothing is renamed: cut off at any write, it is ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.model import Project
from headrace.storage.s3 import S3
from services import S3Server
from tests.changes.test_reset import Killed
from tests.changes.test_rewind import at, codes, make_project, state
from tests.registered import layout_in
from tests.storage.stores import new_bucket

pytestmark = pytest.mark.services
WRITES = ("put_object", "copy_object", "delete_object", "delete_objects")
# A kill at every so many writes; the simulated protocol is cut off at each fifth one (tests/protocol).
STRIDE = 1 if os.environ.get("HEADRACE_CUTS") == "all" else 17


class Cuts:
    """Lets the process die before a write to the store, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.writes = 0
        asked = S3._ask
        mine = threading.get_ident()

        def counted(store: S3, verb: str, **options: Any) -> Any:
            # Those of the lease's own thread come when they come.
            if verb in WRITES and threading.get_ident() == mine:
                self.writes += 1
                if self.left is not None:
                    self.left -= 1
                    if self.left < 0:
                        self.left = None
                        raise Killed
            return asked(store, verb, **options)

        monkeypatch.setattr(S3, "_ask", counted)

    def of(self, command: Callable[[], object]) -> int:
        """How many writes a command makes."""
        before = self.writes
        command()
        return self.writes - before

    def at(self, write: int, command: Callable[[], object]) -> bool:
        """Whether the command was cut off before this write of it."""
        self.left = write
        try:
            command()
        except Killed:
            return True
        self.left = None
        return False


@pytest.fixture
def project(s3_server: S3Server, tmp_path: Path) -> Project:
    return make_project(tmp_path / "p", place=new_bucket(s3_server).place)


def test_wherever_it_was_cut_off_it_is_ended_or_taken_back(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = Cuts(monkeypatch)

    def there() -> None:
        hr.rewind(project, "totals", to_batch=1).apply()

    def back() -> None:
        hr.rewind(project, "totals").undo()

    def cut_off(write: int, command: Callable[[], None], ended: Callable[[], None]) -> int:
        """1 if there was something to end."""
        assert cuts.at(write, command), f"there is no write {write}"
        errors = codes(project)
        assert errors in ([], ["HR581"]), (write, errors)
        if errors:
            ended()
        assert codes(project) == [], write
        return len(errors)

    assert state(project) == at(2)
    going = cuts.of(there)
    assert (state(project), codes(project)) == (at(1), [])
    coming = cuts.of(back)
    assert (state(project), codes(project)) == (at(2), [])
    begun = 0
    for number, write in enumerate(range(0, going, STRIDE)):
        ended, result = ((there, at(1)), (back, at(2)))[number % 2]
        was_begun = cut_off(write, there, ended)
        begun += was_begun
        if was_begun:
            assert state(project) == result, write
        if state(project) == at(1):
            back()
        assert state(project) == at(2), write
    for write in range(0, coming, STRIDE):
        there()
        was_begun = cut_off(write, back, back)
        begun += was_begun
        if state(project) == at(1):
            back()
        assert (state(project), codes(project)) == (at(2), []), write
    # The lease is taken before the first write of the record, and released after its last one.
    assert begun >= 0.8 * (len(range(0, going, STRIDE)) + len(range(0, coming, STRIDE))) - 2
    there()
    hr.rewind(project, "totals").discard()
    live = layout_in(project.storage, "totals").home
    assert [path.name for path in live.parent.iterdir() if path.name.startswith("g1")] == [live.name]
    assert state(project) == at(1)
