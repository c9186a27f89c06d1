"""Pages of PDF exports: every script is shown, tables stay within their columns, and missing glyphs are reported.

Read back with poppler-utils and set with the fonts that docs/conversations.md names (`make tools` installs both).
"""

import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from parley.documents.export import RENDERERS
from tests.documents.export.test_formats import said, sheet, written

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("pdftotext") is None or not Path("/usr/share/fonts/truetype/noto").is_dir(),
        reason="needs poppler-utils and Noto fonts: make tools",
    ),
]

SCRIPTS = {
    "Chinese": "你好，世界。这是一次对话。",
    "Japanese": "こんにちは世界。カタカナも読めます。",
    "Korean": "안녕하세요 세계",
    "Arabic": "مرحبا بالعالم، هذا نص عربي طويل بعض الشيء",
    "Hebrew": "שלום עולם, זה טקסט בעברית",
    "Hindi": "नमस्ते दुनिया, यह हिन्दी है।",
    "Thai": "สวัสดีชาวโลก",
    "Russian": "Привет, мир",
    "Greek": "Γειά σου Κόσμε",
    "Emoji": "😀 👩‍💻 🇩🇪 ❤️",
}
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
WORD = re.compile(r'<word xMin="([\d.]+)" yMin="([\d.]+)" xMax="([\d.]+)" yMax="([\d.]+)">(.*?)</word>')
MISSING = "\U0010fff0"
"""A character of private use that no font has."""


def exported(folder: Path, *texts: str) -> tuple[Path, tuple[str, ...]]:
    """The file, and the warnings about it."""
    renderer, path = RENDERERS["pdf"](), folder / "written"
    talk = [said(number, "assistant", text) for number, text in enumerate(texts)]
    path.write_text(written(renderer, talk, sheet()), "utf-8")
    made = renderer.bound(path)
    return made.path, made.warnings


def read(file: Path, *options: str) -> str:
    return subprocess.run(["pdftotext", *options, file, "-"], check=True, capture_output=True, text=True).stdout


def fonts(file: Path) -> str:
    return subprocess.run(["pdffonts", file], check=True, capture_output=True, text=True).stdout


def pages(file: Path) -> list[list[tuple[float, float, float, float, str]]]:
    """Left, top, right, bottom and text of the words on each page."""
    return [
        [(float(left), float(top), float(right), float(bottom), text) for left, top, right, bottom, text in found]
        for found in map(WORD.findall, read(file, "-bbox").split("<page ")[1:])
    ]


def words(file: Path) -> list[tuple[float, float, float, float, str]]:
    return [word for page in pages(file) for word in page]


def overprinted(file: Path) -> list[tuple[str, str]]:
    """Pairs of words on a page that share more than a hair's breadth of it."""
    return [
        (one[4], other[4])
        for page in pages(file)
        for one, other in combinations(page, 2)
        if min(one[2], other[2]) - max(one[0], other[0]) > 1 and min(one[3], other[3]) - max(one[1], other[1]) > 3
    ]


def table(columns: int, cell: str) -> str:
    row = f"| {' | '.join(f'{cell}' for _ in range(columns))} |"
    return "\n".join([row, "|" + "---|" * columns, row, row])


def test_every_script_has_its_glyphs(tmp_path: Path) -> None:
    file, warnings = exported(tmp_path, *(f"{name}: **{text}** `{text}`\n\n{text}" for name, text in SCRIPTS.items()))
    assert warnings == ()
    text, used = read(file), fonts(file)
    for name in ("Chinese", "Japanese", "Korean", "Hindi", "Thai", "Russian", "Greek"):
        assert SCRIPTS[name][:5] in text, name
    for font in (
        "NotoSerifCJKsc",
        "NotoSerifCJKjp",
        "NotoSerifCJKkr",
        "NotoNaskhArabic",
        "NotoSerifHebrew",
        "NotoSerifDevanagari",
    ):
        assert font in used, used


FORMS = ("{}", "# {}", "- {}", "1. {}", "> {}", "| {} |\n|---|\n| 1 |")


@pytest.mark.parametrize("text", [SCRIPTS["Arabic"], SCRIPTS["Hebrew"]], ids=["Arabic", "Hebrew"])
def test_text_that_runs_right_to_left_starts_at_the_right(tmp_path: Path, text: str) -> None:
    file, _ = exported(tmp_path, "\n\n".join(form.format(text) for form in FORMS))
    # poppler tells the letters of a word from left to right.
    first, last = text.split()[0][::-1], text.split()[-1][::-1]
    starts = [(round(word[1]), word) for word in words(file) if word[4] == first]
    ends = [(round(word[1]), word) for word in words(file) if word[4] == last]
    assert len(starts) == len(ends) == len(FORMS), read(file)
    for (_, start), (_, end) in zip(sorted(starts), sorted(ends), strict=True):
        assert end[2] < start[0], "the last word is left of the first"
        assert start[2] > 490, "the first word is at the right margin"


CELLS = [
    LONG, f"`{LONG}`", f"**{LONG}**", "a b", "[x](https://example.com) https://example.com/a/very/long/path?with=a&query=1",
    "WWWWWWWW and so on", "漢字漢字漢字", "والمستشفياتوالمستشفيات", "नमस्तेनमस्तेनमस्तेनमस्ते",
]  # fmt: skip


@pytest.mark.parametrize("columns", [2, 5, 6, 10, 11, 40])
def test_no_cell_of_a_table_is_printed_over_another(tmp_path: Path, columns: int) -> None:
    tables = [table(columns, cell) for cell in CELLS]
    nested = "\n\n".join(tables).replace("\n", "\n  > ")
    file, _ = exported(tmp_path, "\n\n".join(tables), f"- > {nested}")
    assert overprinted(file) == []
    assert max(word[2] for word in words(file)) < 595 - 60, "within the margins"


def test_a_missing_glyph_is_named_in_the_file_and_in_its_metadata(tmp_path: Path) -> None:
    file, warnings = exported(tmp_path, f"Strange {MISSING} and \u0378; not ‍ strange: \ufe0f​é")
    assert len(warnings) == 1
    assert "U+0378, U+10FFF0" in warnings[0]
    assert "U+0378, U+10FFF0" in " ".join(read(file).split())
