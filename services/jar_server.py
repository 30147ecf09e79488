"""Servers that run from jars, which Maven fetches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from headrace.spark.jvm.jars import cache
from headrace.spark.jvm.maven import FetchError, fetch
from services import process
from services.server import Server


class JarServer(Server):
    """title: what sentences call it. version, coordinates: what is fetched."""

    title: ClassVar[str]
    version: ClassVar[str]
    coordinates: ClassVar[tuple[str, ...]]

    def __init__(self, home: Path) -> None:
        super().__init__(home, process.own_user())

    @classmethod
    def jars(cls) -> Path:
        """The directory of the jars."""
        return cache().parent / "services" / f"{cls.title.lower()}-{cls.version}"

    @classmethod
    def missing(cls) -> str | None:
        """What to do to get it; None when it is there."""
        return None if (cls.jars() / "whole").exists() else cls._absent()

    @classmethod
    def _absent(cls) -> str:
        install = "install Maven (`sudo apt-get install maven`) and run `make servers`, which fetches it"
        return f"{cls.title} is not here: {install}"

    @classmethod
    def obtain(cls) -> None:
        """Fetch the jars; raises ServerFault."""
        try:
            fetch(cls.coordinates, cls.jars(), for_spark=False, sums=process.jar_sums())
            cls.complete()
            (cls.jars() / "whole").touch()
        except (FetchError, OSError) as error:
            raise process.ServerFault(f"{cls._absent()} ({error})") from error

    @classmethod
    def complete(cls) -> None:
        """Make what the server needs in addition to its jars."""

    @staticmethod
    def java(*options: str) -> list[str]:
        """The beginning of a command line: a virtual machine that starts quickly."""
        home = os.environ.get("JAVA_HOME")
        return [f"{home}/bin/java" if home else "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options]
