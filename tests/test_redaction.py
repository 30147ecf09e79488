"""No secret leaves the process: not in what is printed, not in what is kept, however it is written."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import headrace.api
from headrace import redaction
from headrace.cli import main
from headrace.errors import EXIT_AWAY, MOST_CHARACTERS, NOWHERE, Finding, SinkError
from headrace.history import History
from headrace.redaction import Redactor, encoding_fault, redacted, secrets_in, without
from headrace.spark.messages.failures import known_failure
from headrace.spark.messages.refusals import tidy

pytestmark = pytest.mark.plain

URLS = {
    "plain": ("postgresql://me:sesame@db/x", "sesame"),
    "encoded": ("postgresql://me:ses%2Fame@db/x", "ses%2Fame"),
    "slash": ("postgresql://me:ses/ame@db/x", "ses/ame"),
    "hash": ("mysql://me:ses#ame@db/x", "ses#ame"),
    "at": ("mysql://me:ses@ame@db/x", "ses@ame"),
    "per-cent": ("mysql://me:ses%zzame@db/x", "ses%zzame"),
    "question": ("mysql://me:ses?ame@db/x", "ses?ame"),
    "query": ("postgresql://db/x?user=me&password=sesame", "sesame"),
    "key-of-tls": ("postgresql://db/x?sslpassword=sesame&sslmode=require", "sesame"),
    "words": ("host=db password=sesame dbname=x", "sesame"),
    "quoted-words": ("host=db password='sesame street'", "sesame street"),
    "jaas": ('PlainLoginModule required username="me" password="sesame";', "sesame"),
}


@pytest.mark.parametrize(("url", "password"), URLS.values(), ids=URLS)
def test_a_password_is_found_wherever_it_stands_in_a_url(url: str, password: str) -> None:
    assert password in set(secrets_in(url))
    for text in (url, f"cannot use {password}", f'"{password}" is wrong', f"at={password},"):
        assert password not in without(text, url)


@pytest.mark.parametrize(
    ("url", "character"),
    [
        ("p://u:a/b@h/d", "/"),
        ("p://u:a@b@h/d", "@"),
        ("p://u:a%zb@h/d", "%"),
        ("p://u:a#b@h", "#"),
        ("p://u:a?b@h", "?"),
    ],
)
def test_a_password_that_must_be_encoded_is_reported_by_its_character(url: str, character: str) -> None:
    assert encoding_fault(url) == character
    assert encoding_fault("p://u:a%2Fb@h/d?sslmode=x") is None
    assert encoding_fault("p://h/d") is None


WORDS = {
    "letter": ("a", "a table has a name; password=a", "a table has a name; password=***"),
    "letter-in-url": ("a", "p://a:a@a/a failed", "p://a:***@a/a failed"),
    "letter-quoted": ("x", "the password 'x' of user x", "the password '***' of user x"),
    "word": ("sesame", "sesame, sesames and open_sesame", "***, sesames and open_sesame"),
    "long": ("d41d8cd98f00b204", "xd41d8cd98f00b204y", "x***y"),
    "word-of-messages": ("password", "u:password@h refuses the password", "u:***@h refuses the password"),
    "encoded": ("a b/c d e f", "a%20b%2Fc%20d%20e%20f and a+b%2Fc+d+e+f", "*** and ***"),
    "json": ('say "hello" to her', '{"what": "say \\"hello\\" to her"}', '{"what": "***"}'),
}


@pytest.mark.parametrize(("secret", "text", "shown"), WORDS.values(), ids=WORDS)
def test_a_value_is_masked_as_a_whole_and_in_every_form(secret: str, text: str, shown: str) -> None:
    assert Redactor([secret]).redacted(text) == shown


def test_what_has_the_form_of_a_secret_is_masked_without_a_declaration() -> None:
    assert redacted("jdbc:p://me:sesame@db/x?password=sesame&a=1") == "jdbc:p://me:***@db/x?password=***&a=1"
    kept = "write p://user:${DATABASE_PASSWORD}@db, p://user:password@db or password=${PASSWORD}; the password: give it"
    assert redacted(kept) == kept


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that has a token from a secret file, a password in a url, and a secret setting of Spark."""
    (tmp_path / "token").write_text("tok-4711-abc")
    (tmp_path / "headrace.yml").write_text(
        "name: p\n"
        "sources:\n  s: {rate: {rows_per_second: 1}}\n"
        "queries:\n  q:\n    sql: q.sql\n"
        '    sink: {foreach_batch: {function: "f:f"}}\n'
        "targets:\n  dev: {spark: {spark.my.secret: '${file:token}'}}\n"
    )
    (tmp_path / "q.sql").write_text("SELECT * FROM s")
    (tmp_path / "f.py").write_text("def f(frame, batch): ...\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def raising(error: Exception) -> Any:
    def raises(*_: Any, **__: Any) -> NoReturn:
        raise error

    return raises


LEAK = "the server refuses tok-4711-abc"
COMMANDS = {"verify": "verify_each", "late": "late", "run": "run", "check": "check"}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("foreseen", [True, False], ids=["finding", "crash"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_or_keeps_a_secret(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    foreseen: bool,
    as_json: bool,
) -> None:
    (project / ".headrace").mkdir()
    error = SinkError(Finding(code="HR405", what=LEAK, fix=LEAK)) if foreseen else RuntimeError(LEAK)
    monkeypatch.setattr(headrace.api, COMMANDS[command], raising(error))
    arguments = [command, *(["q"] if command == "late" else []), *(["--json"] if as_json else [])]
    assert main(arguments) in (1, 2, EXIT_AWAY)
    shown = capsys.readouterr()
    assert "HR405" in shown.out + shown.err or "HR999" in shown.out + shown.err
    kept = [file.read_text() for file in (project / ".headrace").iterdir()]
    for text in (shown.out, shown.err, *kept):
        assert "tok-4711-abc" not in text


def test_the_history_keeps_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redaction.remember("tok-4711-abc", "${API_TOKEN}")
    with History.open(tmp_path / "history.db") as history:
        run = history.begin_run("q", pid=1, mode="append", trigger="once", sink="memory", generation=1)
        history.record_verdict("q", json.dumps({"differences": [LEAK]}))
        history.end_run(run, "failed", Finding(code="HR405", what=LEAK))
    with sqlite3.connect(tmp_path / "history.db") as database:
        kept = "\n".join(database.iterdump())
    assert "tok-4711-abc" not in kept
    assert "${API_TOKEN}" in kept


# What a row or a message may consist of; a pattern that begins with a run of characters is tried at each of them.
SHAPES = (
    *("a", "a-", "9.", "a ", ":", "://", "a://", "a:", "a://b:", "a@", "=", "a=", "password", "password="),
    *("password='", 'token="', "api-key", "'", '"', "\\", "\n", " ", "é", "[A.b]", "org.apache."),
)
SEARCHES = {
    "redactor": Redactor(["correct horse battery", "sesame", "abc"]).redacted,
    "secrets": lambda text: list(secrets_in(text)),
    "failure": lambda text: known_failure(text, subject="query 'q'", where=NOWHERE),
    "sentence": tidy,
}


def cost(search: Callable[[str], object], text: str) -> float:
    """The least CPU time of some tries."""
    spent = []
    for _ in range(3):
        begun = time.thread_time()
        search(text)
        spent.append(time.thread_time() - begun)
    return min(spent)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("shape", SHAPES, ids=ascii)
def test_ten_times_the_text_takes_about_ten_times_as_long(shape: str, name: str) -> None:
    short = shape * (2_000 // len(shape))
    long = f"x{short * 10}x"
    assert cost(SEARCHES[name], long) < 40 * max(cost(SEARCHES[name], f"x{short}x"), 0.0002)


def test_a_finding_of_a_text_without_end_shows_its_ends_and_no_part_of_a_secret() -> None:
    redaction.remember("correct horse battery")
    text = f"the row {'x' * (MOST_CHARACTERS // 2 - 20)}correct horse battery{'y' * 10_000_000} was refused"
    shown = Finding(code="HR601", what=text).what
    assert len(shown) < MOST_CHARACTERS + 100
    assert shown.startswith("the row xxx")
    assert shown.endswith("yyy was refused")
    assert "corr" not in shown
