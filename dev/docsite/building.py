"""Zensical, strictly: a link to a page or a heading that is not there ends the build."""

import shutil
import subprocess
import sys
from pathlib import Path

from dev.docsite.llms import write


class BuildFailed(Exception):
    pass


def built(root: Path) -> Path:
    site = root / "build" / "site"
    shutil.rmtree(site, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "zensical.toml"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env={"NO_COLOR": "1", "PATH": "/usr/bin:/bin"}
    )
    if done.returncode:
        raise BuildFailed(f"{done.stdout}\n{done.stderr}")
    write(root, site)
    return site
