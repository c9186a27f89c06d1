"""All pages, and which of them hold something to carry out."""

from pathlib import Path

from tests.docs.blocks import Block, blocks

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {str(file.relative_to(DOCS)): file for file in sorted(DOCS.rglob("*.md"))}
CARRIED_OUT = {"console", "sh", "prepare", "python", "yaml", "toml", "json"}


def read(page: str) -> list[Block]:
    return blocks(PAGES[page], page)


def with_code(*folders: str) -> list[str]:
    """Pages in these folders; without a folder, pages in none of them."""
    return [
        page
        for page in PAGES
        if (page.startswith(folders) if folders else not page.startswith(("tutorials/", "howto/")))
        and any(block.language in CARRIED_OUT for block in read(page))
    ]


def everything() -> list[Block]:
    return [block for page in PAGES for block in read(page)]
