"""Checks of the files for operators, as far as possible without running them."""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from parley.definitions.loader import LoadedDefinitions, Sources
from parley.settings import Settings
from tests.deploy.dockerfile import stages

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BUILD, FONTS, SERVER, ORGANISATION, LAST = stages(DEPLOY / "Containerfile")
IMAGE = SERVER._replace(steps=[*SERVER.steps, *LAST.steps])


def test_the_image_is_built_apart_from_what_it_holds() -> None:
    assert [stage.image for stage in (BUILD, FONTS, SERVER)] == ["${BASE}"] * 3
    assert [stage.image for stage in (ORGANISATION, LAST)] == ["server"] * 2
    assert IMAGE.of("COPY") == [
        "--from=build /opt/parley /opt/parley", "--from=fonts /usr/share/fonts /usr/share/fonts",
    ]  # fmt: skip
    assert "pip uninstall" in BUILD.of("RUN")[-1]
    assert not re.search(r":latest|ADD ", (DEPLOY / "Containerfile").read_text())
    assert not any("apt-get" in rest for stage in (BUILD, IMAGE) for rest in stage.of("RUN"))


def test_the_image_has_the_fonts_that_the_page_names() -> None:
    named = set(re.findall(r"fonts-[a-z-]+", (ROOT / "docs" / "conversations.md").read_text()))
    assert named == set(re.findall(r"fonts-[a-z-]+", FONTS.of("ARG")[0]))
    assert "pdf" in BUILD.of("ARG")[0].split(",")


def test_it_runs_as_nobody_in_particular_and_asks_for_credentials() -> None:
    assert IMAGE.of("USER") == ["10001:10001"]
    words = [step.word for step in IMAGE.steps]
    assert words.index("USER") > max(place for place, word in enumerate(words) if word in ("RUN", "COPY"))
    assert IMAGE.environment["PARLEY_AUTH"] == "required"
    assert IMAGE.of("EXPOSE") == [f"{Settings().port} {Settings().port + 1}"]
    assert IMAGE.of("HEALTHCHECK")


def test_what_it_copies_is_not_ignored_and_nothing_else_is_sent() -> None:
    lines = [
        line for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    assert lines[0] == "*"
    sent = {line[1:] for line in lines if line.startswith("!")}
    copied = {name for stage in (BUILD, ORGANISATION) for rest in stage.of("COPY") for name in rest.split()[:-1]}
    assert sent == copied
    assert all((ROOT / name).exists() for name in sent)


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.mark.parametrize("file", ["compose.yaml", "organisation/compose.yaml"])
def test_the_compose_file_is_one(file: str) -> None:
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, DEPLOY / file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_both_replicas_share_everything_and_can_write_nowhere_else() -> None:
    services = compose()["services"]
    one, two = services["parley-1"], services["parley-2"]
    assert one == two
    assert (one["read_only"], one["cap_drop"], one["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
    env = one["environment"]
    assert {env["PARLEY_BLOBS"], env["PARLEY_SECRET_KEY_FILE"]} == {"/shared/blobs", "/shared/secret.key"}
    assert "shared:/shared" in one["volumes"]
    assert set(env) | set(IMAGE.environment) - {"PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"} <= {
        f"PARLEY_{name.upper()}" for name in Settings.model_fields
    }


def test_only_the_balancer_can_be_reached_and_no_secret_is_written_down() -> None:
    services = compose()["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["balancer"]
    assert not re.search(r"PASSWORD: (?!\$\{)", (DEPLOY / "compose.yaml").read_text())


def test_the_balancer_knows_the_replicas() -> None:
    text = (DEPLOY / "nginx" / "parley.conf").read_text()
    replicas = {name for name in compose()["services"] if fnmatch(name, "parley-*")}
    for port in (8200, 8201):
        assert set(re.findall(rf"server ([\w-]+):{port} ", text)) == replicas
        assert f"listen {port}" in text


UNITS = DEPLOY / "systemd"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
@pytest.mark.parametrize(("unit", "user"), [("parley.service", False), ("a2a-runtime.service", True)])
def test_systemd_reads_the_units_without_a_word(unit: str, user: bool, tmp_path: Path) -> None:
    """Only the program is another, since that is looked for too."""
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", (UNITS / unit).read_text(), flags=re.MULTILINE)
    (tmp_path / unit).write_text(text)
    command = ["systemd-analyze", *(["--user"] if user else []), "verify", "--man=no", str(tmp_path / unit)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if unit in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_the_server_is_exposed_to_little() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(UNITS / "parley.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_what_the_units_start_and_set_is_there() -> None:
    server, runtime = ((UNITS / name).read_text() for name in ("parley.service", "a2a-runtime.service"))
    assert "ExecStart=/opt/parley/bin/parley serve\n" in server
    assert "a2a-runtime start\n" in runtime
    known = {f"PARLEY_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"PARLEY_[A-Z_]+", server)) <= known


def test_the_definitions_that_the_page_copies_are_complete(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    copying = next(line for line in page.splitlines() if line.startswith("mkdir agents && cp "))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "deploy").mkdir()
    subprocess.run(["bash", "-c", copying], cwd=tmp_path / "deploy", check=True)
    shutil.rmtree(tmp_path / "examples")
    reading = LoadedDefinitions(Sources((str(tmp_path / "deploy" / "agents"),)))
    assert reading.faults == []
    assert len(reading.defined) == 2
    named = re.findall(
        r"\[python, (\S+?)\]", "".join(file.read_text() for file in (tmp_path / "deploy").rglob("*.yaml"))
    )
    assert named
    assert all((tmp_path / "deploy" / "agents" / one).is_file() for one in named)
