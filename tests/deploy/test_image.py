"""The steps of the Dockerfile, done below a folder, and what it would start: as its user, where nothing else can be
written. No container is started."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.deploy.dockerfile import stages
from tests.packaging.distributions import ROOT, surroundings


def everybodys(python: Path) -> bool:
    """True if any user may run the program: not if it is below a user's home folder."""
    return python.is_file() and all(one.stat().st_mode & 0o001 for one in (python, *python.parents))


PYTHON = next(filter(everybodys, (Path(sys.executable).resolve(), Path("/usr/bin/python3").resolve())), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the image's user"),
    pytest.mark.skipif(PYTHON is None, reason="no Python that another user may run"),
]
BUILD, _, IMAGE = stages(ROOT / "deploy" / "Dockerfile")
USER = int(IMAGE.of("USER")[0].partition(":")[0])
AGENT = "slug: echo\ndescription: Says it again.\ndriver: command\ncommand:\n  run: [cat]\n"


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """Not below pytest's own folder, which is closed to other users."""
    root = Path("/var/tmp") / f"parley-image-{os.getpid()}"
    build = root / "build"
    build.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(str(PYTHON))
    try:
        for step in BUILD.steps:
            if step.word == "COPY":
                copy(step.rest, build)
            elif step.word == "RUN":
                run(step.rest, build, root)
        (root / "srv" / "agents").mkdir(parents=True)
        (root / "srv" / "agents" / "echo.yaml").write_text(AGENT)
        (root / "data").mkdir(mode=0o700)
        os.chown(root / "data", USER, USER)
        yield root
    finally:
        shutil.rmtree(root)


def copy(rest: str, build: Path) -> None:
    *names, to = rest.split()
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, build / to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, build / to)


def run(command: str, build: Path, root: Path) -> None:
    """As the image's shell would, but for /opt, which is below our folder; with one extra instead of all, and with what
    pip has in its cache."""
    command = command.replace("/opt/parley", str(root / "opt" / "parley")).replace(" --no-cache-dir", "")
    env = surroundings(EXTRAS="postgres", PATH=f"{root / 'bin'}:{os.environ['PATH']}")
    done = subprocess.run(["sh", "-c", command], cwd=build, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def environment(root: Path, **more: str) -> dict[str, str]:
    values = {name: one.replace("/opt/parley", str(root / "opt/parley")) for name, one in IMAGE.environment.items()}
    values["PATH"] = values["PATH"].replace("$PATH", os.environ["PATH"])
    return {**values, "PARLEY_DATA_DIR": str(root / "data"), "HOME": str(root / "data"), **more}


def test_the_image_has_no_installer(image: Path) -> None:
    assert not (image / "opt/parley/bin/pip").exists()
    assert (image / "opt/parley/bin/parley").is_file()


async def test_it_serves_as_its_user_who_can_write_nothing_but_data(image: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        image / "opt/parley/bin/parley", "serve", "agents", "--port", "0", cwd=image / "srv",
        user=USER, group=USER, extra_groups=[], env=environment(image), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said: list[str] = []
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while not any("listens on" in line for line in said):
                line = (await process.stderr.readline()).decode()
                assert line, said
                said.append(line)
        url = next(line for line in said if "listens on" in line).rpartition(" ")[2].strip()
        url = url.replace("0.0.0.0", "127.0.0.1")
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{url}/readyz")).status_code == 200
            assert (await http.post(f"{url}/agents/echo", json={})).status_code == 401
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
    written = written_by_it(image)
    assert written
    assert all(path.is_relative_to(image / "data") for path in written)


def written_by_it(image: Path) -> list[Path]:
    return [path for path in image.rglob("*") if path.lstat().st_uid == USER]
