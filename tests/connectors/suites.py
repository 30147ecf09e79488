"""Parts of a conformance suite, for a variant of a connector whose other code a whole suite runs already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Suite = TypeVar("Suite", bound=type)


def only(*kept: str) -> Callable[[Suite], Suite]:
    """Leave the tests of a suite out whose names have none of these words."""

    def shortened(suite: Suite) -> Suite:
        tests = [name for name in dir(suite) if name.startswith("test_")]
        assert all(any(words in name for name in tests) for words in kept), f"{suite.__name__} has no test of {kept}"
        for name in tests:
            if not any(words in name for words in kept):
                setattr(suite, name, None)
        return suite

    return shortened
