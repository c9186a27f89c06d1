"""Program that typesets a PDF: `python typesetter.py TEMPLATE MADE FOLDER MOST_BYTES`. Prints missing characters as
JSON.

It runs in a process of its own, which can be limited and stopped, and imports nothing of Parley.
"""

import json
import os
import re
import resource
import sys
import unicodedata
from pathlib import Path

PROBE = "probe.typ"
MISSING = "missing.json"
MOST_LISTED = 20
MOST_PROBED = 10_000
"""Number of characters of one conversation that are looked up; only texts made to attack the server have more."""

_REPORTED = re.compile(r'the text `"((?:[^"\\]|\\.)*)"` could not be displayed')
_ESCAPED = re.compile(r"\\u\{([0-9a-f]+)\}")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zs", "Zl", "Zp"))
_SELECTORS = range(0xFE00, 0xFE10)


def main() -> None:
    template, made, folder, most = sys.argv[1:]
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (int(most), int(most)))
    # Import after setting the limit, so that the memory of the library counts too.
    import typst

    found = missing_of(Path(folder), Path(template).with_name("written").read_text("utf-8"))
    missing = [f"U+{ord(char):04X}" for char in found[:MOST_LISTED]]
    if len(found) > MOST_LISTED:
        missing.append(f"and {len(found) - MOST_LISTED} more")
    Path(folder, MISSING).write_text(json.dumps(missing))
    typst.compile(template, output=made, root=folder)
    print(json.dumps(missing))


def missing_of(folder: Path, text: str) -> list[str]:
    """Return the characters that no font has. Typst reports them only for a PDF that is made for archives (PDF/A)."""
    import typst

    seen = sorted(char for char in set(text) if char > "\x7e" and is_seen(char))[:MOST_PROBED]
    if not seen:
        return []
    (folder / "probe.json").write_text(json.dumps(seen))
    try:
        typst.compile(str(folder / PROBE), root=str(folder), pdf_standards="a-2b")
    except typst.TypstError as error:
        found = "".join(_REPORTED.findall(error.diagnostic))
        unescaped = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), found)
        return sorted(set(unescaped) & set(seen))
    return []


def is_seen(char: str) -> bool:
    """Return whether a character needs a glyph: controls, spaces, joiners and variation selectors do not."""
    return unicodedata.category(char) not in _UNSEEN and ord(char) not in _SELECTORS


if __name__ == "__main__":
    main()
