"""`python -m examples.web.build`: the page and the SDK as a folder that any web server can serve."""

import shutil
from pathlib import Path

from sdk.package import HOME, compiled

HERE = Path(__file__).parent
DIST = HERE / "dist"


def build() -> Path:
    node = compiled()
    node.run(node.program, HOME / "node_modules" / "typescript" / "bin" / "tsc", "--project", HERE, cwd=HERE)
    for name in ("index.html", "page.css"):
        shutil.copy(HERE / name, DIST / name)
    shutil.copytree(HOME / "dist", DIST / "sdk", dirs_exist_ok=True)
    return DIST


if __name__ == "__main__":
    print(build())
