"""What the sinks of database servers have in common: a url, and one option that secures the connection."""

from __future__ import annotations

import ssl
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlencode

from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.sink import DatabaseSink
from headrace.contract import OptionError, OutputMode, ProjectPath, is_loopback

# What leaves the choice of authorities to the client library.
SYSTEM = "system"
# Where Linux distributions and macOS keep the certificates of public authorities.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


@dataclass(frozen=True, kw_only=True)
class ServerSink(DatabaseSink):
    """A table of a database server.

    tls: verify-full encrypts the connection, and lets it begin only if the server's certificate is signed by a known
    authority and made out to the url's host; without it, the url's own options count.
    tls_ca: the file with the certificates of the authorities, for verify-full; without it, those of the machine.
    ask_url: the url by which the dashboard's Ask reads the database, of a user that may only read; without it, `url`.
    """

    positional: ClassVar[str] = "url"
    url: str = field(repr=False)
    tls: Literal["", "verify-full"] = ""
    tls_ca: ProjectPath = ""
    ask_url: str = field(default="", repr=False)

    @abstractmethod
    def host(self) -> str:
        """The host that the url names; empty for a socket of this machine."""

    @abstractmethod
    def given_tls(self) -> tuple[dict[str, str], bool]:
        """The options of TLS that the url has, and whether they let the server's certificate be checked."""

    @abstractmethod
    def verify_full(self, ca: str) -> dict[str, str]:
        """The url's options for verify-full."""

    @abstractmethod
    def url_problems(self) -> Iterator[OptionError]:
        """What is wrong with the url and the options of TLS."""

    def problems(self, mode: OutputMode) -> Iterator[OptionError]:
        yield from super().problems(mode)
        yield from self.url_problems()
        if self.ask_url:
            for problem in replace(self, url=self.ask_url).url_problems():
                yield replace(problem, what=f"ask_url: {problem.what}")

    def secured_url(self) -> str:
        """The url with what `tls` asks for."""
        if not self.tls:
            return self.url
        options = urlencode(self.verify_full(self.tls_ca or authorities()))
        return f"{self.url}{'&' if '?' in self.url else '?'}{options}"

    def dialect_to_ask(self) -> Dialect:
        return replace(self, url=self.ask_url).dialect() if self.ask_url else self.dialect()

    def tls_problems(self) -> Iterator[OptionError]:
        """What is wrong with the options of TLS; a note if nothing protects a connection that leaves the machine."""
        given, checked = self.given_tls()
        if self.tls and given:
            yield OptionError(
                code="HR113",
                what=f"the url of the database has {min(given)}, and the sink has tls: {self.tls}",
                fix="give one of the two",
            )
        elif self.tls_ca and not self.tls:
            yield OptionError(
                code="HR113",
                what="tls_ca is given, and tls is not, so that nothing is checked",
                fix="add tls: verify-full",
            )
        elif self.tls_ca and not Path(self.tls_ca).is_file():
            yield OptionError(
                code="HR113", what=f"the file '{self.tls_ca}', which tls_ca names, is not there", fix="correct the path"
            )
        elif not self.tls and not checked and not is_loopback(self.host()):
            yield OptionError(
                code="HR482",
                what=f"the connection to '{self.host()}' may be unencrypted, and nothing checks that it is the server",
                fix="set tls: verify-full, with tls_ca: FILE for an authority of your own",
                severity="note",
            )


def authorities() -> str:
    """The file of the authorities that this machine trusts; SYSTEM if none is found."""
    known = ssl.get_default_verify_paths().cafile
    return next((place for place in (known, *_BUNDLES) if place and Path(place).is_file()), SYSTEM)
