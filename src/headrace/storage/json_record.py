"""Small files of JSON that say what was begun: read whole, or told of as damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import HeadraceError

_Record = TypeVar("_Record")


def read(file: Path, make: Callable[[Any], _Record], damaged: Callable[[str], HeadraceError]) -> _Record | None:
    """What `make` gives of the file's content; None without the file.

    damaged: what is raised for a file that cannot be read, is no JSON, or lacks what `make` asks for; it takes the
    reason, as the end of a sentence.
    """
    try:
        return make(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except KeyError as error:
        raise damaged(f"it has no {error}") from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise damaged(str(error)) from error
