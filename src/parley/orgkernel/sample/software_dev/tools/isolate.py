"""Shows the line with the error in a Python or JSON file, and the lines around it."""

import json
import sys
from pathlib import Path

AROUND = 2


def cause(path: Path) -> tuple[int, str] | None:
    """Return the number of the line, and the error in it."""
    text = path.read_text(errors="replace")
    try:
        if path.suffix == ".py":
            compile(text, path.name, "exec")
        elif path.suffix == ".json":
            json.loads(text)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except json.JSONDecodeError as error:
        return error.lineno, error.msg
    except ValueError as error:
        return 1, str(error)
    return None


def main(path: Path) -> int:
    found = cause(path)
    if found is None:
        print(f"{path.name} can be read without a fault; what is wrong shows only when it runs.")
        return 0
    number, why = found
    lines = path.read_text(errors="replace").splitlines()
    print(f"{path.name}, line {number}: {why}")
    for place in range(max(1, number - AROUND), min(len(lines), number + AROUND) + 1):
        print(f"{'>' if place == number else ' '} {place:4} {lines[place - 1]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
