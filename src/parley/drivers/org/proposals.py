"""What a command would run, shown to the client before it runs: the command line, and every file of the task."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from parley.orgkernel.files import without_folder
from parley.orgkernel.happenings import Proposal

MAX_SHOWN = 60_000
"""So many characters of files are shown; files that do not fit are named with their digest, and are attached."""
_CHUNK = 1024 * 1024


def proposed(argv: tuple[str, ...], folder: Path, organisation: Path) -> Proposal:
    """The digest covers all that could run, so that an approval holds only for what was shown."""
    command = " ".join(_shown_argument(one, folder, organisation) for one in (Path(argv[0]).name, *argv[1:]))
    whole = hashlib.sha256("\0".join(argv).encode())
    blocks = [f"Command: {command}"]
    left = MAX_SHOWN
    for path in _files(folder):
        name = str(path.relative_to(folder))
        digest = _digest(path)
        whole.update(f"\0{name}\0{digest}".encode())
        block = _block(path, name, digest, left)
        left -= len(block)
        blocks.append(block)
    return Proposal(whole.hexdigest(), "\n".join(blocks))


def _shown_argument(argument: str, folder: Path, organisation: Path) -> str:
    shown = without_folder(without_folder(argument, folder), organisation.resolve())
    return _plain(shown) if shown and " " not in shown else repr(shown)


def _files(folder: Path) -> Iterator[Path]:
    """All of them, also hidden ones and links."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where, name) for name in sorted(names))
        yield from (Path(where, name) for name in folders if Path(where, name).is_symlink())


def _digest(path: Path) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if not path.is_file():
        return "not a file"
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _block(path: Path, name: str, digest: str, left: int) -> str:
    size = path.lstat().st_size
    text = _text(path) if size <= left and path.is_file() and not path.is_symlink() else None
    if text is None:
        return f"--- {_plain(name)} ({size:,} bytes, sha256 {_plain(digest)}): not shown here"
    lines = "\n".join(f"    {line}" for line in text.split("\n"))
    return f"--- {_plain(name)} ({size:,} bytes)\n{lines}"


def _text(path: Path) -> str | None:
    try:
        return _plain(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return None


def _plain(text: str) -> str:
    """Characters that could hide or reorder others, escaped."""
    return "".join(one if one.isprintable() or one in "\n\t" else f"\\u{{{ord(one):x}}}" for one in text)
