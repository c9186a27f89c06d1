"""Removes files that Python creates when it runs; with --all, everything in the folder."""

import shutil
import sys
from pathlib import Path


def main(folder: Path, *, everything: bool) -> int:
    found = sorted(folder.iterdir()) if everything else sorted(folder.rglob("__pycache__"))
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    print(f"{len(found)} thing(s) removed.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[-1]), everything=sys.argv[1] == "--all"))
