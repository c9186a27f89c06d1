"""The container image: `python -m dev.image build` builds it with buildah, `… check` builds it, starts it and sends a
task. With UNAVAILABLE=skip the check says why and succeeds where root, a program or Debian's mirror is missing.

Where no registry answers, its base is made of Debian packages by mmdebstrap. Python packages are fetched outside, with
this machine's pip, and installed inside without an index. No container engine is needed to start it: bubblewrap makes
the image's root read-only, and the program runs as the image's user without capabilities.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from parley.client import Client

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "image"
NAME = os.environ.get("IMAGE", "localhost/parley")
BASE = os.environ.get("BASE", "docker.io/library/python:3.11-slim")
OWN_BASE = "localhost/parley-base"
SUITE = "bookworm"
PACKAGES = "ca-certificates,python3,python3-venv"
EXTRAS = os.environ.get("EXTRAS", "")
FONTS = os.environ.get("FONTS")
REGISTRY_S = 20
TRIES, PAUSE_S = 3, 20.0
"""Attempts to make the base, and the pause between two: a mirror may be away for a moment."""
START_S, STOP_S = 60.0, 15.0
AGENT = "slug: echo\ndescription: Says it again.\ndriver: command\ncommand:\n  run: [cat]\n"


class Unavailable(Exception):
    """Something outside of Parley that the image needs is missing."""


def main() -> int:
    try:
        match sys.argv[1:]:
            case ["build"]:
                build()
            case ["check"]:
                need_root()
                build()
                check()
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except Unavailable as reason:
        if os.environ.get("UNAVAILABLE") != "skip":
            raise SystemExit(str(reason)) from None
        print(f"NOT CHECKED: the image was not built and started. {reason}")
    return 0


def need_root() -> None:
    if os.geteuid() != 0:
        raise Unavailable("Mounting the image's root needs root: sudo make image-check")
    need("buildah", "bwrap", "setpriv")


def need(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise Unavailable(
            f"The image needs {', '.join(missing)}: `make tools` installs what is missing on Debian and Ubuntu. "
            "With Docker or Podman: docker build -f deploy/Containerfile -t parley ."
        )


def buildah(*words: str, **more: Any) -> str:
    """Call buildah with a storage of its own. `vfs` works without the kernel's overlays, also inside containers."""
    storage = ("--storage-driver", "vfs", "--root", str(PLACE / "storage"), "--runroot", str(PLACE / "run"))
    done = subprocess.run(["buildah", *storage, *words], check=True, stdout=subprocess.PIPE, text=True, **more)
    return done.stdout.strip()


def build() -> None:
    need("buildah")
    PLACE.mkdir(parents=True, exist_ok=True)
    base, began = _base(), time.monotonic()
    extras = EXTRAS or _default("EXTRAS")
    wheels = _wheels(extras)
    given = {"BASE": base, "EXTRAS": extras, "PIP_ARGS": "--no-index --find-links /wheels"}
    if FONTS is not None:
        given["FONTS"] = FONTS
    words = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    # Chroot isolation needs no user namespaces; docker's format keeps the health check.
    buildah(
        "build", "--isolation", "chroot", "--format", "docker", "--pull=never", "--target", "parley", "--tag", NAME,
        "--ignorefile", str(ROOT / "deploy/Containerfile.dockerignore"), "--file", str(ROOT / "deploy/Containerfile"),
        "--volume", f"{wheels}:/wheels:ro", *words, str(ROOT),
    )  # fmt: skip
    print(f"{NAME} is built from {base} in {time.monotonic() - began:.0f} s, with {extras}.")


def _default(argument: str) -> str:
    text = (ROOT / "deploy/Containerfile").read_text()
    return text.split(f"ARG {argument}=", 1)[1].splitlines()[0].strip('"')


def _base() -> str:
    """Return the base image: the one that a registry has, or else one made of Debian packages."""
    if OWN_BASE == BASE or not _pulled(BASE):
        _make_base()
        return OWN_BASE
    return BASE


def _pulled(image: str) -> bool:
    try:
        buildah("pull", "--quiet", "--retry", "0", image, timeout=REGISTRY_S, stderr=subprocess.DEVNULL)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        print(f"{image} cannot be pulled; its place takes a base of Debian packages.")
        return False
    return True


def _make_base() -> None:
    archive = PLACE / f"{SUITE}.tar"
    if not archive.exists():
        need("mmdebstrap")
        fresh = archive.with_suffix(".new.tar")
        _bootstrap(fresh)
        fresh.rename(archive)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(archive), "/")
    buildah("commit", "--quiet", "--rm", container, OWN_BASE)


