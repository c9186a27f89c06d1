"""Checks Python and JSON files for errors. With --strict an error is a failure."""

import json
import sys
from pathlib import Path


def fault(path: Path) -> str:
    try:
        text = path.read_text()
        if path.suffix == ".py":
            compile(text, path.name, "exec")
        elif path.suffix == ".json":
            json.loads(text)
    except SyntaxError as error:
        return f"fault: {path.name}, line {error.lineno}: {error.msg}"
    except ValueError as error:
        return f"fault: {path.name}: {error}"
    return ""


def main(arguments: list[str]) -> int:
    strict = arguments[0] == "--strict"
    place = Path(arguments[-1])
    files = sorted(place.rglob("*.*")) if place.is_dir() else [place]
    found = [why for why in map(fault, filter(Path.is_file, files)) if why]
    print("\n".join(found) or f"{len(files)} file(s) are sound.")
    return int(strict and bool(found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
