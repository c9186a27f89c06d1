"""Writes a cleaned-up copy of a file, and adds a missing colon or bracket to a Python file. The original is kept."""

import sys
from pathlib import Path

MOST = 20
CLOSING = {"(": ")", "[": "]", "{": "}"}


def mended(text: str) -> str:
    lines = [line.rstrip() for line in text.expandtabs(4).splitlines()]
    for _ in range(MOST):
        try:
            compile("\n".join(lines) + "\n", "file", "exec")
            break
        except SyntaxError as error:
            if not repaired(lines, error):
                break
    return "\n".join(lines) + "\n"


def repaired(lines: list[str], error: SyntaxError) -> bool:
    place, why = (error.lineno or 1) - 1, error.msg or ""
    if place >= len(lines):
        return False
    if "expected ':'" in why:
        lines[place] += ":"
    elif "was never closed" in why and why[1] in CLOSING:
        lines[place] += CLOSING[why[1]]
    else:
        return False
    return True


def main(source: Path, folder: Path) -> int:
    text = source.read_text()
    made = mended(text) if source.suffix == ".py" else "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    (folder / source.name).write_text(made)
    print(f"{source.name} was {'tidied' if made != text else 'left as it is'}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
