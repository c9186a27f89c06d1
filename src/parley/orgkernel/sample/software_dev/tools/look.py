"""Lists a folder, or shows the beginning of a file."""

import sys
from pathlib import Path

MOST = 1000


def main(path: Path) -> int:
    if path.is_dir():
        names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in path.iterdir())
        print("\n".join(names[:MOST]) or "The folder is empty.")
        return 0
    if not path.is_file():
        print(f"There is no {path.name} here.", file=sys.stderr)
        return 1
    with path.open(errors="replace") as file:
        print(file.read(20_000) or "The file is empty.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
