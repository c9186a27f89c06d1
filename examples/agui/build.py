"""`python -m examples.agui.build`: the page and AG-UI's client as a folder that any web server can serve."""

import shutil
from pathlib import Path

from sdk.package import packages

HERE = Path(__file__).parent
DIST = HERE / "dist"


def build() -> Path:
    node = packages(HERE)
    bundler = HERE / "node_modules" / ".bin" / "esbuild"
    node.run(bundler, "src/page.js", "--bundle", "--format=esm", "--outfile=dist/page.js", cwd=HERE)
    for name in ("index.html", "page.css"):
        shutil.copy(HERE / name, DIST / name)
    return DIST


if __name__ == "__main__":
    print(build())
