"""An address that is listened at, as others ask for it."""

from __future__ import annotations

import ipaddress
import socket


def asked_at(host: str, port: int) -> str:
    """Host and port as a URL has them; of what listens at every address of this machine, the machine's name."""
    name = socket.gethostname() if _is_everywhere(host) else host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def family(host: str) -> socket.AddressFamily:
    """The family of a socket that is to listen there."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
