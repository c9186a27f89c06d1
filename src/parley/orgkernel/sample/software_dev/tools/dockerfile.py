"""Writes a Dockerfile, and checks whether Docker is available."""

import shutil
import subprocess
import sys
from pathlib import Path

DOCKERFILE = """FROM python:3.13-slim
LABEL org.opencontainers.image.title="{name}"
WORKDIR /app
COPY . /app
USER nobody
CMD ["python", "-m", "http.server", "8000"]
"""


def main(name: str, folder: Path) -> int:
    (folder / "Dockerfile").write_text(DOCKERFILE.format(name=name))
    print(f"Dockerfile written; docker: {'available' if answers() else 'missing'}")
    return 0


def answers() -> bool:
    program = shutil.which("docker")
    try:
        return (
            program is not None and subprocess.run([program, "info"], capture_output=True, timeout=10).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
