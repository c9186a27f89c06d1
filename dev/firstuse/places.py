"""Where the README is followed: a copy with its own environment, in a network where the README's ports are free."""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LISTED = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
PORTS = (8200, 8201, 18789)
_PROGRAMS = {"parley": "parley.cli:main", "a2a-runtime": "parley_edge.cli:main"}


def cloned(place: Path) -> Path:
    """A clone: committed files only."""
    subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(place)], check=True)
    return place


def copied(place: Path) -> Path:
    """A copy of the working tree without ignored files, and an environment with the packages of this one. Its programs
    name their location like those of an environment that `make` built."""
    listed = subprocess.run(_LISTED, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / ".venv")], check=True)
    _furnish(place)
    return place


def _furnish(place: Path) -> None:
    home = place / ".venv"
    packages = next((home / "lib").glob("python3*/site-packages"))
    ours = [place / "src", place / "edge" / "src", sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (packages / "copied.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(map(str, ours))))
    for name, entry in _PROGRAMS.items():
        module, function = entry.split(":")
        program = home / "bin" / name
        program.write_text(
            f"#!{home}/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        program.chmod(0o755)
    (home / ".installed").touch()


def environment(home: Path) -> dict[str, str]:
    """Environment variables of a fresh machine: its own home, no settings, none of our programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PARLEY_", "A2A_", "VIRTUAL_"))}
    path = [one for one in kept.get("PATH", os.defpath).split(os.pathsep) if not os.path.exists(f"{one}/parley")]
    # make in make hands its options on.
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH"):
        kept.pop(name, None)
    home.mkdir(parents=True, exist_ok=True)
    return {**kept, "PATH": os.pathsep.join(path), "HOME": str(home), "COLUMNS": "100", **_pip()}


def _pip() -> dict[str, str]:
    """This machine's pip configuration, which the new home folder does not have."""
    here = Path.home()
    found = {"PIP_CACHE_DIR": str(here / ".cache" / "pip")}
    for file in (here / ".config" / "pip" / "pip.conf", here / ".pip" / "pip.conf"):
        if file.exists() and "PIP_CONFIG_FILE" not in os.environ:
            found["PIP_CONFIG_FILE"] = str(file)
    return found


def ports_are_free() -> bool:
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def apart() -> list[str] | None:
    """Command prefix that runs a program in its own network, where every port is free; None if not possible."""
    unshare = shutil.which("unshare")
    ways = [["--net"], ["--user", "--map-root-user", "--net"]]
    for way in ways if unshare else ():
        if subprocess.run([str(unshare), *way, "true"], capture_output=True).returncode == 0:
            return [str(unshare), *way]
    return None


def raise_loopback() -> None:
    """Turn on the loopback interface, which is off in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, 0x8913, request))[1]
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))
