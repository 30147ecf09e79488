"""The manifests for Kubernetes: what they name exists, and a validator takes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.entry import headrace
from headrace.export import metrics_server

MANIFESTS = Path(__file__).parent.parent.parent / "deploy" / "kubernetes"
VALIDATOR = "kubernetes-validate==1.37.0"


@pytest.fixture(scope="module")
def kinds() -> dict[str, dict[str, Any]]:
    files = sorted(MANIFESTS.glob("*.yaml"))
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return {document["kind"]: document for document in documents}


@pytest.mark.plain
def test_the_deployment_starts_a_command_that_exists_and_asks_addresses_that_are_served(
    kinds: dict[str, dict[str, Any]],
) -> None:
    (container,) = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    name, *arguments = container["args"]
    headrace.commands[name].make_context(name, arguments)
    served = Path(metrics_server.__file__).read_text(encoding="utf-8")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert f'Route("{asked["path"]}"' in served
        assert asked["port"] in {port["name"] for port in container["ports"]}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    dockerfile = (MANIFESTS.parent / "Dockerfile").read_text(encoding="utf-8")
    assert 'VOLUME ["/storage", "/tmp"]' in dockerfile
    assert mounted == {"/storage", "/tmp"}
    user = kinds["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}" in dockerfile


@pytest.mark.plain
def test_one_driver_runs_at_a_time_and_prometheus_finds_it(kinds: dict[str, dict[str, Any]]) -> None:
    spec = kinds["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert kinds["PodMonitor"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = kinds["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == spec["template"]["spec"]["containers"][0]["ports"][0]["name"]
    assert endpoint["authorization"]["credentials"]["key"] in kinds["Secret"]["stringData"]


@pytest.mark.services
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_validator_takes_the_manifests(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    tools = tmp_path / "env" / "bin"
    subprocess.run([str(tools / "pip"), "install", "--quiet", VALIDATOR], check=True)
    command = [str(tools / "kubernetes-validate"), "--strict", str(MANIFESTS / "headrace.yaml")]
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "deployment/phones" in judged.stdout + judged.stderr
