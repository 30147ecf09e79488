"""Parts of a conformance suite, for a variant of a connector whose other code a whole suite runs already."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headrace.contract import OUTPUT_MODES, OutputMode
from headrace.testing.conformance import SinkConformance
from tests.rounds import only_usual

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Suite = TypeVar("Suite", bound=type)


class UsualSinkConformance(SinkConformance):
    """The suite of sinks; that batches of other modes come again is shown in `make test-long`.

    In append mode a row that comes twice stays twice, and the query has another name by then.
    """

    @pytest.mark.parametrize("mode", only_usual(OUTPUT_MODES, "append"))
    def test_a_batch_that_comes_again_changes_nothing(
        self, spark: SparkSession, home: Path, tmp_path: Path, mode: OutputMode
    ) -> None:
        super().test_a_batch_that_comes_again_changes_nothing(spark, home, tmp_path, mode)


class UpdateSinkConformance(UsualSinkConformance):
    """The usual suite in update mode; the other modes are shown in `make test-long`.

    What a database or a broker does with the rows of each mode, its own tests show without Spark.
    """

    @pytest.mark.parametrize("mode", only_usual(OUTPUT_MODES, "update"))
    def test_several_batches_end_in_the_batch_answer(
        self, spark: SparkSession, home: Path, tmp_path: Path, mode: OutputMode
    ) -> None:
        super().test_several_batches_end_in_the_batch_answer(spark, home, tmp_path, mode)


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


def further_but(*kept: str) -> Callable[[Suite], Suite]:
    """Mark the tests of a suite `long` whose names have none of these words."""

    def marked(suite: Suite) -> Suite:
        for name in dir(suite):
            # `only` has put None in the place of those that it leaves out.
            if name.startswith("test_") and getattr(suite, name) and not any(words in name for words in kept):
                setattr(suite, name, pytest.mark.long(_copy(getattr(suite, name))))
        return suite

    return marked


def _copy(test: Callable[..., None]) -> Callable[..., None]:
    """Return a function of its own, so that a mark is not on the test of the class above as well."""

    @wraps(test)
    def copied(*arguments: Any, **named: Any) -> None:
        test(*arguments, **named)

    return copied
