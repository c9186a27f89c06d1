"""A contract's number appears only together with its name: nobody has to know the numbers."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = {
    "000": r"paired|pairing",
    "001": r"organisation",
    "002": r"actions?\b|\bplans\b",
    "003": r"control plane",
    "004": r"\bnodes?\b|registry",
}
NEAR = 90
"""Characters before or after a number in which its name has to stand."""
_NUMBER = re.compile(r"(?<![\w,.\-+#/])(00[0-4])(?!\w|[,.]\d|-\d)")


def files() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder, kinds in (("docs", "md"), ("examples", "md"), ("edge", "md"), ("src", "py"), ("edge/src", "py")):
        yield from (file for file in (ROOT / folder).rglob(f"*.{kinds}") if "node_modules" not in file.parts)
    yield from (ROOT / "src").rglob("*.html")


def bare(text: str) -> list[str]:
    """Numbers of contracts without their names, each with the words around it."""
    text = re.sub(r"[\s#]+", " ", text)
    around = ((one[1], text[max(0, one.start() - NEAR) : one.end() + NEAR]) for one in _NUMBER.finditer(text))
    return [words for number, words in around if not re.search(NAMES[number], words, re.IGNORECASE)]


def test_every_number_of_a_contract_has_its_name() -> None:
    found = {str(file.relative_to(ROOT)): bare(file.read_text("utf-8")) for file in files()}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_number_alone_is_found() -> None:
    assert bare("This is what 003 says.")
    assert bare("The runtime control plane (003) says so, and 004 does not.")
    assert not bare("Nodes (004) send 1,000 events, CARD-EXT-001 too.")
