"""The image of deploy/Dockerfile: built over a base of Debian's packages, and run as it says, with a read-only root."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

import pytest

from services.process import free_port
from tests.waiting import until

pytestmark = [pytest.mark.services, pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ("buildah", "debootstrap", "unshare", "chroot")
CERTIFICATES = Path("/usr/local/share/ca-certificates")
USER = 10001


@dataclass(frozen=True)
class Image:
    """The root directory of a container, and what the image says of its start."""

    root: Path
    environment: tuple[str, ...]
    entrypoint: tuple[str, ...]
    user: str

    def command(self, project: Path, storage: Path, *arguments: str) -> list[str]:
        """Return what runs `headrace` as a container would: its own root, read-only, and an unprivileged user."""
        root = shlex.quote(str(self.root))
        script = f"""set -e
            touch {root}/etc/hosts
            mount --bind {root} {root}
            mount -o remount,bind,ro {root}
            mount -t tmpfs -o mode=1777 tmpfs {root}/tmp
            mount --bind {shlex.quote(str(project))} {root}/project
            mount -o remount,bind,ro {root}/project
            mount --bind {shlex.quote(str(storage))} {root}/storage
            mount --bind /etc/hosts {root}/etc/hosts
            mount --rbind /dev {root}/dev
            mount -t proc proc {root}/proc
            exec chroot --userspec={self.user}:{self.user} {root} env -i {shlex.join(self.environment)} \\
                sh -c 'cd /project && exec "$@"' sh {shlex.join([*self.entrypoint, *arguments])}
        """
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing or os.geteuid():
        pytest.skip(f"an image is built by root with {', '.join(missing)}: apt-get install buildah debootstrap")
    work = tmp_path_factory.mktemp("image")
    base, sources = work / "base", work / "sources"
    run("debootstrap", "--variant=minbase", "bookworm", str(base))
    # What the machine's administrator trusts, as a mirror of packages, the builder of an image must trust too.
    if CERTIFICATES.is_dir():
        shutil.copytree(CERTIFICATES, base / CERTIFICATES.relative_to("/"), dirs_exist_ok=True)
    tag = f"localhost/debian:{work.parent.name}"
    container = run("buildah", "from", "scratch").strip()
    run("buildah", "add", "--quiet", container, str(base), "/")
    run("buildah", "commit", "--quiet", "--rm", container, tag)
    (sources / "dist").mkdir(parents=True)
    shutil.copy(ROOT / "constraints.txt", sources)
    wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(sources / "dist"))
    run(sys.executable, *wheel, str(ROOT))
    trusts = ("--env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt") if CERTIFICATES.is_dir() else ()
    options = ("--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={tag}", *trusts)
    built = f"localhost/headrace:{work.parent.name}"
    run("buildah", "build", *options, "--file", str(ROOT / "deploy" / "Dockerfile"), "--tag", built, str(sources))
    described = json.loads(run("buildah", "inspect", "--type", "image", built))["OCIv1"]["config"]
    container = run("buildah", "from", built).strip()
    root = Path(run("buildah", "mount", container).strip())
    yield Image(root, tuple(described["Env"]), tuple(described["Entrypoint"]), described["User"])
    run("buildah", "umount", container)
    run("buildah", "rm", container)
    run("buildah", "rmi", "--force", built, tag)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_the_image_runs_a_project_as_an_unprivileged_user_who_writes_into_the_storage_alone(
    image: Image, tmp_path: Path
) -> None:
    assert image.user == str(USER)
    project, storage, port = tmp_path / "phones", tmp_path / "storage", free_port()
    run(sys.executable, "-m", "headrace", "init", str(project))
    settings = project / "headrace.yml"
    target = f"  prod: {{storage: /storage, metrics: {{port: {port}, address: 0.0.0.0, token: sixteen-characters}}}}\n"
    settings.write_text(settings.read_text().replace("  prod: {storage: .headrace-prod}\n", target))
    assert target in settings.read_text()
    pipeline = project / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace('"result.db"', '"/storage/result.db"'))
    for path in (tmp_path, project, *project.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    storage.mkdir(mode=0o700)
    os.chown(storage, USER, USER)

    first = subprocess.run(
        image.command(project, storage, "run", "--target", "prod", "--available-now"), capture_output=True, text=True
    )
    assert first.returncode == 0, first.stderr
    verified = subprocess.run(
        image.command(project, storage, "verify", "--target", "prod"), capture_output=True, text=True
    )
    assert "correct: equal to the batch query" in verified.stdout, verified.stderr
    assert {path.stat().st_uid for path in storage.rglob("*")} == {USER}

    running = subprocess.Popen(
        image.command(project, storage, "run", "--target", "prod"), stderr=subprocess.PIPE, text=True
    )
    try:
        until("answer that it is ready", lambda: answer(port, "/readyz") == 200)
        assert answer(port, "/healthz") == 200
        assert answer(port, "/metrics") == 401
        (child,) = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        _, log = running.communicate(timeout=120)
        assert running.returncode == 0, log
    finally:
        running.kill()
        running.wait()


def answer(port: int, path: str) -> int:
    """Return the status of an answer; 0: no server answers yet."""
    try:
        return int(urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).status)
    except URLError as error:
        return int(getattr(error, "code", 0))