def _bootstrap(archive: Path) -> None:
    """Make an archive of Debian's packages. Nothing of Parley is in it, so what fails here lies outside."""
    apt = ('APT::Install-Recommends "false"', 'Acquire::Retries "3"')
    options = ["--variant=minbase", f"--include={PACKAGES}", *(f"--aptopt={option}" for option in apt)]
    for left in reversed(range(TRIES)):
        archive.unlink(missing_ok=True)
        if subprocess.run(["mmdebstrap", "--quiet", *options, SUITE, str(archive)], check=False).returncode == 0:
            return
        if left:
            print(f"Debian's packages could not be fetched; another attempt in {PAUSE_S:.0f} s.", flush=True)
            time.sleep(PAUSE_S)
    raise Unavailable(f"mmdebstrap could not make a base of Debian {SUITE} in {TRIES} attempts (see above).")


def _wheels(extras: str) -> Path:
    """Fetch or build the wheels of all that the image installs, and of what builds Parley itself."""
    wheels = PLACE / "wheels"
    # This machine's Python decides what is needed; the base's may be a little older, and redis then needs
    # async-timeout too (below 3.11.3).
    wanted = [f"{ROOT}[{extras}]", "hatchling", "async-timeout"]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*command, "--wheel-dir", str(wheels), *wanted], check=True)
    return wheels


# Starting it.


class Container:
    """The image's root, mounted, and what its configuration says about starting it."""

    def __init__(self, root: Path, config: dict[str, Any], volumes: Path) -> None:
        self._root = root
        self.config = config
        self.volumes = volumes
        for name in ("data", "shared"):
            (volumes / name).mkdir(mode=0o700)
            os.chown(volumes / name, *self.user)
        (volumes / "agents").mkdir()

    @property
    def user(self) -> tuple[int, int]:
        one, _, other = self.config["User"].partition(":")
        return int(one), int(other)

    def command(self, *words: str, **env: str) -> list[str]:
        """A command inside: the root is read-only, and only volumes and /tmp can be written."""
        values = dict(one.split("=", 1) for one in self.config["Env"]) | {"HOME": "/data"} | env
        user, group = self.user
        return [
            "bwrap", "--die-with-parent", "--ro-bind", str(self._root), "/",
            "--bind", str(self.volumes / "data"), "/data",
            "--bind", str(self.volumes / "shared"), "/shared",
            "--ro-bind", str(self.volumes / "agents"), "/srv/parley/agents",
            "--tmpfs", "/tmp", "--perms", "1777", "--dir", "/tmp", "--dev", "/dev", "--proc", "/proc",
            "--chdir", self.config["WorkingDir"],
            "--clearenv", *(word for pair in values.items() for word in ("--setenv", *pair)),
            "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs",
            "--inh-caps=-all", "--bounding-set=-all", *words,
        ]  # fmt: skip

    def run(self, *words: str) -> str:
        """The output of a command of the image's program, as by `docker exec`."""
        done = subprocess.run(self.command(*words), check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def start(self, arguments: Sequence[str], **env: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start the program. Return the process of bubblewrap, which ends as the program does, and the program's id."""
        command = self.command(*self.config["Entrypoint"], *arguments, **env)
        reading, writing = os.pipe()
        command[1:1] = ["--info-fd", str(writing)]
        process = subprocess.Popen(command, pass_fds=(writing,))
        os.close(writing)
        with os.fdopen(reading) as info:
            return process, json.load(info)["child-pid"]


@contextmanager
def opened() -> Iterator[Container]:
    """The image as it is, with empty volumes."""
    container = buildah("from", "--pull=never", NAME)
    try:
        root = Path(buildah("mount", container))
        config = json.loads(buildah("inspect", "--type", "image", NAME))["Docker"]["config"]
        with TemporaryDirectory(prefix="parley-image-") as volumes:
            Path(volumes).chmod(0o755)
            yield Container(root, config, Path(volumes))
    finally:
        buildah("rm", container)


def check() -> None:
    """Start the image as its configuration says, send a task, check its health, and stop it gracefully."""
    with opened() as container:
        (container.volumes / "agents" / "echo.yaml").write_text(AGENT)
        port = _free_port()
        began = time.monotonic()
        process, program = container.start(container.config["Cmd"], PARLEY_PORT=str(port), PARLEY_GRPC_PORT="-1")
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process)
            started = time.monotonic() - began
            token = json.loads(container.run("parley", "keys", "create", "check", "--json"))["token"]
            answer = asyncio.run(_ask(f"{url}/agents/echo", token))
            assert answer == "hello", answer
            assert httpx2.post(f"{url}/agents/echo/message:send", json={}).status_code == 401
            health = [word.replace(":8200", f":{port}") for word in container.config["Healthcheck"]["Test"][1:]]
            container.run(*health)
            refused = subprocess.run(container.command("touch", "/opt/parley/x"), capture_output=True, check=False)
            assert refused.returncode != 0, "the root can be written"
            os.kill(program, signal.SIGTERM)
            assert process.wait(STOP_S) == 0, process.returncode
        finally:
            process.kill()
            process.wait()
    print(f"The image started in {started:.1f} s, did a task, is healthy, and stopped when it was told to.")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx2.get(f"{url}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("The image did not start.")


async def _ask(address: str, token: str) -> str:
    async with Client(address, token=token) as client:
        return (await client.send("hello")).text


if __name__ == "__main__":
    sys.exit(main())
