"""Measure what `make run` installs: `python -m dev.firstuse.install_cost [--json]`.

A fresh clone installs twice: with an empty pip cache, which includes the registry's time, and again with the cache of
the first, which leaves only our own share.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from dev.firstuse.places import cloned, environment

LIMIT_S = 60.0
LIMIT_MB = 200.0
STAMP = ".venv/.installed"


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="install-cost-", ignore_cleanup_errors=True) as folder:
        place = cloned(Path(folder) / "parley")
        env = {**environment(Path(folder) / "home"), "PIP_CACHE_DIR": str(Path(folder) / "cache")}
        empty_cache_s = install_s(place, env)
        megabytes = size_mb(place / ".venv")
        shutil.rmtree(place / ".venv")
        full_cache_s = install_s(place, env)
    kept = full_cache_s <= LIMIT_S and megabytes <= LIMIT_MB
    if "--json" in arguments:
        print(json.dumps({"empty_cache_s": empty_cache_s, "full_cache_s": full_cache_s, "megabytes": megabytes}))
    else:
        print(f"Empty pip cache: {empty_cache_s:.1f} s, downloads included")
        print(f"Full pip cache:  {full_cache_s:.1f} s (at most {LIMIT_S:g})")
        print(f"Environment:     {megabytes:.0f} MB (at most {LIMIT_MB:g})")
    return int(not kept)


def install_s(place: Path, env: Mapping[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(["make", "--silent", STAMP], cwd=place, env=env, check=True, stdout=sys.stderr)
    return time.monotonic() - began


def size_mb(folder: Path) -> float:
    """Disk space of the files in a folder."""
    return sum(file.lstat().st_blocks for file in folder.rglob("*")) * 512 / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
