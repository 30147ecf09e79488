"""A deploy at each save of a project's files, for development."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from headrace.control.board import Order, Orders
from headrace.control.deploys import DeployRequest
from headrace.runner.deploy import Deployer
from headrace.runner.loaded_files import LoadedFiles, Mark, mark_of

LOOK_SECONDS = 0.5
_SUFFIXES = (".py", ".sql", ".yml", ".yaml", ".env")


class Watcher:
    """Orders a deploy when files have changed, once a look finds them as the look before did.

    files: the files that the application has read. Those next to them, which it may read next time, count as well.
    """

    def __init__(self, root: Path, files: LoadedFiles, request: DeployRequest) -> None:
        self._root, self._files, self._request = root, files, request
        self._deployed = self._look()
        self._closed = threading.Event()

    def start(self, deployer: Deployer, orders: Orders) -> None:
        """Begin to watch; what has changed since this was made is deployed at once."""
        watch = partial(self._watch, deployer, orders)
        threading.Thread(target=watch, name="headrace-watch", daemon=True).start()

    def close(self) -> None:
        """Watch no longer."""
        self._closed.set()

    def _watch(self, deployer: Deployer, orders: Orders) -> None:
        before = self._deployed
        while not self._closed.wait(LOOK_SECONDS):
            now = self._look()
            # An editor may still be writing, and several files may be saved together.
            if now == before and now != self._deployed:
                orders.give(Order(verb="deploy", by="--watch", deploy=self._request)).answer.result()
                self._files = deployer.files
                self._deployed = {**self._look(), **now}
            before = now

    def _look(self) -> dict[Path, Mark]:
        loaded = self._files.paths
        directories = {self._root, *(file.parent for file in loaded)}
        near = (file for directory in directories for file in directory.glob("*") if file.name.endswith(_SUFFIXES))
        return {file: mark_of(file) for file in (*loaded, *near)}
