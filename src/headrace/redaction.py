"""Secrets that this process knows, and texts without them; the one place that every message passes on its way out."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, TextIO, cast
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
# An option or a setting of such a name holds a secret.
SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?(?![a-z])|pwd|secret|token|credential|api[._-]?key|access[._-]?key|private[._-]?key|jaas",
    re.IGNORECASE,
)

# A value of so many characters is masked wherever it stands, a shorter one only as a word of its own, and one that is
# shorter still only where a value stands: a password of one letter is no reason to mask that letter.
_ANYWHERE, _AS_WORD = 12, 4
# Words of our own messages: masking them everywhere would reveal that one is the password.
_COMMON = ("password", "secret", "token", "postgres", "postgresql", "mysql", "mariadb", "root", "admin", "user", "test")
# What an option that switches something may be.
_NO_SECRETS = ("true", "false", "none", "0", "1")

# Each pattern begins with a fixed text, and what stands before it is looked back at in a fixed width: a pattern that
# began with a run of characters would be tried at each of them, and a text of one long word would take its square.
_SCHEME = r"(?<=[A-Za-z0-9+.-])://"
_URL = re.compile(rf"{_SCHEME}\S+")
_NAMES = ("password", "passwd", "passphrase", "pass", "pwd", "secret", "token", "credential")
_KEYS = [f"{kind}{between}key" for kind in ("api", "access") for between in ("[._-]", "")]
_NAMED = "|".join(f"(?<={name}=)" for name in (*_NAMES, *_KEYS))
_PAIR = re.compile(rf"=(?:{_NAMED})(?P<value>'[^']*'|\"[^\"]*\"|[^\s&;,'\"\\]+)", re.IGNORECASE)
# What is a secret by its form alone, though no variable holds it.
_USERINFO = re.compile(rf"(?P<before>{_SCHEME}[^\s:/@'\"]*:)(?P<value>[^\s/@'\"]+)(?=@)")


def secrets_in(text: str) -> Iterator[str]:
    """Yield the passwords in a text with urls: before an `@`, or as `password=`, encoded as they should be or not."""
    for match in _URL.finditer(text):
        url = match.group()
        for userinfo in {_userinfo(url), _userinfo(url.partition("?")[0])}:
            _, colon, password = userinfo.partition(":")
            if colon and password:
                yield password
    for pair in _PAIR.finditer(text):
        value = pair["value"].strip("'\"")
        if value and not value.startswith("${"):
            yield value


def _userinfo(url: str) -> str:
    """Return what stands before the last `@`: an `@`, `/` or `#` in a password that should be encoded is part of it."""
    return url.partition("://")[2].rpartition("@")[0]


def encoding_fault(url: str, *, may: str = "") -> str | None:
    """Return a character of the password in `url` that must be encoded; None if none must. `may` need not be."""
    account = _userinfo(url.partition("?")[0] if "@" in url.partition("?")[0] else url)
    password = account.partition(":")[2]
    matches = re.finditer(r"[/?#@\[\]\s]|%(?![0-9A-Fa-f]{2})", password)
    return next((match.group() for match in matches if match.group() not in may), None)


class Redactor:
    """Knows secret values, each with the text that stands for it, and takes them out of texts."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: dict[str, tuple[re.Pattern[str], str]] = {}
        self._longest_first: tuple[tuple[re.Pattern[str], str], ...] = ()
        self._lock = Lock()
        for value in values:
            self.remember(value)

    def remember(self, value: str, shown: str = MASK) -> None:
        """Never let `value` out: not as it is, nor as it stands in a url or in JSON; nor a password that it holds.

        Of several variables that have held a value, the last one is shown in its place.
        """
        with self._lock:
            for secret, instead in ((value, shown), *((inner, MASK) for inner in secrets_in(value))):
                for form in _forms(secret):
                    if form not in self._known or instead != MASK:
                        self._known[form] = (_pattern(form), instead)
            # A password is part of its url.
            self._longest_first = tuple(sorted(self._known.values(), key=lambda known: -len(known[0].pattern)))

    def remember_settings(self, settings: Mapping[str, Any]) -> None:
        """Remember each value whose name says that it is a secret, and each password in the others."""
        for name, value in settings.items():
            if isinstance(value, Mapping):
                self.remember_settings(value)
            elif isinstance(value, str) and value:
                if SECRET_NAME.search(str(name)) and value.lower() not in _NO_SECRETS:
                    self.remember(value)
                else:
                    for inner in secrets_in(value):
                        self.remember(inner)

    def redacted(self, text: str) -> str:
        """`text` without any secret that is known, or that is one by its form."""
        for pattern, shown in self._longest_first:
            text = pattern.sub(lambda _, shown=shown: shown, text)  # type: ignore[misc]
        text = _USERINFO.sub(lambda match: match["before"] + _mask_value(match["value"]), text)
        return _PAIR.sub(lambda match: f"={_mask_value(match['value'])}", text)


