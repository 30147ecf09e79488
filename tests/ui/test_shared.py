"""Pages that ask for the same after the same event get one answer, and never an older one."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.ui.live import ANSWERS_MOST, Shared

pytestmark = pytest.mark.plain


class Board:
    """What answers are made of, and how often."""

    def __init__(self) -> None:
        self.mark: int | None = 1
        self.made = 0
        self.shared = Shared(lambda: self.mark)

    def make(self) -> bytes:
        time.sleep(0.02)
        self.made += 1
        return str(self.made).encode()


def test_who_asks_at_the_same_moment_waits_for_one_answer() -> None:
    board, together = Board(), threading.Barrier(20)

    def ask(number: int) -> bytes:
        together.wait(10)
        return board.shared.get("series", board.make)

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(ask, range(20))) == {b"1"}
    assert board.shared.get("batches", board.make) == b"2"


def test_an_answer_is_of_the_newest_change_and_of_no_other_question() -> None:
    board = Board()
    for mark, answers in ((1, [b"1", b"1"]), (2, [b"2", b"2"]), (None, [b"3", b"4"])):
        board.mark = mark
        assert [board.shared.get("series", board.make) for _ in range(2)] == answers
    for number in range(ANSWERS_MOST):
        board.shared.get(f"series?points={number}", board.make)
    assert board.shared.get("series", board.make) == str(board.made).encode(), "what is kept has an end"


def test_what_failed_is_made_again() -> None:
    board = Board()
    with pytest.raises(ZeroDivisionError):
        board.shared.get("series", lambda: bytes(1 // 0))
    assert board.shared.get("series", board.make) == b"1"
