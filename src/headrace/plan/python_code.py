"""What a Python callable does, as data that edits without an effect leave as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias

Meaning: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How two meanings stand to each other.

    differences: for `changed` what differs, for `not compared` why not; fragments of sentences.
    """

    verdict: Literal["same", "changed", "not compared"]
    differences: tuple[str, ...] = ()


def meaning(
    function: Callable[..., Any],
    *,
    owned: Callable[[ModuleType], bool],
    salt: str,
    keywords: Collection[str] = (),
) -> Meaning:
    """The meaning of `function`, which can be written as JSON; `digest` in it is equal where the meaning is.

    owned: whether a module belongs to the project, whose code is followed. Other code is known by its name.
    salt: makes the hashes of texts and of environment variables useless to others; keep it with the meaning.
    keywords: the parameters that Spark calls `function` with by name.
    """
    raise NotImplementedError


def compare(before: Meaning, now: Meaning) -> Comparison:
    """Whether two meanings are the same, and what differs."""
    raise NotImplementedError


def differences(before: Meaning, now: Meaning) -> list[str]:
    """What differs between two meanings, or why they cannot be compared; nothing if they are the same."""
    return list(compare(before, now).differences)
