"""Small files of JSON that say what was begun: read whole, or reported as damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import CheckpointError, Finding, HeadraceError, Where, reason

_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """What is raised for a file that cannot be read. Called with the reason, as the end of a sentence."""

    file: Path
    code: str
    what: str
    fix: str
    error: type[HeadraceError] = CheckpointError

    def __call__(self, why: str) -> HeadraceError:
        where = Where(file=str(self.file))
        return self.error(Finding(code=self.code, where=where, what=f"{self.what}: {why}", fix=self.fix))


def read(file: Path, make: Callable[[Any], _Record], damaged: Callable[[str], HeadraceError]) -> _Record | None:
    """What `make` gives of the file's content; None without the file.

    damaged: what is raised for a file that cannot be read, is not JSON, or lacks what `make` asks for; it takes the
    reason, as the end of a sentence.
    """
    try:
        return make(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(reason(error)) from error
