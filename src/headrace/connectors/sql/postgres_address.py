"""The url of a PostgreSQL database, as libpq reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace.contract import OptionError, is_loopback
from headrace.redaction import encoding_fault


def host(url: str) -> str:
    """The host of `url`; of several, the first that is not this machine."""
    known = conninfo_to_dict(url)
    hosts = str(known.get("host") or known.get("hostaddr") or "").split(",")
    return next((each for each in hosts if not is_loopback(each)), hosts[0])


def tls(url: str) -> tuple[dict[str, str], bool]:
    """The options of TLS in `url`, and whether the server's certificate is verified by them."""
    given = {name: str(value) for name, value in conninfo_to_dict(url).items() if name in ("sslmode", "sslrootcert")}
    mode = given.get("sslmode") or os.environ.get("PGSSLMODE", "prefer")
    # So libpq keeps what earlier versions did.
    return given, mode.startswith("verify") or (mode == "require" and "sslrootcert" in given)


def url_problems(url: str) -> Iterator[OptionError]:
    """What libpq would refuse of a url, or take for something else; nothing of it is repeated, for it may be secret."""
    if character := encoding_fault(url, may="#"):
        what = f"the password in the url of the database has a '{character}' that is not encoded"
        yield OptionError(code="HR413", what=what, fix=f"write '%{ord(character):02X}' for it")
        return
    fix = "write postgresql://user:password@host:port/database, with %40 for @, %2F for / and %23 for # in a password"
    try:
        parsed = conninfo_to_dict(url)
    except psycopg.Error as error:
        said = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        what = f"the url of the database has an unknown option '{said[1]}'" if said else "the url cannot be read"
        yield OptionError(code="HR413", what=what, fix=fix)
        return
    for port in str(parsed.get("port") or "5432").split(","):
        if not port.isdigit() or not 0 < int(port) < 65_536:
            yield OptionError(code="HR413", what="the port in the url is no number from 1 to 65535", fix=fix)
