"""What a build adds to the package: the page of findings, and a bill of materials.

Both come from the tree alone, so that two builds of one commit are the same bytes.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What the dashboard ships of others.
VENDORED = (("%40dagrejs/dagre", "3.1.3", "MIT"), ("uplot", "1.6.32", "MIT"))
_PIN = re.compile(r"^([a-z0-9][\w.-]*)(?:\[[^]]*\])?==(\S+)(?: ; ([^\\]+?))?(?: \\)?$", re.MULTILINE)
_JAR = re.compile(r"^([0-9a-f]{64})  (.+)-(\d[^-]*)\.jar$")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling finds the class by its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to a wheel; an editable install reads them where they are."""
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        build_data["force_include"][str(root / "docs" / "reference" / "findings.md")] = "headrace/findings.md"
        bill = Path(self.directory) / "headrace.cdx.json"
        bill.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(bill_of_materials(root, self.metadata.version), indent=1)
        bill.write_text(text + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(bill))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the build."""
        (Path(self.directory) / "headrace.cdx.json").unlink(missing_ok=True)


def bill_of_materials(root: Path, version: str) -> dict[str, Any]:
    """Return the packages that a wheel needs, the vendored scripts and the jars as a CycloneDX document.

    Versions and hashes are those of the lock, which holds what only development needs as well.

    Args:
        root: The tree.
        version: The version of the package.
    """
    package = root / "src" / "headrace"
    lock = (root / "constraints.txt").read_text(encoding="utf-8")
    released = (root / "scripts" / "released.txt").read_text(encoding="utf-8")
    jars = (package / "spark" / "jars.sha256").read_text(encoding="utf-8")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'headrace {version} {released} {lock} {jars}')}",
        "version": 1,
        "metadata": {
            "component": {
                **_component("application", f"pkg:pypi/headrace@{version}", "headrace", version),
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [*_list_locked(lock, released), *_list_vendored(), *_list_jars(jars)],
    }


def _list_locked(lock: str, released: str) -> Iterator[dict[str, Any]]:
    needed = {(name, version) for name, version, _ in map(re.Match.groups, _PIN.finditer(released))}
    component: dict[str, Any] = {}
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            name, version, marker = pin.groups()
            component = {**_component("library", f"pkg:pypi/{name}@{version}", name, version), "hashes": []}
            if marker:
                component["properties"] = [{"name": "python:marker", "value": marker}]
            if (name, version) in needed:
                yield component
        elif digest := re.match(r"\s+--hash=sha256:([0-9a-f]{64})", line):
            component["hashes"].append({"alg": "SHA-256", "content": digest[1]})


def _list_vendored() -> Iterator[dict[str, Any]]:
    for name, version, licence in VENDORED:
        component = _component("library", f"pkg:npm/{name}@{version}", name, version)
        yield {**component, "licenses": [{"license": {"id": licence}}]}


def _list_jars(sums: str) -> Iterator[dict[str, Any]]:
    for line in sums.splitlines():
        if jar := _JAR.match(line):
            digest, name, version = jar.groups()
            component = _component("library", f"pkg:generic/{name}@{version}", name, version)
            yield {**component, "hashes": [{"alg": "SHA-256", "content": digest}], "scope": "optional"}


def _component(kind: str, purl: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
