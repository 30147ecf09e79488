"""A certificate authority for one test server."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make(home: Path) -> tuple[Path, Path, Path]:
    """Write root.crt, and server.crt with server.key for 127.0.0.1 and localhost, into `home`."""
    root, root_key = home / "root.crt", home / "root.key"
    certificate, key, request = home / "server.crt", home / "server.key", home / "server.csr"
    names = home / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    new = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes"]
    for command in (
        [*new, "-x509", "-days", "30", "-subj", "/CN=headrace-test", "-keyout", str(root_key), "-out", str(root)],
        [*new, "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(request)],
        [
            *("openssl", "x509", "-req", "-in", str(request), "-CA", str(root), "-CAkey", str(root_key)),
            *("-CAcreateserial", "-days", "30", "-extfile", str(names), "-out", str(certificate)),
        ],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return root, certificate, key


def make_client(home: Path, name: str) -> Path:
    """Write NAME.pem, the key and the certificate of a client of that name, by the authority in `home`."""
    key, request, certificate = home / f"{name}.key", home / f"{name}.csr", home / f"{name}.crt"
    signer = ("-CA", str(home / "root.crt"), "-CAkey", str(home / "root.key"), "-CAcreateserial")
    new = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    for command in (
        [*new, "-keyout", str(key), "-out", str(request)],
        ["openssl", "x509", "-req", "-in", str(request), *signer, "-days", "30", "-out", str(certificate)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    store = home / f"{name}.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    return store