def _mask_value(value: str) -> str:
    """Mask a value, unless it is a reference to a variable, masked already, or advice in a message."""
    return value if value.startswith(("${", MASK, "...")) or value.lower() == "password" else MASK


def _forms(value: str) -> set[str]:
    plain = unquote(value)
    forms = {value, plain, quote(plain, safe=""), quote_plus(plain), json.dumps(value)[1:-1]}
    return {form for form in (*forms, json.dumps(plain, ensure_ascii=False)[1:-1]) if form.strip()}


def _pattern(value: str) -> re.Pattern[str]:
    escaped = re.escape(value)
    if len(value) >= _ANYWHERE:
        return re.compile(escaped)
    if len(value) >= _AS_WORD and value.lower() not in _COMMON:
        return re.compile(rf"(?<![A-Za-z0-9_]){escaped}(?![A-Za-z0-9_])")
    return re.compile(rf"(?<=[:=]){escaped}(?=[@&\s'\";,]|$)|(?<=['\"]){escaped}(?=['\"])")


# What this process has learnt; filled where variables are resolved and connectors are built.
KNOWN = Redactor()


def remember(value: str, shown: str = MASK) -> None:
    """Never let `value` out of this process."""
    KNOWN.remember(value, shown)


def remember_settings(settings: Mapping[str, Any]) -> None:
    """Never let out what `settings` hold of secrets."""
    KNOWN.remember_settings(settings)


def redacted(text: str, secrets: Mapping[str, str] | None = None) -> str:
    """Replace each of `secrets` by what stands for it, and every secret that this process knows."""
    if secrets:
        redactor = Redactor()
        for value, shown in secrets.items():
            redactor.remember(value, shown)
        text = redactor.redacted(text)
    return KNOWN.redacted(text)


def without(text: str, source: str) -> str:
    """`text` without the passwords of one url, for a process that has resolved no variables."""
    return Redactor(secrets_in(source)).redacted(redacted(text))


class StreamAbove:
    """A text stream that does something of its own with what is written; all else is the stream below."""

    def __init__(self, below: TextIO) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._below)


@contextmanager
def standard_streams(*, out: StreamAbove, err: StreamAbove) -> Iterator[None]:
    """Let `out` and `err` be the standard streams of this process while the block runs."""
    before = sys.stdout, sys.stderr
    ours = cast(TextIO, out), cast(TextIO, err)
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        # A stream that was replaced in the block stays, as for a reader that has closed its end.
        if sys.stdout is ours[0]:
            sys.stdout = before[0]
        if sys.stderr is ours[1]:
            sys.stderr = before[1]


class RedactingStream(StreamAbove):
    """A text stream that writes no secret."""

    def write(self, text: str) -> int:
        shown = redacted(text) if isinstance(text, str) else text
        try:
            self._below.write(shown)
        except UnicodeEncodeError:  # The name of a file that is not UTF-8, or a character that the terminal has not.
            encoding = self._below.encoding or "ascii"
            self._below.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)
