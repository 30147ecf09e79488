"""The project as the dashboard shows it: the one that a deploy has brought, once there was one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from headrace.history import History, pages
from headrace.model import Project


class ShownProject:
    """A project that is read again after each deploy and each start of another process, as its history has them.

    deployed: gives the newest one of the run that the dashboard belongs to; no file is read then.
    """

    def __init__(self, project: Project, *, deployed: Callable[[], Project | None] | None = None) -> None:
        self._project, self._deployed = project, deployed
        self._lock = threading.Lock()
        self._event: int | None = None
        self._process = 0

    @property
    def project(self) -> Project:
        """The newest one."""
        return (self._deployed() if self._deployed else None) or self._project

    def refresh(self, history: History | None) -> None:
        """Read the files again if there was a deploy since; what cannot be read leaves the former project there."""
        loaded = self._project.loaded
        if history is None or self._deployed is not None or loaded is None:
            return
        with self._lock:
            first, before = self._event is None, self._process
            self._event, is_deployed, self._process = pages.code_since(history, self._event or 0)
            if first or not (is_deployed or self._process != before):
                return
            with suppress(Exception, SystemExit):  # The user's files, which may be in the middle of an edit.
                self._project = loaded.again()
