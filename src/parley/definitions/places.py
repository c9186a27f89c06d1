"""Programs and folders as definitions name them: relative to the file that names them."""

import os
import shutil
import sys
from pathlib import Path

from parley.errors import Invalid


def program_at(name: str, folder: Path, field: str = "run") -> str:
    """A path is relative to the folder; a bare name is looked for as if the server's environment were activated: first
    beside the Python that runs it, so that `python` has its packages, then on the PATH."""
    if "/" not in name:
        found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if found is None:
            raise Invalid(
                f"there is no program {name} on the PATH; write ./{name} for one beside this file", field=field
            )
        return str(Path(found).absolute())
    path = (folder / name).absolute()
    if not path.is_file():
        raise Invalid(f"the file {folder / name} does not exist", field=field)
    if not os.access(path, os.X_OK):
        raise Invalid(f"the file {folder / name} may not be executed", field=field)
    return str(path)


def folder_at(name: str, folder: Path, field: str = "cwd") -> str:
    try:
        path = (folder / name).absolute()
        if path.is_dir():
            return str(path)
    except ValueError:
        pass
    raise Invalid(f"there is no folder {folder / name}", field=field)
